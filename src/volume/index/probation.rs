//! Probation: keeps what was stored and never used from pushing out what is used.
//!
//! The part of [`Index`] behind `eviction=scan-resistant`. Each disk has a second LRU, for the files that
//! nobody has used since they were published; the first use moves a file to the main one, for good. The
//! next victim comes from probation while that holds more than its share of the disk, else from the main
//! LRU. That is 2Q (Johnson and Shasha, VLDB 1994). The names of victims are remembered, as fingerprints;
//! one that is stored again is wanted again, and goes to the main LRU at once. As in ARC (Megiddo and Modha,
//! FAST 2003) it also moves the share: up if it was evicted unused, which a longer probation would have
//! prevented, down if it had been used. Everything is O(1). Without [`Index::keep_scans_apart`] no file
//! is ever on probation. Takes no lock.

use super::ghosts::{Ghosts, Origin};
use super::slab::Slot;
use super::{DiskNo, Index, Ino, NewEntry, Sums};

/// What probation may hold at least, of a disk's files and of its bytes, in percent, and at the start.
pub(super) const SHARE_MIN: f64 = 20.0;
/// And at most: what is used keeps the rest whatever happens. An LRU of objects with one reuse each is half
/// made of such as wait for it, so this is enough to be as good.
pub(super) const SHARE_MAX: f64 = 60.0;
/// A scanned file whose last use is no later than this after its last write was not used since.
const NEVER_USED_NS: i64 = 2_000_000_000;

/// What the index knows when scans are kept apart.
#[derive(Debug)]
pub(super) struct Probation {
    ghosts: Ghosts,
    share_percent: f64,
}

impl Probation {
    pub(super) fn heap_bytes(&self) -> usize {
        self.ghosts.heap_bytes()
    }
}

impl Index {
    /// From now on files start on probation, but for those that a scan finds used. Call it before the
    /// first file is inserted.
    pub fn keep_scans_apart(&mut self) {
        self.probation = Some(Probation { ghosts: Ghosts::default(), share_percent: SHARE_MIN });
    }

    /// Whether nobody has used the file since it was published, as far as is known.
    pub fn is_on_probation(&self, ino: Ino) -> bool {
        self.item(ino).is_some_and(|(_, item)| item.probation)
    }

    /// Ends a file's probation: it is now the most recent one of those that were used.
    pub fn promote(&mut self, ino: Ino) {
        if let Some((slot, item)) = self.item(ino)
            && item.probation
        {
            self.promote_slot(slot);
        }
    }

    /// Unlinks a victim, and remembers its name if scans are kept apart.
    pub fn evict(&mut self, ino: Ino) {
        if self.probation.is_some()
            && let Some((slot, item)) = self.item(ino)
            && item.is_linked()
        {
            let origin = if item.probation { Origin::Probation } else { Origin::Main };
            let hash = self.hash_of(slot);
            if let Some(probation) = &mut self.probation {
                probation.ghosts.add(hash, origin, self.linked);
            }
        }
        self.unlink(ino);
    }

    /// Whether probation holds more than its share of a disk, so that [`Index::coldest`] begins there.
    pub fn probation_is_over(&self, disk: DiskNo) -> bool {
        let Some(probation) = &self.probation else { return false };
        let (sums, share) = (self.sums(disk), probation.share_percent / 100.0);
        let over = |part: u64, whole: u64| part as f64 > whole as f64 * share;
        over(sums.probation_files, sums.files) || over(sums.probation_512, sums.blocks_512)
    }

    /// Whether a file that takes a name starts on probation: the name was not evicted a while ago.
    pub(super) fn starts_on_probation(&mut self, hash: u64) -> bool {
        let Some(probation) = &mut self.probation else { return false };
        let Some(origin) = probation.ghosts.take(hash) else { return true };
        // One file's worth of the volume.
        let step = 100.0 / self.linked.max(1) as f64;
        let step = if origin == Origin::Probation { step } else { -step };
        probation.share_percent = (probation.share_percent + step).clamp(SHARE_MIN, SHARE_MAX);
        false
    }

    /// Whether a file that a scan found is on probation. The last use is on the disk as atime, which is
    /// the time of the create or just after the last write until there is a use.
    pub(super) fn was_never_used(&self, new: &NewEntry) -> bool {
        self.probation.is_some() && new.attr.atime_ns <= new.attr.mtime_ns.saturating_add(NEVER_USED_NS)
    }

    /// The file takes a name. One that was used, or evicted, is wanted again.
    pub(super) fn inherit_probation(&mut self, slot: u32, hash: u64, replaces_used: bool) {
        let waits = self.slots.get(slot).is_some_and(|item| item.probation);
        if waits && (!self.starts_on_probation(hash) || replaces_used) {
            self.promote_slot(slot);
        }
    }

    fn promote_slot(&mut self, slot: u32) {
        let Some(item) = self.slots.get(slot) else { return };
        let (number, linked) = (usize::from(item.disk), item.is_linked());
        if let Some(disk) = self.disks.get_mut(number) {
            disk.probation.remove(&mut self.slots, slot);
        }
        self.recount(slot, |item| item.probation = false);
        if linked && let Some(disk) = self.disks.get_mut(number) {
            disk.lru.add_warmest(&mut self.slots, slot);
        }
    }
}

/// What the entry adds to its disk's probation: files and 512-byte units.
pub(super) fn sums_on_probation(item: &Slot) -> Sums {
    let waits = item.probation && item.is_linked();
    let blocks_512 = if waits { u64::from(item.blocks_512) } else { 0 };
    Sums { probation_files: u64::from(waits), probation_512: blocks_512, ..Sums::default() }
}
