//! A cache as an engine uses it, and workloads that tell eviction policies apart.
//!
//! Shared by `tests/eviction_policy.rs` and `examples/scan_resistance.rs`. Loads and stores are LMCache's: look up and
//! open, and on a miss compute (here: nothing), write a temp file and rename it.

use kvspan::config::EvictionPolicy;

use super::common::Rig;

/// Size of every object.
pub const OBJECT_BYTES: u64 = 16 << 10;

/// Disks behind a policy, and the share of loads that hit.
pub struct Cache {
    pub rig: Rig,
    /// Objects that the limits hold together.
    pub objects: usize,
    data: Vec<u8>,
    stored: usize,
    random: u64,
}

impl Cache {
    /// An empty cache of two disks that hold `objects` together.
    pub fn new(objects: usize, eviction: EvictionPolicy) -> Cache {
        let limit_bytes = objects as u64 / 2 * OBJECT_BYTES;
        let rig = Rig::limited_by(2, limit_bytes, eviction);
        Cache { rig, objects, data: vec![7; OBJECT_BYTES as usize], stored: 0, random: 1 }
    }

    fn store(&mut self, key: &str) {
        self.rig.store(key, &self.data).expect("a store is never refused for room");
        self.stored += 1;
        self.rig.evict();
    }

    /// Loads an object, or stores it if it is not there; whether it was.
    pub fn want(&mut self, key: &str) -> bool {
        let hit = self.rig.load(&format!("{key}.data")).is_ok();
        if !hit {
            self.store(key);
        }
        hit
    }

    /// Stores objects that nobody has asked for before, or ever will.
    pub fn flood(&mut self, count: usize) {
        for _ in 0..count {
            let key = format!("flood{}", self.stored);
            self.store(&key);
        }
    }

    /// A number below `bound`; the same sequence in every run.
    pub fn below(&mut self, bound: usize) -> usize {
        self.random = self.random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.random >> 33) as usize % bound
    }
}

/// Percent of loads that hit.
pub fn percent(hits: usize, of: usize) -> f64 {
    hits as f64 * 100.0 / of.max(1) as f64
}

/// Wants each of `count` objects once.
pub fn round(cache: &mut Cache, prefix: &str, count: usize) -> f64 {
    let hits = (0..count).filter(|n| cache.want(&format!("{prefix}{n}"))).count();
    percent(hits, count)
}

/// Hit rates of a hot set of 40 % of the cache: before a flood of ten times the cache, during it, when one object of
/// the set is loaded for every `stores_a_load` stored (0: none is), and in a round after it.
pub fn flooded(cache: &mut Cache, stores_a_load: usize) -> [f64; 3] {
    let hot = cache.objects * 2 / 5;
    round(cache, "hot", hot);
    round(cache, "hot", hot);
    let before = round(cache, "hot", hot);
    let (mut loads, mut hits) = (0, 0);
    for n in 0..cache.objects * 10 {
        cache.flood(1);
        if stores_a_load > 0 && n % stores_a_load == 0 {
            let key = format!("hot{}", loads % hot);
            hits += usize::from(cache.want(&key));
            loads += 1;
        }
    }
    [before, percent(hits, loads), round(cache, "hot", hot)]
}

/// Every object is wanted once: nothing can hit.
pub fn without_reuse(cache: &mut Cache) -> f64 {
    let count = cache.objects * 4;
    round(cache, "once", count)
}

/// Hot sets of half the cache that follow each other, each wanted `rounds` times as a whole in random order, or always
/// in the same one, which no policy that has to see an object again soon survives.
pub fn shifting(cache: &mut Cache, sets: usize, rounds: usize, in_order: bool) -> f64 {
    let hot = cache.objects / 2;
    let (mut hits, mut wants) = (0, 0);
    for set in 0..sets {
        for n in 0..rounds * hot {
            let at = if in_order { n % hot } else { cache.below(hot) };
            hits += usize::from(cache.want(&format!("set{set}-{at}")));
            wants += 1;
        }
    }
    percent(hits, wants)
}

/// A hot set of half the cache of which one object in `turns` loads is replaced by a new one.
pub fn sliding(cache: &mut Cache, turns: usize) -> f64 {
    let (hot, wants) = (cache.objects / 2, cache.objects * 20);
    let mut hits = 0;
    for n in 0..wants {
        let at = n / turns + cache.below(hot);
        hits += usize::from(cache.want(&format!("slide{at}")));
    }
    percent(hits, wants)
}

/// Objects that are wanted a second time, and never again, when others for `distance_percent` of the cache have been
/// stored in between: chats of two turns. The last three quarters of it count.
pub fn twice(cache: &mut Cache, distance_percent: usize) -> f64 {
    let distance = cache.objects * distance_percent / 100;
    let (objects, mut hits, mut wants) = (cache.objects * 12, 0, 0);
    for n in 0..objects {
        cache.want(&format!("chat{n}"));
        if let Some(earlier) = n.checked_sub(distance) {
            let hit = cache.want(&format!("chat{earlier}"));
            if n >= objects / 4 {
                hits += usize::from(hit);
                wants += 1;
            }
        }
    }
    percent(hits, wants)
}

/// Popularity as in many caches: the n-th of four times the cache's objects is wanted in proportion to 1/n.
pub fn by_popularity(cache: &mut Cache) -> f64 {
    let (names, wants) = (cache.objects * 4, cache.objects * 20);
    let all = (names as f64).ln();
    let mut hits = 0;
    for _ in 0..wants {
        let at = (cache.below(1 << 24) as f64 / (1 << 24) as f64 * all).exp() as usize;
        hits += usize::from(cache.want(&format!("popular{at}")));
    }
    percent(hits, wants)
}
