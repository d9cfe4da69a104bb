//! Room, recency and placement where file systems and clients differ. In process. Names are sentences of docs/SEMANTICS.md.

mod common;

use common::loops::LoopDisk;
use common::{Rig, names_in};
use kvspan::config::{Amount, EvictionPolicy, PlacementPolicy};
use kvspan::volume::attr::DiskNo;
use kvspan::volume::disk::{NewAttr, NewTime};
use kvspan::volume::record::RecordSettings;

const MIB: u64 = 1 << 20;

#[test]
fn after_a_sync_usage_is_what_du_counts_also_where_the_file_system_preallocates() {
    let disk = LoopDisk::new("512M", &["mkfs.xfs", "-q", "-f"]);
    std::fs::create_dir(disk.path().join(".kvspan")).expect("a directory");
    let rig = Rig::build(vec![disk.path()], Amount::Percent(95.0), |_, real| Box::new(real));
    let interval = std::time::Duration::from_secs(30);
    rig.fs.volume().open_records(RecordSettings { boot: Some(uuid::Uuid::from_u128(1)), sync_interval: interval });
    rig.scan();
    for n in 0..20 {
        let temp = format!("k{n}.tmp");
        let opened = rig.create(&temp).expect("a temp file");
        // Small appends make XFS allocate ahead.
        for part in 0..80u64 {
            rig.fs.write(opened.handle, &[1; 64 << 10], part << 16).expect("a write");
        }
        rig.fs.close(opened.handle);
        drop(opened);
        rig.rename(&temp, &format!("k{n}.data")).expect("a publish");
    }
    assert!(rig.fs.volume().sync_disk(DiskNo(0)), "a sync");
    assert_eq!(rig.fs.volume().used_bytes(DiskNo(0)), rig.du(0));
}

#[test]
fn most_free_puts_a_new_file_where_there_is_most_room_under_the_bound_and_none_is_away() {
    let (small, large) = (LoopDisk::ext4("32M", &[]), LoopDisk::ext4("96M", &[]));
    let rig = Rig::placing(vec![small.path(), large.path()], PlacementPolicy::MostFree);
    rig.scan();
    for n in 0..60 {
        rig.store(&format!("k{n}"), &vec![1; 1 << 20]).expect("a store");
        rig.evict();
    }
    let held: Vec<usize> =
        (0..2).map(|disk| names_in(&rig.dirs[disk]).iter().filter(|n| n.starts_with('k')).count()).collect();
    assert!(held[1] > held[0] && held[0] > 0, "{held:?} files");
    assert!(rig.fs.volume().disk_reports().iter().all(|disk| disk.away_files == 0));
    assert_eq!(rig.load("k59.data").expect("a load").len(), 1 << 20);
}

#[test]
fn a_mark_of_use_counts_at_the_earlier_of_its_time_and_now() {
    let rig = Rig::limited(1, 4 * MIB);
    for n in 0..40 {
        rig.store(&format!("k{n}"), &vec![7; 64 << 10]).expect("a store");
    }
    let mark = |name: &str, atime| {
        let ino = rig.lookup(name).expect("a hit").ino;
        rig.fs.set_attributes(ino, None, &NewAttr { atime: Some(atime), ..NewAttr::default() }, 0).expect("a mark");
    };
    // Look-ups by `mark` itself are uses too: what is marked as long unused goes first all the same.
    mark("k39.data", NewTime::At(1_000_000_000));
    mark("k0.data", NewTime::Now);
    mark("k1.data", NewTime::At(i64::MAX));
    let gone = rig.fs.volume().evict_bytes(DiskNo(0), MIB);
    assert!(gone >= 16, "{gone}");
    assert!(rig.lookup("k39.data").is_err(), "marked as long unused");
    assert!(rig.lookup("k0.data").is_ok() && rig.lookup("k1.data").is_ok(), "marked as used");
    let in_an_hour = std::time::SystemTime::now() + std::time::Duration::from_secs(3600);
    let in_an_hour = in_an_hour.duration_since(std::time::UNIX_EPOCH).expect("after the epoch").as_nanos();
    assert!(i128::from(rig.lookup("k1.data").expect("it").attr.atime_ns) < in_an_hour as i128);
}

#[test]
fn recency_is_durable_on_a_file_system_that_keeps_no_access_times() {
    let disk = LoopDisk::ext4("64M", &[]);
    let remounted = std::process::Command::new("mount").args(["-o", "remount,noatime"]).arg(disk.path()).status();
    assert!(remounted.expect("mount").success());
    let limit = Amount::Bytes(8 * MIB);
    let rig = Rig::build(vec![disk.path()], limit, |_, real| Box::new(real));
    rig.scan();
    for n in 0..60 {
        rig.store(&format!("k{n}"), &vec![7; 64 << 10]).expect("a store");
    }
    std::thread::sleep(std::time::Duration::from_millis(20)); // a tick of the disk's clock
    (0..10).for_each(|n| assert_eq!(rig.load(&format!("k{n}.data")).expect("a load").len(), 64 << 10));
    assert_eq!(rig.fs.volume().flush_recency(std::time::Duration::ZERO, None), 10);
    let again = Rig::build(vec![disk.path()], limit, |_, real| Box::new(real));
    again.scan();
    again.fs.volume().evict_bytes(DiskNo(0), 2 * MIB);
    assert!((0..10).all(|n| again.lookup(&format!("k{n}.data")).is_ok()), "the hot set went");
    assert!(again.lookup("k10.data").is_err());
}

#[test]
fn a_name_used_a_moment_ago_stays_while_a_colder_one_is_there() {
    let temp = tempfile::tempdir().expect("a directory");
    let dir = temp.path().join("disk");
    std::fs::create_dir(&dir).expect("a directory");
    let rig = Rig::evicting(vec![dir.clone()], 16 * MIB, EvictionPolicy::ScanResistant);
    for n in 0..100 {
        rig.store(&format!("k{n}"), &vec![7; 64 << 10]).expect("a store");
    }
    // In use, and long ago: colder than what is on probation and was found a moment ago.
    for n in 0..50 {
        rig.load(&format!("k{n}.data")).expect("a load");
        let ino = rig.lookup(&format!("k{n}.data")).expect("a hit").ino;
        let long_ago = NewAttr { atime: Some(NewTime::At(1_000_000_000 + n)), ..NewAttr::default() };
        rig.fs.set_attributes(ino, None, &long_ago, 0).expect("a mark");
    }
    (50..100).for_each(|n| assert!(rig.lookup(&format!("k{n}.data")).is_ok()));
    rig.fs.volume().evict_bytes(DiskNo(0), 2 * MIB);
    let young = (50..100).filter(|n| rig.lookup(&format!("k{n}.data")).is_ok()).count();
    assert_eq!(young, 50, "names within the grace time went before colder ones");
}

#[test]
fn what_a_file_system_allocates_ahead_of_a_writer_evicts_nothing_once_the_file_is_closed() {
    let disk = LoopDisk::new("512M", &["mkfs.xfs", "-q", "-f"]);
    let rig = Rig::build(vec![disk.path()], Amount::Percent(95.0), |_, real| Box::new(real));
    rig.scan();
    for n in 0..19 {
        let temp = format!("k{n}.tmp");
        let opened = rig.create(&temp).expect("a temp file");
        // As `head` writes: many small appends.
        (0..256u64).for_each(|part| rig.fs.write(opened.handle, &[1; 64 << 10], part << 16).expect("a write"));
        rig.rename(&temp, &format!("k{n}.data")).expect("a publish");
        let handle = opened.handle;
        drop(opened);
        rig.fs.close(handle);
        assert_eq!(rig.fs.volume().used_bytes(DiskNo(0)), rig.du(0));
        assert_eq!(rig.evict(), 0, "304 MiB fit");
    }
}
