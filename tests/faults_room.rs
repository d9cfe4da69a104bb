//! Other tenants and small file systems: the bound follows what is really there. Needs root, for loop devices.
//! Names are sentences of docs/SEMANTICS.md.

mod common;

use std::io::Write;

use common::loops::{LoopDisk, subdir};
use common::{Rig, is, names_in};
use kvspan::config::Amount;
use kvspan::volume::attr::DiskNo;
use rustix::io::Errno;

const MIB: u64 = 1 << 20;

fn rig_on(dirs: Vec<std::path::PathBuf>, limit: Amount) -> Rig {
    let rig = Rig::build(dirs, limit, |_, real| Box::new(real));
    rig.scan();
    rig
}

fn fill(rig: &Rig, prefix: &str, count: usize, bytes: usize) {
    let data = vec![3; bytes];
    for n in 0..count {
        rig.store(&format!("{prefix}{n}"), &data).expect("a store is never refused for room");
        rig.evict();
    }
}

fn available_bytes(dir: &std::path::Path) -> u64 {
    let fs = rustix::fs::statvfs(dir).expect("statvfs");
    fs.f_bavail * fs.f_frsize
}

#[test]
fn without_any_option_a_disk_is_not_filled_and_its_reserve_stays_free() {
    let disk = LoopDisk::ext4("64M", &[]);
    let rig = rig_on(vec![disk.path()], Amount::Percent(95.0));
    let size_bytes = rig.fs.volume().disks()[0].space().size_bytes;
    fill(&rig, "k", 300, 512 << 10);
    assert!(available_bytes(&disk.path()) >= size_bytes / 50, "the reserve of 2 % is gone");
    assert!(rig.du(0) > 32 * MIB, "the disk is used: {}", rig.du(0));
}

#[test]
fn foreign_files_that_eat_the_disk_shrink_the_cache_and_are_never_deleted() {
    let disk = LoopDisk::ext4("64M", &[]);
    let rig = rig_on(vec![subdir(&disk.path(), "cache")], Amount::Percent(95.0));
    fill(&rig, "k", 80, 512 << 10);
    let before = rig.du(0);
    let foreign = disk.path().join("foreign");
    let mut tenant = std::fs::File::create(&foreign).expect("a foreign file");
    for _ in 0..8 {
        tenant.write_all(&vec![9; 3 << 20]).expect("the other tenant finds room");
        // As the evictor does each second: what another has taken is not seen before, and root's blocks are no way out.
        rig.evict();
        fill(&rig, "more", 20, 512 << 10);
    }
    assert!(rig.du(0) < before - 4 * MIB, "{} of {before} bytes are still held", rig.du(0));
    assert_eq!(std::fs::metadata(&foreign).expect("it stays").len(), 24 << 20);
    drop(tenant);
    std::fs::remove_file(&foreign).expect("removed");
    fill(&rig, "again", 80, 512 << 10);
    let (now, free) = (rig.du(0), available_bytes(&disk.path()));
    assert!(now > before - 4 * MIB, "of the room that came back {now} bytes are used, {free} are free");
}

#[test]
fn a_disk_that_is_full_to_the_last_byte_starts_and_makes_room() {
    let disk = LoopDisk::ext4("48M", &[]);
    let mut n = 0;
    while std::fs::write(disk.path().join(format!("old{n}.data")), vec![1; 1 << 20]).is_ok() {
        n += 1;
    }
    assert_eq!(available_bytes(&disk.path()) / MIB, 0);
    let rig = rig_on(vec![disk.path()], Amount::Percent(95.0));
    assert!(rig.evict() > 0);
    fill(&rig, "new", 20, 256 << 10);
    assert!((0..20).all(|n| rig.lookup(&format!("new{n}.data")).is_ok()));
}

#[test]
fn a_disk_filled_by_others_is_passed_over_and_no_create_fails() {
    let (full, free) = (LoopDisk::ext4("32M", &[]), LoopDisk::ext4("64M", &[]));
    let mut n = 0;
    while std::fs::write(full.path().join(format!("foreign{n}")), vec![1; 1 << 20]).is_ok() {
        n += 1;
    }
    let rig = rig_on(vec![subdir(&full.path(), "cache"), free.path()], Amount::Percent(95.0));
    for n in 0..1000 {
        rig.write(&format!("k{n}.data"), b"x").expect("no create fails");
    }
    assert_eq!(names_in(&rig.dirs[0]).len(), 0);
    assert!(names_in(&full.path()).iter().filter(|name| name.starts_with("foreign")).count() >= n);
}

#[test]
fn a_limit_above_the_disk_and_a_reserve_larger_than_it_are_clamped() {
    let disk = LoopDisk::ext4("32M", &[]);
    let rig = rig_on(vec![disk.path()], Amount::Bytes(1 << 40));
    let bound = rig.fs.volume().capacity().disks()[0].bound_bytes;
    assert!(bound < 32 * MIB, "{bound}");
    fill(&rig, "k", 100, 512 << 10);
    let none = Rig::reserving(vec![disk.path()], Amount::Bytes(1 << 40));
    none.scan();
    assert_eq!(none.fs.statfs().blocks_free, 0);
    none.evict();
    assert!(is(&none.create("refused"), Errno::NOSPC));
    assert!(none.names("", 100).is_empty(), "what was there had to go: nothing may be held");
}

#[test]
fn a_disk_with_few_inodes_evicts_by_inodes() {
    let disk = LoopDisk::ext4("32M", &["-N", "64"]);
    let rig = rig_on(vec![disk.path()], Amount::Percent(95.0));
    fill(&rig, "k", 300, 100);
    let left = rig.names("", 100).len();
    assert!((20..=60).contains(&left), "{left} files are left of about 50 inodes");
    assert!(rig.lookup("k299.data").is_ok());
}

#[test]
fn a_file_system_that_reports_no_inodes_is_not_full() {
    let disk = LoopDisk::new("128M", &["mkfs.btrfs", "-q", "-M"]);
    let rig = rig_on(vec![disk.path()], Amount::Percent(50.0));
    assert_eq!(rig.fs.volume().disks()[0].space().inodes, 0);
    fill(&rig, "k", 100, 256 << 10);
    assert!(rig.lookup("k99.data").is_ok());
    assert_eq!(rig.fs.statfs().inodes, 0);
}

#[test]
fn three_disks_on_one_file_system_stay_together_inside_its_bound() {
    let disk = LoopDisk::ext4("64M", &[]);
    let dirs: Vec<_> = (0..3).map(|n| subdir(&disk.path(), &format!("d{n}"))).collect();
    let rig = rig_on(dirs, Amount::Percent(60.0));
    let size_bytes = rig.fs.volume().disks()[0].space().size_bytes;
    assert!(rig.fs.statfs().blocks * 4096 <= size_bytes * 6 / 10);
    fill(&rig, "k", 300, 256 << 10);
    let held: u64 = (0..3).map(|n| rig.du(n)).sum();
    assert!(held <= size_bytes * 6 / 10, "{held} of {size_bytes}");
    assert!((0..3).all(|n| rig.du(n) > 0));
}

#[test]
fn many_small_files_hold_the_limit_in_blocks() {
    let count = if std::env::var_os("KVSPAN_FULL").is_some() { 1_000_000 } else { 100_000 };
    let disk = LoopDisk::ext4("1G", &["-i", "4096"]);
    let rig = rig_on(vec![disk.path()], Amount::Bytes(64 * MIB));
    let data = [5; 1024];
    for n in 0..count {
        rig.write(&format!("k{n}.data"), &data).expect("a file");
        if n % 1000 == 0 {
            rig.evict();
            assert!(rig.fs.volume().used_bytes(DiskNo(0)) <= 64 * MIB);
        }
    }
    rig.evict();
    assert!(rig.du(0) <= 64 * MIB, "{}", rig.du(0));
    assert_eq!(rig.du(0), rig.fs.volume().used_bytes(DiskNo(0)));
    assert!(rig.names("", 1000).len() > 10_000);
}
