//! The check: are all parts of the index of one mind?
//!
//! For tests, and for whoever doubts; walks everything, so it is not for a running volume. Takes no lock.

use super::lru::{Tier, tier_of};
use super::slab::{NIL, ROOT_SLOT, Slot, flag};
use super::{Index, Sums, sums_of};

/// Fails with the message unless the condition holds.
macro_rules! ensure {
    ($holds:expr, $($message:tt)+) => {
        if !$holds {
            return Err(format!($($message)+));
        }
    };
}

impl Index {
    /// Checks every invariant; the error says what is wrong. Walks everything: for tests.
    pub fn check_invariants(&self) -> Result<(), String> {
        let mut sums = vec![Sums::default(); self.disks.len()];
        let (mut used, mut linked, mut dirs, mut affix_uses) = (0, 0, 0, 0);
        for slot in 0..self.slots.len() {
            let Some(item) = self.slots.get(slot) else { continue };
            used += 1;
            self.check_slot(slot, item)?;
            if let Some(sums) = sums.get_mut(usize::from(item.disk)) {
                let add = sums_of(item);
                sums.files += add.files;
                sums.away += add.away;
                sums.blocks_512 += add.blocks_512;
                sums.probation_files += add.probation_files;
                sums.probation_512 += add.probation_512;
            }
            linked += usize::from(item.is_linked() && slot != ROOT_SLOT);
            affix_uses += self.names.affix_uses(item.name);
            if let Some(dir) = item.dir() {
                dirs += 1;
                self.check_order(slot, dir)?;
            }
        }
        let free = self.slots.free_count();
        ensure!(used + free == self.slots.len(), "{used} used and {free} free slots");
        ensure!(linked == self.linked, "{linked} linked, counted {}", self.linked);
        ensure!(linked == self.table.len(), "{linked} linked, {} in the table", self.table.len());
        ensure!(dirs == self.dirs.live(), "{dirs} directories, {} places", self.dirs.live());
        let names = self.names.live();
        ensure!(names + 1 == u64::from(used), "{used} entries with the root, {names} names");
        let users = self.names.affixes().users();
        ensure!(users == affix_uses, "affixes count {users} users, there are {affix_uses}");
        for (number, (disk, sums)) in self.disks.iter().zip(&sums).enumerate() {
            ensure!(disk.sums == *sums, "disk {number}: counted {:?}, sums {sums:?}", disk.sums);
            self.check_lru(number)?;
        }
        Ok(())
    }

    fn check_slot(&self, slot: u32, item: &Slot) -> Result<(), String> {
        ensure!(item.seq < self.next_seq, "slot {slot}: insertion number {}", item.seq);
        if slot == ROOT_SLOT {
            ensure!(item.is_linked() && item.is_dir() && item.parent == slot, "the root is odd");
            return Ok(());
        }
        let kept = item.is_linked() || item.lookups > 0 || item.has(flag::PINNED);
        ensure!(kept, "slot {slot} is kept for nobody");
        let in_lru = item.is_linked() && !item.is_dir();
        ensure!(in_lru == tier_of(&self.slots, slot).is_some(), "slot {slot}: wrongly in a list");
        let mut name = Vec::new();
        ensure!(self.names.append(item.name, &mut name), "slot {slot} has no name");
        ensure!(self.names.is(item.name, &name), "slot {slot}: the name is not itself");
        let found = self.table.find(self.hash_of(slot), |s| s == slot);
        ensure!(found.is_some() == item.is_linked(), "slot {slot}: wrongly in the table");
        if item.is_linked() {
            let hash = self.table.hash(item.parent, &name);
            let first = self.find_slot(hash, item.parent, &name);
            ensure!(first == Some(slot), "slot {slot}: its name leads to {first:?}");
            let parent = self.slots.get(item.parent);
            let good = parent.is_some_and(|p| p.is_dir() && p.is_linked());
            ensure!(good, "slot {slot}: the parent is no linked directory");
        } else {
            ensure!(item.parent == slot, "slot {slot} has a parent and no name");
        }
        Ok(())
    }

    fn check_order(&self, slot: u32, at: u32) -> Result<(), String> {
        let Some(dir) = self.dirs.get(at) else {
            return Err(format!("slot {slot} is no directory"));
        };
        let (mut children, mut subdirs, mut last) = (0, 0, 0);
        for child in dir.order.after(0, |slot| self.slots.seq(slot)) {
            let Some(item) = self.slots.get(child) else {
                return Err(format!("slot {child} is listed in {slot} and gone"));
            };
            ensure!(item.parent == slot && item.is_linked(), "slot {child} is not in {slot}");
            ensure!(item.seq > last, "slot {child} is listed out of order");
            last = item.seq;
            children += 1;
            subdirs += u32::from(item.is_dir());
        }
        ensure!(children == dir.children, "{slot}: {children} listed of {}", dir.children);
        ensure!(subdirs == dir.subdirs, "{slot}: {subdirs} directories of {}", dir.subdirs);
        Ok(())
    }

    fn check_lru(&self, number: usize) -> Result<(), String> {
        let Some(disk) = self.disks.get(number) else { return Ok(()) };
        let mut files = 0;
        let lists = [(&disk.lru, false), (&disk.probation, true)];
        for ((lru, probation), tier) in lists.into_iter().flat_map(|lru| Tier::FROM_COLD.map(|tier| (lru, tier))) {
            let (mut at, mut behind) = (lru.tail(tier), NIL);
            while at != NIL {
                let Some(item) = self.slots.get(at) else {
                    return Err(format!("slot {at} is in the LRU of disk {number} and gone"));
                };
                let here = usize::from(item.disk) == number;
                ensure!(here, "slot {at} is in the LRU of disk {number}");
                ensure!(tier_of(&self.slots, at) == Some(tier), "slot {at} is not in {tier:?}");
                ensure!(item.probation == probation, "slot {at} is in the other LRU");
                ensure!(item.lru_next == behind, "slot {at}: the links differ");
                files += 1;
                (behind, at) = (at, item.lru_prev);
            }
            ensure!(lru.head(tier) == behind, "disk {number}: the head of {tier:?} is lost");
        }
        let apart = self.probation.is_some() || disk.sums.probation_files == 0;
        ensure!(apart, "disk {number}: files on probation without the policy");
        ensure!(files == disk.sums.files, "disk {number}: {files} of {} listed", disk.sums.files);
        Ok(())
    }
}
