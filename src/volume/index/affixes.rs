//! The affixes: what many names begin or end with, stored once.
//!
//! Called by `names`. At most 65,536 strings, counted by use and dropped with their last user. An affix
//! is taken in only when it is seen for the second time, so that names which share nothing do not fill
//! the dictionary; when it is full, names keep their affixes themselves. Takes no lock.

use hashbrown::HashTable;
use std::hash::{BuildHasher, RandomState};

/// Affixes at most: their numbers are `u16`.
const MAX_AFFIXES: usize = 1 << 16;
/// Fingerprints of affixes seen once.
const SEEN: usize = 4096;

#[derive(Debug, Default)]
struct Affix {
    bytes: Box<[u8]>,
    /// Names that use it; 0 while the number is free.
    users: u64,
}

/// The dictionary.
#[derive(Debug)]
pub(super) struct Affixes {
    affixes: Vec<Affix>,
    by_bytes: HashTable<u16>,
    free: Vec<u16>,
    seen: Box<[u32]>,
    hasher: RandomState,
}

impl Affixes {
    /// Shorter ones cost less where they are.
    pub(super) const MIN_BYTES: usize = 4;

    pub(super) fn new() -> Self {
        Self {
            affixes: Vec::new(),
            by_bytes: HashTable::new(),
            free: Vec::new(),
            seen: vec![0; SEEN].into_boxed_slice(),
            hasher: RandomState::new(),
        }
    }

    /// The number of `bytes`, with one more user; None when the name has to keep them itself.
    pub(super) fn intern(&mut self, bytes: &[u8]) -> Option<u16> {
        if bytes.len() < Self::MIN_BYTES {
            return None;
        }
        let hash = self.hasher.hash_one(bytes);
        let affixes = &mut self.affixes;
        let same = |n: &u16| affixes.get(usize::from(*n)).is_some_and(|a| *a.bytes == *bytes);
        if let Some(&number) = self.by_bytes.find(hash, same) {
            affixes.get_mut(usize::from(number))?.users += 1;
            return Some(number);
        }
        if !self.seen_before(hash) {
            return None;
        }
        self.add(hash, bytes)
    }

    /// One user less.
    pub(super) fn release(&mut self, number: u16) {
        let Some(affix) = self.affixes.get_mut(usize::from(number)) else { return };
        debug_assert!(affix.users > 0, "an affix without users was released");
        affix.users = affix.users.saturating_sub(1);
        if affix.users > 0 {
            return;
        }
        let bytes = std::mem::take(&mut affix.bytes);
        let hash = self.hasher.hash_one(&*bytes);
        if let Ok(found) = self.by_bytes.find_entry(hash, |n| *n == number) {
            found.remove();
        }
        self.free.push(number);
    }

    pub(super) fn get(&self, number: u16) -> Option<&[u8]> {
        let affix = self.affixes.get(usize::from(number))?;
        (affix.users > 0).then_some(&*affix.bytes)
    }

    /// Users of all affixes together.
    pub(super) fn users(&self) -> u64 {
        self.affixes.iter().map(|a| a.users).sum()
    }

    /// Affixes in use.
    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.by_bytes.len()
    }

    pub(super) fn heap_bytes(&self) -> usize {
        self.affixes.capacity() * (size_of::<Affix>() + 64)
            + self.by_bytes.allocation_size()
            + self.free.capacity() * 2
            + SEEN * 4
    }

    /// Remembers the hash, and says whether it was remembered already.
    fn seen_before(&mut self, hash: u64) -> bool {
        let at = (hash >> 32) as usize % SEEN;
        let print = (hash as u32).max(1);
        self.seen.get_mut(at).is_some_and(|seen| std::mem::replace(seen, print) == print)
    }

    fn add(&mut self, hash: u64, bytes: &[u8]) -> Option<u16> {
        let affix = Affix { bytes: bytes.into(), users: 1 };
        let number = match self.free.pop() {
            Some(number) => {
                *self.affixes.get_mut(usize::from(number))? = affix;
                number
            }
            None if self.affixes.len() < MAX_AFFIXES => {
                self.affixes.push(affix);
                (self.affixes.len() - 1) as u16
            }
            None => return None,
        };
        let Self { affixes, by_bytes, hasher, .. } = self;
        by_bytes
            .insert_unique(hash, number, |n| affixes.get(usize::from(*n)).map_or(0, |a| hasher.hash_one(&*a.bytes)));
        Some(number)
    }
}
