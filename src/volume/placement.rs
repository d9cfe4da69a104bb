//! Which disk owns a name: rendezvous hashing, so that a changed disk set moves the minimum.
//!
//! Called by create (the owner, else the next in rank), by recovery (is a file away?), and by
//! `kvspan where` and `plan`. Every disk draws a number for the key and the highest draw owns it
//! (highest random weight: Thaler & Ravishankar, "Using name-based mappings to increase hit rates",
//! IEEE/ACM Transactions on Networking 6(1), 1998); with weights the draw becomes `-weight / ln(x)`,
//! the logarithmic method of weighted rendezvous hashing (Schindelhauer & Schomaker, "Weighted
//! distributed hash tables", SPAA 2005). A disk's draw depends on nothing but the key and its UUID:
//! that is why no name moves between two disks that both stay.
//!
//! Invariants: same UUIDs, weights and key, same rank, on every machine, in every order of
//! configuration. Pure: no I/O, no locks; only [`Placement::new`] allocates.

use std::cmp::Ordering;
use std::fmt;
use std::ops::Deref;

use uuid::Uuid;

use super::attr::{DiskNo, MAX_DISKS};
use super::name::PlacementKey;

/// Why a list of disks cannot be placed on.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum PlacementError {
    /// More disks than [`MAX_DISKS`].
    TooManyDisks(usize),
    /// Two disks with one id.
    DuplicateDisk(Uuid),
    /// A weight that is not a finite number above 0.
    BadWeight(Uuid, f64),
}

impl fmt::Display for PlacementError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PlacementError::TooManyDisks(count) => {
                write!(f, "{count} disks are more than the {MAX_DISKS} that a volume can have")
            }
            PlacementError::DuplicateDisk(uuid) => write!(f, "two disks have the id {uuid}"),
            PlacementError::BadWeight(uuid, weight) => {
                write!(f, "weight {weight} of disk {uuid} is not a number above 0")
            }
        }
    }
}

impl std::error::Error for PlacementError {}

/// One disk as placement sees it.
#[derive(Clone, Copy, Debug)]
struct Candidate {
    number: DiskNo,
    uuid: Uuid,
    seed: u64,
    weight: f64,
}

/// What one disk drew for one key.
#[derive(Clone, Copy, Debug)]
struct Draw {
    number: DiskNo,
    uuid: Uuid,
    u: u64,
    /// 0 for every disk when all weights are equal: then `u` alone decides.
    score: f64,
}

impl Draw {
    /// The better draw is the greater: by score, ties by `u`, then by UUID.
    fn compare(&self, other: &Draw) -> Ordering {
        let by_score = self.score.total_cmp(&other.score);
        by_score.then(self.u.cmp(&other.u)).then(self.uuid.cmp(&other.uuid))
    }
}

/// The disks of a volume, ready to be asked for owners.
#[derive(Clone, Debug)]
pub struct Placement {
    disks: Vec<Candidate>,
    weighted: bool,
}

impl Placement {
    /// Takes the disk ids and weights of a volume in the order of its configuration: the place in
    /// `disks` is the [`DiskNo`]. Weights are relative; only their ratios count.
    pub fn new(disks: &[(Uuid, f64)]) -> Result<Placement, PlacementError> {
        if disks.len() > MAX_DISKS {
            return Err(PlacementError::TooManyDisks(disks.len()));
        }
        let mut candidates: Vec<Candidate> = Vec::with_capacity(disks.len());
        for (number, &(uuid, weight)) in (0u8..).zip(disks) {
            if !(weight.is_finite() && weight > 0.0) {
                return Err(PlacementError::BadWeight(uuid, weight));
            }
            if candidates.iter().any(|other| other.uuid == uuid) {
                return Err(PlacementError::DuplicateDisk(uuid));
            }
            let seed = leading_u64(uuid.as_bytes());
            candidates.push(Candidate { number: DiskNo(number), uuid, seed, weight });
        }
        let weighted = disks.iter().zip(disks.iter().skip(1)).any(|(one, next)| one.1 != next.1);
        Ok(Placement { disks: candidates, weighted })
    }

    /// The disk that `key` belongs on; none only if there is no disk at all.
    pub fn owner(&self, key: &PlacementKey<'_>) -> Option<DiskNo> {
        let best = self.draws(key).max_by(Draw::compare)?;
        Some(best.number)
    }

    /// All disks for `key`, the owner first: where a create goes when the better ones cannot take it.
    pub fn rank(&self, key: &PlacementKey<'_>) -> Rank {
        let mut slots: [Option<Draw>; MAX_DISKS] = [None; MAX_DISKS];
        for (slot, draw) in slots.iter_mut().zip(self.draws(key)) {
            *slot = Some(draw);
        }
        let (drawn, _) = slots.split_at_mut(self.disks.len());
        drawn.sort_unstable_by(|a, b| match (a, b) {
            (Some(a), Some(b)) => b.compare(a),
            _ => Ordering::Equal,
        });
        let mut rank = Rank { numbers: [DiskNo(0); MAX_DISKS], len: drawn.len() };
        for (number, draw) in rank.numbers.iter_mut().zip(drawn.iter().flatten()) {
            *number = draw.number;
        }
        rank
    }

    /// What every disk draws for `key`, in the order of configuration.
    fn draws(&self, key: &PlacementKey<'_>) -> impl Iterator<Item = Draw> {
        let h = leading_u64(key.as_bytes());
        self.disks.iter().map(move |disk| {
            let u = mix64(h ^ disk.seed);
            let score = if self.weighted { weighted_score(u, disk.weight) } else { 0.0 };
            Draw { number: disk.number, uuid: disk.uuid, u, score }
        })
    }
}

/// All disks of a volume for one key, the owner first. Dereferences to a slice.
#[derive(Clone, Copy)]
pub struct Rank {
    numbers: [DiskNo; MAX_DISKS],
    len: usize,
}

impl Deref for Rank {
    type Target = [DiskNo];

    fn deref(&self) -> &[DiskNo] {
        self.numbers.split_at(self.len).0
    }
}

impl fmt::Debug for Rank {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

/// The first 8 bytes of BLAKE3(`bytes`), little-endian.
fn leading_u64(bytes: &[u8]) -> u64 {
    let hash = blake3::hash(bytes);
    let [a, b, c, d, e, f, g, h, ..] = *hash.as_bytes();
    u64::from_le_bytes([a, b, c, d, e, f, g, h])
}

/// One step of SplitMix64 from state `z`: its increment, then its finaliser (Steele, Lea & Flood,
/// "Fast splittable pseudorandom number generators", OOPSLA 2014; Vigna's `splitmix64.c`, public
/// domain).
fn mix64(z: u64) -> u64 {
    let z = z.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// `-weight / ln(x)` with `x` the upper 52 bits of `u` as the middle of their step in (0, 1). `x` is
/// exact and never 0 or 1. `ln` is `libm`'s, not the platform's, so that every machine agrees.
fn weighted_score(u: u64, weight: f64) -> f64 {
    const STEPS: f64 = (1u64 << 52) as f64;
    let x = ((u >> 12) as f64 + 0.5) / STEPS;
    -weight / libm::log(x)
}

#[cfg(test)]
mod tests;
