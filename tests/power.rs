//! Power cuts on real file systems: after one, no name is short or holds bytes that were never stored, and what was
//! synced is there. Needs root, loop devices, xfs_io and strace; skipped with the reason where they are missing.

use std::fs;
use std::io::Write;
use std::thread;
use std::time::Duration;

#[path = "power/rig.rs"]
mod rig;

use rig::{Cut, Rig, length_of, object, wait_until};

/// One write(2) of this takes longer than a sync interval.
const BIG: usize = 800_000_000;

fn skipped() -> bool {
    let missing = rig::missing();
    if let Some(reason) = &missing {
        eprintln!("skipped: {reason}");
    }
    missing.is_some()
}

/// What was stored under a key.
fn length(key: &str) -> usize {
    match key.rsplit_once('-') {
        Some((_, n)) => length_of(n.parse().expect("a number")),
        None => BIG,
    }
}

/// Small objects that are synced, one big single write across syncs, small ones after it, and the cut.
fn cut_in_flight(fs_type: &str, how: Cut) {
    if skipped() {
        return;
    }
    let mut rig = Rig::new(fs_type, "3G");
    rig.mount("sync_interval=300ms");
    rig.store_many("early", 40);
    rig.wait_until_synced();
    let bytes = object("big", BIG);
    let (temp, name) = (rig.path("big.tmp"), rig.path("big.data"));
    let (done, written) = std::sync::mpsc::channel();
    let writer = thread::spawn(move || {
        let mut file = fs::File::create(&temp)?;
        let length = file.write(&bytes)?;
        assert_eq!(length, BIG, "one write(2)");
        fs::rename(&temp, name)?;
        // The handle stays open: RELEASE comes after the publish.
        done.send(()).expect("the test waits");
        thread::sleep(Duration::from_millis(200));
        std::io::Result::Ok(())
    });
    let mut late = 0;
    while written.recv_timeout(Duration::from_millis(5)).is_err() && !writer.is_finished() {
        rig.store(&format!("late-{late}"), length_of(late)).expect("a store");
        late += 1;
    }
    assert!(rig.path("big.data").exists(), "the big one is published: {:?}", writer.is_finished());
    let record = rig.record();
    rig.cut(how);
    writer.join().expect("the writer").expect("the write");
    let torn = rig.torn_on_disk(length);
    let big_is_torn = torn.iter().any(|name| name == "big.data");
    let torn = torn.len();
    rig.mount("sync_interval=30s");
    let removed = rig.wait_until_ready();
    let whole = rig.check_whole(length);
    eprintln!(
        "{fs_type} {how:?}: {torn} torn names on the disk, {removed} files removed; {whole} names whole, of them {} of 40 \
         early, {} of {late} late; the big one was torn: {big_is_torn}, is served: {}; open in the record: {}",
        rig.count("early", 40),
        rig.count("late", late),
        rig.exists("big"),
        record["open"],
    );
    assert_eq!(rig.count("early", 40), 40, "what was synced is there\n{}", rig.log());
    assert!(removed as usize >= torn);
    rig.store_many("new", 5);
    rig.umount();
    assert_eq!(rig.record()["clean"], true);
    rig.mount("sync_interval=30s");
    assert_eq!(rig.wait_until_ready(), 0);
    assert_eq!(rig.check_whole(length), whole + 5, "nothing goes twice");
}

#[test]
fn a_cut_of_ext4_leaves_no_torn_name() {
    cut_in_flight("ext4", Cut::Bare);
}

#[test]
fn a_cut_of_xfs_leaves_no_torn_name() {
    cut_in_flight("xfs", Cut::Bare);
}

#[test]
fn an_ext4_that_writes_its_log_and_not_the_data_leaves_no_torn_name() {
    cut_in_flight("ext4", Cut::Log);
}

#[test]
fn an_xfs_that_writes_its_log_and_not_the_data_leaves_no_torn_name() {
    cut_in_flight("xfs", Cut::Log);
}

#[test]
fn a_daemon_that_is_killed_loses_nothing() {
    if skipped() {
        return;
    }
    let mut rig = Rig::new("ext4", "1G");
    rig.mount("sync_interval=300ms");
    for round in 0..3 {
        rig.store_many(&format!("k{round}"), 60);
        rig.kill();
        rig.mount("sync_interval=30s");
        assert_eq!(rig.wait_until_ready(), 0, "nothing is removed\n{}", rig.log());
        for earlier in 0..=round {
            assert_eq!(rig.count(&format!("k{earlier}"), 60), 60);
        }
        rig.check_whole(length);
    }
}

#[test]
fn a_sync_that_fails_makes_what_was_not_durable_a_miss_for_ever() {
    if skipped() {
        return;
    }
    let mut rig = Rig::new("ext4", "1G");
    rig.mount("sync_interval=500ms");
    rig.store_many("early", 20);
    rig.wait_until_synced();
    thread::sleep(Duration::from_secs(1));
    rig.store_many("late", 20);
    let temp = rig.path("open-1.tmp");
    let mut open = fs::File::create(&temp).expect("a file");
    open.write_all(&object("open-1", length_of(1))).expect("a write");
    rig.trace("inject=syncfs:error=EIO:when=1");
    wait_until("the sync has failed", || rig.log().contains("files that were not durable were removed"));
    rig.stop_tracing();
    assert_eq!(rig.count("late", 20), 0, "misses at once\n{}", rig.log());
    assert_eq!(rig.count("early", 20), 20);
    assert!(fs::rename(&temp, rig.path("open-1.data")).is_err(), "its writer is told");
    drop(open);
    rig.store_many("after", 20);
    rig.wait_until_synced();
    assert_eq!(rig.record()["remove"]["windows"].as_array().map(Vec::len), Some(0), "the removal is over");
    rig.kill();
    rig.mount("sync_interval=30s");
    rig.wait_until_ready();
    assert_eq!(["late", "early", "after"].map(|prefix| rig.count(prefix, 20)), [0, 20, 20]);
    rig.check_whole(length);
}

fn cut_twice(fs_type: &str) {
    if skipped() {
        return;
    }
    let mut rig = Rig::new(fs_type, "2G");
    rig.mount("sync_interval=300ms");
    rig.store_many("early", 20);
    rig.wait_until_synced();
    rig.umount();
    rig.mount("sync_interval=1h");
    rig.wait_until_ready();
    rig.store_many("lost", 300);
    rig.cut(Cut::Log);
    let torn = rig.torn_on_disk(length).len();
    // The record was written up to two seconds before the cut.
    thread::sleep(Duration::from_secs(3));

    // In the middle of the recovery scan the daemon is killed, with objects that it has taken meanwhile.
    rig.mount_traced("sync_interval=1h", "inject=unlinkat:delay_enter=20000");
    rig.store_many("second", 5);
    rig.kill();
    let left = fs::read_dir(rig.disk()).expect("the disk").count();
    let windows = rig.record()["remove"]["windows"].clone();
    assert_eq!(windows.as_array().map(Vec::len), Some(1), "the scan had not ended");
    rig.mount("sync_interval=1h");
    let removed = rig.wait_until_ready();
    eprintln!("{fs_type}: {torn} torn by the first cut; {left} names when the scan was killed, then {removed} removed");
    assert!(torn > 0 && removed > 0, "the kill came in the middle");
    assert_eq!(["early", "second"].map(|prefix| rig.count(prefix, if prefix == "early" { 20 } else { 5 })), [20, 5]);
    rig.check_whole(length);

    // The second cut: right after a mount, before its first sync, with the record of before.
    rig.store_many("third", 50);
    rig.cut(Cut::Log);
    rig.mount_traced("sync_interval=1h", "inject=unlinkat:delay_enter=20000");
    rig.store_many("fourth", 5);
    // And a third one in the middle of the scan.
    rig.cut(Cut::Log);
    let torn = rig.torn_on_disk(length).len();
    rig.mount("sync_interval=1h");
    let removed = rig.wait_until_ready();
    let whole = rig.check_whole(length);
    eprintln!("{fs_type}: {torn} torn by the second and third cut, {removed} removed at last, {whole} whole");
    assert_eq!(rig.count("early", 20), 20);
    assert_eq!(rig.record()["remove"]["windows"].as_array().map(Vec::len), Some(0));
}

#[test]
fn two_cuts_and_a_kill_in_the_recovery_scan_leave_no_torn_name_on_ext4() {
    cut_twice("ext4");
}

#[test]
fn two_cuts_and_a_kill_in_the_recovery_scan_leave_no_torn_name_on_xfs() {
    cut_twice("xfs");
}
