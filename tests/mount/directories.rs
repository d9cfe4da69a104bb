//! Directories: one tree over all disks.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use rustix::fs::RenameFlags;
use rustix::io::Errno;

use crate::rig::{Io, Rig, in_both_io_modes, on_a_mount};
use crate::run::{has, shell};

in_both_io_modes! {
    a_tree_copied_by_cp_tar_and_rsync_is_the_same,
    files_in_nested_directories_spread_over_the_disks_and_survive_a_mount,
}

on_a_mount! {
    rmdir_wants_a_directory_that_is_empty_on_every_disk,
    a_directory_is_renamed_with_all_below_it_on_every_disk,
    a_rename_of_a_directory_is_refused_where_ext4_refuses_it,
    mv_copies_a_directory_while_a_disk_is_missing,
    link_counts_of_directories_count_subdirectories,
    rm_rf_leaves_nothing_on_any_disk,
    names_come_and_go_with_the_times_of_their_directory,
    paths_through_a_file_are_not_directories,
}

const TREE: &str = "mkdir -p a/b/c a/empty 'a/with space'
    for n in 1 2 3 4 5 6 7 8; do echo $n > a/b/f$n; head -c 100000 /dev/urandom > a/b/c/r$n; done
    echo x > 'a/with space/ü'; : > a/nothing; chmod 600 a/b/f1; chmod 750 a/empty; touch -d @1000000000 a/b/f2 a/nothing";

fn a_tree_copied_by_cp_tar_and_rsync_is_the_same(io: Io) {
    let rig = Rig::mounted(3, io);
    let top = rig.outside("");
    shell(&top, &format!("mkdir src; cd src; {TREE}")).ok();
    shell(&top, "cp -a src/a mnt/cp; tar -C src --format=pax -cf - a | tar -C mnt -xf -; cp -a mnt/cp back; tar -C mnt --format=pax -cf t.tar a").ok();
    shell(
        &top,
        "mkdir un; tar -C un -xf t.tar; tar -C mnt -cf mnt/inside.tar a; tar -C mnt -df t.tar; tar -tf mnt/inside.tar",
    )
    .ok();
    for copy in ["mnt/cp", "mnt/a", "back", "un/a"] {
        shell(&top, &format!("diff -r src/a {copy}")).ok();
        let list = |dir: &str| {
            let script = format!(
                "cd {dir}; find . -type f -printf '%P %m %U %G %T@ %s\\n' -o -printf '%P %m %U %G %T@\\n' | sort"
            );
            shell(&top, &script).ok().to_string()
        };
        assert_eq!(list(copy), list("src/a"), "{copy}");
    }
    if has("rsync") {
        shell(&top, "rsync -aH src/a/ mnt/rs/; diff -r src/a mnt/rs; rsync -aHi src/a/ mnt/rs/ | wc -l | grep -qx 0")
            .ok();
    } else {
        eprintln!("without rsync, which is not installed");
    }
}

fn files_in_nested_directories_spread_over_the_disks_and_survive_a_mount(io: Io) {
    let mut rig = Rig::mounted(3, io);
    fs::create_dir_all(rig.path("x/y/z")).expect("mkdir -p");
    fs::create_dir_all(rig.path("x/y/z")).expect("mkdir -p once more");
    for n in 0..40 {
        fs::write(rig.path(format!("x/y/z/{n}")), format!("{n}")).expect("a file");
    }
    for disk in &rig.disks {
        let found = fs::read_dir(disk.join("x/y/z")).expect("a copy on each disk").count();
        assert!(found > 3, "{found} files on {}", disk.display());
    }
    for round in 0..2 {
        let names = fs::read_dir(rig.path("x/y/z")).expect("a listing").count();
        assert_eq!(names, 40);
        for n in 0..40 {
            assert_eq!(fs::read(rig.path(format!("x/y/z/{n}"))).expect("a file"), format!("{n}").as_bytes());
        }
        if round == 0 {
            rig.umount();
            rig.mount_in(io);
        }
    }
}

fn rmdir_wants_a_directory_that_is_empty_on_every_disk() {
    let rig = Rig::mounted(3, Io::Passthrough);
    fs::create_dir(rig.path("d")).expect("a directory");
    for n in 0..20 {
        fs::write(rig.path(format!("d/{n}")), "x").expect("a file");
    }
    for n in 0..20 {
        assert_eq!(rustix::fs::rmdir(rig.path("d")), Err(Errno::NOTEMPTY));
        fs::remove_file(rig.path(format!("d/{n}"))).expect("unlink");
    }
    assert_eq!(rustix::fs::rmdir(rig.path("d/none")), Err(Errno::NOENT));
    fs::write(rig.path("file"), "x").expect("a file");
    assert_eq!(rustix::fs::rmdir(rig.path("file")), Err(Errno::NOTDIR));
    assert!(matches!(rustix::fs::unlink(rig.path("d")), Err(Errno::ISDIR | Errno::PERM)));
    // What a disk hides there is not ours to remove.
    let copy = rig.disks_with("d").remove(0);
    std::os::unix::fs::symlink("nowhere", copy.join("planted")).expect("a symlink");
    assert_eq!(rustix::fs::rmdir(rig.path("d")), Err(Errno::NOTEMPTY));
    assert!(rig.path("d").is_dir());
    fs::remove_file(copy.join("planted")).expect("unlink");
    rustix::fs::rmdir(rig.path("d")).expect("rmdir");
    assert!(rig.disks_with("d").is_empty());
    fs::create_dir(rig.path("d")).expect("a new one of the same name");
    fs::write(rig.path("d/f"), "x").expect("a file");
}

fn a_directory_is_renamed_with_all_below_it_on_every_disk() {
    let mut rig = Rig::mounted(3, Io::Passthrough);
    shell(&rig.mountpoint(), "mkdir -p a/b to; for n in 1 2 3 4 5 6 7 8 9; do echo $n > a/b/$n; echo $n > a/$n; done")
        .ok();
    let open = fs::File::open(rig.path("a/b/1")).expect("a file");
    let check = |rig: &Rig, dir: &str| {
        for n in 1..10 {
            assert_eq!(fs::read(rig.path(format!("{dir}/b/{n}"))).expect("a file"), format!("{n}\n").as_bytes());
            assert_eq!(fs::read(rig.backing(&format!("{dir}/{n}"))).expect("a file"), format!("{n}\n").as_bytes());
        }
    };
    for (from, to) in [("a", "c"), ("c", "to/c"), ("to/c", "to/d"), ("to/d", "e")] {
        fs::rename(rig.path(from), rig.path(to)).expect("a rename");
        assert!(!rig.path(from).exists() && rig.disks_with(from).is_empty(), "{from}");
        check(&rig, to);
        fs::write(rig.path(format!("{to}/new")), "x").expect("a new file");
        fs::remove_file(rig.path(format!("{to}/new"))).expect("unlink");
    }
    fs::create_dir(rig.path("empty")).expect("a directory");
    fs::rename(rig.path("e"), rig.path("empty")).expect("a rename over an empty directory");
    check(&rig, "empty");
    assert_eq!(std::io::read_to_string(&open).expect("the open file"), "1\n");
    drop(open);
    rig.umount();
    rig.mount("");
    check(&rig, "empty");
}

fn a_rename_of_a_directory_is_refused_where_ext4_refuses_it() {
    let rig = Rig::mounted(3, Io::Passthrough);
    let bare = rig.outside("bare");
    fs::create_dir(&bare).expect("a directory");
    let dirs = [rig.mountpoint(), bare];
    for dir in &dirs {
        shell(dir, "mkdir -p full/sub empty other/deep; echo x > full/f; echo x > file; : > other/deep/f").ok();
    }
    let pairs = [
        ("full", "full/sub/in"),
        ("full", "full/sub"),
        ("empty", "full"),
        ("empty", "file"),
        ("file", "empty"),
        ("full/f", "full"),
        ("other", "full"),
        ("other/deep", "other"),
        ("none", "x"),
        ("full", "none/x"),
        ("full", "full"),
    ];
    for (from, to) in pairs {
        let [ours, wanted] = [0, 1].map(|n| rustix::fs::rename(dirs[n].join(from), dirs[n].join(to)));
        assert_eq!(ours, wanted, "{from} to {to}");
    }
    let with = |dir: &Path, from, to, flags| {
        rustix::fs::renameat_with(rustix::fs::CWD, dir.join(from), rustix::fs::CWD, dir.join(to), flags)
    };
    for (from, to) in [("full", "empty"), ("full", "file"), ("other", "free")] {
        let [ours, wanted] = [0, 1].map(|n| with(&dirs[n], from, to, RenameFlags::NOREPLACE));
        assert_eq!(ours, wanted, "{from} to {to}, which may not be there");
    }
    // Not promised: the two directories lie on several disks each.
    assert_eq!(with(&dirs[0], "full", "empty", RenameFlags::EXCHANGE), Err(Errno::INVAL));
    let [ours, wanted] = [0, 1].map(|n| shell(&dirs[n], "find . | sort").ok().to_string());
    assert_eq!(ours, wanted);
}

/// The copy on the missing disk could not follow: a tool that hears `EXDEV` copies what is there.
fn mv_copies_a_directory_while_a_disk_is_missing() {
    let mut rig = Rig::mounted(3, Io::Passthrough);
    shell(&rig.mountpoint(), "mkdir -p a/b; for n in $(seq 30); do echo $n > a/b/$n; done").ok();
    rig.umount();
    let (disk, hidden) = (rig.disks[2].clone(), rig.outside("hidden"));
    fs::rename(&disk, &hidden).expect("the disk goes");
    rig.mount("");
    let there = fs::read_dir(rig.path("a/b")).expect("a listing").count();
    assert!(there > 0 && there < 30, "{there} of 30 files are on the others");
    assert_eq!(rustix::fs::rename(rig.path("a"), rig.path("c")), Err(Errno::XDEV));
    shell(&rig.mountpoint(), "mv a c; test ! -e a; for n in c/b/*; do test \"$(cat $n)\" = ${n##*/} || exit 1; done")
        .ok();
    assert_eq!(fs::read_dir(rig.path("c/b")).expect("a listing").count(), there);
    rig.umount();
    fs::rename(&hidden, &disk).expect("the disk is back");
    rig.mount("");
    assert_eq!(fs::read_dir(rig.path("c/b")).expect("a listing").count(), there);
    assert_eq!(fs::read_dir(rig.path("a/b")).expect("what the disk has brought back").count(), 30 - there);
    fs::rename(rig.path("a"), rig.path("d")).expect("a rename again");
}

fn link_counts_of_directories_count_subdirectories() {
    let rig = Rig::mounted(3, Io::Passthrough);
    let links = |name: &str| fs::metadata(rig.path(name)).expect("stat").nlink();
    assert_eq!(links(""), 2);
    fs::create_dir_all(rig.path("d/e")).expect("mkdir -p");
    fs::create_dir(rig.path("d/f")).expect("mkdir");
    fs::write(rig.path("d/file"), "x").expect("a file");
    assert_eq!((links(""), links("d"), links("d/e"), links("d/file")), (3, 4, 2, 1));
    fs::rename(rig.path("d/e"), rig.path("e")).expect("a rename");
    assert_eq!((links(""), links("d")), (4, 3));
    fs::remove_dir(rig.path("d/f")).expect("rmdir");
    assert_eq!(links("d"), 2);
}

fn rm_rf_leaves_nothing_on_any_disk() {
    let rig = Rig::mounted(3, Io::Passthrough);
    shell(&rig.mountpoint(), TREE).ok();
    shell(
        &rig.mountpoint(),
        "for n in $(seq 300); do echo $n > a/b/n$n; done; find a | wc -l; rm -rf a; ls -A | wc -l | grep -qx 0",
    )
    .ok();
    for disk in &rig.disks {
        let left: Vec<_> = fs::read_dir(disk).expect("a disk").flatten().map(|entry| entry.file_name()).collect();
        assert_eq!(left, [".kvspan"], "on {}", disk.display());
    }
    assert_eq!((rig.status()["files"].clone(), rig.status()["used_bytes"].clone()), (0.into(), 0.into()));
}

fn names_come_and_go_with_the_times_of_their_directory() {
    let rig = Rig::mounted(3, Io::Passthrough);
    fs::create_dir(rig.path("d")).expect("a directory");
    let mtime = |path: &Path| {
        let stat = fs::metadata(path).expect("stat");
        (stat.mtime(), stat.mtime_nsec())
    };
    let long_ago = "touch -d @1000000000 d";
    let changes = ["echo x > d/f", "mv d/f d/g", "ln -s x d/l || :; rm d/g", "mkdir d/e", "rmdir d/e"];
    for change in changes {
        shell(&rig.mountpoint(), long_ago).ok();
        assert_eq!(mtime(&rig.path("d")), (1_000_000_000, 0));
        shell(&rig.mountpoint(), change).ok();
        assert!(mtime(&rig.path("d")) > (1_700_000_000, 0), "{change}");
    }
}

fn paths_through_a_file_are_not_directories() {
    let rig = Rig::mounted(2, Io::Passthrough);
    fs::write(rig.path("f"), "x").expect("a file");
    assert_eq!(rustix::fs::stat(rig.path("f/g")).err(), Some(Errno::NOTDIR));
    assert_eq!(rustix::fs::mkdir(rig.path("f"), rustix::fs::Mode::RWXU), Err(Errno::EXIST));
    assert_eq!(rustix::fs::mkdir(rig.path("no/d"), rustix::fs::Mode::RWXU), Err(Errno::NOENT));
    assert!(fs::read_dir(rig.path("f")).is_err());
    assert_eq!(
        fs::write(rig.mountpoint(), "x").err().and_then(|e| e.raw_os_error()),
        Some(Errno::ISDIR.raw_os_error())
    );
}
