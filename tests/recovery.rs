//! What a scan, a rescan and a return find and leave, in process. Names are sentences of docs/SEMANTICS.md.

mod common;

use std::fs::{self, File, FileTimes};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use common::faulty::{Call, Faults, FaultyDisk};
use common::{READ, Rig, WRITE, is, names_in, pause};
use kvspan::volume::attr::{DiskNo, Ino};
use kvspan::volume::rescan::{RescanReport, rescan_disk};
use rustix::io::Errno;

/// Scans all disks of a rig again.
fn rescan(rig: &Rig) -> RescanReport {
    let volume = rig.fs.volume();
    volume.begin_rescan();
    let one = |n: usize| rescan_disk(volume, DiskNo(n as u8), &|_| true).expect("a rescan").expect("to its end");
    let report = (0..rig.dirs.len()).map(one).fold(RescanReport::default(), RescanReport::and);
    rig.check();
    report
}

/// Sets contents' and last use's time; the change of attributes is now, whatever we do.
fn set_times(path: &Path, accessed: SystemTime, modified: SystemTime) {
    let times = FileTimes::new().set_accessed(accessed).set_modified(modified);
    File::options().write(true).open(path).and_then(|file| file.set_times(times)).expect("times are set");
}

fn ago(seconds: u64) -> SystemTime {
    SystemTime::now() - Duration::from_secs(seconds)
}

/// The names of a disk from the coldest to the warmest.
fn by_recency(rig: &Rig, disk: usize) -> Vec<String> {
    let names = rig.fs.volume().names_from_cold(DiskNo(disk as u8));
    names.iter().map(|name| String::from_utf8_lossy(name).into_owned()).collect()
}

#[test]
fn a_rescan_finds_what_was_added_changed_and_removed_behind_our_back() {
    let rig = Rig::new(2);
    for n in 0..40 {
        rig.write(&format!("k{n}"), b"12345").expect("a file");
    }
    rig.mkdir("d").expect("a directory");
    for n in 0..10 {
        rig.write(&format!("d/n{n}"), b"12345").expect("a file");
    }
    let quiet = rescan(&rig);
    assert_eq!(quiet, RescanReport { files: 50, ..RescanReport::default() });
    let place = |name: &str| rig.on_disk(rig.disks_with(name)[0], name);
    fs::remove_file(place("k1")).expect("removed");
    fs::remove_file(place("d/n1")).expect("removed");
    fs::write(place("k2"), vec![1; 100_000]).expect("changed");
    fs::create_dir_all(rig.on_disk(1, "e/f")).expect("a directory");
    fs::write(rig.on_disk(1, "e/f/new"), b"new").expect("added");
    fs::write(rig.on_disk(0, "new"), b"new").expect("added");
    assert!(is(&rig.lookup("new"), Errno::NOENT), "nobody has looked yet");
    let found = rescan(&rig);
    assert_eq!((found.files, found.added, found.removed, found.changed), (50, 2, 2, 1));
    assert!(is(&rig.lookup("k1"), Errno::NOENT) && is(&rig.lookup("d/n1"), Errno::NOENT));
    assert_eq!(rig.lookup("k2").expect("the entry").attr.size_bytes, 100_000);
    assert_eq!(rig.load("e/f/new").expect("a load"), b"new");
    assert_eq!(rig.load("new").expect("a load"), b"new");
    assert_eq!(rescan(&rig), RescanReport { files: 50, ..RescanReport::default() });
}

#[test]
fn a_rescan_keeps_every_file_in_its_place_of_recency_and_gives_new_ones_theirs() {
    let rig = Rig::new(1);
    for (n, name) in ["a", "b", "c", "d"].into_iter().enumerate() {
        rig.write(name, b"x").expect("a file");
        set_times(&rig.on_disk(0, name), ago(1000 - 100 * n as u64), ago(1000));
    }
    let rig = rig.remount();
    assert_eq!(by_recency(&rig, 0), ["a", "b", "c", "d"]);
    rig.load("b").expect("a load");
    rig.load("a").expect("a load");
    assert_eq!(by_recency(&rig, 0), ["c", "d", "b", "a"]);
    for (name, age) in [("oldest", 5000), ("between", 750), ("old", 1500), ("behind", 600), ("future", 0)] {
        fs::write(rig.on_disk(0, name), b"x").expect("added");
        let accessed = if age == 0 { SystemTime::now() + Duration::from_secs(5000) } else { ago(age) };
        set_times(&rig.on_disk(0, name), accessed, ago(5000));
    }
    rescan(&rig);
    let expected = ["oldest", "old", "c", "between", "d", "behind", "b", "a", "future"];
    // c was last used 800 s ago, d 700 s ago, b and a just now.
    assert_eq!(by_recency(&rig, 0), expected);
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).expect("a time").as_nanos() as i64;
    assert!(rig.lookup("future").expect("the entry").attr.atime_ns <= now + 1_000_000_000);
}

#[test]
fn a_rescan_drops_nothing_below_a_directory_that_cannot_be_read() {
    let faults = Arc::new(Faults::default());
    let temp = tempfile::tempdir().expect("a directory");
    let dir = temp.path().join("disk");
    fs::create_dir_all(dir.join("d/e")).expect("directories");
    for n in 0..5 {
        fs::write(dir.join(format!("d/e/k{n}")), b"x").expect("a file");
        fs::write(dir.join(format!("k{n}")), b"x").expect("a file");
    }
    let shared = Arc::clone(&faults);
    let rig = Rig::with_io(vec![dir.clone()], move |_, real| Box::new(FaultyDisk::new(real, Arc::clone(&shared))));
    rig.scan();
    fs::rename(dir.join("d/e/k0"), temp.path().join("k0")).expect("moved away");
    fs::remove_file(dir.join("k0")).expect("removed");
    for (path, names) in [("d", 0), ("d/e", 0), ("d/e", 2)] {
        faults.fail_listing(path, names);
        let found = rescan(&rig);
        assert_eq!((found.removed, found.unreadable), (u64::from(path == "d"), 1));
        assert!(rig.lookup("d/e/k0").is_ok());
    }
    faults.fail_listing("", 1);
    assert!(rescan_disk(rig.fs.volume(), DiskNo(0), &|_| true).is_err());
    assert_eq!(rig.names("d/e", 10).len(), 5);
    faults.heal();
    assert_eq!(rescan(&rig).removed, 1);
    assert!(is(&rig.lookup("d/e/k0"), Errno::NOENT));
}

#[test]
fn a_directory_removed_behind_our_back_goes_with_all_that_was_in_it() {
    let rig = Rig::new(3);
    rig.mkdir("d").and(rig.mkdir("d/e")).expect("directories");
    for n in 0..30 {
        rig.write(&format!("d/e/f{n}"), b"x").expect("a file");
    }
    fs::remove_dir_all(rig.on_disk(1, "d")).expect("removed");
    let gone = 30 - (0..30).filter(|n| !rig.disks_with(&format!("d/e/f{n}")).is_empty()).count();
    assert_eq!(rescan(&rig).removed, gone as u64);
    assert_eq!(rig.names("d/e", 100).len(), 30 - gone);
    let name = (0..).map(|n| format!("g{n}")).find(|name| rig.owner(name) == 1).expect("a name");
    rig.write(&format!("d/e/{name}"), b"x").expect("the directory is made again where it is needed");
    assert_eq!(rig.disks_with(&format!("d/e/{name}")), [1]);
    for disk in 0..3 {
        fs::remove_dir_all(rig.on_disk(disk, "d")).expect("removed");
    }
    rescan(&rig);
    assert!(is(&rig.lookup("d"), Errno::NOENT));
    assert!(rig.names("", 10).is_empty());
}

#[test]
fn a_rescan_leaves_files_alone_that_are_written_and_renamed_meanwhile() {
    let rig = Rig::new(2);
    for n in 0..300 {
        rig.write(&format!("k{n}"), b"x").expect("a file");
    }
    std::thread::scope(|scope| {
        let busy = scope.spawn(|| {
            for n in 0..300 {
                rig.rename(&format!("k{n}"), &format!("r{n}")).expect("a rename");
                rig.store(&format!("s{n}"), b"stored").expect("a store");
            }
        });
        while !busy.is_finished() {
            for n in 0..2 {
                let found = rescan_disk(rig.fs.volume(), DiskNo(n), &|_| true).expect("a rescan").expect("its end");
                assert_eq!(found.removed, 0);
            }
        }
    });
    assert_eq!(rig.names("", 100).len(), 600);
    assert_eq!(rescan(&rig).files, 600);
}

#[test]
fn a_rescan_that_is_stopped_drops_nothing() {
    let rig = Rig::new(1);
    rig.write("f", b"x").expect("a file");
    fs::remove_file(rig.on_disk(0, "f")).expect("removed");
    assert_eq!(rescan_disk(rig.fs.volume(), DiskNo(0), &|_| false).expect("a rescan"), None);
    assert!(rig.lookup("f").is_ok());
}

#[test]
fn an_orphan_is_removed_at_recovery_and_a_young_temp_file_is_kept() {
    let rig = Rig::with_temp_ttl(2, Duration::from_millis(300));
    let old = ["old.tmp", "x.bin_77.tmp", "d/.y.data.Ab12Cd", "z.part"];
    rig.mkdir("d").expect("a directory");
    for name in old.into_iter().chain(["plain", "kept.tmp.data"]) {
        rig.write(name, b"x").expect("a file");
    }
    std::thread::sleep(Duration::from_millis(400));
    rig.write("young.tmp", b"x").expect("a file");
    let rig = rig.remount();
    let mut names = rig.names("", 10);
    names.sort();
    assert_eq!(names, ["d", "kept.tmp.data", "plain", "young.tmp"]);
    assert!(old.iter().all(|name| rig.disks_with(name).is_empty()));
    let status = rig.fs.monitor().status(rig.fs.volume());
    assert_eq!((status.recovery.orphans_removed, status.recovery.removed_files, status.recovery.temp_files), (4, 4, 1));
}

#[test]
fn a_temp_file_that_is_open_or_whose_times_lie_in_the_future_is_no_orphan() {
    let rig = Rig::with_temp_ttl(1, Duration::from_millis(100));
    rig.write("future.tmp", b"x").expect("a file");
    set_times(&rig.on_disk(0, "future.tmp"), ago(0), SystemTime::now() + Duration::from_secs(3600));
    let written = rig.create("written.tmp").expect("a file");
    rig.write("read.tmp", b"x").expect("a file");
    let read = rig.fs.open(rig.lookup("read.tmp").expect("the entry").ino, READ).expect("an open");
    rig.write("left.tmp", b"x").expect("a file");
    std::thread::sleep(Duration::from_millis(200));
    assert_eq!(rescan(&rig).orphans_removed, 1);
    assert_eq!(names_in(&rig.dirs[0]), ["future.tmp", "read.tmp", "written.tmp"]);
    rig.fs.write(written.handle, b"more", 0).expect("a write");
    rig.fs.close(written.handle);
    rig.fs.close(read.handle);
    assert_eq!(rescan(&rig).orphans_removed, 1, "the one that was only read");
    rig.rename("written.tmp", "written.data").expect("a publish");
    std::thread::sleep(Duration::from_millis(200));
    assert_eq!(rescan(&rig).orphans_removed, 0);
}

#[test]
fn with_temp_ttl_0_no_temp_file_is_an_orphan() {
    let rig = Rig::with_temp_ttl(1, Duration::ZERO);
    rig.write("k.tmp", b"x").expect("a file");
    set_times(&rig.on_disk(0, "k.tmp"), ago(1 << 30), ago(1 << 30));
    let rig = rig.remount();
    rescan(&rig);
    assert_eq!(rig.names("", 10), ["k.tmp"]);
}

#[test]
fn a_shadow_is_removed_when_both_disks_are_scanned_and_its_winner_is_synced() {
    let rig = Rig::new(3);
    let name = rig.name_owned_by(0, "k");
    for (disk, bytes) in [(0, "first"), (2, "second"), (1, "third")] {
        fs::write(rig.on_disk(disk, &name), bytes).expect("a copy");
        pause();
    }
    let rig = rig.unscanned_again();
    kvspan::volume::recovery::scan_disk(rig.fs.volume(), DiskNo(0), &|| false).expect("a scan");
    kvspan::volume::recovery::scan_disk(rig.fs.volume(), DiskNo(1), &|| false).expect("a scan");
    assert_eq!(rig.fs.volume().remove_shadows(&|| false).removed, 0, "a disk has not been scanned");
    assert_eq!(rig.disks_with(&name), [0, 1, 2]);
    rig.scan();
    assert_eq!(rig.load(&name).expect("a load"), b"third");
    assert_eq!(rig.fs.volume().shadows(), 2);
    let report = rig.fs.volume().remove_shadows(&|| false);
    assert_eq!((report.removed, report.kept), (2, 0));
    assert_eq!(rig.disks_with(&name), [1]);
    assert_eq!((rig.fs.volume().shadows(), rig.fs.volume().shadows_removed()), (0, 2));
    assert_eq!(rig.load(&name).expect("a load"), b"third");
}

#[test]
fn a_crash_between_the_rename_on_one_disk_and_the_unlink_on_the_other_leaves_one_name() {
    let rig = Rig::new(2);
    let (temp, name) = (rig.name_owned_by(0, "t"), rig.name_owned_by(1, "k"));
    rig.write(&name, b"old").expect("a file");
    pause();
    rig.write(&temp, b"new").expect("a file");
    // What the rename does first; then the daemon dies.
    fs::rename(rig.on_disk(0, &temp), rig.on_disk(0, &name)).expect("a rename");
    let rig = rig.unscanned_again();
    rig.scan();
    assert_eq!(rig.load(&name).expect("a load"), b"new");
    assert_eq!(rig.fs.volume().remove_shadows(&|| false).removed, 1);
    assert_eq!(rig.disks_with(&name), [0]);
    assert_eq!(rig.names("", 10), [name]);
}

#[test]
fn an_old_layout_of_one_adapter_a_disk_is_taken_in_and_its_doubles_go() {
    let rig = Rig::new(4);
    // hash % 3 for a while, then hash % 4: most keys were stored again on another disk.
    for n in 0..200usize {
        fs::write(rig.on_disk(n % 3, &format!("k{n}.data")), format!("old {n}")).expect("a file");
    }
    pause();
    for n in 100..200usize {
        fs::write(rig.on_disk(n % 4, &format!("k{n}.data")), format!("new {n}")).expect("a file");
    }
    let doubles = (100..200).filter(|n| n % 3 != n % 4).count() as u64;
    let rig = rig.remount();
    assert_eq!(rig.fs.volume().shadows(), doubles);
    assert_eq!(rig.fs.volume().remove_shadows(&|| false).removed, doubles);
    for n in 0..200 {
        let expected = format!("{} {n}", if n < 100 { "old" } else { "new" });
        assert_eq!(rig.load(&format!("k{n}.data")).expect("a load"), expected.as_bytes());
        assert_eq!(rig.disks_with(&format!("k{n}.data")).len(), 1);
    }
    assert_eq!(rescan(&rig), RescanReport { files: 200, ..RescanReport::default() });
}

#[test]
fn a_shadow_never_comes_back_when_its_name_is_unlinked_or_stored_again() {
    for store_again in [false, true] {
        let rig = Rig::new(2);
        let key = rig.name_owned_by(0, "k");
        let name = format!("{key}.data");
        for disk in [1, 0] {
            fs::write(rig.on_disk(disk, &name), format!("copy {disk}")).expect("a copy");
            pause();
        }
        let mut rig = rig.remount();
        assert_eq!(rig.fs.volume().shadows(), 1);
        if store_again {
            rig.store(&key, b"again").expect("a store");
        } else {
            rig.unlink(&name).expect("an unlink");
            assert!(is(&rig.lookup(&name), Errno::NOENT));
        }
        rescan(&rig);
        rig = rig.remount();
        if store_again {
            assert_eq!(rig.load(&name).expect("a load"), b"again");
        } else {
            assert!(is(&rig.lookup(&name), Errno::NOENT));
        }
    }
}

#[test]
fn a_winner_that_cannot_be_synced_or_is_being_written_keeps_its_shadow() {
    let faults = Arc::new(Faults::default());
    let temp = tempfile::tempdir().expect("a directory");
    let dirs: Vec<_> = (0..2).map(|n| temp.path().join(format!("disk{n}"))).collect();
    for dir in &dirs {
        fs::create_dir(dir).expect("a directory");
        fs::write(dir.join("k"), dir.to_string_lossy().as_bytes()).expect("a copy");
        pause();
    }
    let shared = Arc::clone(&faults);
    let rig = Rig::with_io(dirs, move |_, real| Box::new(FaultyDisk::new(real, Arc::clone(&shared))));
    rig.scan();
    faults.fail_next(Call::Fsync, Errno::IO, u32::MAX);
    assert_eq!(rig.fs.volume().remove_shadows(&|| false).kept, 1);
    faults.heal();
    let writer = rig.fs.open(rig.lookup("k").expect("the entry").ino, WRITE).expect("an open");
    assert_eq!(rig.fs.volume().remove_shadows(&|| false).kept, 1);
    rig.fs.close(writer.handle);
    assert_eq!(rig.disks_with("k"), [0, 1]);
    assert_eq!(rig.fs.volume().remove_shadows(&|| false).removed, 1);
    assert_eq!(rig.disks_with("k"), [1]);
}

#[test]
fn a_copy_whose_winner_was_removed_behind_our_back_is_the_name_s_file_and_is_kept() {
    let rig = Rig::new(2);
    for disk in [0, 1] {
        fs::write(rig.on_disk(disk, "k"), format!("copy {disk}")).expect("a copy");
        pause();
    }
    let rig = rig.remount();
    fs::remove_file(rig.on_disk(1, "k")).expect("removed");
    rig.fs.volume().remove_shadows(&|| false);
    assert_eq!(rig.load("k").expect("a load"), b"copy 0");
    assert_eq!(rig.fs.volume().shadows(), 0);
    fs::write(rig.on_disk(1, "k"), "copy 1").expect("a copy");
    rescan(&rig);
    fs::remove_file(rig.on_disk(1, "k")).expect("removed");
    assert!(is(&rig.load("k"), Errno::NOENT), "the index gives the name up");
    rig.fs.volume().remove_shadows(&|| false);
    assert_eq!(rig.load("k").expect("a load"), b"copy 0");
}

#[test]
fn an_evicted_file_takes_its_shadow_along() {
    let rig = Rig::new(2);
    for disk in [0, 1] {
        fs::write(rig.on_disk(disk, "k"), format!("copy {disk}")).expect("a copy");
        pause();
    }
    let rig = rig.remount();
    assert_eq!(rig.fs.volume().evict_bytes(DiskNo(1), 1), 1);
    assert!(rig.disks_with("k").is_empty());
    assert!(is(&rig.lookup("k"), Errno::NOENT));
}

#[test]
fn a_disk_that_could_not_be_read_is_told_what_happened_without_it() {
    let faults = Arc::new(Faults::default());
    let temp = tempfile::tempdir().expect("a directory");
    let dirs: Vec<_> = (0..2).map(|n| temp.path().join(format!("disk{n}"))).collect();
    for dir in &dirs {
        fs::create_dir(dir).expect("a directory");
    }
    fs::write(dirs[1].join("hidden"), b"x").expect("a file");
    fs::write(dirs[1].join("kept"), b"x").expect("a file");
    fs::write(dirs[0].join("old"), b"x").expect("a file");
    pause();
    let shared = Arc::clone(&faults);
    let wrap = move |n: usize, real| -> Box<dyn kvspan::volume::disk::DiskIo> {
        if n == 1 { Box::new(FaultyDisk::new(real, Arc::clone(&shared))) } else { Box::new(real) }
    };
    let rig = Rig::with_io(dirs, wrap);
    faults.fail_next(Call::Stat, Errno::IO, u32::MAX);
    faults.fail_next(Call::List, Errno::IO, u32::MAX);
    let volume = rig.fs.volume();
    volume.load_removed(false, false);
    kvspan::volume::recovery::scan_disk(volume, DiskNo(0), &|| false).expect("a scan");
    assert!(kvspan::volume::recovery::scan_disk(volume, DiskNo(1), &|| false).is_err());
    volume.disk_is_unreadable(DiskNo(1));
    rig.rename("old", "hidden").expect("a rename");
    rig.unlink("hidden").expect("an unlink");
    faults.heal();
    rescan_disk(volume, DiskNo(1), &|_| true).expect("a rescan");
    assert!(is(&rig.lookup("hidden"), Errno::NOENT));
    assert!(rig.lookup("kept").is_ok());
    assert!(!volume.misses_a_disk());
    assert!((0..2).all(|disk| !rig.on_disk(disk, ".kvspan/removed").exists()));
}

#[test]
fn a_directory_against_a_file_is_counted_and_left_alone() {
    let rig = Rig::new(2);
    fs::create_dir(rig.on_disk(0, "x")).expect("a directory");
    fs::write(rig.on_disk(0, "x/inside"), b"kept").expect("a file");
    fs::write(rig.on_disk(1, "x"), b"kept").expect("a file");
    let rig = rig.remount();
    for _ in 0..2 {
        assert_eq!(rig.fs.volume().conflicts(), 1);
        assert_eq!(rig.fs.volume().remove_shadows(&|| false).removed, 0);
        assert_eq!(rig.disks_with("x"), [0, 1]);
        assert_eq!(rig.load("x/inside").expect("a load"), b"kept");
        rescan(&rig);
    }
}

#[test]
fn the_younger_of_two_copies_is_shown_also_when_the_older_one_was_used_before_it_was_found() {
    let rig = Rig::new(2);
    let name = rig.name_owned_by(1, "k");
    for (disk, bytes) in [(1, "old"), (0, "new")] {
        fs::write(rig.on_disk(disk, &name), bytes).expect("a copy");
        pause();
    }
    let rig = rig.unscanned_again();
    kvspan::volume::recovery::scan_disk(rig.fs.volume(), DiskNo(1), &|| false).expect("a scan");
    let used = rig.fs.lookup(Ino::ROOT, name.as_bytes()).expect("a look-up");
    rig.scan();
    assert_eq!(rig.load(&name).expect("a load"), b"new");
    rig.fs.forget(used.ino, 1);
    assert_eq!(rig.fs.volume().remove_shadows(&|| false).removed, 1);
    assert_eq!(rig.disks_with(&name), [0]);
}

/// A volume of `rig`'s disks without the last one.
fn without_last(rig: &Rig) -> Rig {
    let dirs = rig.dirs[..rig.dirs.len() - 1].to_vec();
    let rest = Rig::over(dirs);
    rest.fs.volume().load_removed(true, false);
    rest.scan();
    rest
}

/// All disks of `rig` again.
fn returned(rig: &Rig) -> Rig {
    let all = Rig::over(rig.dirs.clone());
    all.fs.volume().load_removed(false, false);
    all
}

#[test]
fn a_name_unlinked_while_a_disk_is_missing_does_not_come_back_with_it() {
    let rig = Rig::new(3);
    let name = |prefix: &str| rig.name_owned_by(2, prefix);
    let [unlinked, replaced, renamed, kept] = ["u", "p", "r", "k"].map(name);
    for path in [&unlinked, &replaced, &renamed, &kept, &format!("d/{unlinked}")] {
        fs::create_dir_all(rig.on_disk(2, "d")).expect("a directory");
        fs::write(rig.on_disk(2, path), b"on the missing disk").expect("a file");
    }
    pause();
    let rest = without_last(&rig);
    let _ = rest.mkdir("d");
    // Each has a copy on a disk that is there, or is stored there now, and is then taken away.
    rest.write(&unlinked, b"x").and(rest.unlink(&unlinked)).expect("an unlink");
    rest.write(&format!("d/{unlinked}"), b"x").and(rest.unlink(&format!("d/{unlinked}"))).expect("an unlink");
    rest.write("a", b"new").and(rest.rename("a", &replaced)).and(rest.unlink(&replaced)).expect("a replaced file");
    rest.write(&renamed, b"new").and(rest.rename(&renamed, "elsewhere")).expect("a rename");
    assert!(is(&rest.rename("d", "e"), Errno::XDEV), "the missing copy could not follow");
    rest.fs.volume().flush_removed();
    drop(rest);
    let all = returned(&rig);
    // Before the scan has come by, and after.
    for scanned in [false, true] {
        for path in [&unlinked, &replaced, &renamed, &format!("d/{unlinked}")] {
            assert!(is(&all.lookup(path), Errno::NOENT), "{path}");
        }
        assert_eq!(all.load(&kept).expect("a load"), b"on the missing disk");
        assert_eq!(all.load("elsewhere").expect("a load"), b"new");
        if !scanned {
            all.scan();
        }
    }
    assert_eq!(all.fs.volume().outdated_removed(), 4);
    assert!(all.dirs.iter().all(|dir| !dir.join(".kvspan/removed").exists()), "all know all, and nothing is missing");
}

#[test]
fn a_file_stored_after_its_name_was_taken_away_is_kept() {
    let rig = Rig::new(2);
    let name = rig.name_owned_by(1, "k");
    rig.write(&name, b"old").expect("a file");
    let rest = without_last(&rig);
    rest.write(&name, b"x").and(rest.unlink(&name)).expect("an unlink");
    rest.fs.volume().flush_removed();
    drop(rest);
    pause();
    fs::remove_file(rig.on_disk(1, &name)).expect("removed");
    fs::write(rig.on_disk(1, &name), b"younger").expect("a file");
    let all = returned(&rig);
    all.scan();
    assert_eq!(all.load(&name).expect("a load"), b"younger");
}

#[test]
fn a_list_is_applied_once_and_stays_for_disks_that_are_still_missing() {
    let rig = Rig::new(3);
    let name = rig.name_owned_by(0, "k");
    for disk in [1, 2] {
        fs::write(rig.on_disk(disk, &name), b"old").expect("a copy");
    }
    pause();
    let first = Rig::over(rig.dirs[..1].to_vec());
    first.fs.volume().load_removed(true, false);
    first.scan();
    first.write(&name, b"x").and(first.unlink(&name)).expect("an unlink");
    first.fs.volume().flush_removed();
    drop(first);
    let second = without_last(&rig);
    assert!(is(&second.lookup(&name), Errno::NOENT));
    assert_eq!(second.fs.volume().outdated_removed(), 1);
    drop(second);
    assert!((0..2).all(|disk| rig.on_disk(disk, ".kvspan/removed").exists()));
    let all = returned(&rig);
    all.scan();
    assert!(is(&all.lookup(&name), Errno::NOENT));
    assert_eq!(all.fs.volume().outdated_removed(), 1);
    assert!((0..3).all(|disk| !rig.on_disk(disk, ".kvspan/removed").exists()));
}

#[test]
fn a_damaged_list_of_removed_names_is_read_as_far_as_it_is_sound() {
    let rig = Rig::new(2);
    let [a, b] = ["a", "b"].map(|prefix| rig.name_owned_by(1, prefix));
    for name in [&a, &b] {
        fs::write(rig.on_disk(1, name), b"old").expect("a copy");
    }
    pause();
    let rest = without_last(&rig);
    for name in [&a, &b] {
        rest.write(name, b"x").and(rest.unlink(name)).expect("an unlink");
        rest.fs.volume().flush_removed();
    }
    drop(rest);
    let list = rig.on_disk(0, ".kvspan/removed");
    let length = fs::metadata(&list).expect("the list").len();
    File::options().write(true).open(&list).and_then(|file| file.set_len(length - 3)).expect("cut");
    // The disk is missing once more: what is written now comes behind the sound part.
    let rest = without_last(&rig);
    let c = rig.name_owned_by(1, "c");
    fs::write(rig.on_disk(1, &c), b"old").expect("a copy");
    pause();
    rest.write(&c, b"x").and(rest.unlink(&c)).expect("an unlink");
    rest.fs.volume().flush_removed();
    drop(rest);
    let all = returned(&rig);
    all.scan();
    assert!(is(&all.lookup(&a), Errno::NOENT) && is(&all.lookup(&c), Errno::NOENT));
    assert_eq!(all.load(&b).expect("a load"), b"old");
}

#[test]
fn status_shows_how_far_the_scan_is_and_what_it_left_alone() {
    let rig = Rig::new(2);
    for n in 0..20 {
        rig.write(&format!("k{n}"), b"x").expect("a file");
    }
    std::os::unix::fs::symlink("k0", rig.on_disk(1, "link")).expect("a symlink");
    let rig = rig.unscanned_again();
    kvspan::volume::recovery::scan_disk(rig.fs.volume(), DiskNo(1), &|| false).expect("a scan");
    let status = rig.fs.monitor().status(rig.fs.volume());
    assert_eq!(status.state.word(), "recovering");
    assert_eq!(status.recovery.files, names_in(&rig.dirs[1]).len() as u64 - 1);
    assert_eq!(status.disks.iter().map(|disk| disk.scanned).collect::<Vec<_>>(), [false, true]);
    assert_eq!(status.disks[1].foreign_objects, 1);
    rig.scan();
    assert_eq!(rig.fs.monitor().status(rig.fs.volume()).state.word(), "ready");
    rescan(&rig);
    rescan(&rig);
    assert_eq!(rig.fs.monitor().status(rig.fs.volume()).disks[1].foreign_objects, 1);
}
