//! Listings: every name once, whatever the buffer and whoever deletes meanwhile.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::fs;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use rustix::fs::{FileType, OFlags, RawDir, SeekFrom};

use crate::bytes::opened;
use crate::rig::{Io, Rig, on_a_mount};
use crate::run::shell;

on_a_mount! {
    twenty_thousand_names_are_listed_once_each_with_any_buffer,
    a_buffer_for_one_entry_lists_every_name_once,
    two_hundred_thousand_names_are_listed_once_each_while_files_come_and_go,
    names_deleted_during_a_listing_hide_no_other,
    a_listing_goes_on_at_any_place_it_has_been_at,
    a_listing_shows_the_inode_number_and_type_that_stat_shows,
    a_listing_during_the_scan_is_complete,
    inode_numbers_differ_between_disks_made_alike,
    tools_list_what_is_there,
}

/// What one `getdents` entry said.
struct Listed {
    name: String,
    ino: u64,
    kind: FileType,
    next: u64,
}

fn directory(path: &Path) -> OwnedFd {
    opened(path, OFlags::RDONLY | OFlags::DIRECTORY)
}

/// Reads on with a buffer of `bytes`, calling `each` for every entry, the dots too, until it returns false.
fn read_on(fd: &OwnedFd, bytes: usize, each: &mut dyn FnMut(Listed) -> bool) {
    let mut buffer = vec![MaybeUninit::uninit(); bytes];
    let mut dir = RawDir::new(fd, &mut buffer);
    while let Some(entry) = dir.next() {
        let entry = entry.expect("getdents");
        let name = String::from_utf8(entry.file_name().to_bytes().to_vec()).expect("UTF-8");
        if !each(Listed { name, ino: entry.ino(), kind: entry.file_type(), next: entry.next_entry_cookie() }) {
            return;
        }
    }
}

fn names(fd: &OwnedFd, bytes: usize) -> Vec<String> {
    let mut names = Vec::new();
    read_on(fd, bytes, &mut |entry| {
        names.push(entry.name);
        true
    });
    names
}

#[track_caller]
fn assert_once_each(mut found: Vec<String>, wanted: &BTreeSet<String>) {
    found.retain(|name| name != "." && name != "..");
    assert_eq!(found.len(), found.iter().collect::<BTreeSet<_>>().len(), "no name twice");
    let found: BTreeSet<String> = found.into_iter().collect();
    let missing: Vec<_> = wanted.difference(&found).take(5).collect();
    let extra: Vec<_> = found.difference(wanted).take(5).collect();
    assert!(missing.is_empty() && extra.is_empty(), "missing {missing:?}, too many {extra:?}");
}

/// Files planted on the disks before the mount. The disks lie in memory: nobody has to write and remove so many.
fn planted(disks: usize, count: usize) -> (Rig, BTreeSet<String>) {
    let mut rig = Rig::bare();
    let dirs: Vec<_> = (0..disks).map(|n| rig.tmpfs(&format!("t{n}"), "1G")).collect();
    rig.use_disks(&dirs);
    let names: BTreeSet<String> = (0..count).map(|n| format!("name-{n:06}.data")).collect();
    for (n, name) in names.iter().enumerate() {
        fs::write(rig.disks[n % disks].join(name), "x").expect("a file");
    }
    (rig, names)
}

fn twenty_thousand_names_are_listed_once_each_with_any_buffer() {
    let (mut rig, wanted) = planted(3, 20_000);
    rig.mount("");
    for bytes in [300, 1000, 32_768, 1 << 20] {
        let found = names(&directory(&rig.mountpoint()), bytes);
        assert_eq!(found[..2], [".", ".."]);
        assert_once_each(found, &wanted);
    }
    let said = shell(&rig.mountpoint(), "ls -f | wc -l; ls -l | wc -l; find . -type f | wc -l");
    assert_eq!(said.ok().split_whitespace().collect::<Vec<_>>(), ["20002", "20001", "20000"]);
}

fn a_buffer_for_one_entry_lists_every_name_once() {
    let (mut rig, wanted) = planted(3, 2000);
    rig.mount("");
    let fd = directory(&rig.mountpoint());
    // An entry takes 24 bytes and the name with its NUL, in steps of 8.
    let mut calls = 0;
    let mut found = Vec::new();
    loop {
        let before = found.len();
        let mut one = |entry: Listed| {
            found.push(entry.name);
            false
        };
        read_on(&fd, 40, &mut one);
        if found.len() == before {
            break;
        }
        calls += 1;
        if calls == 1000 {
            fs::remove_file(rig.path(&found[500])).expect("unlink");
        }
    }
    assert_eq!(found[..2], [".", ".."]);
    assert_once_each(found, &wanted);
}

fn two_hundred_thousand_names_are_listed_once_each_while_files_come_and_go() {
    let (mut rig, all) = planted(3, 200_000);
    rig.mount("");
    let goes = |name: &str| name.ends_with("7.data");
    let stays: BTreeSet<String> = all.iter().filter(|name| !goes(name)).cloned().collect();
    let listings_left = AtomicUsize::new(3);
    let (mut came, mut went) = (0, 0);
    thread::scope(|scope| {
        for bytes in [4096, 32_768, 1 << 20] {
            let (rig, stays, listings_left) = (&rig, &stays, &listings_left);
            scope.spawn(move || {
                let found = std::panic::catch_unwind(|| names(&directory(&rig.mountpoint()), bytes));
                listings_left.fetch_sub(1, Ordering::SeqCst);
                let mut found = found.expect("a listing");
                assert!(found.len() >= stays.len(), "{} names", found.len());
                found.retain(|name| stays.contains(name));
                assert_once_each(found, stays);
            });
        }
        let mut old = all.iter().filter(|name| goes(name));
        while listings_left.load(Ordering::SeqCst) > 0 {
            let new = rig.path(format!("new-{came}"));
            fs::write(&new, "x").expect("a file");
            fs::rename(&new, rig.path(format!("newer-{came}"))).expect("a rename");
            came += 1;
            if let Some(name) = old.next() {
                fs::remove_file(rig.path(name)).expect("unlink");
                went += 1;
            }
            if came % 2 == 0 {
                fs::remove_file(rig.path(format!("newer-{}", came / 2))).expect("unlink");
            }
        }
    });
    assert!(came > 100 && went > 100, "{came} came and {went} went");
    assert_eq!(rig.status()["files"], 200_000 + came - came / 2 - went);
}

fn names_deleted_during_a_listing_hide_no_other() {
    let (mut rig, all) = planted(3, 5000);
    rig.mount("");
    let fd = directory(&rig.mountpoint());
    let (mut seen, mut deleted) = (Vec::new(), BTreeSet::new());
    let mut ahead: Vec<String> = all.iter().filter(|name| name.contains("7.data")).cloned().collect();
    read_on(&fd, 400, &mut |entry| {
        let n = seen.len();
        // What was just listed, and names anywhere ahead or behind.
        if n % 3 == 0 && entry.name != "." && entry.name != ".." && fs::remove_file(rig.path(&entry.name)).is_ok() {
            deleted.insert(entry.name.clone());
        }
        if n % 20 == 0
            && let Some(name) = ahead.pop()
            && fs::remove_file(rig.path(&name)).is_ok()
        {
            deleted.insert(name);
        }
        if n % 10 == 0 {
            fs::write(rig.path(format!("new-{n}")), "x").expect("a file");
        }
        seen.push(entry.name);
        seen.len() < 100_000
    });
    let count = seen.len();
    seen.retain(|name| !deleted.contains(name) && !name.starts_with("new-"));
    assert!(count < 20_000, "a listing ends although names are added");
    assert_once_each(seen, &all.difference(&deleted).cloned().collect());
    shell(&rig.mountpoint(), "find . -type f -delete; ls -A | wc -l | grep -qx 0").ok();
}

fn a_listing_goes_on_at_any_place_it_has_been_at() {
    let (mut rig, wanted) = planted(2, 1000);
    rig.mount("");
    let fd = directory(&rig.mountpoint());
    let mut order = Vec::new();
    read_on(&fd, 32_768, &mut |entry| {
        order.push((entry.name, entry.next));
        true
    });
    assert_once_each(order.iter().map(|(name, _)| name.clone()).collect(), &wanted);
    let names_only: Vec<&String> = order.iter().map(|(name, _)| name).collect();
    for at in [0, 1, 2, 500, 998, 1001] {
        rustix::fs::seek(&fd, SeekFrom::Start(order[at].1)).expect("seekdir");
        assert_eq!(names(&fd, 500).iter().collect::<Vec<_>>(), names_only[at + 1..], "after entry {at}");
    }
    // The place stays good when the name that marked it goes.
    fs::remove_file(rig.path(&order[500].0)).expect("unlink");
    rustix::fs::seek(&fd, SeekFrom::Start(order[500].1)).expect("seekdir");
    assert_eq!(names(&fd, 500).iter().collect::<Vec<_>>(), names_only[501..]);
    fs::write(rig.path("later"), "x").expect("a file");
    rustix::fs::seek(&fd, SeekFrom::Start(0)).expect("rewinddir");
    let again = names(&fd, 500);
    assert_eq!((again.len(), again.contains(&"later".to_string())), (1002, true), "a rewound listing is a new one");
}

fn a_listing_shows_the_inode_number_and_type_that_stat_shows() {
    let (mut rig, _) = planted(3, 300);
    rig.mount("");
    shell(&rig.mountpoint(), "mkdir d d/e; for n in 1 2 3 4 5 6; do echo x > d/$n; done").ok();
    for _ in 0..2 {
        for dir in ["", "d", "d/e"] {
            read_on(&directory(&rig.path(dir)), 4096, &mut |entry| {
                // The kernel knows no parent of the root of a mount but the root itself.
                if !(dir.is_empty() && entry.name == "..") {
                    let stat = fs::symlink_metadata(rig.path(dir).join(&entry.name)).expect("stat");
                    assert_eq!(entry.ino, stat.ino(), "{dir}/{}", entry.name);
                    assert_eq!(entry.kind == FileType::Directory, stat.is_dir(), "{dir}/{}", entry.name);
                }
                true
            });
        }
        shell(Path::new("/"), "sync; echo 2 > /proc/sys/vm/drop_caches").ok();
    }
}

fn a_listing_during_the_scan_is_complete() {
    let (mut rig, wanted) = planted(3, 20_000);
    // Not `mount`, which waits for the end of the scan.
    crate::run::run(&mut rig.mount_command("")).ok();
    rig.take_daemon();
    let state = rig.status()["state"].clone();
    assert_once_each(names(&directory(&rig.mountpoint()), 32_768), &wanted);
    for name in wanted.iter().step_by(997) {
        assert_eq!(fs::read(rig.path(name)).expect("a hit"), b"x");
    }
    assert!(state == "recovering" || state == "ready", "{state}");
}

fn inode_numbers_differ_between_disks_made_alike() {
    let mut rig = Rig::bare();
    let disks: Vec<_> = (1..4).map(|n| rig.tmpfs(&format!("t{n}"), "32M")).collect();
    rig.use_disks(&disks);
    for (n, disk) in disks.iter().enumerate() {
        for m in 0..100 {
            fs::write(disk.join(format!("f{n}-{m}")), "x").expect("a file");
        }
    }
    rig.mount("");
    let mut numbers = BTreeMap::new();
    for entry in fs::read_dir(rig.mountpoint()).expect("a listing").flatten() {
        let stat = entry.metadata().expect("stat");
        assert_eq!(stat.nlink(), 1);
        assert_eq!(numbers.insert(stat.ino(), entry.file_name()), None, "one number a file");
    }
    assert_eq!(numbers.len(), 300);
    let devices: BTreeSet<u64> =
        numbers.values().map(|name| fs::metadata(rig.path(name)).expect("stat").dev()).collect();
    assert_eq!(devices.len(), 1);
}

fn tools_list_what_is_there() {
    let rig = Rig::mounted(3, Io::Passthrough);
    let odd = [&b"\xff\xfe not UTF-8"[..], b"new\nline", b"-dash", b"quote'\"", b" ", "ü".as_bytes(), b"..."];
    for name in odd {
        fs::write(rig.path(OsStr::from_bytes(name)), name).expect("a file");
    }
    for name in odd {
        assert_eq!(fs::read(rig.path(OsStr::from_bytes(name))).expect("a file"), name);
    }
    let listed: BTreeSet<Vec<u8>> = fs::read_dir(rig.mountpoint())
        .expect("a listing")
        .flatten()
        .map(|entry| entry.file_name().into_encoded_bytes())
        .collect();
    assert_eq!(listed, odd.iter().map(|name| name.to_vec()).collect());
    assert_eq!(
        shell(&rig.mountpoint(), "find . -type f -print0 | tr -cd '\\0' | wc -c; rm -- * ...; ls -A").ok().trim(),
        "7"
    );
}
