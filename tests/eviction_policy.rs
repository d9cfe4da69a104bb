//! Eviction policies against floods, shifting hot sets and restarts, in process. Names are sentences of
//! docs/SEMANTICS.md; `examples/scan_resistance.rs` prints the numbers.

mod common;
#[path = "common/workload.rs"]
mod workload;

use std::time::{Duration, SystemTime};

use common::Rig;
use common::loops::{LoopDisk, subdir};
use kvspan::config::EvictionPolicy::{self, Lru, ScanResistant};
use kvspan::volume::attr::DiskNo;
use kvspan::volume::disk::{NewAttr, NewTime};
use workload::{Cache, OBJECT_BYTES};

const OBJECTS: usize = 300;

type Workload = fn(&mut Cache) -> f64;

fn cache(eviction: EvictionPolicy) -> Cache {
    Cache::new(OBJECTS, eviction)
}

fn both(run: impl Fn(&mut Cache) -> f64) -> (f64, f64) {
    (run(&mut cache(Lru)), run(&mut cache(ScanResistant)))
}

/// Names that are still there, in percent of `count`.
fn left(rig: &Rig, prefix: &str, count: usize) -> f64 {
    workload::percent((0..count).filter(|n| rig.lookup(&format!("{prefix}{n}.data")).is_ok()).count(), count)
}

fn store(rig: &Rig, prefix: &str, count: usize) {
    for n in 0..count {
        rig.store(&format!("{prefix}{n}"), &vec![7; OBJECT_BYTES as usize]).expect("a store");
        rig.evict();
    }
}

fn load(rig: &Rig, prefix: &str, count: usize) {
    for n in 0..count {
        rig.load(&format!("{prefix}{n}.data")).expect("a load");
    }
}

#[test]
fn a_flood_that_nobody_reads_pushes_the_hot_set_out_of_an_lru_and_not_of_a_scan_resistant_cache() {
    for stores_a_load in [0, 10] {
        let [before, _, after] = workload::flooded(&mut cache(Lru), stores_a_load);
        assert!(before == 100.0 && after < 30.0, "lru: {before} before, {after} after");
        let [before, during, after] = workload::flooded(&mut cache(ScanResistant), stores_a_load);
        assert!(before == 100.0 && after >= 90.0, "scan-resistant: {before} before, {after} after");
        assert!(stores_a_load == 0 || during >= 90.0, "scan-resistant: {during} during");
    }
}

#[test]
fn without_a_flood_a_scan_resistant_cache_is_as_good_as_an_lru_within_three_points() {
    let table: [(&str, Workload); 6] = [
        ("no reuse", workload::without_reuse),
        ("popularity", workload::by_popularity),
        ("a shifting hot set in random order", |c| workload::shifting(c, 4, 20, false)),
        ("a shifting hot set in the same order", |c| workload::shifting(c, 4, 20, true)),
        ("a sliding hot set", |c| workload::sliding(c, 10)),
        ("one late reuse", |c| workload::twice(c, 30)),
    ];
    for (what, run) in table {
        let (lru, resistant) = both(run);
        assert!(resistant >= lru - 3.0, "{what}: {resistant} % of the loads hit, {lru} % with lru");
    }
}

#[test]
fn the_limit_holds_when_everything_is_in_use_and_when_nothing_is() {
    let mut cache = cache(ScanResistant);
    for round in 0..3 {
        cache.flood(OBJECTS * 2);
        for _ in 0..2 {
            workload::round(&mut cache, &format!("hot{round}-"), OBJECTS * 3 / 4);
        }
        let limit = OBJECTS as u64 / 2 * OBJECT_BYTES;
        assert!((0..2).all(|disk| cache.rig.du(disk) <= limit));
    }
}

#[test]
fn a_load_ends_probation_and_so_does_a_mark_of_use_but_no_look_up() {
    let rig = Rig::limited_by(1, 200 * OBJECT_BYTES, ScanResistant);
    for prefix in ["loaded", "marked", "seen", "copied"] {
        store(&rig, prefix, 20);
    }
    load(&rig, "loaded", 20);
    let hour_ago = SystemTime::now() - Duration::from_secs(3600);
    let ns = hour_ago.duration_since(SystemTime::UNIX_EPOCH).expect("a time").as_nanos() as i64;
    for n in 0..20 {
        let mark = |prefix: &str, new: &NewAttr| {
            let ino = rig.lookup(&format!("{prefix}{n}.data")).expect("it").ino;
            rig.fs.volume().set_attr(ino, None, new).expect("the times");
        };
        mark("marked", &NewAttr { atime: Some(NewTime::Now), ..NewAttr::default() });
        let times = NewAttr { atime: Some(NewTime::Now), mtime: Some(NewTime::At(ns)), ..NewAttr::default() };
        mark("copied", &times);
    }
    assert_eq!(left(&rig, "seen", 20), 100.0);
    store(&rig, "flood", 2000);
    let stay = ["loaded", "marked", "seen", "copied"].map(|prefix| left(&rig, prefix, 20));
    assert_eq!(stay, [100.0, 100.0, 0.0, 0.0]);
}

/// Needs root, for a file system of its own.
#[test]
fn a_flood_over_disks_of_one_file_system_leaves_the_hot_set_of_each() {
    let disk = LoopDisk::ext4("48M", &[]);
    let dirs = ["a", "b"].map(|name| subdir(&disk.path(), name)).to_vec();
    let rig = Rig::evicting(dirs, 1 << 40, ScanResistant);
    store(&rig, "hot", 800);
    load(&rig, "hot", 800);
    store(&rig, "flood", 6000);
    let hot = left(&rig, "hot", 800);
    assert!(hot == 100.0 && rig.fs.volume().evictions().files > 3000, "{hot} % of the hot set are left");
}

#[test]
fn a_name_that_is_stored_again_soon_after_it_was_evicted_is_not_on_probation() {
    let rig = Rig::limited_by(1, 200 * OBJECT_BYTES, ScanResistant);
    store(&rig, "again", 20);
    store(&rig, "flood", 300);
    assert_eq!(left(&rig, "again", 20), 0.0);
    store(&rig, "again", 20);
    store(&rig, "more", 2000);
    assert_eq!(left(&rig, "again", 20), 100.0);
}

#[test]
fn what_was_used_is_known_after_a_restart_and_what_was_only_looked_up_is_not_taken_for_it() {
    let rig = Rig::limited_by(1, 200 * OBJECT_BYTES, ScanResistant);
    store(&rig, "hot", 60);
    store(&rig, "seen", 60);
    let hour_ago = SystemTime::now() - Duration::from_secs(3600);
    for name in common::names_in(&rig.dirs[0]) {
        let file = std::fs::File::options().write(true).open(rig.on_disk(0, &name)).expect("the file");
        file.set_times(std::fs::FileTimes::new().set_accessed(hour_ago).set_modified(hour_ago)).expect("times");
    }
    load(&rig, "hot", 60);
    assert_eq!(left(&rig, "seen", 60), 100.0);
    assert_eq!(rig.fs.volume().flush_recency(std::time::Duration::ZERO, None), 60, "only uses are made durable");
    let again = Rig::evicting(rig.dirs.clone(), 200 * OBJECT_BYTES, ScanResistant);
    store(&again, "flood", 2000);
    assert_eq!((left(&again, "hot", 60), left(&again, "seen", 60)), (100.0, 0.0));
    assert!(again.fs.volume().used_bytes(DiskNo(0)) <= 200 * OBJECT_BYTES);
}
