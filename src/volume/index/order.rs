//! The order: one directory's entries by insertion number, for listings that resume anywhere.
//!
//! Called by the index. Few entries are one vector; more are chunks of at most 256 slots in a tree keyed
//! by the first insertion number a chunk may hold (the first chunk's key is 0). Invariants: slots ascend
//! by insertion number, in a chunk and across chunks; neighbours that fit into one chunk are merged.
//! Every change costs O(log n) and one chunk. Takes no lock.

use std::collections::BTreeMap;

/// Slots in a chunk at most.
const CHUNK_MAX: usize = 256;
/// A chunk below this looks for a neighbour to merge with,
const CHUNK_SMALL: usize = 64;
/// and merges if both together are no more than this.
const CHUNK_MERGED: usize = 192;
/// Free places that a chunk keeps when slots are taken out of it.
const CHUNK_SLACK: usize = 32;

/// The slots of one directory's entries.
#[derive(Debug)]
pub(super) enum Order {
    Few(Vec<u32>),
    Many(BTreeMap<u64, Vec<u32>>),
}

impl Order {
    pub(super) fn new() -> Self {
        Self::Few(Vec::new())
    }

    /// Puts `slot` at its place; `seq_of` gives the insertion number of any slot of the directory.
    pub(super) fn insert(&mut self, seq: u64, slot: u32, seq_of: impl Fn(u32) -> u64) {
        let chunks = match self {
            Self::Few(few) if few.len() < CHUNK_MAX => return put(few, seq, slot, seq_of),
            Self::Few(few) => {
                *self = Self::Many(BTreeMap::from([(0, std::mem::take(few))]));
                return self.insert(seq, slot, seq_of);
            }
            Self::Many(chunks) => chunks,
        };
        let is_last = chunks.last_key_value().is_some_and(|(key, _)| *key <= seq);
        let Some((_, chunk)) = chunks.range_mut(..=seq).next_back() else {
            chunks.insert(0, vec![slot]);
            return;
        };
        if chunk.len() < CHUNK_MAX {
            return put(chunk, seq, slot, seq_of);
        }
        if is_last && chunk.last().is_some_and(|last| seq_of(*last) < seq) {
            chunks.insert(seq, vec![slot]);
            return;
        }
        let mut upper = chunk.split_off(CHUNK_MAX / 2);
        chunk.shrink_to_fit();
        let upper_key = upper.first().map_or(seq, |first| seq_of(*first));
        let half = if seq < upper_key { chunk } else { &mut upper };
        put(half, seq, slot, seq_of);
        chunks.insert(upper_key, upper);
    }

    /// Takes `slot` out; false if it was not there.
    pub(super) fn remove(&mut self, seq: u64, slot: u32, seq_of: impl Fn(u32) -> u64) -> bool {
        match self {
            Self::Few(few) => take(few, seq, slot, seq_of),
            Self::Many(chunks) => {
                let Some((&key, chunk)) = chunks.range_mut(..=seq).next_back() else { return false };
                let taken = take(chunk, seq, slot, seq_of);
                if chunk.len() < CHUNK_SMALL {
                    merge(chunks, key);
                }
                if chunks.len() <= 1 {
                    let few = chunks.pop_first().map(|(_, chunk)| chunk);
                    *self = Self::Few(few.unwrap_or_default());
                }
                taken
            }
        }
    }

    /// The slots with an insertion number above `after`, ascending.
    pub(super) fn after<'a>(&'a self, after: u64, seq_of: impl Fn(u32) -> u64 + 'a) -> impl Iterator<Item = u32> + 'a {
        let (few, chunks) = match self {
            Self::Few(few) => (Some(few), None),
            Self::Many(chunks) => {
                let start = chunks.range(..=after).next_back().map_or(0, |(key, _)| *key);
                (None, Some(chunks.range(start..).map(|(_, chunk)| chunk)))
            }
        };
        let mut first = true;
        few.into_iter().chain(chunks.into_iter().flatten()).flat_map(move |chunk| {
            // Only the first chunk can hold numbers that are not above `after`.
            let from = match std::mem::take(&mut first) {
                true => chunk.partition_point(|slot| seq_of(*slot) <= after),
                false => 0,
            };
            chunk.iter().skip(from).copied()
        })
    }

    /// Slots in the largest chunk.
    #[cfg(test)]
    pub(super) fn largest_chunk(&self) -> usize {
        match self {
            Self::Few(few) => few.len(),
            Self::Many(chunks) => chunks.values().map(Vec::len).max().unwrap_or(0),
        }
    }

    /// Chunks held.
    #[cfg(test)]
    pub(super) fn chunks(&self) -> usize {
        match self {
            Self::Few(_) => 1,
            Self::Many(chunks) => chunks.len(),
        }
    }
}

fn put(chunk: &mut Vec<u32>, seq: u64, slot: u32, seq_of: impl Fn(u32) -> u64) {
    let at = chunk.partition_point(|s| seq_of(*s) < seq);
    chunk.insert(at, slot);
}

fn take(chunk: &mut Vec<u32>, seq: u64, slot: u32, seq_of: impl Fn(u32) -> u64) -> bool {
    let at = chunk.partition_point(|s| seq_of(*s) < seq);
    if chunk.get(at) != Some(&slot) {
        debug_assert!(false, "slot {slot} is not in its directory's order");
        return false;
    }
    chunk.remove(at);
    if chunk.capacity() - chunk.len() > CHUNK_SLACK {
        chunk.shrink_to(chunk.len() + CHUNK_SLACK / 4);
    }
    true
}

/// Merges the chunk at `key` with a neighbour, if both fit; an empty chunk never stays beside another.
fn merge(chunks: &mut BTreeMap<u64, Vec<u32>>, key: u64) {
    let len = chunks.get(&key).map_or(0, Vec::len);
    let limit = if len == 0 { CHUNK_MAX } else { CHUNK_MERGED };
    let fits = |other: &Vec<u32>| other.len() + len <= limit;
    let before = chunks.range(..key).next_back().filter(|(_, c)| fits(c)).map(|(k, _)| *k);
    let behind = chunks.range(key + 1..).next().filter(|(_, c)| fits(c)).map(|(k, _)| *k);
    let (left, right) = match (before, behind) {
        (Some(before), _) => (before, key),
        (None, Some(behind)) => (key, behind),
        (None, None) => return,
    };
    if let Some(moved) = chunks.remove(&right)
        && let Some(chunk) = chunks.get_mut(&left)
    {
        chunk.reserve_exact(moved.len());
        chunk.extend(moved);
    }
}
