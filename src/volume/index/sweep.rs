//! What a rescan asks of the index: the entries that a disk should hold, and places for the files that it found.
//!
//! The part of [`Index`] that `volume::rescan` calls. Every call is bounded by its caller; between two calls anything
//! may change. Takes no lock.

use super::lru::{Tier, tier_of};
use super::slab::NIL;
use super::{DiskNo, Index, Ino, Kind, kind_of};

/// Placed files that are tried, from the last one back, when the place to go on at has moved.
const RESUME_TRIES: usize = 64;

/// How far [`Index::place`] has come.
#[derive(Clone, Copy, Debug, Default)]
pub struct Placing {
    next: usize,
    at: Option<(i64, Ino)>,
}

impl Index {
    /// Calls `each` for the linked files on `disk`, and the linked directories that exist on it, of the slots
    /// `from .. from + slots`; returns where to go on, None at the end. The root is left out. Start with 0.
    pub fn sweep(&self, disk: DiskNo, from: u32, slots: u32, each: &mut dyn FnMut(Ino, Kind)) -> Option<u32> {
        let end = from.saturating_add(slots.max(1)).min(self.slots.len());
        for slot in from.max(1)..end {
            let Some(item) = self.slots.get(slot).filter(|item| item.is_linked()) else { continue };
            let here = match item.dir() {
                Some(at) => self.dirs.get(at).is_some_and(|dir| dir.disks & (1 << disk.0) != 0),
                None => item.disk == disk.0,
            };
            if here {
                each(self.slots.ino(slot), kind_of(item));
            }
        }
        (end < self.slots.len()).then_some(end)
    }

    /// As [`Index::scanned`], for the files that have no place in the order yet.
    pub fn unplaced(&self, disk: DiskNo, from: u32, slots: u32, out: &mut Vec<(i64, Ino)>) -> Option<u32> {
        let end = from.saturating_add(slots.max(1)).min(self.slots.len());
        for slot in from..end {
            let Some(item) = self.slots.get(slot).filter(|item| item.disk == disk.0) else { continue };
            if Tier::from_bits(item.tier_bits()) == Some(Tier::Unordered) {
                out.push((item.atime_ns, self.slots.ino(slot)));
            }
        }
        (end < self.slots.len()).then_some(end)
    }

    /// Gives the files `found` (sorted, the oldest use first) their places among those that have one, in at most
    /// `steps` steps along the LRU of `disk`; false when all are placed. The others keep their places. A file that
    /// was used meanwhile has its place already.
    pub fn place(&mut self, disk: DiskNo, found: &[(i64, Ino)], placing: &mut Placing, steps: usize) -> bool {
        let mut at = self.resume(disk, found, placing);
        for _ in 0..steps.max(1) {
            let Some((ns, ino)) = found.get(placing.next) else { return false };
            match at.filter(|slot| self.last_use(*slot) <= *ns) {
                Some(older) => at = self.warmer(disk, older),
                None => {
                    self.place_colder_than(disk, *ino, at);
                    placing.next += 1;
                }
            }
        }
        placing.at = at.map(|slot| (self.last_use(slot), self.slots.ino(slot)));
        placing.next < found.len()
    }

    /// The slot to go on at: the one that was reached, else the last placed one that was not used since, else the
    /// cold end.
    fn resume(&self, disk: DiskNo, found: &[(i64, Ino)], placing: &Placing) -> Option<u32> {
        let placed = found.get(..placing.next).unwrap_or_default().iter().rev().take(RESUME_TRIES);
        let stays = |(ns, ino): &(i64, Ino)| {
            let (slot, item) = self.item(*ino)?;
            let tier = tier_of(&self.slots, slot);
            let placed = matches!(tier, Some(Tier::Ordered | Tier::Warm));
            (placed && item.disk == disk.0 && item.atime_ns == *ns).then_some(slot)
        };
        placing.at.iter().chain(placed).find_map(stays).or_else(|| self.coldest_placed(disk))
    }

    fn coldest_placed(&self, disk: DiskNo) -> Option<u32> {
        let lru = &self.disks.get(disk.index())?.lru;
        [Tier::Ordered, Tier::Warm].into_iter().map(|tier| lru.tail(tier)).find(|slot| *slot != NIL)
    }

    fn last_use(&self, slot: u32) -> i64 {
        self.slots.get(slot).map_or(i64::MIN, |item| item.atime_ns)
    }

    /// The next warmer file that has a place.
    fn warmer(&self, disk: DiskNo, slot: u32) -> Option<u32> {
        let next = self.slots.get(slot)?.lru_prev;
        if next != NIL {
            return Some(next);
        }
        let warm = self.disks.get(disk.index())?.lru.tail(Tier::Warm);
        (tier_of(&self.slots, slot) == Some(Tier::Ordered) && warm != NIL).then_some(warm)
    }

    /// Puts a file that has no place yet on the cold side of `at`, or at the warm end of all.
    fn place_colder_than(&mut self, disk: DiskNo, ino: Ino, at: Option<u32>) {
        let Some(slot) = self.slots.slot_of(ino) else { return };
        if tier_of(&self.slots, slot) != Some(Tier::Unordered) {
            return;
        }
        let Self { slots, disks, .. } = self;
        let Some(lru) = disks.get_mut(disk.index()).map(|disk| &mut disk.lru) else { return };
        let warm_tail = lru.tail(Tier::Warm);
        match at {
            None if warm_tail != NIL => {
                lru.remove(slots, slot);
                lru.add_warmest(slots, slot);
            }
            Some(at) if at != warm_tail => {
                lru.remove(slots, slot);
                lru.add_colder_than(slots, slot, at);
            }
            // Between the sorted scanned ones and those used since the start.
            _ => lru.settle(slots, slot),
        }
    }
}
