//! Readings: what disks are being asked about files at this moment, so that the latest answer wins.
//!
//! A disk is asked without a lock, and answers may come in another order than the questions: one from before a file's last
//! write must not be believed after the one from its close. Part of [`Shared`], under its lock.

use std::collections::HashMap;

use super::attr::Ino;
use super::{Shared, Volume};

/// The questions that have no answer yet.
#[derive(Default)]
pub(super) struct Readings {
    begun: u64,
    files: HashMap<Ino, InFlight>,
}

#[derive(Default)]
struct InFlight {
    count: u32,
    /// The latest question whose answer was taken.
    taken: u64,
}

/// A question about a file, from before the disk is asked until its answer is taken or given up.
pub(super) struct Reading<'a> {
    volume: &'a Volume,
    ino: Ino,
    number: u64,
}

impl Volume {
    /// To be called before a disk is asked for a file's attributes.
    pub(super) fn begin_reading(&self, ino: Ino) -> Reading<'_> {
        let number = self.shared.lock().readings.begin(ino);
        Reading { volume: self, ino, number }
    }
}

impl Reading<'_> {
    /// The answer is there: whether the index should take it, since no later question has been answered meanwhile.
    pub(super) fn end_as_latest(self, shared: &mut Shared) -> bool {
        let latest = shared.readings.take(self.ino, self.number);
        std::mem::forget(self);
        latest
    }
}

impl Drop for Reading<'_> {
    fn drop(&mut self) {
        self.volume.shared.lock().readings.end(self.ino);
    }
}

impl Readings {
    fn begin(&mut self, ino: Ino) -> u64 {
        self.begun += 1;
        self.files.entry(ino).or_default().count += 1;
        self.begun
    }

    fn take(&mut self, ino: Ino, number: u64) -> bool {
        let latest = self.files.get_mut(&ino).is_some_and(|file| {
            let latest = number > file.taken;
            file.taken = file.taken.max(number);
            latest
        });
        self.end(ino);
        latest
    }

    fn end(&mut self, ino: Ino) {
        if let Some(file) = self.files.get_mut(&ino) {
            file.count -= 1;
            if file.count == 0 {
                self.files.remove(&ino);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_that_comes_after_one_to_a_later_question_is_dropped() {
        let (mut readings, ino) = (Readings::default(), Ino(7));
        let (first, second, third) = (readings.begin(ino), readings.begin(ino), readings.begin(ino));
        assert!(readings.take(ino, second));
        assert!(!readings.take(ino, first));
        assert!(readings.take(ino, third));
        assert!(readings.files.is_empty());
        let (given_up, other) = (readings.begin(ino), readings.begin(Ino(8)));
        readings.end(ino);
        assert!(readings.take(Ino(8), other) && other > given_up);
        assert!(readings.files.is_empty());
    }
}
