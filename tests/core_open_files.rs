//! What stays open without a handle, and when it goes. In process. Names are sentences of docs/SEMANTICS.md.

mod common;

use std::fs;
use std::path::Path;
use std::time::Duration;

use common::{READ, Rig, WRITE};
use kvspan::volume::attr::DiskNo;

const MIB: usize = 1 << 20;

/// Descriptors of this process on files below a directory that have no name any more, and on those that have one.
fn open_below(dir: &Path) -> (usize, usize) {
    let targets = fs::read_dir("/proc/self/fd").expect("descriptors").flatten();
    let targets = targets.filter_map(|fd| fs::read_link(fd.path()).ok()).filter(|to| to.starts_with(dir) && to != dir);
    let (gone, there): (Vec<_>, Vec<_>) = targets.partition(|to| to.to_string_lossy().ends_with(" (deleted)"));
    (gone.len(), there.len())
}

/// A volume on one disk with a file that was loaded and closed.
fn loaded(names: &[&str], bytes: usize) -> Rig {
    let rig = Rig::limited(1, 64 * MIB as u64);
    rig.scan();
    for name in names {
        rig.write(name, &vec![1; bytes]).expect("a file");
        rig.load(name).expect("a load");
    }
    rig
}

#[test]
fn a_file_that_was_loaded_stays_open_and_goes_with_its_name() {
    type Removal = (&'static str, fn(&Rig));
    let removals: [Removal; 4] = [
        ("an unlink", |rig| rig.unlink("k").expect("an unlink")),
        ("a rename over it", |rig| {
            rig.write("k.tmp", b"new").expect("a file");
            rig.rename("k.tmp", "k").expect("a rename");
        }),
        ("an eviction", |rig| assert_eq!(rig.fs.volume().evict_bytes(DiskNo(0), 1), 1)),
        ("a removal behind our back", |rig| {
            fs::remove_file(rig.on_disk(0, "k")).expect("removed");
            assert!(rig.load("k").is_err());
        }),
    ];
    for (what, remove) in removals {
        let rig = loaded(&["k"], 100_000);
        assert_eq!(open_below(&rig.dirs[0]), (0, 1), "it stays open");
        remove(&rig);
        assert_eq!(open_below(&rig.dirs[0]), (0, 0), "{what}");
        rig.check();
    }
}

#[test]
fn no_more_files_stay_open_than_may_and_a_writer_s_not_at_all() {
    let names: Vec<String> = (0..20).map(|n| format!("k{n}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let rig = loaded(&names, 1000);
    assert_eq!(open_below(&rig.dirs[0]), (0, 8));
    let entry = rig.lookup("k19").expect("the entry");
    let writer = rig.fs.open(entry.ino, WRITE).expect("an open");
    assert_eq!(open_below(&rig.dirs[0]), (0, 8), "its descriptor for reading has made way");
    rig.fs.close(writer.handle);
    drop(writer);
    assert_eq!(open_below(&rig.dirs[0]), (0, 7));
}

#[test]
fn a_file_that_was_replaced_on_its_disk_is_loaded_as_it_is_now() {
    let rig = loaded(&["k"], 1000);
    fs::write(rig.on_disk(0, "other"), vec![2; 1000]).expect("a file");
    fs::rename(rig.on_disk(0, "other"), rig.on_disk(0, "k")).expect("a rename");
    assert_eq!(rig.load("k").expect("a load"), vec![2; 1000]);
    rig.forget_checks();
}

#[test]
fn the_blocks_of_a_removed_file_are_freed_in_the_background() {
    let removals: [fn(&Rig); 4] = [
        |rig| rig.unlink("k").expect("an unlink"),
        |rig| rig.rename("j", "k").expect("a rename"),
        |rig| {
            // Loaded before, and open when its name goes.
            rig.load("k").expect("a load");
            let opened = rig.fs.open(rig.lookup("k").expect("the entry").ino, READ).expect("an open");
            rig.unlink("k").expect("an unlink");
            rig.fs.close(opened.handle);
        },
        |rig| {
            rig.load("k").expect("a load");
            rig.unlink("k").expect("an unlink");
        },
    ];
    for remove in removals {
        let rig = Rig::new(1);
        for name in ["k", "j"] {
            rig.write(name, &vec![1; MIB]).expect("a file");
        }
        let volume = rig.fs.volume();
        volume.drop_deferred(DiskNo(0), Duration::ZERO);
        remove(&rig);
        assert_eq!(open_below(&rig.dirs[0]).0, 1, "its blocks are still there");
        assert!(volume.used_bytes(DiskNo(0)) < 2 * MIB as u64, "and are no longer the volume's");
        volume.drop_deferred(DiskNo(0), Duration::from_secs(30));
        assert_eq!(open_below(&rig.dirs[0]).0, 0);
    }
}

#[test]
fn what_waits_to_be_freed_is_bounded_and_small_files_do_not_wait() {
    let rig = Rig::new(1);
    rig.fs.volume().drop_deferred(DiskNo(0), Duration::ZERO);
    for n in 0..6 {
        let name = format!("k{n}");
        let opened = rig.create(&name).expect("a file");
        rig.fs.fallocate(opened.handle, 0, 0, 100 * MIB as u64).expect("room");
        rig.fs.close(opened.handle);
    }
    rig.write("small", &[1; 10_000]).expect("a file");
    rig.unlink("small").expect("an unlink");
    assert_eq!(open_below(&rig.dirs[0]).0, 0);
    (0..6).for_each(|n| rig.unlink(&format!("k{n}")).expect("an unlink"));
    assert_eq!(open_below(&rig.dirs[0]).0, 2, "of 600 MiB no more than 256 MiB wait");
    rig.fs.volume().drop_deferred(DiskNo(0), Duration::from_secs(30));
    assert_eq!(open_below(&rig.dirs[0]), (0, 0));
}
