//! Lines on their way to the log, so that nobody who says something waits for a log that is slow or stuck.
//!
//! Bounded: what finds no room is counted and lost. One lock around the lines, never over a system call; another around the
//! sink, held while it is written to, and taken by the writing thread alone once that runs.

use std::collections::VecDeque;
use std::io::Write;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};

/// Lines that may wait.
const LINES_MAX: usize = 1024;

#[derive(Default)]
struct Waiting {
    lines: VecDeque<String>,
    lost: u64,
    /// A thread writes them.
    attended: bool,
    /// It is at it.
    writing: bool,
}

pub(super) struct Queue {
    waiting: Mutex<Waiting>,
    changed: Condvar,
    sink: Mutex<Box<dyn Write + Send>>,
}

impl Queue {
    pub(super) fn new(sink: Box<dyn Write + Send>) -> Queue {
        Queue { waiting: Mutex::default(), changed: Condvar::new(), sink: Mutex::new(sink) }
    }

    /// Takes a line with its line feed. It is written at once while no thread writes: nobody is served yet.
    pub(super) fn push(&self, line: String) {
        let mut waiting = self.waiting.lock();
        if !waiting.attended {
            drop(waiting);
            self.write_line(&line);
        } else if waiting.lines.len() < LINES_MAX {
            waiting.lines.push_back(line);
            self.changed.notify_all();
        } else {
            waiting.lost += 1;
        }
    }

    /// Waits for lines, at most for a time, and writes them; the turn of the writing thread. `notice` is the line for some
    /// that were lost.
    pub(super) fn write(&self, at_most: Duration, notice: impl FnOnce(u64) -> String) {
        let (lines, lost) = {
            let mut waiting = self.waiting.lock();
            waiting.attended = true;
            if waiting.lines.is_empty() {
                self.changed.wait_for(&mut waiting, at_most);
            }
            waiting.writing = true;
            (std::mem::take(&mut waiting.lines), std::mem::take(&mut waiting.lost))
        };
        let unwritten = lines.iter().filter(|line| !self.write_line(line)).count() as u64;
        let lost = lost + unwritten;
        let told = lost == 0 || self.write_line(&notice(lost));
        let mut waiting = self.waiting.lock();
        waiting.writing = false;
        if !told {
            waiting.lost += lost;
        }
        self.changed.notify_all();
    }

    /// Waits until nothing waits, at most for a time.
    pub(super) fn flush(&self, at_most: Duration) {
        let mut waiting = self.waiting.lock();
        let busy = |waiting: &mut Waiting| waiting.attended && (waiting.writing || !waiting.lines.is_empty());
        self.changed.wait_while_for(&mut waiting, busy, at_most);
    }

    /// One call for each line, so that those of several writers do not mix.
    fn write_line(&self, line: &str) -> bool {
        self.sink.lock().write_all(line.as_bytes()).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io;
    use std::sync::{Arc, mpsc};

    /// A log that takes a line for each permission, and fails where that is refused.
    struct Slow {
        permissions: mpsc::Receiver<bool>,
        written: Arc<Mutex<String>>,
    }

    impl Write for Slow {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            if !self.permissions.recv().unwrap_or(true) {
                return Err(io::ErrorKind::WouldBlock.into());
            }
            self.written.lock().push_str(std::str::from_utf8(bytes).unwrap());
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn slow() -> (Arc<Queue>, mpsc::Sender<bool>, Arc<Mutex<String>>) {
        let (allow, permissions) = mpsc::channel();
        let written = Arc::new(Mutex::new(String::new()));
        let sink = Slow { permissions, written: Arc::clone(&written) };
        (Arc::new(Queue::new(Box::new(sink))), allow, written)
    }

    fn notice(lost: u64) -> String {
        format!("{lost} lost\n")
    }

    #[test]
    fn lines_are_written_at_once_until_a_thread_writes_them() {
        let (queue, allow, written) = slow();
        allow.send(true).unwrap();
        queue.push("a\n".to_string());
        assert_eq!(*written.lock(), "a\n");
        queue.write(Duration::ZERO, notice);
        queue.push("b\n".to_string());
        assert_eq!(*written.lock(), "a\n");
        allow.send(true).unwrap();
        queue.write(Duration::ZERO, notice);
        assert_eq!(*written.lock(), "a\nb\n");
    }

    #[test]
    fn nobody_waits_for_a_log_that_is_stuck_and_what_it_did_not_take_is_counted() {
        let (queue, allow, written) = slow();
        queue.write(Duration::ZERO, notice);
        queue.push("stuck\n".to_string());
        let writer = {
            let queue = Arc::clone(&queue);
            std::thread::spawn(move || queue.write(Duration::from_secs(60), notice))
        };
        while !queue.waiting.lock().writing || !queue.waiting.lock().lines.is_empty() {
            std::thread::yield_now();
        }
        (0..LINES_MAX + 7).for_each(|n| queue.push(format!("{n}\n")));
        queue.flush(Duration::from_millis(1));
        assert_eq!(*written.lock(), "");
        allow.send(true).unwrap();
        writer.join().unwrap();
        drop(allow);
        queue.write(Duration::ZERO, notice);
        queue.flush(Duration::from_secs(60));
        let written = written.lock();
        let lines: Vec<&str> = written.lines().collect();
        assert_eq!((lines.len(), lines[0], lines[LINES_MAX]), (LINES_MAX + 2, "stuck", "1023"));
        assert_eq!(lines.last(), Some(&"7 lost"));
    }

    #[test]
    fn a_log_that_refuses_is_told_later_what_it_missed() {
        let (queue, allow, written) = slow();
        queue.write(Duration::ZERO, notice);
        ["a\n", "b\n"].iter().for_each(|line| queue.push(line.to_string()));
        [false, false, false].iter().for_each(|no| allow.send(*no).unwrap());
        queue.write(Duration::ZERO, notice);
        allow.send(true).unwrap();
        queue.write(Duration::ZERO, notice);
        assert_eq!(*written.lock(), "2 lost\n");
    }
}
