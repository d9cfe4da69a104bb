//! What a volume promises, in process and without a mount. Names are sentences of docs/SEMANTICS.md.

mod common;

use std::os::unix::fs::{MetadataExt, symlink};
use std::sync::Arc;
use std::time::Duration;

use common::faulty::{Call, Faults, FaultyDisk};
use common::{READ, Rig, WRITE, is, me, names_in};
use kvspan::fs::OpenIntent;
use kvspan::volume::attr::{DiskNo, Ino};
use kvspan::volume::disk::{DiskIo, NewAttr, NewTime};
use kvspan::volume::files::RenameMode;
use kvspan::volume::record::RecordSettings;
use kvspan::volume::rescan::rescan_disk;
use rustix::io::Errno;

#[test]
fn a_store_is_one_file_on_its_owner_under_its_own_name() {
    let rig = Rig::new(4);
    for n in 0..64 {
        let key = format!("m@00000000@0@{n:064x}");
        rig.store(&key, key.as_bytes()).expect("a store");
        let name = format!("{key}.data");
        assert_eq!(rig.disks_with(&name), [rig.owner(&name)]);
        assert_eq!(rig.load(&name).expect("a load"), key.as_bytes());
        assert!(!rig.lookup(&name).expect("the entry").away);
        assert!(rig.disks_with(&format!("{key}.tmp")).is_empty());
    }
}

#[test]
fn a_temp_file_and_its_final_name_have_one_owner_in_any_directory() {
    let rig = Rig::new(5);
    rig.mkdir("tmp").expect("a directory");
    for n in 0..32 {
        let (temp, name) = (format!("tmp/k{n}@user.alice.data"), format!("k{n}@user.alice.data"));
        rig.write(&temp, b"x").expect("a temp file");
        rig.rename(&temp, &name).expect("a publish");
        assert!(!rig.lookup(&name).expect("the entry").away);
    }
}

#[test]
fn a_remount_finds_every_file_with_its_bytes() {
    let mut rig = Rig::new(3);
    rig.mkdir("a").and(rig.mkdir("a/b")).expect("directories");
    for n in 0..50 {
        rig.store(&format!("k{n}"), format!("bytes {n}").as_bytes()).expect("a store");
        rig.write(&format!("a/b/n{n}"), b"nested").expect("a file");
    }
    rig = rig.remount();
    for n in 0..50 {
        assert_eq!(rig.load(&format!("k{n}.data")).expect("a load"), format!("bytes {n}").as_bytes());
        assert_eq!(rig.load(&format!("a/b/n{n}")).expect("a load"), b"nested");
    }
    assert_eq!(rig.names("a/b", 7).len(), 50);
}

#[test]
fn a_file_is_found_opened_and_listed_before_the_scan_has_ended() {
    let before = Rig::new(3);
    before.mkdir("d").expect("a directory");
    for n in 0..40 {
        before.store(&format!("k{n}"), b"0123456789").expect("a store");
        before.write(&format!("d/x{n}"), b"x").expect("a file");
    }
    let rig = Rig::over(before.dirs.clone());
    assert!(rig.fs.volume().is_recovering());
    assert_eq!(rig.load("k7.data").expect("a load"), b"0123456789");
    assert_eq!(rig.load("d/x7").expect("a load"), b"x");
    assert!(is(&rig.lookup("nobody"), Errno::NOENT));
    let mut names = rig.names("", 3);
    names.sort();
    let mut expected: Vec<String> = (0..40).map(|n| format!("k{n}.data")).chain(["d".to_string()]).collect();
    expected.sort();
    assert_eq!(names, expected);
    rig.scan();
    assert_eq!(rig.names("d", 1000).len(), 40);
    assert_eq!(rig.names("", 1000).len(), 41);
}

#[test]
fn a_file_renamed_during_the_scan_leaves_no_ghost() {
    let before = Rig::new(2);
    for n in 0..200 {
        before.write(&format!("k{n}.tmp"), b"x").expect("a file");
    }
    let rig = Rig::over(before.dirs.clone());
    std::thread::scope(|scope| {
        scope.spawn(|| rig.scan());
        for n in 0..200 {
            rig.rename(&format!("k{n}.tmp"), &format!("k{n}.data")).expect("a rename");
        }
    });
    let names = rig.names("", 64);
    assert_eq!(names.len(), 200);
    assert!(names.iter().all(|name| name.ends_with(".data")));
}

#[test]
fn a_disk_added_moves_no_file_and_loses_none() {
    let before = Rig::new(3);
    for n in 0..300 {
        before.store(&format!("k{n}"), b"old").expect("a store");
    }
    let mut dirs = before.dirs.clone();
    let extra = tempfile::tempdir().expect("a directory");
    dirs.push(extra.path().to_path_buf());
    let rig = Rig::over(dirs);
    rig.scan();
    let away = (0..300).filter(|n| rig.lookup(&format!("k{n}.data")).expect("a hit").away).count();
    assert!((40..=110).contains(&away), "the new one of four disks owns about a quarter, not {away} of 300");
    assert_eq!(rig.load("k1.data").expect("a load"), b"old");
    for n in 300..400 {
        rig.store(&format!("k{n}"), b"new").expect("a store");
        assert!(!rig.lookup(&format!("k{n}.data")).expect("the entry").away);
    }
}

#[test]
fn a_rename_to_a_name_with_another_owner_leaves_the_file_on_its_disk_and_away() {
    let rig = Rig::new(2);
    let (a, b) = (rig.name_owned_by(0, "a"), rig.name_owned_by(1, "b"));
    rig.write(&a, b"bytes").expect("a file");
    rig.rename(&a, &b).expect("a rename");
    assert_eq!(rig.disks_with(&b), [0]);
    assert!(rig.lookup(&b).expect("the entry").away);
    assert_eq!(rig.load(&b).expect("a load"), b"bytes");
}

#[test]
fn a_rename_over_a_name_on_another_disk_leaves_one_copy() {
    let rig = Rig::new(2);
    let (a, b) = (rig.name_owned_by(0, "a"), rig.name_owned_by(1, "b"));
    rig.write(&a, b"new").expect("a file");
    rig.write(&b, b"old").expect("a file");
    rig.rename(&a, &b).expect("a rename");
    assert_eq!(rig.disks_with(&b), [0]);
    assert_eq!(rig.load(&b).expect("a load"), b"new");
    let rig = rig.remount();
    assert_eq!(rig.load(&b).expect("a load"), b"new");
}

#[test]
fn of_two_copies_of_a_name_the_younger_is_served_and_none_is_deleted() {
    let rig = Rig::new(2);
    let name = rig.name_owned_by(0, "k");
    std::fs::write(rig.on_disk(0, &name), b"older").expect("a copy");
    std::thread::sleep(std::time::Duration::from_millis(20));
    std::fs::write(rig.on_disk(1, &name), b"younger").expect("a copy");
    let rig = rig.remount();
    assert_eq!(rig.load(&name).expect("a load"), b"younger");
    assert_eq!(rig.disks_with(&name), [0, 1]);
    assert_eq!(rig.names("", 10), [name]);
    assert_eq!(rig.fs.volume().shadows(), 1);
}

#[test]
fn a_file_open_for_reading_outlives_its_unlink() {
    let rig = Rig::new(1);
    rig.write("f", b"still here").expect("a file");
    let entry = rig.lookup("f").expect("the entry");
    let opened = rig.fs.open(entry.ino, READ).expect("an open");
    rig.unlink("f").expect("an unlink");
    assert!(is(&rig.lookup("f"), Errno::NOENT));
    let mut bytes = [0; 32];
    assert_eq!(rig.fs.read(opened.handle, &mut bytes, 0).expect("a read"), 10);
    assert_eq!(rig.fs.attributes(entry.ino).expect("attributes").attr.size_bytes, 10);
    rig.fs.close(opened.handle);
    assert!(is(&rig.fs.attributes(entry.ino).map(drop), Errno::STALE));
    assert_eq!(rig.fs.open_handles(), 0);
}

#[test]
fn sizes_are_live_while_a_file_is_written_and_settled_after() {
    let rig = Rig::new(1);
    let opened = rig.create("f").expect("a file");
    rig.fs.write(opened.handle, &[7; 100_000], 0).expect("a write");
    assert_eq!(rig.fs.attributes(opened.entry.ino).expect("attributes").attr.size_bytes, 100_000);
    rig.fs.close(opened.handle);
    let entry = rig.lookup("f").expect("the entry");
    assert_eq!(entry.attr.size_bytes, 100_000);
    let on_disk = std::fs::metadata(rig.on_disk(0, "f")).expect("the file");
    assert_eq!(entry.attr.blocks_512, on_disk.blocks());
    assert!(!entry.writing);
}

#[test]
fn used_bytes_are_what_du_counts() {
    let rig = Rig::new(2);
    for n in 0..40 {
        rig.store(&format!("k{n}"), &vec![1; n * 1000]).expect("a store");
    }
    rig.unlink("k39.data").expect("an unlink");
    rig.rename("k1.data", "k2.data").expect("a rename");
    for (disk, report) in rig.fs.volume().disk_reports().iter().enumerate() {
        let du: u64 = names_in(&rig.dirs[disk])
            .iter()
            .map(|name| std::fs::metadata(rig.on_disk(disk, name)).expect("a file").blocks() * 512)
            .sum();
        assert_eq!(report.used_bytes, du);
    }
}

#[test]
fn directories_are_made_on_a_disk_when_a_file_first_goes_there() {
    let rig = Rig::new(3);
    rig.mkdir("d").and(rig.mkdir("d/e")).expect("directories");
    assert_eq!(rig.disks_with("d/e").len(), 1);
    for n in 0..30 {
        rig.write(&format!("d/e/f{n}"), b"x").expect("a file");
        assert!(!rig.lookup(&format!("d/e/f{n}")).expect("the entry").away);
    }
    assert_eq!(rig.disks_with("d/e"), [0, 1, 2]);
    assert!(is(&rig.rmdir("d/e"), Errno::NOTEMPTY));
    for n in 0..30 {
        rig.unlink(&format!("d/e/f{n}")).expect("an unlink");
    }
    rig.rmdir("d/e").expect("an rmdir");
    assert!(rig.disks_with("d/e").is_empty());
}

#[test]
fn a_directory_is_renamed_on_every_disk_that_has_it() {
    let rig = Rig::new(3);
    rig.mkdir("d").expect("a directory");
    for n in 0..30 {
        rig.write(&format!("d/f{n}"), format!("{n}").as_bytes()).expect("a file");
    }
    rig.rename("d", "moved").expect("a rename");
    assert!(rig.disks_with("d").is_empty());
    for n in 0..30 {
        assert_eq!(rig.load(&format!("moved/f{n}")).expect("a load"), format!("{n}").as_bytes());
    }
    rig.mkdir("moved/below").expect("a directory");
    assert!(is(&rig.rename("moved", "moved/below/x"), Errno::INVAL));
    let rig = rig.remount();
    assert_eq!(rig.names("moved", 100).len(), 31);
}

#[test]
fn rmdir_keeps_a_directory_that_hides_an_object_of_somebody_else() {
    let rig = Rig::new(2);
    rig.mkdir("d").expect("a directory");
    let disk = rig.disks_with("d")[0];
    symlink("/etc/passwd", rig.on_disk(disk, "d/link")).expect("a symlink");
    assert!(is(&rig.rmdir("d"), Errno::NOTEMPTY));
    assert!(rig.lookup("d").is_ok());
    assert!(rig.on_disk(disk, "d/link").symlink_metadata().is_ok());
}

#[test]
fn planted_objects_are_not_shown_opened_followed_or_deleted() {
    let rig = Rig::new(1);
    let secret = rig.dirs[0].join("..").join("secret");
    std::fs::write(&secret, b"secret").expect("a file");
    symlink("../secret", rig.on_disk(0, "link")).expect("a symlink");
    symlink("..", rig.on_disk(0, "dirlink")).expect("a symlink");
    let fifo = rig.on_disk(0, "fifo");
    rustix::fs::mknodat(rustix::fs::CWD, &fifo, rustix::fs::FileType::Fifo, 0o644.into(), 0).expect("a fifo");
    let rig = rig.remount();
    assert!(rig.names("", 10).is_empty());
    for name in ["link", "dirlink", "fifo"] {
        assert!(is(&rig.lookup(name), Errno::NOENT));
        assert!(is(&rig.unlink(name), Errno::NOENT));
        assert!(is(&rig.create(name), Errno::EXIST), "a new file does not replace {name}");
        rig.write("plain", b"x").expect("a file");
        assert!(is(&rig.rename("plain", name), Errno::EXIST));
        assert!(rig.on_disk(0, name).symlink_metadata().is_ok());
    }
    assert_eq!(std::fs::read(&secret).expect("the file"), b"secret");
    assert!(rig.fs.volume().disks()[0].foreign_objects() >= 3);
}

#[test]
fn a_file_swapped_for_a_symlink_behind_our_back_is_a_miss() {
    let rig = Rig::new(1);
    rig.write("f", b"mine").expect("a file");
    std::fs::remove_file(rig.on_disk(0, "f")).expect("removed");
    symlink("/etc/passwd", rig.on_disk(0, "f")).expect("a symlink");
    assert!(is(&rig.load("f"), Errno::NOENT));
    assert!(is(&rig.lookup("f"), Errno::NOENT));
}

#[test]
fn a_file_removed_behind_our_back_is_a_miss_and_no_longer_counted() {
    let rig = Rig::new(1);
    rig.write("f", &[1; 8192]).expect("a file");
    std::fs::remove_file(rig.on_disk(0, "f")).expect("removed");
    assert!(is(&rig.load("f"), Errno::NOENT));
    assert!(is(&rig.lookup("f"), Errno::NOENT));
    assert_eq!(rig.fs.volume().disk_reports()[0].used_bytes, 0);
    assert!(rig.names("", 10).is_empty());
    rig.write("f", b"again").expect("a file");
    assert_eq!(rig.load("f").expect("a load"), b"again");
}

#[test]
fn a_file_put_on_a_disk_behind_our_back_is_opened_by_a_create() {
    let rig = Rig::new(1);
    std::fs::write(rig.on_disk(0, "f"), b"theirs").expect("a file");
    let opened = rig.fs.create(Ino::ROOT, b"f", me(), WRITE).expect("an open");
    assert_eq!(opened.entry.attr.size_bytes, 6);
    rig.fs.close(opened.handle);
    let exclusive = OpenIntent { exclusive: true, ..WRITE };
    assert!(is(&rig.fs.create(Ino::ROOT, b"f", me(), exclusive), Errno::EXIST));
}

#[test]
fn kvspan_and_lost_and_found_are_hidden_in_the_root_only() {
    let rig = Rig::new(1);
    for name in [".kvspan", "lost+found"] {
        std::fs::create_dir(rig.on_disk(0, name)).expect("a directory");
        assert!(is(&rig.lookup(name), Errno::NOENT));
        assert!(is(&rig.mkdir(name), Errno::PERM));
        assert!(is(&rig.create(name), Errno::PERM));
    }
    rig.mkdir("d").expect("a directory");
    rig.mkdir("d/.kvspan").expect("deeper it is a name like any other");
    let rig = rig.remount();
    assert_eq!(rig.names("", 10), ["d"]);
}

#[test]
fn a_listing_goes_on_at_any_cookie_while_names_come_and_go() {
    let rig = Rig::new(2);
    for n in 0..500 {
        rig.write(&format!("keep{n}"), b"").expect("a file");
        rig.write(&format!("drop{n}"), b"").expect("a file");
    }
    let handle = rig.fs.open_dir(Ino::ROOT).expect("a listing");
    let (mut seen, mut after, mut round) = (Vec::new(), 0, 0);
    loop {
        let before = after;
        let mut one = |entry: kvspan::fs::dir::DirEntry<'_>| {
            if after != before {
                return false;
            }
            after = entry.cookie;
            seen.push(String::from_utf8_lossy(entry.name).into_owned());
            true
        };
        rig.fs.list(handle, Ino::ROOT, before, &mut one).expect("a listing");
        if after == before {
            break;
        }
        if round < 500 {
            rig.unlink(&format!("drop{round}")).expect("an unlink");
            rig.write(&format!("new{round}"), b"").expect("a file");
        }
        round += 1;
    }
    rig.fs.close_dir(handle);
    for n in 0..500 {
        let name = format!("keep{n}");
        assert_eq!(seen.iter().filter(|s| **s == name).count(), 1, "{name}");
    }
    let mut unique = seen.clone();
    unique.sort();
    unique.dedup();
    assert_eq!(unique.len(), seen.len(), "no name twice");
}

#[test]
fn times_modes_and_owners_are_the_backing_file_s() {
    let rig = Rig::new(1);
    rig.write("f", b"12345").expect("a file");
    let ino = rig.lookup("f").expect("the entry").ino;
    let new = NewAttr {
        mode: Some(0o600),
        size_bytes: Some(3),
        atime: Some(NewTime::At(1_000_000_000_123_456_789)),
        mtime: Some(NewTime::At(-5_000_000_001)),
        ..NewAttr::default()
    };
    let entry = rig.fs.set_attributes(ino, None, &new, 0).expect("a change");
    assert_eq!((entry.attr.mode, entry.attr.size_bytes, entry.attr.mtime_ns), (0o600, 3, -5_000_000_001));
    let file = std::fs::metadata(rig.on_disk(0, "f")).expect("the file");
    assert_eq!((file.mode() & 0o7777, file.len()), (0o600, 3));
    assert_eq!((file.atime(), file.atime_nsec()), (1_000_000_000, 123_456_789));
    assert_eq!((file.mtime(), file.mtime_nsec()), (-6, 999_999_999));
    assert_eq!(rig.remount().lookup("f").expect("the entry").attr.mtime_ns, -5_000_000_001);
}

#[test]
fn noreplace_and_exchange_are_decided_under_both_names() {
    let rig = Rig::new(2);
    let (a, b) = (rig.name_owned_by(0, "a"), rig.name_owned_by(1, "b"));
    rig.write(&a, b"A").and(rig.write(&b, b"B")).expect("files");
    let place = |name: &'static str| (Ino::ROOT, name.as_bytes());
    let swap = |x: &str, y: &str, mode| rig.fs.rename((Ino::ROOT, x.as_bytes()), (Ino::ROOT, y.as_bytes()), mode);
    assert!(is(&swap(&a, &b, RenameMode::NoReplace), Errno::EXIST));
    assert!(is(&swap(&a, &b, RenameMode::Exchange), Errno::INVAL), "they lie on two disks");
    assert!(is(&rig.fs.rename(place("nobody"), place("x"), RenameMode::Replace), Errno::NOENT));
    swap(&a, "c", RenameMode::NoReplace).expect("a free name");
    rig.write(&a, b"A2").expect("a file");
    swap("c", &a, RenameMode::Exchange).expect("both on one disk");
    assert_eq!((rig.load("c").expect("a load"), rig.load(&a).expect("a load")), (b"A2".to_vec(), b"A".to_vec()));
}

#[test]
fn names_are_refused_as_ext4_refuses_them() {
    let rig = Rig::new(1);
    let long = "x".repeat(256);
    assert!(is(&rig.lookup(&long), Errno::NAMETOOLONG));
    assert!(is(&rig.create(&long), Errno::NAMETOOLONG));
    rig.write(&"y".repeat(255), b"fits").expect("a file");
    rig.mkdir("d").expect("a directory");
    assert!(is(&rig.unlink("d"), Errno::ISDIR));
    rig.write("f", b"").expect("a file");
    assert!(is(&rig.rmdir("f"), Errno::NOTDIR));
    assert!(is(&rig.rename("f", "d"), Errno::ISDIR));
    assert!(is(&rig.rename("d", "f"), Errno::NOTDIR));
    assert!(is(&rig.mkdir("f"), Errno::EXIST));
}

#[test]
fn many_threads_on_the_same_names_leave_disks_and_index_in_agreement() {
    let rig = Arc::new(Rig::new(3));
    std::thread::scope(|scope| {
        for thread in 0..8u8 {
            let rig = Arc::clone(&rig);
            scope.spawn(move || {
                for round in 0..300u32 {
                    let key = format!("k{}", round % 7);
                    match (u32::from(thread) + round) % 4 {
                        0 => drop(rig.store(&key, &vec![thread; 1000])),
                        1 => drop(rig.unlink(&format!("{key}.data"))),
                        2 => drop(rig.rename(&format!("{key}.data"), &format!("r{}.data", round % 3))),
                        _ => drop(rig.load(&format!("{key}.data"))),
                    }
                }
            });
        }
    });
    assert_eq!(rig.fs.open_handles(), 0);
    let mut shown = rig.names("", 5);
    let mut stored: Vec<String> = rig.dirs.iter().flat_map(|dir| names_in(dir)).collect();
    shown.sort();
    stored.sort();
    assert_eq!(shown, stored);
}

#[test]
fn a_labelled_disk_somewhere_inside_a_disk_is_left_alone() {
    let rig = Rig::new(1);
    let inner = rig.on_disk(0, "a/b/inner");
    std::fs::create_dir_all(inner.join(".kvspan")).expect("directories");
    std::fs::write(inner.join(".kvspan/label.json"), b"{}").expect("a label");
    std::fs::write(inner.join("theirs.data"), vec![1; 100_000]).expect("a file");
    let rig = rig.remount();
    assert!(is(&rig.lookup("a/b/inner"), Errno::NOENT));
    assert!(rig.names("a/b", 10).is_empty());
    assert_eq!(rig.fs.volume().evict_bytes(kvspan::volume::attr::DiskNo(0), u64::MAX), 0);
    assert!(inner.join("theirs.data").exists() && inner.join(".kvspan/label.json").exists());
    assert!(is(&rig.rmdir("a/b"), Errno::NOTEMPTY));
}

#[test]
fn a_disk_that_cannot_be_written_is_passed_over_by_stores() {
    let rig = Rig::new(2);
    let chattr = |flag: &str| std::process::Command::new("chattr").arg(flag).arg(&rig.dirs[0]).status();
    assert!(chattr("+i").expect("chattr").success(), "needs root and a temporary directory on ext4, XFS or btrfs");
    let stored: Vec<bool> = (0..40).map(|n| rig.store(&format!("k{n}"), b"x").is_ok()).collect();
    chattr("-i").expect("chattr");
    assert!(stored.iter().all(|stored| *stored), "{stored:?}");
    assert_eq!(names_in(&rig.dirs[0]).len(), 0);
}

#[test]
fn a_failed_fsync_is_told_to_every_handle_that_is_open_once() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let faults = Arc::new(Faults::default());
    let shared = Arc::clone(&faults);
    let dirs = vec![dir.path().to_path_buf()];
    let rig = Rig::with_io(dirs, move |_, real| Box::new(FaultyDisk::new(real, Arc::clone(&shared))));
    let first = rig.create("f").expect("a file");
    let others = [WRITE, READ].map(|intent| rig.fs.open(first.entry.ino, intent).expect("an open"));
    let other_file = rig.create("g").expect("a file");
    for data_only in [false, true] {
        faults.fail_next(Call::Fsync, Errno::IO, 1);
        assert!(is(&rig.fs.fsync(first.handle, data_only), Errno::IO));
        rig.fs.fsync(first.handle, data_only).expect("the disk says it once");
        for other in &others {
            assert!(is(&rig.fs.fsync(other.handle, data_only), Errno::IO), "it shares the backing file");
            rig.fs.fsync(other.handle, data_only).expect("it has been told");
        }
        rig.fs.fsync(other_file.handle, data_only).expect("another file has lost nothing");
    }
    for opened in others.into_iter().chain([first, other_file]) {
        rig.fs.close(opened.handle);
    }
}

#[test]
fn an_answer_from_before_a_write_is_not_believed_after_the_one_from_its_close() {
    type Asker = (&'static str, Call, fn(&Rig));
    let askers: [Asker; 5] = [
        ("the evictor", Call::StatFd, |rig| rig.fs.volume().refresh_room(DiskNo(0))),
        ("a look-up", Call::StatFd, |rig| _ = rig.lookup("k").expect("the entry")),
        ("a listing", Call::StatFd, |rig| _ = rig.fs.volume().refresh_writers(Ino::ROOT)),
        ("a rescan", Call::Stat, |rig| _ = rescan_disk(rig.fs.volume(), DiskNo(0), &|_| true).expect("a rescan")),
        ("a sync", Call::Stat, |rig| assert!(rig.fs.volume().sync_disk(DiskNo(0)))),
    ];
    for (asker, call, ask) in askers {
        let temp = tempfile::tempdir().expect("a directory");
        std::fs::create_dir(temp.path().join(".kvspan")).expect("a directory");
        let faults = Arc::new(Faults::default());
        let shared = Arc::clone(&faults);
        let wrap = move |_, real| Box::new(FaultyDisk::new(real, Arc::clone(&shared))) as Box<dyn DiskIo>;
        let rig = Rig::with_io(vec![temp.path().to_path_buf()], wrap);
        rig.scan();
        let records = RecordSettings { boot: Some(uuid::Uuid::from_u128(1)), sync_interval: Duration::from_secs(30) };
        rig.fs.volume().open_records(records);
        let writer = rig.create("k").expect("a file");
        // A first writer that has come and gone: the next sync looks at the file.
        rig.fs.close(rig.fs.open(writer.entry.ino, WRITE).expect("an open").handle);
        faults.stall_answer_of_next(call);
        std::thread::scope(|scope| {
            let asking = scope.spawn(|| ask(&rig));
            assert!(faults.wait_stalled(1, Duration::from_secs(30)), "{asker} asks the disk");
            rig.fs.write(writer.handle, &[7; 100_000], 0).expect("a write");
            rig.fs.close(writer.handle);
            faults.release();
            asking.join().expect("an answer");
        });
        let entry = rig.lookup("k").expect("the entry");
        let on_disk = std::fs::metadata(rig.on_disk(0, "k")).expect("the file");
        assert_eq!((entry.attr.size_bytes, entry.attr.blocks_512), (100_000, on_disk.blocks()), "{asker}");
    }
}
