//! Capacity and eviction where people got hurt: odd names, shared keys, sizes that change, disks that fill in the middle
//! of a write. In process. Names are sentences of docs/SEMANTICS.md.

mod common;

use std::os::unix::fs::MetadataExt;
use std::sync::Arc;

use common::loops::LoopDisk;
use common::{READ, Rig, WRITE, is, me, names_in};
use kvspan::config::Amount;
use kvspan::volume::attr::{DiskNo, Ino};
use kvspan::volume::disk::NewAttr;
use rustix::io::Errno;

const MIB: u64 = 1 << 20;

#[test]
fn one_key_stored_by_sixteen_writers_is_counted_once() {
    let rig = Arc::new(Rig::new(2));
    std::thread::scope(|scope| {
        for writer in 0..16u8 {
            let rig = &rig;
            scope.spawn(move || {
                for round in 0..20 {
                    let temp = format!("k.tmp.w{writer}");
                    rig.write(&temp, &vec![writer; 50_000 + round]).expect("a temp file");
                    rig.rename(&temp, "k.data").expect("a publish");
                }
            });
        }
    });
    assert_eq!(rig.names("", 10), ["k.data"]);
    let held: u64 = (0..2).map(|disk| rig.du(disk)).sum();
    let used: u64 = (0..2u8).map(|disk| rig.fs.volume().used_bytes(DiskNo(disk))).sum();
    assert_eq!((used, rig.disks_with("k.data").len()), (held, 1));
    let bytes = rig.load("k.data").expect("a load");
    assert!(bytes.iter().all(|byte| *byte == bytes[0]), "the file is one writer's, whole");
}

#[test]
fn odd_names_in_odd_directories_are_found_and_counted() {
    let rig = Rig::new(2);
    let odd = [
        "plain",
        " leading",
        "tab\tname",
        "new\nline",
        "\u{fc}ml\u{e4}ut",
        "a/b/c/deep",
        "x.data.data",
        "..hidden",
        "-rf",
    ];
    for (n, name) in odd.iter().enumerate() {
        let path = rig.on_disk(n % 2, name);
        std::fs::create_dir_all(path.parent().expect("a directory")).expect("a directory");
        std::fs::write(path, vec![1; 5000]).expect("a file");
    }
    let not_utf8: &std::ffi::OsStr = std::os::unix::ffi::OsStrExt::from_bytes(b"\xff\xfe.data");
    std::fs::write(rig.dirs[0].join(not_utf8), b"x").expect("a file");
    let rig = rig.remount();
    for name in odd {
        assert_eq!(rig.load(name).expect(name).len(), 5000);
    }
    rig.fs.lookup(Ino::ROOT, b"\xff\xfe.data").expect("any bytes are a name");
    for disk in 0..2u8 {
        assert_eq!(rig.fs.volume().used_bytes(DiskNo(disk)), rig.du(usize::from(disk)));
    }
}

#[test]
fn two_hundred_temp_files_held_open_leave_room_for_other_names() {
    let rig = Rig::limited(1, 8 * MIB);
    let held: Vec<_> = (0..200)
        .map(|n| {
            let opened = rig.create(&format!("t{n}.tmp")).expect("a temp file");
            rig.fs.write(opened.handle, &[1; 4096], 0).expect("a write");
            opened
        })
        .collect();
    for n in 0..200 {
        rig.store(&format!("k{n}"), &vec![2; 64 << 10]).expect("a store");
    }
    assert!(rig.lookup("k199.data").is_ok(), "the youngest is cached");
    for opened in held {
        rig.fs.close(opened.handle);
    }
    rig.evict();
    assert!(rig.du(0) <= 8 * MIB);
}

#[test]
fn usage_follows_a_file_that_grows_shrinks_and_gets_holes() {
    let rig = Rig::new(1);
    let used = || rig.fs.volume().used_bytes(DiskNo(0));
    rig.write("f", &vec![1; 1 << 20]).expect("a file");
    let ino = rig.lookup("f").expect("it").ino;
    let opened = rig.fs.open(ino, WRITE).expect("an open");
    let settled = |what: &str| {
        rig.fs.fsync(opened.handle, false).expect("fsync");
        rig.fs.volume().refresh_room(DiskNo(0));
        assert_eq!(used(), rig.du(0), "{what}");
    };
    rig.fs.write(opened.handle, &vec![2; 1 << 20], 1 << 20).expect("an append");
    settled("append");
    rig.fs.fallocate(opened.handle, 0, 0, 4 << 20).expect("fallocate");
    settled("fallocate");
    const PUNCH_KEEP_SIZE: u32 = 3;
    rig.fs.fallocate(opened.handle, PUNCH_KEEP_SIZE, 0, 1 << 20).expect("a hole");
    settled("punch");
    let shorter = NewAttr { size_bytes: Some(10), ..NewAttr::default() };
    rig.fs.set_attributes(ino, Some(opened.handle), &shorter, 0).expect("a truncation");
    settled("truncate");
    rig.fs.close(opened.handle);
    assert_eq!(used(), rig.du(0));
    rig.fs.volume().evict_bytes(DiskNo(0), u64::MAX);
    assert_eq!((used(), rig.du(0)), (0, 0));
}

#[test]
fn a_sparse_file_costs_what_it_holds_and_its_eviction_delays_nobody() {
    let rig = Rig::limited(1, 8 * MIB);
    let opened = rig.create("sparse.data").expect("a file");
    rig.fs.write(opened.handle, &[1; 4096], 50 << 30).expect("a write far out");
    rig.fs.close(opened.handle);
    assert!(rig.fs.volume().used_bytes(DiskNo(0)) < MIB);
    assert_eq!(rig.lookup("sparse.data").expect("it").attr.size_bytes, (50 << 30) + 4096);
    rig.store("k", b"x").expect("a store");
    assert_eq!(rig.fs.volume().evict_bytes(DiskNo(0), 4096), 1, "the coldest goes");
    assert!(is(&rig.lookup("sparse.data"), Errno::NOENT));
    assert_eq!(rig.load("k.data").expect("a load"), b"x");
}

#[test]
fn a_disk_that_fills_in_the_middle_of_an_append_keeps_what_was_written_before() {
    let disk = LoopDisk::ext4("16M", &[]);
    let rig = Rig::build(vec![disk.path()], Amount::Percent(95.0), |_, real| Box::new(real));
    rig.scan();
    let opened = rig.create("f.tmp").expect("a file");
    let mut written = 0u64;
    let refused = loop {
        let block = [(written >> 16) as u8; 64 << 10];
        match rig.fs.write(opened.handle, &block, written) {
            Ok(()) => written += block.len() as u64,
            Err(error) => break error,
        }
    };
    assert_eq!(refused.errno(), Errno::NOSPC.raw_os_error());
    rig.fs.close(opened.handle);
    drop(opened); // it holds the backing file open
    let bytes = rig.load("f.tmp").expect("a load");
    assert!(bytes.len() as u64 >= written);
    for (n, block) in bytes.chunks(64 << 10).take((written >> 16) as usize).enumerate() {
        assert!(block.iter().all(|byte| *byte == n as u8), "block {n}");
    }
    rig.unlink("f.tmp").expect("an unlink");
    rig.store("after", &vec![1; 1 << 20]).expect("there is room again");
}

#[test]
fn a_file_cut_short_behind_our_back_is_read_as_it_is() {
    let rig = Rig::new(1);
    rig.store("k", &vec![1; 100_000]).expect("a store");
    std::fs::File::options().write(true).open(rig.on_disk(0, "k.data")).and_then(|f| f.set_len(10)).expect("cut");
    let entry = rig.lookup("k.data").expect("a hit");
    let opened = rig.fs.open(entry.ino, READ).expect("an open");
    let mut bytes = vec![0; 100_000];
    assert_eq!(rig.fs.read(opened.handle, &mut bytes, 0).expect("a short read"), 10);
    rig.fs.close(opened.handle);
    let rig = rig.remount();
    assert_eq!(rig.lookup("k.data").expect("a hit").attr.size_bytes, 10);
}

#[test]
fn after_a_restart_the_first_pass_hits_everything_that_was_stored() {
    let rig = Rig::new(3);
    for n in 0..500 {
        rig.store(&format!("k{n}"), &[n as u8; 100]).expect("a store");
    }
    let rig = Rig::over(rig.dirs.clone());
    let hits = (0..500).filter(|n| rig.load(&format!("k{n}.data")).is_ok_and(|b| b == [*n as u8; 100])).count();
    assert_eq!(hits, 500, "before the scan has ended");
    rig.scan();
    assert_eq!(rig.fs.volume().lookups().misses, 0);
}

#[test]
fn a_failed_write_leaves_no_handle_and_no_wrong_count() {
    let rig = Rig::new(1);
    let opened = rig.create("f.tmp").expect("a file");
    assert!(rig.fs.write(opened.handle, &[1; 10], i64::MAX as u64).is_err());
    rig.fs.close(opened.handle);
    assert!(is(&rig.fs.write(opened.handle, &[1; 10], 0), Errno::BADF));
    assert_eq!(rig.fs.open_handles(), 0);
    assert_eq!(rig.fs.volume().used_bytes(DiskNo(0)), rig.du(0));
    assert_eq!(names_in(&rig.dirs[0]), ["f.tmp"]);
}

#[test]
fn stat_unlink_and_create_of_the_same_names_by_many_never_mix_files_up() {
    let rig = Arc::new(Rig::new(2));
    std::thread::scope(|scope| {
        for thread in 0..8usize {
            let rig = &rig;
            scope.spawn(move || {
                for round in 0..400 {
                    let name = format!("n{}", (thread + round) % 3);
                    match round % 3 {
                        0 => {
                            if let Ok(opened) = rig.fs.create(Ino::ROOT, name.as_bytes(), me(), WRITE) {
                                drop(rig.fs.write(opened.handle, name.as_bytes(), 0));
                                rig.fs.close(opened.handle);
                                rig.fs.forget(opened.entry.ino, 1);
                            }
                        }
                        1 => drop(rig.unlink(&name)),
                        _ => {
                            if let Ok(bytes) = rig.load(&name) {
                                // A file that is being written is read as far as it is.
                                assert!(name.as_bytes().starts_with(&bytes), "{name} read {bytes:?}");
                            }
                        }
                    }
                }
            });
        }
    });
    assert_eq!(rig.fs.open_handles(), 0);
}

#[test]
fn directories_of_a_disk_are_its_own_and_do_not_count_as_files() {
    let rig = Rig::new(1);
    rig.mkdir("d").expect("a directory");
    rig.write("d/f", &[1; 5000]).expect("a file");
    let report = &rig.fs.volume().disk_reports()[0];
    assert_eq!(report.files, 1);
    assert_eq!(report.used_bytes, std::fs::metadata(rig.on_disk(0, "d/f")).expect("it").blocks() * 512);
}

#[test]
fn a_thousand_files_held_open_over_the_limit_are_said_and_nothing_spins() {
    let rig = Rig::limited(1, 16 * MIB);
    let data = vec![7; 64 << 10];
    let mut held = Vec::new();
    for n in 0..1000 {
        let stored = rig.store(&format!("held{n}"), &data);
        // Once all room is held by files that have no name any more, there is nothing left to evict.
        assert!(stored.is_ok() || is(&stored, Errno::NOSPC));
        if let Ok(entry) = rig.lookup(&format!("held{n}.data")) {
            held.push(rig.fs.open(entry.ino, READ).expect("an open"));
        }
    }
    rig.evict();
    assert_eq!(rig.evict(), 0, "a second pass finds nothing to do");
    let status = rig.fs.monitor().status(rig.fs.volume());
    let (files, bytes) = (status.unlinked_open.files, status.unlinked_open.bytes);
    assert!(files > 100 && bytes == files * (64 << 10), "{files} files, {bytes} bytes");
    assert!(status.used_bytes >= bytes);
    // As far as POSIX lets it: what has a name is inside the limit.
    assert!(rig.du(0) <= 16 * MIB);
    for opened in held {
        rig.fs.close(opened.handle);
    }
    rig.store("after", &data).expect("there is room again");
    assert_eq!(rig.fs.monitor().status(rig.fs.volume()).unlinked_open.files, 0);
    assert_eq!(rig.fs.volume().used_bytes(DiskNo(0)), rig.du(0));
}

#[test]
fn every_handle_is_given_back_under_parallel_opens_syncs_and_closes() {
    let rig = Arc::new(Rig::new(2));
    for n in 0..4 {
        rig.store(&format!("k{n}"), &[1; 4096]).expect("a store");
    }
    let rounds = if std::env::var_os("KVSPAN_FULL").is_some() { 12_500 } else { 1_000 };
    std::thread::scope(|scope| {
        for thread in 0..8 {
            let rig = &rig;
            scope.spawn(move || {
                for round in 0..rounds {
                    let entry = rig.lookup(&format!("k{}.data", (thread + round) % 4)).expect("a hit");
                    let opened = rig.fs.open(entry.ino, if round % 3 == 0 { WRITE } else { READ }).expect("an open");
                    let mut byte = [0];
                    assert_eq!(rig.fs.read(opened.handle, &mut byte, 0).unwrap_or(1), 1);
                    if round % 16 == 0 {
                        rig.fs.fsync(opened.handle, true).expect("a sync");
                    }
                    rig.fs.close(opened.handle);
                }
            });
        }
    });
    assert_eq!(rig.fs.open_handles(), 0);
}
