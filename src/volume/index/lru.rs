//! An LRU: linked regular files of one disk from the last to the first used.
//!
//! Called by the index, which keeps two for each disk: see `probation`. Three linked lists through the slots, which follow each other from the cold end:
//! `Ordered` (scanned files, already sorted by last use), `Unordered` (scanned files, in the order of the
//! scan), `Warm` (everything written, found or used since the start). A file goes from `Unordered` to
//! `Ordered` by [`Lru::settle`], and from both to `Warm` by use, never back by itself; so a file used
//! while the scan or the sort runs stays newer than all that was scanned. All steps are O(1). Invariants:
//! a slot's tier bits name the list that it is in. Takes no lock.

use super::slab::{NIL, Slab};

/// The list that a file is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Tier {
    Warm,
    Unordered,
    Ordered,
}

impl Tier {
    /// All, from the cold end.
    pub(super) const FROM_COLD: [Tier; 3] = [Tier::Ordered, Tier::Unordered, Tier::Warm];

    fn bits(self) -> u8 {
        match self {
            Tier::Warm => 1,
            Tier::Unordered => 2,
            Tier::Ordered => 3,
        }
    }

    pub(super) fn from_bits(bits: u8) -> Option<Self> {
        Self::FROM_COLD.into_iter().find(|tier| tier.bits() == bits)
    }
}

/// Where in a list a file is put.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    Head,
    BehindHead,
    Tail,
}

#[derive(Clone, Copy, Debug)]
struct List {
    head: u32,
    tail: u32,
}

/// The three lists of one LRU.
#[derive(Clone, Copy, Debug)]
pub(super) struct Lru {
    warm: List,
    unordered: List,
    ordered: List,
}

impl Lru {
    pub(super) fn new() -> Self {
        let empty = List { head: NIL, tail: NIL };
        Self { warm: empty, unordered: empty, ordered: empty }
    }

    /// The cold end of one list.
    pub(super) fn tail(&self, tier: Tier) -> u32 {
        self.list(tier).tail
    }

    /// The warm end of one list.
    pub(super) fn head(&self, tier: Tier) -> u32 {
        self.list(tier).head
    }

    /// Puts a file that is in no list at the warm end of everything.
    pub(super) fn add_warmest(&mut self, slots: &mut Slab, slot: u32) {
        self.put(slots, slot, Tier::Warm, Place::Head);
    }

    /// Puts a file that the scan has found, and that is in no list, with the others.
    pub(super) fn add_scanned(&mut self, slots: &mut Slab, slot: u32) {
        self.put(slots, slot, Tier::Unordered, Place::Tail);
    }

    /// Puts a file that is in no list where its last use belongs, as far as that is O(1): to the warm
    /// end if nothing was used later, to the cold end if that is not older, else behind the warmest.
    pub(super) fn add_by_last_use(&mut self, slots: &mut Slab, slot: u32) {
        let at = |slots: &Slab, slot| slots.get(slot).map(|s| s.atime_ns);
        let Some(ns) = at(slots, slot) else { return };
        let warmest = at(slots, self.warm.head);
        if warmest.is_none_or(|warmest| ns >= warmest) {
            return self.put(slots, slot, Tier::Warm, Place::Head);
        }
        let coldest = Tier::FROM_COLD.into_iter().find(|tier| self.list(*tier).tail != NIL);
        match coldest.map(|tier| (tier, at(slots, self.list(tier).tail))) {
            Some((tier, Some(end))) if ns <= end => self.put(slots, slot, tier, Place::Tail),
            _ => self.put(slots, slot, Tier::Warm, Place::BehindHead),
        }
    }

    /// Puts a file that is in no list right behind another one, on its cold side.
    pub(super) fn add_colder_than(&mut self, slots: &mut Slab, slot: u32, warmer: u32) {
        let Some(tier) = tier_of(slots, warmer) else { return self.add_scanned(slots, slot) };
        let colder = slots.get(warmer).map_or(NIL, |s| s.lru_next);
        self.put_between(slots, slot, tier, (warmer, colder));
    }

    /// Moves a scanned file to the warm end of the sorted ones; leaves a file used since where it is.
    pub(super) fn settle(&mut self, slots: &mut Slab, slot: u32) {
        if matches!(tier_of(slots, slot), Some(Tier::Unordered | Tier::Ordered)) {
            self.remove(slots, slot);
            self.put(slots, slot, Tier::Ordered, Place::Head);
        }
    }

    /// Takes a file out of its list, if it is in one.
    pub(super) fn remove(&mut self, slots: &mut Slab, slot: u32) {
        let Some(tier) = tier_of(slots, slot) else { return };
        let Some(item) = slots.get_mut(slot) else { return };
        item.set_tier_bits(0);
        let prev = std::mem::replace(&mut item.lru_prev, NIL);
        let next = std::mem::replace(&mut item.lru_next, NIL);
        let list = self.list_mut(tier);
        match slots.get_mut(prev) {
            Some(item) => item.lru_next = next,
            None => list.head = next,
        }
        match slots.get_mut(next) {
            Some(item) => item.lru_prev = prev,
            None => list.tail = prev,
        }
    }

    fn put(&mut self, slots: &mut Slab, slot: u32, tier: Tier, place: Place) {
        debug_assert!(tier_of(slots, slot).is_none(), "slot {slot} is in a list already");
        let list = self.list(tier);
        let (prev, next) = match place {
            Place::Head => (NIL, list.head),
            Place::BehindHead => (list.head, slots.get(list.head).map_or(NIL, |s| s.lru_next)),
            Place::Tail => (list.tail, NIL),
        };
        self.put_between(slots, slot, tier, (prev, next));
    }

    fn put_between(&mut self, slots: &mut Slab, slot: u32, tier: Tier, (prev, next): (u32, u32)) {
        let list = self.list_mut(tier);
        let Some(item) = slots.get_mut(slot) else { return };
        item.set_tier_bits(tier.bits());
        item.lru_prev = prev;
        item.lru_next = next;
        match slots.get_mut(prev) {
            Some(item) => item.lru_next = slot,
            None => list.head = slot,
        }
        match slots.get_mut(next) {
            Some(item) => item.lru_prev = slot,
            None => list.tail = slot,
        }
    }

    fn list(&self, tier: Tier) -> &List {
        match tier {
            Tier::Warm => &self.warm,
            Tier::Unordered => &self.unordered,
            Tier::Ordered => &self.ordered,
        }
    }

    fn list_mut(&mut self, tier: Tier) -> &mut List {
        match tier {
            Tier::Warm => &mut self.warm,
            Tier::Unordered => &mut self.unordered,
            Tier::Ordered => &mut self.ordered,
        }
    }
}

/// The list that the file in `slot` is in.
pub(super) fn tier_of(slots: &Slab, slot: u32) -> Option<Tier> {
    let item = slots.get(slot)?;
    Tier::from_bits(item.tier_bits())
}
