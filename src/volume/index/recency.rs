//! Recency: what use does to the LRU of a disk, and how what a scan found is put in order.
//!
//! The part of [`Index`] that the evictor and recovery call. Invariants and tiers: see `lru`. Takes no
//! lock.

use super::lru::{Lru, Tier, tier_of};
use super::slab::{NIL, Slab};
use super::{DiskNo, Index, Ino};

impl Index {
    /// Records a use at `now_ns`: the file becomes its disk's most recent one, or the most recent one on
    /// probation if it is there, which [`Index::promote`] alone ends.
    pub fn touch(&mut self, ino: Ino, now_ns: i64) {
        self.use_at(ino, now_ns, Lru::add_warmest);
    }

    /// Puts a file at the warm end without a use: the evictor cannot take it now.
    pub fn rotate(&mut self, ino: Ino) {
        if let Some((_, item)) = self.item(ino) {
            let last_use_ns = item.atime_ns;
            self.use_at(ino, last_use_ns, Lru::add_warmest);
        }
    }

    /// Notes that the disk does not know a file's last use; false if that was noted already.
    pub fn mark_recent(&mut self, ino: Ino) -> bool {
        self.item_mut(ino).is_some_and(|(_, item)| !std::mem::replace(&mut item.recent, true))
    }

    /// Takes the note of [`mark_recent`](Self::mark_recent) back.
    pub fn clear_recent(&mut self, ino: Ino) {
        if let Some((_, item)) = self.item_mut(ino) {
            item.recent = false;
        }
    }

    /// Sets the last use and moves the file in O(1): to the head if it is not older than the head of what
    /// was used since the start, to the cold end if it is not newer than that, else right behind the head.
    pub fn set_last_use(&mut self, ino: Ino, ns: i64) {
        self.use_at(ino, ns, Lru::add_by_last_use);
    }

    /// Changes the location. The place in the new disk's LRU is found as by [`Index::set_last_use`]. Does
    /// nothing for a disk that the volume does not have.
    pub fn set_disk(&mut self, ino: Ino, disk: DiskNo) {
        let Some((slot, item)) = self.item(ino) else { return };
        let (from, listed) = (usize::from(item.disk), tier_of(&self.slots, slot).is_some());
        if disk.index() >= self.disks.len() || from == disk.index() {
            return;
        }
        let probation = item.probation;
        if let Some(old) = self.disks.get_mut(from) {
            old.lru_of(probation).remove(&mut self.slots, slot);
        }
        self.recount(slot, |item| item.disk = disk.0);
        if listed && let Some(new) = self.disks.get_mut(disk.index()) {
            new.lru_of(probation).add_by_last_use(&mut self.slots, slot);
        }
    }

    /// The disk's linked regular files from the cold end, pinned and unpublished ones included: first
    /// those on probation if they are over their share, else first the others.
    pub fn coldest(&self, disk: DiskNo) -> Coldest<'_> {
        self.coldest_from(disk, self.probation_is_over(disk))
    }

    /// The same files, but first those that [`coldest`](Self::coldest) has last.
    pub fn coldest_otherwise(&self, disk: DiskNo) -> Coldest<'_> {
        self.coldest_from(disk, !self.probation_is_over(disk))
    }

    fn coldest_from(&self, disk: DiskNo, probation_first: bool) -> Coldest<'_> {
        let lrus = self.disks.get(disk.index()).map(|disk| [&disk.lru, &disk.probation]);
        let lrus = if probation_first { lrus.map(|[main, probation]| [probation, main]) } else { lrus };
        Coldest { slots: &self.slots, lrus, list: 0, next: NIL }
    }

    /// Collects (last use, inode number) of the files on `disk` that came by [`Index::insert_cold`] and
    /// were not used since, from the slots `from .. from + slots`; returns where to go on, None at the
    /// end. Start with 0. Other calls may come between; files inserted meanwhile may be missed and then
    /// stay between the sorted ones and those used since.
    ///
    /// To order a disk's LRU after a scan: collect in batches, sort by last use without the lock, and
    /// give all of them, the oldest first, to [`Index::settle`] in batches. It can be repeated when more
    /// was inserted, always with all that `scanned` returns.
    pub fn scanned(&self, disk: DiskNo, from: u32, slots: u32, out: &mut Vec<(i64, Ino)>) -> Option<u32> {
        let end = from.saturating_add(slots.max(1)).min(self.slots.len());
        for slot in from..end {
            let Some(item) = self.slots.get(slot) else { continue };
            let tier = Tier::from_bits(item.tier_bits());
            if item.disk == disk.0 && matches!(tier, Some(Tier::Unordered | Tier::Ordered)) {
                out.push((item.atime_ns, self.slots.ino(slot)));
            }
        }
        (end < self.slots.len()).then_some(end)
    }

    /// Makes the file the warmest of its disk's sorted scanned ones. Call it for the oldest first: at
    /// any time the sorted ones are colder than the rest. Skips entries that are gone or were used.
    pub fn settle(&mut self, ino: Ino) {
        let Some((slot, item)) = self.item(ino) else { return };
        let (disk, probation) = (usize::from(item.disk), item.probation);
        if let Some(disk) = self.disks.get_mut(disk) {
            disk.lru_of(probation).settle(&mut self.slots, slot);
        }
    }

    /// Sets the last use, takes the file out of its list and lets `put` put it back. For what is in no
    /// list (directories, unlinked files) only the last use is set.
    fn use_at(&mut self, ino: Ino, ns: i64, put: impl FnOnce(&mut Lru, &mut Slab, u32)) {
        let Some((slot, item)) = self.item_mut(ino) else { return };
        item.atime_ns = ns;
        let (disk, listed) = (usize::from(item.disk), Tier::from_bits(item.tier_bits()).is_some());
        let probation = item.probation;
        if listed && let Some(disk) = self.disks.get_mut(disk) {
            let lru = disk.lru_of(probation);
            lru.remove(&mut self.slots, slot);
            put(lru, &mut self.slots, slot);
        }
    }
}

/// A disk's files from the cold end: see [`Index::coldest`].
#[derive(Debug)]
pub struct Coldest<'a> {
    slots: &'a Slab,
    /// The disk's two, the one to begin with first.
    lrus: Option<[&'a Lru; 2]>,
    /// Lists entered so far.
    list: usize,
    next: u32,
}

impl Iterator for Coldest<'_> {
    type Item = Ino;

    fn next(&mut self) -> Option<Ino> {
        while self.next == NIL {
            let tiers = Tier::FROM_COLD;
            let lru = self.lrus?.into_iter().nth(self.list / tiers.len())?;
            let tier = tiers.get(self.list % tiers.len())?;
            self.list += 1;
            self.next = lru.tail(*tier);
        }
        let slot = self.next;
        self.next = self.slots.get(slot)?.lru_prev;
        Some(self.slots.ino(slot))
    }
}
