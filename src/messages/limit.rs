//! How often one thing is said: a disk that fails says it for every request.
//!
//! Called by the log, which brings the time. Of each kind of message about each disk the first [`MESSAGES_MAX`] in a window
//! of [`WINDOW`] are said, then how many more there were. Pure.

use std::collections::HashMap;
use std::time::Duration;

use log::Level;

/// Messages of a kind that are said in a window.
pub(super) const MESSAGES_MAX: u32 = 10;
/// How long a window is open, from its first message on.
pub(super) const WINDOW: Duration = Duration::from_secs(10);
/// Characters of a sentence that are said again with its count.
const SENTENCE_MAX: usize = 200;

/// A place in the source, and the disk that it is said about.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Kind {
    file: String,
    line: u32,
    disk: String,
}

impl Kind {
    pub(super) fn new(file: &str, line: u32, disk: &str) -> Kind {
        Kind { file: file.to_string(), line, disk: disk.to_string() }
    }
}

/// Messages that were not said.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Notice {
    pub(super) level: Level,
    pub(super) target: String,
    /// The disk's fields.
    pub(super) disk: String,
    first: String,
    suppressed: u64,
}

impl Notice {
    /// For the first message of a kind that is not said.
    pub(super) fn new(level: Level, target: &str, sentence: &str, disk: &str) -> Notice {
        let first = sentence.chars().take(SENTENCE_MAX).collect();
        Notice { level, target: target.to_string(), disk: disk.to_string(), first, suppressed: 0 }
    }

    pub(super) fn sentence(&self) -> String {
        format!("{} more messages suppressed: {}", self.suppressed, self.first)
    }
}

/// What is to be done with a message.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Verdict {
    /// To be said before it.
    pub(super) due: Option<Notice>,
    pub(super) admitted: bool,
}

#[derive(Debug)]
struct Window {
    began: Duration,
    admitted: u32,
    notice: Option<Notice>,
}

/// The windows that are open. There is one for each kind at most, and kinds are places in the source, so it stays small.
#[derive(Debug, Default)]
pub(super) struct Limiter {
    windows: HashMap<Kind, Window>,
}

impl Limiter {
    /// A message comes; `notice` is what its suppression would be said as.
    pub(super) fn admit(&mut self, kind: Kind, now: Duration, notice: impl FnOnce() -> Notice) -> Verdict {
        let window = self.windows.entry(kind).or_insert(Window { began: now, admitted: 0, notice: None });
        let mut due = None;
        if has_ended(window, now) {
            due = window.notice.take();
            *window = Window { began: now, admitted: 0, notice: None };
        }
        if window.admitted < MESSAGES_MAX {
            window.admitted += 1;
            return Verdict { due, admitted: true };
        }
        window.notice.get_or_insert_with(notice).suppressed += 1;
        Verdict { due, admitted: false }
    }

    /// The counts of windows that have ended; these are forgotten.
    pub(super) fn due(&mut self, now: Duration) -> Vec<Notice> {
        let ended = self.windows.extract_if(|_, window| has_ended(window, now));
        ended.filter_map(|(_, window)| window.notice).collect()
    }

    /// All counts so far, for the end.
    pub(super) fn all(&mut self) -> Vec<Notice> {
        self.windows.values_mut().filter_map(|window| window.notice.take()).collect()
    }
}

fn has_ended(window: &Window, now: Duration) -> bool {
    now.saturating_sub(window.began) >= WINDOW
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    /// How many of `count` messages at one time are said, and the counts that are said before them.
    fn say(limiter: &mut Limiter, place: (u32, &str), now: Duration, count: u64) -> (u64, Vec<String>) {
        let (line, disk) = place;
        let (mut said, mut notices) = (0, Vec::new());
        for n in 0..count {
            let notice = || Notice::new(Level::Warn, "t", &format!("message {n}"), disk);
            let verdict = limiter.admit(Kind::new("a.rs", line, disk), now, notice);
            said += u64::from(verdict.admitted);
            notices.extend(verdict.due.map(|notice| notice.sentence()));
        }
        (said, notices)
    }

    fn sentences(notices: Vec<Notice>) -> Vec<String> {
        notices.iter().map(Notice::sentence).collect()
    }

    #[test]
    fn ten_are_said_then_how_many_more() {
        let mut limiter = Limiter::default();
        assert_eq!(say(&mut limiter, (1, "a"), SECOND, 5000), (10, vec![]));
        assert_eq!(limiter.due(SECOND * 10), []);
        assert_eq!(sentences(limiter.due(SECOND * 11)), ["4990 more messages suppressed: message 10"]);
        assert_eq!(limiter.due(SECOND * 30), []);
        assert!(limiter.windows.is_empty());
    }

    #[test]
    fn a_new_window_begins_with_the_count_of_the_last_one() {
        let mut limiter = Limiter::default();
        say(&mut limiter, (1, "a"), Duration::ZERO, 11);
        let (said, notices) = say(&mut limiter, (1, "a"), SECOND * 10, 11);
        assert_eq!((said, notices), (10, vec!["1 more messages suppressed: message 10".to_string()]));
    }

    #[test]
    fn disks_and_kinds_are_counted_each_for_itself() {
        let mut limiter = Limiter::default();
        for place in [(1, "a"), (1, "b"), (2, "a"), (2, "")] {
            assert_eq!(say(&mut limiter, place, SECOND, 100), (10, vec![]), "{place:?}");
        }
        assert_eq!(sentences(limiter.all()), vec!["90 more messages suppressed: message 10"; 4]);
        assert_eq!(limiter.all(), [], "it is said once");
        assert_eq!(say(&mut limiter, (1, "a"), SECOND, 1), (0, vec![]), "the window stays open");
    }

    #[test]
    fn what_is_said_now_and_then_is_always_said() {
        let mut limiter = Limiter::default();
        for n in 0..1000 {
            assert_eq!(say(&mut limiter, (1, "a"), SECOND * n, 1), (1, vec![]));
        }
    }
}
