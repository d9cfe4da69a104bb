//! The table: (parent, name) -> slot, a hash table in 4,096 shards.
//!
//! Called by the index. One growth touches the entries of one shard, n / 4,096 of them. Keyed with random
//! keys, so that chosen names cannot collide on purpose. Invariants: exactly the linked entries but the
//! root are in it. Takes no lock.

use hashbrown::HashTable;
use std::hash::{BuildHasher, RandomState};

const SHARDS: usize = 4096;
/// A shard with less room than this is never shrunk.
const SMALL_SHARD: usize = 56;

/// The sharded table.
#[derive(Debug)]
pub(super) struct Table {
    shards: Box<[HashTable<u32>]>,
    hasher: RandomState,
}

impl Table {
    pub(super) fn new() -> Self {
        let shards = std::iter::repeat_with(HashTable::new).take(SHARDS).collect();
        Self { shards, hasher: RandomState::new() }
    }

    pub(super) fn hash(&self, parent: u32, name: &[u8]) -> u64 {
        self.hasher.hash_one((parent, name))
    }

    pub(super) fn find(&self, hash: u64, mut same: impl FnMut(u32) -> bool) -> Option<u32> {
        self.shards.get(shard_of(hash))?.find(hash, |slot| same(*slot)).copied()
    }

    /// Adds `slot`, which is not in the table. `key` gives the parent of any slot in it and appends its
    /// name.
    pub(super) fn insert(&mut self, hash: u64, slot: u32, key: impl Fn(u32, &mut Vec<u8>) -> u32) {
        let Self { shards, hasher } = self;
        let Some(shard) = shards.get_mut(shard_of(hash)) else { return };
        let hash_of = |s: &u32| rehash(hasher, *s, &key);
        if shard.len() == shard.capacity() {
            // Left to itself the shard would double even if what fills it is mostly what removed slots
            // leave behind; a copy has only the slots.
            let room = shard.len() + shard.len() / 16 + 1;
            let old = std::mem::replace(shard, HashTable::with_capacity(room));
            for s in old {
                shard.insert_unique(hash_of(&s), s, hash_of);
            }
        }
        shard.insert_unique(hash, slot, hash_of);
    }

    pub(super) fn remove(&mut self, hash: u64, slot: u32, key: impl Fn(u32, &mut Vec<u8>) -> u32) {
        let Self { shards, hasher } = self;
        let Some(shard) = shards.get_mut(shard_of(hash)) else { return };
        match shard.find_entry(hash, |s| *s == slot) {
            Ok(found) => drop(found.remove()),
            Err(_) => debug_assert!(false, "slot {slot} is not in the table"),
        }
        if shard.capacity() > SMALL_SHARD && shard.len() * 8 < shard.capacity() {
            shard.shrink_to(shard.len() * 2, |s| rehash(hasher, *s, &key));
        }
    }

    pub(super) fn len(&self) -> usize {
        self.shards.iter().map(HashTable::len).sum()
    }

    pub(super) fn heap_bytes(&self) -> usize {
        let shards = self.shards.iter().map(HashTable::allocation_size).sum::<usize>();
        shards + SHARDS * size_of::<HashTable<u32>>()
    }
}

fn rehash(hasher: &RandomState, slot: u32, key: impl Fn(u32, &mut Vec<u8>) -> u32) -> u64 {
    let mut name = Vec::with_capacity(super::names::MAX_NAME_BYTES);
    let parent = key(slot, &mut name);
    hasher.hash_one((parent, name.as_slice()))
}

/// The table inside a shard uses the lowest and the highest bits of the hash.
fn shard_of(hash: u64) -> usize {
    (hash >> 40) as usize % SHARDS
}
