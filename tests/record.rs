//! The sync record in process: what a mount does with the record that it finds. A cut is a mount with another boot id.

mod common;
#[path = "record/refusing.rs"]
mod refusing;

use std::fs;
use std::os::unix::fs::symlink;
use std::sync::Arc;
use std::time::Duration;

use common::{READ, Rig, is};
use kvspan::fs::OpenIntent;
use kvspan::volume::attr::{DiskNo, Ino};
use kvspan::volume::record::RecordSettings;
use refusing::{Refused, Refusing};
use rustix::io::Errno;
use uuid::Uuid;

/// A volume over labelled disks in one boot, not scanned.
fn boot(rig: &Rig, boot: u128) -> Rig {
    let rig = Rig::over(rig.dirs.clone());
    open_records(&rig, boot);
    rig
}

/// The same with disks that refuse what they are told to.
fn refusing(rig: &Rig, boot: u128, calls: &[&'static str]) -> (Rig, Refused) {
    let refused: Refused = Arc::default();
    refused.lock().expect("the set").extend(calls);
    let wrapped = Arc::clone(&refused);
    let rig = Rig::with_io(rig.dirs.clone(), move |_, real| Box::new(Refusing { real, refused: Arc::clone(&wrapped) }));
    open_records(&rig, boot);
    (rig, refused)
}

fn open_records(rig: &Rig, boot: u128) {
    let settings = RecordSettings { boot: Some(Uuid::from_u128(boot)), sync_interval: Duration::from_secs(30) };
    rig.fs.volume().open_records(settings);
}

/// The first mount of new disks, scanned. The directories live as long as it does.
fn first(disks: usize) -> Rig {
    let rig = Rig::unscanned(disks);
    for dir in &rig.dirs {
        fs::create_dir(dir.join(".kvspan")).expect("a directory");
    }
    open_records(&rig, 1);
    rig.scan();
    rig
}

fn record(rig: &Rig, disk: usize) -> serde_json::Value {
    let text = fs::read_to_string(rig.on_disk(disk, ".kvspan/record")).unwrap_or_default();
    text.lines().next().and_then(|line| serde_json::from_str(line).ok()).unwrap_or_default()
}

fn close(rig: &Rig) {
    (0..rig.dirs.len()).for_each(|n| rig.fs.volume().close_record(DiskNo(n as u8)));
}

/// Longer than file systems' clocks and ours may differ.
fn wait_for_the_margin() {
    std::thread::sleep(Duration::from_millis(2_100));
}

#[test]
fn a_record_is_on_the_disk_before_the_first_file_and_not_before() {
    let rig = first(1);
    assert!(record(&rig, 0).is_null());
    assert!(is(&rig.lookup("nobody"), Errno::NOENT));
    rig.mkdir("d").expect("a directory");
    assert!(record(&rig, 0).is_null());
    rig.store("k", b"x").expect("a store");
    assert_eq!(record(&rig, 0)["clean"], false);
    assert!(!rig.on_disk(0, ".kvspan/record.tmp").exists());
}

#[test]
fn what_was_not_durable_goes_after_a_cut_and_directories_stay() {
    let old = first(2);
    for n in 0..20 {
        old.store(&format!("early{n}"), b"durable").expect("a store");
    }
    wait_for_the_margin();
    assert!(old.fs.volume().sync_disk(DiskNo(0)) && old.fs.volume().sync_disk(DiskNo(1)));
    old.mkdir("d").expect("a directory");
    for n in 0..20 {
        old.store(&format!("late{n}"), b"perhaps").expect("a store");
        old.write(&format!("d/late{n}"), b"perhaps").expect("a file");
    }
    let rig = boot(&old, 2);
    // Before the scan: probes and listings apply the rule too.
    assert!(is(&rig.lookup("late0.data"), Errno::NOENT));
    assert!(is(&rig.lookup("d/late0"), Errno::NOENT));
    assert!(rig.names("d", 7).is_empty());
    assert_eq!(rig.load("early0.data").expect("a load"), b"durable");
    rig.scan();
    assert_eq!(rig.names("", 100).len(), 21);
    assert_eq!(rig.fs.volume().lost_removed(), 40);
    assert!(rig.disks_with("late0.data").is_empty());
    for n in 0..2 {
        assert_eq!(record(&rig, n)["remove"]["windows"].as_array().map(Vec::len), Some(0), "the removal is over");
    }
}

#[test]
fn the_same_boot_or_a_clean_mark_loses_nothing() {
    let old = first(1);
    old.store("k", b"x").expect("a store");
    let killed = boot(&old, 1);
    killed.scan();
    assert_eq!(killed.load("k.data").expect("a load"), b"x");
    killed.store("l", b"y").expect("a store");
    close(&killed);
    assert_eq!(record(&killed, 0)["clean"], true);
    let rig = boot(&old, 2);
    rig.scan();
    assert_eq!(rig.load("k.data").and(rig.load("l.data")).expect("loads"), b"y");
    assert_eq!(rig.fs.volume().lost_removed(), 0);
    assert_eq!(record(&rig, 0)["clean"], true, "a mount that only reads leaves the mark");
}

#[test]
fn a_file_open_for_writing_at_the_end_takes_the_clean_mark() {
    let old = first(1);
    let opened = old.create("k.tmp").expect("a file");
    close(&old);
    assert_eq!(record(&old, 0)["clean"], false);
    old.fs.close(opened.handle);
    close(&old);
    assert_eq!(record(&old, 0)["clean"], true);
    old.store("l", b"y").expect("a store");
    assert_eq!(record(&old, 0)["clean"], false, "and so does the next store");
}

#[test]
fn an_existing_file_that_was_written_or_truncated_goes_too() {
    let old = first(1);
    for name in ["read", "written", "truncated"] {
        old.write(name, b"0123456789").expect("a file");
    }
    wait_for_the_margin();
    close(&old);
    let second = boot(&old, 2);
    second.scan();
    let ino = |name: &str| second.lookup(name).expect("the entry").ino;
    let opened = second.fs.open(ino("read"), READ).expect("an open");
    second.fs.close(opened.handle);
    assert_eq!(record(&second, 0)["clean"], true);
    let write = OpenIntent { write: true, ..OpenIntent::default() };
    let opened = second.fs.open(ino("written"), write).expect("an open");
    assert_eq!(record(&second, 0)["clean"], false);
    second.fs.write(opened.handle, b"new", 0).expect("a write");
    second.fs.close(opened.handle);
    let shorter = kvspan::volume::disk::NewAttr { size_bytes: Some(3), ..Default::default() };
    second.fs.set_attributes(ino("truncated"), None, &shorter, 0).expect("a truncation");
    let third = boot(&old, 3);
    third.scan();
    assert_eq!(third.names("", 10), ["read"]);
}

#[test]
fn what_is_not_a_sound_record_is_none() {
    let old = first(1);
    old.store("k", b"x").expect("a store");
    let path = old.on_disk(0, ".kvspan/record");
    let good = fs::read(&path).expect("a record");
    let elsewhere = old.on_disk(0, "elsewhere");
    fs::write(&elsewhere, &good).expect("a file");
    let garbage: [&[u8]; 5] = [b"", &[0; 512], &good[..40], b"{}\n0000000000000000\n", &[b'x'; 2 << 20]];
    for bytes in garbage {
        fs::write(&path, bytes).expect("a file");
        let rig = boot(&old, 2);
        rig.scan();
        assert_eq!(rig.load("k.data").expect("a load"), b"x");
    }
    fs::remove_file(&path).and_then(|()| symlink(&elsewhere, &path)).expect("a symlink");
    let rig = boot(&old, 2);
    rig.scan();
    assert_eq!(rig.load("k.data").expect("a load"), b"x");
    rig.store("l", b"y").expect("a store");
    assert!(path.symlink_metadata().expect("the record").is_file(), "replaced, not followed");
    assert_eq!(fs::read(&elsewhere).expect("the file"), good);
}

#[test]
fn a_disk_that_cannot_keep_a_record_takes_no_files() {
    let rig = first(2);
    let (first, second) = (rig.name_owned_by(0, "a"), rig.name_owned_by(0, "b"));
    fs::create_dir(rig.on_disk(0, ".kvspan/record.tmp")).expect("a directory in the way");
    rig.write(&first, b"x").expect("the next disk takes it");
    assert_eq!(rig.disks_with(&first), [1]);
    fs::remove_dir(rig.on_disk(0, ".kvspan/record.tmp")).expect("removed");
    rig.write(&second, b"x").expect("a file");
    assert_eq!(rig.disks_with(&second), [0]);
}

#[test]
fn figures_outlive_a_mount() {
    let old = first(1);
    for n in 0..3 {
        old.store(&format!("k{n}"), &vec![7; 100_000 * (n + 1)]).expect("a store");
    }
    close(&old);
    let sizes = old.fs.volume().object_sizes();
    assert!(sizes.largest_bytes >= 300_000 && sizes.published == 3);
    let rig = boot(&old, 2);
    assert_eq!(rig.fs.volume().object_sizes(), sizes);
    let used = old.fs.volume().used_bytes(DiskNo(0));
    let recorded = rig.fs.volume().used_bytes(DiskNo(0));
    assert!(recorded > 0, "{used} bytes are known before the scan");
    rig.scan();
    assert_eq!(rig.fs.volume().used_bytes(DiskNo(0)), used);
}

#[test]
fn a_long_open_file_is_listed_until_a_sync_after_its_release() {
    let old = first(1);
    let settings = RecordSettings { boot: Some(Uuid::from_u128(1)), sync_interval: Duration::from_millis(50) };
    old.fs.volume().open_records(settings);
    let opened = old.create("long.tmp").expect("a file");
    old.store("short", b"x").expect("a store");
    std::thread::sleep(Duration::from_millis(2_300));
    let listed = |rig: &Rig| record(rig, 0)["open"].as_array().map(Vec::len);
    assert!(old.fs.volume().sync_disk(DiskNo(0)));
    assert_eq!(listed(&old), Some(1));
    old.rename("long.tmp", "long.data").expect("a publish");
    old.fs.close(opened.handle);
    let cut = boot(&old, 2);
    cut.fs.lookup(Ino::ROOT, b"long.data").expect_err("a rename does not make it durable");
    assert!(cut.lookup("short.data").is_ok(), "it holds the others back no longer");
    let again = first(1);
    again.fs.volume().open_records(settings);
    let opened = again.create("long.tmp").expect("a file");
    std::thread::sleep(Duration::from_millis(2_300));
    assert!(again.fs.volume().sync_disk(DiskNo(0)));
    again.rename("long.tmp", "long.data").expect("a publish");
    again.fs.close(opened.handle);
    assert_eq!(listed(&again), Some(1));
    assert!(again.fs.volume().sync_disk(DiskNo(0)));
    assert_eq!(listed(&again), Some(0));
    assert!(boot(&again, 2).lookup("long.data").is_ok());
}

#[test]
fn a_torn_file_that_cannot_be_removed_is_a_miss_and_goes_later() {
    let old = first(1);
    old.store("k", b"torn, perhaps").expect("a store");
    let (rig, refused) = refusing(&old, 2, &["unlink"]);
    assert!(is(&rig.lookup("k.data"), Errno::NOENT));
    rig.scan();
    assert!(is(&rig.lookup("k.data"), Errno::NOENT));
    assert!(rig.names("", 10).is_empty());
    assert!(is(&rig.write("k.data", b"x"), Errno::IO), "the record cannot be replaced either");
    refused.lock().expect("the set").clear();
    assert!(is(&rig.write("k.data", b"x"), Errno::EXIST), "it is in the way, and is not opened");
    assert!(rig.fs.volume().sync_disk(DiskNo(0)));
    assert_eq!(record(&rig, 0)["remove"]["windows"].as_array().map(Vec::len), Some(1), "it is not forgotten");
    let rig = boot(&old, 2);
    rig.scan();
    assert!(rig.disks_with("k.data").is_empty());
    assert_eq!(record(&rig, 0)["remove"]["windows"].as_array().map(Vec::len), Some(0));
}

#[test]
fn a_record_that_cannot_be_read_is_not_taken_for_none() {
    let old = first(1);
    old.store("k", b"torn, perhaps").expect("a store");
    let (rig, refused) = refusing(&old, 2, &["read"]);
    assert!(is(&rig.lookup("k.data"), Errno::NOENT), "nobody knows whether it is whole");
    assert!(is(&rig.write("l", b"x"), Errno::IO));
    assert_eq!(rig.disks_with("k.data"), [0], "and nothing is removed on suspicion");
    refused.lock().expect("the set").clear();
    rig.write("l", b"x").expect("a file, once it can be read");
    assert!(is(&rig.lookup("k.data"), Errno::NOENT));
    assert!(rig.disks_with("k.data").is_empty());
}

#[test]
fn a_failed_sync_takes_what_was_not_durable_also_when_the_disk_says_nothing_about_it() {
    let old = first(1);
    old.store("early", b"durable").expect("a store");
    wait_for_the_margin();
    close(&old);
    let (rig, refused) = refusing(&old, 1, &["sync_fs"]);
    rig.scan();
    wait_for_the_margin();
    rig.store("late", b"perhaps").expect("a store");
    let writing = rig.create("writing.tmp").expect("a file");
    assert!(!rig.fs.volume().sync_disk(DiskNo(0)));
    assert_eq!(rig.names("", 10), ["early.data"]);
    assert!(is(&rig.rename("writing.tmp", "writing.data"), Errno::NOENT), "its writer is told");
    rig.fs.close(writing.handle);
    rig.store("next", b"perhaps").expect("a store");
    // The record is written before the files go, so the next mount removes what is left.
    refused.lock().expect("the set").insert("stat");
    assert!(!rig.fs.volume().sync_disk(DiskNo(0)));
    refused.lock().expect("the set").clear();
    assert_eq!(rig.names("", 10), ["early.data"]);
    let rig = boot(&old, 1);
    rig.scan();
    assert_eq!(rig.names("", 10), ["early.data"]);
    assert!(rig.disks_with("next.data").is_empty() && rig.disks_with("late.data").is_empty());
}

#[test]
fn what_a_clean_unmount_has_made_durable_survives_a_later_cut() {
    let old = first(1);
    for n in 0..20 {
        old.store(&format!("old{n}"), b"durable").expect("a store");
    }
    close(&old);
    assert_eq!(record(&old, 0)["clean"], true);
    // Mounted again at once: the clock has hardly moved since the last store.
    std::thread::sleep(Duration::from_millis(30));
    let next = boot(&old, 1);
    next.scan();
    for n in 0..20 {
        next.store(&format!("new{n}"), b"perhaps").expect("a store");
    }
    let rig = boot(&next, 2);
    rig.scan();
    assert!((0..20).all(|n| rig.load(&format!("old{n}.data")).is_ok_and(|bytes| bytes == b"durable")));
    assert_eq!(rig.fs.volume().lost_removed(), 20);
}

#[test]
fn a_read_only_mount_shows_nothing_that_may_be_torn_and_removes_nothing() {
    let old = first(1);
    old.store("k", b"perhaps").expect("a store");
    let rig = Rig::over(old.dirs.clone());
    rig.fs.volume().load_removed(false, true);
    open_records(&rig, 2);
    rig.scan();
    assert!(is(&rig.lookup("k.data"), Errno::NOENT));
    assert_eq!(rig.disks_with("k.data"), [0], "it is still on the disk");
    let writing = boot(&old, 2);
    writing.scan();
    assert!(writing.disks_with("k.data").is_empty(), "a mount that writes removes it");
    assert_eq!(writing.fs.volume().lost_removed(), 1);
}
