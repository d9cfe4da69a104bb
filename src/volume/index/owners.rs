//! The owners: (uid, gid) pairs as a `u16`.
//!
//! Called by the index. The first 65,535 pairs ever seen get a number; entries with any other pair are
//! kept one by one, so that every pair stays exact. Takes no lock.

use std::collections::BTreeMap;

/// The pair is kept for the slot itself.
const APART: u16 = u16::MAX;

/// All pairs.
#[derive(Debug, Default)]
pub(super) struct Owners {
    pairs: Vec<(u32, u32)>,
    numbers: BTreeMap<(u32, u32), u16>,
    apart: BTreeMap<u32, (u32, u32)>,
}

impl Owners {
    /// Records that `slot`, which had the number `old`, belongs to `pair`; returns its number.
    pub(super) fn set(&mut self, slot: u32, old: Option<u16>, pair: (u32, u32)) -> u16 {
        if let Some(old) = old {
            self.clear(slot, old);
        }
        if let Some(number) = self.numbers.get(&pair) {
            return *number;
        }
        if self.pairs.len() < usize::from(APART) {
            let number = self.pairs.len() as u16;
            self.pairs.push(pair);
            self.numbers.insert(pair, number);
            return number;
        }
        self.apart.insert(slot, pair);
        APART
    }

    /// Forgets what was kept for `slot`.
    pub(super) fn clear(&mut self, slot: u32, number: u16) {
        if number == APART {
            self.apart.remove(&slot);
        }
    }

    pub(super) fn get(&self, slot: u32, number: u16) -> (u32, u32) {
        let pair = match number {
            APART => self.apart.get(&slot),
            _ => self.pairs.get(usize::from(number)),
        };
        debug_assert!(pair.is_some(), "slot {slot} has no owner");
        pair.copied().unwrap_or_default()
    }

    pub(super) fn heap_bytes(&self) -> usize {
        self.pairs.capacity() * 8 + self.numbers.len() * 16 + self.apart.len() * 16
    }

    /// Slots whose pair is kept apart.
    #[cfg(test)]
    pub(super) fn apart(&self) -> usize {
        self.apart.len()
    }
}
