//! Ghosts: fingerprints of the names that were evicted, and whether that was from probation.
//!
//! Called by the index when scans are kept apart: see `probation`. A table of 4 bytes a ghost in buckets of
//! four, in each of which the oldest gives way: as many ghosts as there were files at the first eviction,
//! or up to twice that. A ghost can be lost or be another name's (1 in 200 at 10 million); either costs one
//! file a worse or a better place in the order of eviction, and nothing else. Takes no lock.

const IN_BUCKET: usize = 4;
/// Even a small cache remembers so many.
const GHOSTS_MIN: usize = 4096;

/// Where a victim came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Origin {
    /// It was never used since its publish.
    Probation,
    /// It was used.
    Main,
}

/// The fingerprints, in buckets from the youngest to the oldest; 0 is none. The lowest bit is the origin.
#[derive(Debug, Default)]
pub(super) struct Ghosts {
    buckets: Vec<[u32; IN_BUCKET]>,
}

impl Ghosts {
    /// Remembers the name with this hash, one of about `files` that the cache can hold.
    pub(super) fn add(&mut self, hash: u64, origin: Origin, files: usize) {
        // Made when something is evicted, and so when the disks are as full as they get. One that has
        // become too small is begun anew: copying it would hold everybody up.
        if self.buckets.is_empty() || files > self.buckets.len() * IN_BUCKET * 2 {
            let buckets = files.next_power_of_two().max(GHOSTS_MIN) / IN_BUCKET;
            self.buckets = vec![[0; IN_BUCKET]; buckets];
        }
        let print = fingerprint(hash);
        if let Some(bucket) = self.bucket(print) {
            let at = bucket.iter().position(|there| there | 1 == print).unwrap_or(IN_BUCKET - 1);
            if let Some(younger) = bucket.get_mut(..=at) {
                younger.rotate_right(1);
            }
            bucket[0] = if origin == Origin::Main { print } else { print & !1 };
        }
    }

    /// Where the name with this hash was evicted from, if that is remembered. It is no longer.
    pub(super) fn take(&mut self, hash: u64) -> Option<Origin> {
        let print = fingerprint(hash);
        let there = self.bucket(print)?.iter_mut().find(|there| **there | 1 == print)?;
        let is_main = std::mem::take(there) == print;
        Some(if is_main { Origin::Main } else { Origin::Probation })
    }

    /// Bytes of heap held.
    pub(super) fn heap_bytes(&self) -> usize {
        self.buckets.capacity() * size_of::<[u32; IN_BUCKET]>()
    }

    fn bucket(&mut self, print: u32) -> Option<&mut [u32; IN_BUCKET]> {
        let at = (print as usize >> 1).checked_rem(self.buckets.len())?;
        self.buckets.get_mut(at)
    }
}

/// 31 bits of the hash, never all 0, above a 1.
fn fingerprint(hash: u64) -> u32 {
    ((hash >> 32) as u32).max(2) | 1
}
