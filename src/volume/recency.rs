//! Recency that outlives a restart: the last use of a file becomes its atime on the disk.
//!
//! A use notes the file once; a background thread of the daemon calls [`Volume::flush_recency`] every `atime_interval`
//! and once more at an unmount. So `noatime` and `relatime` disks work too. The index lock is held to note and to take
//! the notes, never over a system call; each file is written under its name lock.

use std::time::{Duration, Instant};

use super::attr::{Ino, Kind};
use super::name::EntryName;
use super::{Shared, Volume, now_ns};

/// A file's atime is not written within this time of its publish, when the disk has just set it; nor within the interval
/// at which access times are written, where that is shorter.
pub const FRESH: Duration = Duration::from_secs(60);

/// How far a file system's stamp may be ahead of the clock that we read.
const AHEAD_NS: i64 = 1_000_000_000;

impl Shared {
    /// Notes a use of a file. On probation it stays off the disk, where the atime of the publish is what says after a
    /// restart that the file was not used.
    pub(super) fn note_use(&mut self, ino: Ino, now: i64) {
        self.index.touch(ino, now);
        if !self.index.is_on_probation(ino) && self.index.mark_recent(ino) {
            self.recent.push(ino);
        }
    }

    /// Somebody uses a file for sure: its probation ends, if it is published. A look-up is no such use, since clients
    /// look up what they have stored, or may store, and then do not load it.
    pub(super) fn end_probation(&mut self, ino: Ino) {
        if self.index.get(ino).is_some_and(|entry| !entry.writing) {
            self.index.promote(ino);
        }
    }
}

impl Volume {
    /// Writes the last uses that were noted since the last call, until `deadline`. What is left, and what was published
    /// less than `fresh` ago, is noted again; at an unmount `fresh` is zero. Returns the number of files.
    pub fn flush_recency(&self, fresh: Duration, deadline: Option<Instant>) -> u64 {
        let noted = std::mem::take(&mut self.shared.lock().recent);
        let (mut written, mut later) = (0, Vec::new());
        for (at, ino) in noted.iter().enumerate() {
            if deadline.is_some_and(|deadline| Instant::now() > deadline) {
                later.extend_from_slice(noted.get(at..).unwrap_or_default());
                break;
            }
            match self.flush_one(*ino, fresh) {
                Flushed::Written => written += 1,
                Flushed::Later => later.push(*ino),
                Flushed::Gone => {}
            }
        }
        self.shared.lock().recent.extend(later);
        written
    }

    fn flush_one(&self, ino: Ino, fresh: Duration) -> Flushed {
        let Ok((parent, name)) = self.entry_name(ino) else {
            return Flushed::Gone;
        };
        let Ok(entry_name) = EntryName::new(&name) else {
            return Flushed::Gone;
        };
        let _tree = self.tree_for(parent);
        let Some(_name) = self.names.try_lock(parent, &name) else {
            return Flushed::Later;
        };
        let entry = {
            let mut shared = self.shared.lock();
            let Some(entry) = shared.index.get(ino).filter(|_| shared.index.find(parent, &name) == Some(ino)) else {
                return Flushed::Later;
            };
            let fresh_ns = i64::try_from(fresh.as_nanos()).unwrap_or(i64::MAX);
            let age_ns = now_ns().saturating_sub(entry.attr.ctime_ns);
            // A disk may stamp a tick ahead of our clock; what lies further in the future says nothing.
            if fresh_ns > 0 && age_ns > -AHEAD_NS && age_ns < fresh_ns {
                return Flushed::Later;
            }
            shared.index.clear_recent(ino);
            entry
        };
        if entry.kind != Kind::File {
            return Flushed::Gone;
        }
        let Some(path) = self.path_of(parent, entry_name) else {
            return Flushed::Gone;
        };
        match self.disk(entry.disk).map(|disk| disk.io.set_atime(&path, entry.attr.atime_ns)) {
            Ok(Ok(())) => Flushed::Written,
            // The cache works without it: the file is only colder after a restart than it was.
            _ => Flushed::Gone,
        }
    }
}

enum Flushed {
    Written,
    Later,
    Gone,
}
