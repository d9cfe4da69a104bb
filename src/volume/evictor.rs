//! The evictor: keeps every disk below its bound by unlinking from the cold end of its LRU, or of its probation.
//!
//! One thread a disk (the daemon's) calls [`Volume::evict_pass`] when it is woken or a tick is over; a create that
//! finds no room calls [`Volume::make_room`]. Victims are chosen under the index lock and looked at again under their
//! name lock before they are unlinked. Holds no lock of rank 1 or more over a system call.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::attr::{DiskNo, Ino, Kind};
use super::index::Entry;
use super::name::{self, EntryName};
use super::room::Scope;
use super::{Shared, Volume, now_ns};
use crate::error::{Error, Result};
use crate::messages::event;

/// Victims that one create may unlink (DESIGN.md section 5).
const VICTIMS_PER_CREATE: usize = 8;
/// Time that one create may spend on it.
const EVICTION_PER_CREATE: Duration = Duration::from_millis(5);
/// Entries that a search for a victim looks at in one hold of the index lock.
const LOOKED_AT_PER_HOLD: usize = 256;
/// Candidates in a row that could not go, after which a pass gives up until the next tick.
const MAX_FRUITLESS: u64 = 1024;
/// Victims between two readings of the file system's room.
const VICTIMS_PER_READING: usize = 64;

/// What became of the search for one victim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Evicted {
    /// A file went.
    File,
    /// The candidate could not be taken now; others may.
    Skipped,
    /// Nothing on the disk can go.
    Nothing,
}

/// A file that is about to go.
struct Victim {
    entry: Entry,
    name: Vec<u8>,
}

impl Volume {
    /// Brings a disk down to its low watermark if it is above the high one. Returns the number of files that went.
    pub fn evict_pass(&self, no: DiskNo) -> u64 {
        self.refresh_room(no);
        let mut gone = 0;
        let mut fruitless = 0;
        if self.pressure(no).is_none() {
            return 0;
        }
        self.settle_swollen(no);
        let Some(mut pressure) = self.pressure(no) else {
            return 0;
        };
        self.order_what_was_seen(no);
        loop {
            for _ in 0..VICTIMS_PER_READING {
                match self.evict_coldest(no, pressure.scope) {
                    Evicted::File => {
                        gone += 1;
                        fruitless = 0;
                    }
                    Evicted::Skipped => fruitless += 1,
                    Evicted::Nothing => return gone,
                }
                if self.is_relieved(no, &pressure) {
                    break;
                }
            }
            if fruitless > MAX_FRUITLESS {
                return gone;
            }
            if self.is_relieved(no, &pressure) {
                self.refresh_room(no);
                match self.pressure(no) {
                    Some(still) => pressure = still,
                    None => return gone,
                }
            }
        }
    }

    /// Unlinks the coldest files of a disk until `bytes` of it have gone, for an operator's order.
    pub fn evict_bytes(&self, no: DiskNo, bytes: u64) -> u64 {
        let goal = self.used_bytes(no).saturating_sub(bytes);
        let (mut gone, mut fruitless) = (0, 0);
        self.order_what_was_seen(no);
        while self.used_bytes(no) > goal && fruitless <= MAX_FRUITLESS {
            match self.evict_coldest(no, Scope::Disk) {
                Evicted::File => (gone, fruitless) = (gone + 1, 0),
                Evicted::Skipped => fruitless += 1,
                Evicted::Nothing => break,
            }
        }
        gone
    }

    /// Sees to it that a create on a disk finds room, within what a create may spend.
    ///
    /// Returns false if the disk has neither room nor a victim: the next disk in rank is then tried.
    pub(super) fn make_room(&self, no: DiskNo) -> bool {
        if self.has_headroom(no) {
            return true;
        }
        self.settle_swollen(no);
        self.wake_evictor(no);
        let scope = if self.is_at_own_limit(no) { Scope::Disk } else { Scope::FileSystem };
        let began = Instant::now();
        for _ in 0..VICTIMS_PER_CREATE {
            if began.elapsed() > EVICTION_PER_CREATE || self.has_headroom(no) {
                break;
            }
            if self.evict_coldest(no, scope) == Evicted::Nothing {
                break;
            }
        }
        self.has_headroom(no) || self.has_block(no) || self.neighbours(no).any(|no| self.has_victim(no))
    }

    /// A create met a full file system: unlinks a few files at once. False if there was none.
    pub(super) fn evict_for_create(&self, no: DiskNo) -> bool {
        let gone =
            (0..VICTIMS_PER_CREATE).filter(|_| self.evict_coldest(no, Scope::FileSystem) == Evicted::File).count();
        self.wake_evictor(no);
        gone > 0
    }

    /// Whether the scan has shown nothing yet that could go: then "no victim" does not mean full.
    pub(super) fn wait_for_first_batch(&self, no: DiskNo, until: Instant) -> bool {
        while let Ok(disk) = self.disk(no)
            && !disk.is_scanned()
            && Instant::now() < until
        {
            if self.has_victim(no) {
                return true;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        self.has_victim(no)
    }

    fn has_victim(&self, no: DiskNo) -> bool {
        let now = now_ns();
        let shared = self.shared.lock();
        let mut coldest = shared.index.coldest(no).take(LOOKED_AT_PER_HOLD);
        coldest.any(|ino| {
            let mut name = Vec::with_capacity(256);
            shared.index.name(ino, &mut name);
            shared.index.get(ino).is_some_and(|entry| self.may_go(&entry, &name, shared.writers_of(ino), now))
        })
    }

    /// During a scan the files seen so far are in the order of the listing: put them in that of their use, so that a
    /// restart does not cost the hot set.
    fn order_what_was_seen(&self, no: DiskNo) {
        if self.disk(no).is_ok_and(|disk| !disk.is_scanned()) {
            self.order_by_last_use(no);
        }
    }

    /// Takes one file from the cold end of a disk, or of the coldest disk on its file system.
    fn evict_coldest(&self, no: DiskNo, scope: Scope) -> Evicted {
        let no = match scope {
            Scope::Disk => no,
            Scope::FileSystem => self.coldest_neighbour(no),
        };
        let Some(victim) = self.choose_victim(no) else {
            return Evicted::Nothing;
        };
        match self.evict(&victim) {
            Ok(true) => Evicted::File,
            Ok(false) => Evicted::Skipped,
            Err(error) => {
                self.count_undeletable(no, &victim.name, &error);
                self.shared.lock().index.rotate(victim.entry.ino);
                Evicted::Skipped
            }
        }
    }

    /// The disk on the same file system whose coldest file was used longest ago, among those first that have too much
    /// on probation.
    fn coldest_neighbour(&self, no: DiskNo) -> DiskNo {
        let shared = self.shared.lock();
        let turn = |no: &DiskNo| {
            let coldest = shared.index.coldest(*no).next().and_then(|ino| shared.index.get(ino));
            (!shared.index.probation_is_over(*no), coldest.map_or(i64::MAX, |entry| entry.attr.atime_ns))
        };
        self.neighbours(no).min_by_key(turn).unwrap_or(no)
    }

    /// The coldest file that may go. What may not is in use, so it is moved to the warm end, where the next search
    /// does not meet it again.
    fn choose_victim(&self, no: DiskNo) -> Option<Victim> {
        let now = now_ns();
        let mut left = self.files_on(no);
        let mut held_back = Vec::new();
        while left > 0 {
            let mut shared = self.shared.lock();
            let batch: Vec<Ino> = shared.index.coldest(no).take(LOOKED_AT_PER_HOLD).collect();
            if batch.is_empty() {
                return None;
            }
            for ino in batch {
                left = left.saturating_sub(1);
                let mut name = Vec::with_capacity(256);
                shared.index.name(ino, &mut name);
                let Some(entry) = shared.index.get(ino) else {
                    continue;
                };
                if self.may_go(&entry, &name, shared.writers_of(ino), now) {
                    // Unlinking a file that readers hold frees nothing until they let go: others first.
                    if !entry.pinned {
                        let victim = Victim { entry, name };
                        return Some(self.colder_than_grace(&shared, no, &victim, now).unwrap_or(victim));
                    }
                    held_back.push(Victim { entry, name });
                    held_back.truncate(1);
                }
                shared.index.rotate(ino);
                if left == 0 {
                    break;
                }
            }
        }
        held_back.pop()
    }

    /// A name that was used a moment ago may have been found again since, in an answer that the kernel gave by itself. It
    /// stays while a colder file is there: on probation and in use are two lists, so the other one is looked at.
    fn colder_than_grace(&self, shared: &Shared, no: DiskNo, victim: &Victim, now: i64) -> Option<Victim> {
        let grace_ns = i64::try_from(self.settings.grace.as_nanos()).unwrap_or(i64::MAX);
        let in_grace = |entry: &Entry| now.saturating_sub(entry.attr.atime_ns) < grace_ns;
        if !in_grace(&victim.entry) {
            return None;
        }
        shared.index.coldest_otherwise(no).take(LOOKED_AT_PER_HOLD).find_map(|ino| {
            let entry = shared.index.get(ino).filter(|entry| !entry.pinned && !in_grace(entry))?;
            let mut name = Vec::with_capacity(256);
            shared.index.name(ino, &mut name);
            self.may_go(&entry, &name, shared.writers_of(ino), now).then_some(Victim { entry, name })
        })
    }

    /// Whether a file may be a victim: not open for writing, and not a temp file that may still be published.
    fn may_go(&self, entry: &Entry, name: &[u8], writers: u32, now: i64) -> bool {
        let young_temp = name::is_temp_name(name) && {
            let ttl_ns = i64::try_from(self.settings.temp_ttl.as_nanos()).unwrap_or(i64::MAX);
            ttl_ns == 0 || now.saturating_sub(entry.attr.mtime_ns.max(entry.attr.ctime_ns)) < ttl_ns
        };
        entry.kind == Kind::File && entry.linked && writers == 0 && !entry.writing && !young_temp
    }

    /// Unlinks a victim: the index first, then the disk. False if it was used, written or replaced since it was chosen.
    fn evict(&self, victim: &Victim) -> Result<bool> {
        let Victim { entry, name } = victim;
        let _tree = self.tree_for(entry.parent);
        let Some(_name) = self.names.try_lock(entry.parent, name) else {
            // Somebody works on the name: it is in use.
            self.shared.lock().index.rotate(entry.ino);
            return Ok(false);
        };
        let Ok(entry_name) = EntryName::new(name) else {
            return Ok(false);
        };
        let path = self.path_of(entry.parent, entry_name).ok_or(Error::NotFound)?;
        // Dropped at the end, after the unlink: the room is wanted now.
        let (kernel_knows, _kept) = {
            let mut shared = self.shared.lock();
            let Some(now) = shared.index.get(entry.ino) else {
                return Ok(false);
            };
            let same = shared.index.find(entry.parent, name) == Some(entry.ino)
                && shared.writers_of(entry.ino) == 0
                && now.attr.atime_ns == entry.attr.atime_ns;
            if !same {
                return Ok(false);
            }
            shared.index.evict(entry.ino);
            shared.changed_dir(entry.parent, now_ns());
            (now.lookups > 0, shared.take_kept(entry.ino))
        };
        match self.disk(entry.disk)?.io.unlink(&path) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                self.put_back((entry.parent, entry_name), entry);
                Err(Error::disk(entry.disk, error))
            }
            _ => {
                self.name_evicted((entry.parent, entry_name), entry);
                self.count_evicted(entry);
                if kernel_knows {
                    (self.on_evicted)(entry.ino);
                }
                Ok(true)
            }
        }
    }

    /// Reads the sizes of the files that are being written on a disk, and the room on its file system.
    pub fn refresh_room(&self, no: DiskNo) {
        let writing: Vec<(Entry, Arc<std::os::fd::OwnedFd>)> = {
            let shared = self.shared.lock();
            let open = shared.writing_on(no);
            open.filter_map(|(ino, open)| Some((shared.index.get(ino)?, Arc::clone(&open.fd)))).collect()
        };
        for (entry, fd) in writing {
            if let Err(error) = self.refresh(&entry, &fd) {
                event!(Debug, self.about(no).error(&error), "the size of a file that is being written is not known");
            }
        }
        if let Ok(disk) = self.disk(no)
            && let Err(error) = disk.refresh_space()
        {
            event!(Debug, disk.about().error(&error), "the room is not known");
        }
        self.recompute_room();
    }

    /// Waits until somebody wakes this disk's evictor, at most for the time that is good now: short while files are
    /// being written, since their growth is only seen by looking.
    pub fn wait_for_work(&self, no: DiskNo) {
        const IDLE_TICK: Duration = Duration::from_secs(1);
        const BUSY_TICK: Duration = Duration::from_millis(20);
        let busy = self.shared.lock().writers_on(no) > 0;
        if let Ok(disk) = self.disk(no) {
            disk.bell.wait(if busy { BUSY_TICK } else { IDLE_TICK });
        }
    }

    /// Wakes the evictor of a disk.
    pub fn wake_evictor(&self, no: DiskNo) {
        if let Ok(disk) = self.disk(no) {
            disk.bell.ring();
        }
    }

    pub(super) fn files_on(&self, no: DiskNo) -> u64 {
        self.shared.lock().index.files(no)
    }

    fn count_undeletable(&self, no: DiskNo, name: &[u8], error: &Error) {
        let Ok(disk) = self.disk(no) else {
            return;
        };
        if disk.count_undeletable() == 0 {
            event!(Warn, disk.about().path(name).error(error), "a file cannot be evicted and is skipped");
        }
    }
}
