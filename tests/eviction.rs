//! The limit, recency and eviction, in process. Names are sentences of docs/SEMANTICS.md.

mod common;

use std::os::unix::fs::MetadataExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime};

use common::{READ, Rig, is, names_in};
use kvspan::config::Amount;
use kvspan::volume::attr::{DiskNo, Ino};
use rustix::io::Errno;

const MIB: u64 = 1 << 20;

fn fill(rig: &Rig, prefix: &str, count: usize, bytes: usize) {
    let data = vec![7; bytes];
    for n in 0..count {
        rig.store(&format!("{prefix}{n}"), &data).expect("a store is never refused for room");
    }
}

#[test]
fn ten_times_the_limit_is_stored_without_one_refusal_and_the_youngest_stay() {
    let rig = Rig::limited(2, 4 * MIB);
    fill(&rig, "k", 1280, 64 << 10);
    rig.evict();
    for disk in 0..2 {
        assert!(rig.du(disk) <= 4 * MIB, "disk {disk} holds {}", rig.du(disk));
    }
    let left: Vec<usize> = (0..1280).filter(|n| rig.lookup(&format!("k{n}.data")).is_ok()).collect();
    assert!(left.len() >= 80, "{} are left", left.len());
    assert!(left.iter().all(|n| *n >= 1280 - 200), "old ones are left: {left:?}");
    let evictions = rig.fs.volume().evictions();
    assert_eq!(evictions.files as usize, 1280 - left.len());
}

#[test]
fn usage_is_known_after_a_restart_and_the_limit_holds_from_the_first_request() {
    let rig = Rig::limited(1, 4 * MIB);
    fill(&rig, "old", 50, 64 << 10);
    let again = Rig::build(rig.dirs.clone(), Amount::Bytes(4 * MIB), |_, real| Box::new(real));
    again.scan();
    assert_eq!(again.fs.volume().used_bytes(DiskNo(0)), rig.du(0));
    fill(&again, "new", 40, 64 << 10);
    again.evict();
    assert!(again.du(0) <= 4 * MIB);
    assert!((0..40).all(|n| again.lookup(&format!("new{n}.data")).is_ok()));
}

#[test]
fn a_directory_that_holds_more_than_the_limit_is_taken_in_and_shrunk() {
    let rig = Rig::new(1);
    fill(&rig, "k", 200, 64 << 10);
    let again = Rig::build(rig.dirs.clone(), Amount::Bytes(4 * MIB), |_, real| Box::new(real));
    again.scan();
    assert!(again.evict() > 100);
    assert!(again.du(0) <= 4 * MIB);
    rig.fs.volume().evict_pass(DiskNo(0));
}

#[test]
fn the_limit_counts_blocks_and_not_bytes() {
    let rig = Rig::limited(1, MIB);
    fill(&rig, "small", 2000, 1);
    rig.evict();
    assert!(rig.du(0) <= MIB, "{}", rig.du(0));
    assert!(names_in(&rig.dirs[0]).len() >= 200);
}

#[test]
fn what_was_used_last_is_evicted_last_also_after_a_restart() {
    let rig = Rig::limited(1, 4 * MIB);
    fill(&rig, "k", 40, 64 << 10);
    let hot: Vec<String> = (0..10).map(|n| format!("k{n}.data")).collect();
    // Uses and births are told apart by the clock's tick.
    std::thread::sleep(Duration::from_millis(20));
    for name in &hot {
        rig.load(name).expect("a load");
    }
    assert_eq!(rig.fs.volume().flush_recency(std::time::Duration::ZERO, None), 10);
    let again = Rig::build(rig.dirs.clone(), Amount::Bytes(4 * MIB), |_, real| Box::new(real));
    again.scan();
    fill(&again, "new", 30, 64 << 10);
    again.evict();
    let lost: Vec<&String> = hot.iter().filter(|name| again.lookup(name).is_err()).collect();
    assert!(lost.is_empty(), "the hot set went: {lost:?}");
    assert!(again.lookup("k20.data").is_err());
}

#[test]
fn a_use_is_written_as_atime_and_leaves_mtime_alone() {
    let rig = Rig::new(1);
    rig.store("k", b"bytes").expect("a store");
    let path = rig.on_disk(0, "k.data");
    let times = std::fs::FileTimes::new().set_accessed(SystemTime::UNIX_EPOCH).set_modified(SystemTime::UNIX_EPOCH);
    std::fs::File::options().write(true).open(&path).and_then(|f| f.set_times(times)).expect("times");
    rig.load("k.data").expect("a load");
    assert_eq!(
        rig.fs.volume().flush_recency(kvspan::volume::recency::FRESH, None),
        0,
        "not within a minute of the publish"
    );
    assert_eq!(rig.fs.volume().flush_recency(std::time::Duration::ZERO, None), 1);
    assert_eq!(rig.fs.volume().flush_recency(std::time::Duration::ZERO, None), 0, "nothing was used since");
    let meta = std::fs::metadata(&path).expect("the file");
    assert!(meta.accessed().expect("atime") > SystemTime::now() - Duration::from_secs(60));
    assert_eq!(meta.mtime(), 0);
}

#[test]
fn a_time_in_the_future_does_not_outlive_the_present() {
    let rig = Rig::limited(1, 4 * MIB);
    fill(&rig, "k", 1, 64 << 10);
    let future = std::fs::FileTimes::new().set_accessed(SystemTime::now() + Duration::from_secs(86_400 * 365));
    let path = rig.on_disk(0, "k0.data");
    std::fs::File::options().write(true).open(path).and_then(|f| f.set_times(future)).expect("times");
    let again = Rig::build(rig.dirs.clone(), Amount::Bytes(4 * MIB), |_, real| Box::new(real));
    again.scan();
    fill(&again, "new", 70, 64 << 10);
    again.evict();
    assert!(again.lookup("k0.data").is_err());
}

#[test]
fn a_file_open_for_writing_and_a_young_temp_file_are_never_victims() {
    let rig = Rig::limited(1, 4 * MIB);
    let writing = rig.create("writing.data").expect("a file");
    rig.fs.write(writing.handle, &vec![1; 256 << 10], 0).expect("a write");
    rig.write("young.tmp", &vec![2; 256 << 10]).expect("a file");
    fill(&rig, "k", 200, 64 << 10);
    rig.evict();
    assert_eq!(rig.load("young.tmp").expect("the temp file").len(), 256 << 10);
    rig.fs.close(writing.handle);
    assert_eq!(rig.load("writing.data").expect("the file").len(), 256 << 10);
}

#[test]
fn files_held_open_go_last_and_when_they_must_nothing_spins() {
    let rig = Rig::limited(1, 2 * MIB);
    fill(&rig, "held", 20, 64 << 10);
    let held: Vec<_> = (0..20)
        .map(|n| rig.fs.open(rig.lookup(&format!("held{n}.data")).expect("it").ino, READ).expect("an open"))
        .collect();
    fill(&rig, "k", 60, 64 << 10);
    assert!((0..20).all(|n| rig.lookup(&format!("held{n}.data")).is_ok()), "files in use went first");
    let again = rig.evict();
    assert_eq!(rig.evict(), 0, "after {again} files a second pass finds nothing to do");
    for opened in held {
        let mut byte = [0];
        assert_eq!(rig.fs.read(opened.handle, &mut byte, 0).expect("a read"), 1);
        rig.fs.close(opened.handle);
    }
}

#[test]
fn a_victim_that_cannot_be_unlinked_is_skipped_and_counted_and_eviction_goes_on() {
    let rig = Rig::limited(1, 4 * MIB);
    fill(&rig, "stuck", 1, 64 << 10);
    let path = rig.on_disk(0, "stuck0.data");
    let chattr = |flag: &str| std::process::Command::new("chattr").arg(flag).arg(&path).status();
    assert!(chattr("+i").expect("chattr").success(), "needs root and a temporary directory on ext4, XFS or btrfs");
    fill(&rig, "k", 200, 64 << 10);
    rig.evict();
    let still_there = path.exists();
    chattr("-i").expect("chattr");
    assert!(still_there);
    assert!(rig.du(0) <= 4 * MIB);
    assert!(rig.fs.volume().disks()[0].undeletable_victims() > 0);
    assert_eq!(rig.load("stuck0.data").expect("it is served").len(), 64 << 10);
}

#[test]
fn a_name_stored_anew_while_it_is_evicted_is_never_lost() {
    let full = std::env::var_os("KVSPAN_FULL").is_some();
    let rounds = if full { 100_000 } else { 10_000 };
    let rig = Arc::new(Rig::limited(1, MIB));
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                rig.fs.volume().evict_bytes(DiskNo(0), 1 << 30);
            }
        });
        for round in 0..rounds {
            let opened = rig.create("x").expect("a create");
            rig.fs.write(opened.handle, &round.to_string().into_bytes(), 0).expect("a write");
            // While it is open for writing it cannot go, whatever became of the older file of that name.
            let inode = opened.entry.ino;
            assert_eq!(rig.fs.lookup(Ino::ROOT, b"x").expect("the new file").ino, inode);
            rig.fs.forget(inode, 1);
            rig.fs.close(opened.handle);
            match rig.unlink("x") {
                Ok(()) => {}
                gone => assert!(is(&gone, Errno::NOENT)),
            }
        }
        stop.store(true, Ordering::Relaxed);
    });
    assert!(names_in(&rig.dirs[0]).is_empty());
}

#[test]
fn zero_length_files_and_files_that_vanish_do_not_stop_the_evictor() {
    let rig = Rig::limited(1, 4 * MIB);
    for n in 0..50 {
        rig.write(&format!("empty{n}.data"), b"").expect("a file");
    }
    fill(&rig, "gone", 10, 64 << 10);
    for n in 0..10 {
        std::fs::remove_file(rig.on_disk(0, &format!("gone{n}.data"))).expect("removed");
    }
    fill(&rig, "k", 100, 64 << 10);
    rig.evict();
    assert!(rig.du(0) <= 4 * MIB);
}

#[test]
fn an_evicted_file_is_a_miss_for_who_looked_it_up_and_whole_for_who_has_it_open() {
    let rig = Rig::new(1);
    rig.store("k", b"the whole of it").expect("a store");
    let entry = rig.fs.lookup(Ino::ROOT, b"k.data").expect("a hit");
    let opened = rig.fs.open(entry.ino, READ).expect("an open");
    assert_eq!(rig.fs.volume().evict_bytes(DiskNo(0), 1 << 20), 1);
    assert!(is(&rig.lookup("k.data"), Errno::NOENT));
    let mut bytes = [0; 64];
    assert_eq!(rig.fs.read(opened.handle, &mut bytes, 0).expect("a read"), 15);
    rig.fs.close(opened.handle);
    // Not ENOENT: the kernel looks a stale inode's name up again by itself, and that is the miss.
    assert!(is(&rig.fs.open(entry.ino, READ), Errno::STALE));
    rig.fs.forget(entry.ino, 1);
}

#[test]
fn many_writers_at_the_limit_never_pass_it_by_more_than_they_have_in_flight() {
    let rig = Arc::new(Rig::limited(2, 8 * MIB));
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let evictors: Vec<_> = (0..2u8)
            .map(|n| {
                let (rig, stop) = (&rig, &stop);
                scope.spawn(move || {
                    while !stop.load(Ordering::Relaxed) {
                        rig.fs.volume().wait_for_work(DiskNo(n));
                        rig.fs.volume().evict_pass(DiskNo(n));
                    }
                })
            })
            .collect();
        let writers: Vec<_> = (0..16)
            .map(|writer| {
                let rig = &rig;
                scope.spawn(move || fill(rig, &format!("w{writer}-"), 60, 256 << 10))
            })
            .collect();
        let in_flight = 16 * (256 << 10);
        while writers.iter().any(|w| !w.is_finished()) {
            for disk in 0..2 {
                let du = rig.du(disk);
                assert!(du <= 8 * MIB + in_flight, "disk {disk} holds {du}");
            }
        }
        stop.store(true, Ordering::Relaxed);
        rig.fs.volume().wake_evictor(DiskNo(0));
        rig.fs.volume().wake_evictor(DiskNo(1));
        drop(evictors);
    });
    rig.evict();
    assert!((0..2).all(|disk| rig.du(disk) <= 8 * MIB));
}

#[test]
fn room_is_made_for_a_big_object_before_it_comes() {
    let rig = Rig::limited(1, 64 * MIB);
    fill(&rig, "big", 1, 12 << 20);
    fill(&rig, "small", 120, 256 << 10);
    let opened = rig.create("big.tmp").expect("a file");
    rig.evict();
    assert!(rig.du(0) + (12 << 20) <= 64 * MIB, "{} leaves no room", rig.du(0));
    rig.fs.close(opened.handle);
}

#[test]
fn disks_of_one_file_system_share_its_room_and_are_counted_once() {
    let rig = Rig::new(3);
    let room = rustix::fs::statvfs(&rig.dirs[0]).expect("statvfs");
    let size_bytes = (room.f_blocks - (room.f_bfree - room.f_bavail)) * room.f_frsize;
    assert!(rig.fs.statfs().blocks * 4096 <= size_bytes);
    assert_eq!(rig.fs.volume().capacity().file_systems().len(), 1);
}
