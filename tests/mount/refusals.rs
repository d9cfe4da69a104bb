//! What a volume is not: no links, no devices, no ioctls; and what stays hidden.

use std::fs;
use std::os::unix::fs::symlink;
use std::os::unix::net::UnixListener;

use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags};
use rustix::io::Errno;

use crate::bytes::open;
use crate::rig::{Io, Rig, in_both_io_modes, on_a_mount};
use crate::run::shell;

in_both_io_modes! {
    ioctls_are_refused_and_reach_no_disk,
}

on_a_mount! {
    links_devices_and_unnamed_files_are_refused,
    names_of_255_bytes_work_and_longer_ones_are_refused,
    what_kvspan_and_the_disks_keep_for_themselves_is_hidden,
    a_planted_symlink_fifo_or_device_is_never_followed_shown_or_removed,
    unknown_flags_and_handles_get_an_error,
}

fn ioctls_are_refused_and_reach_no_disk(io: Io) {
    let rig = Rig::mounted(2, io);
    fs::write(rig.path("f"), "x").expect("a file");
    for name in ["f", ""] {
        let fd = open(&rig.path(name), OFlags::RDONLY).expect("an open file");
        assert_eq!(rustix::fs::ioctl_getflags(&fd), Err(Errno::NOTTY), "{name:?}");
        let set = rustix::fs::ioctl_setflags(&fd, rustix::fs::IFlags::IMMUTABLE);
        assert_eq!(set, Err(Errno::NOTTY), "{name:?}");
    }
    shell(&rig.mountpoint(), "! lsattr f; ! chattr +i f").ok();
    let clone = open(&rig.path("g"), OFlags::RDWR | OFlags::CREATE).expect("a file");
    let source = open(&rig.path("f"), OFlags::RDONLY).expect("a file");
    assert!(rustix::fs::ioctl_ficlone(&clone, &source).is_err());
    shell(&rig.mountpoint(), "cp --reflink=auto f h; cmp f h; rm f").ok();
}

fn links_devices_and_unnamed_files_are_refused() {
    let rig = Rig::mounted(2, Io::Passthrough);
    fs::write(rig.path("f"), "x").expect("a file");
    assert_eq!(rustix::fs::link(rig.path("f"), rig.path("g")), Err(Errno::PERM));
    assert_eq!(rustix::fs::symlink("f", rig.path("g")), Err(Errno::PERM));
    for kind in [FileType::Fifo, FileType::CharacterDevice, FileType::BlockDevice, FileType::Socket] {
        let made = rustix::fs::mknodat(CWD, rig.path("g"), kind, Mode::RUSR, rustix::fs::makedev(1, 3));
        assert_eq!(made, Err(Errno::PERM), "{kind:?}");
    }
    shell(&rig.mountpoint(), "! mkfifo g; ! ln f g; ! ln -s f g").ok();
    assert!(UnixListener::bind(rig.path("g")).is_err());
    assert!(!rig.path("g").exists());
    let unnamed = rustix::fs::open(rig.mountpoint(), OFlags::TMPFILE | OFlags::RDWR, Mode::RUSR);
    assert_eq!(unnamed.err(), Some(Errno::OPNOTSUPP));
    rustix::fs::mknodat(CWD, rig.path("g"), FileType::RegularFile, Mode::RUSR, 0).expect("a regular file by mknod");
    assert_eq!(fs::metadata(rig.path("g")).expect("stat").len(), 0);
}

fn names_of_255_bytes_work_and_longer_ones_are_refused() {
    let rig = Rig::mounted(2, Io::Passthrough);
    let (fits, long) = ("n".repeat(255), "n".repeat(256));
    fs::write(rig.path(&fits), "x").expect("a file");
    assert_eq!(fs::read(rig.backing(&fits)).expect("a file"), b"x");
    fs::rename(rig.path(&fits), rig.path("f")).expect("a rename");
    fs::rename(rig.path("f"), rig.path(&fits)).expect("a rename");
    assert_eq!(rustix::fs::stat(rig.path(&long)).err(), Some(Errno::NAMETOOLONG));
    assert_eq!(open(&rig.path(&long), OFlags::RDWR | OFlags::CREATE).err(), Some(Errno::NAMETOOLONG));
    assert_eq!(rustix::fs::mkdir(rig.path(&long), Mode::RWXU), Err(Errno::NAMETOOLONG));
    assert_eq!(rustix::fs::rename(rig.path(&fits), rig.path(&long)), Err(Errno::NAMETOOLONG));
    let deep = ["d".repeat(200).as_str(); 10].join("/");
    fs::create_dir_all(rig.path(&deep)).expect("mkdir -p");
    fs::write(rig.path(&deep).join("f"), "deep").expect("a file");
    assert_eq!(fs::read(rig.path(&deep).join("f")).expect("a file"), b"deep");
}

fn what_kvspan_and_the_disks_keep_for_themselves_is_hidden() {
    let mut rig = Rig::new(2);
    for disk in &rig.disks {
        fs::create_dir(disk.join("lost+found")).expect("a directory");
        fs::write(disk.join("lost+found/#1"), "x").expect("a file");
    }
    rig.mount("");
    for name in [".kvspan", "lost+found"] {
        assert_eq!(rustix::fs::stat(rig.path(name)).err(), Some(Errno::NOENT), "{name}");
        assert_eq!(rustix::fs::mkdir(rig.path(name), Mode::RWXU), Err(Errno::PERM), "{name}");
        assert_eq!(open(&rig.path(name), OFlags::RDWR | OFlags::CREATE).err(), Some(Errno::PERM), "{name}");
        fs::write(rig.path("f"), "x").expect("a file");
        assert!(matches!(rustix::fs::rename(rig.path("f"), rig.path(name)), Err(Errno::PERM)), "{name}");
        let below = rig.path(name).join("label.json");
        assert_eq!(open(&below, OFlags::RDONLY).err(), Some(Errno::NOENT), "{name}");
    }
    assert_eq!(shell(&rig.mountpoint(), "ls -A; find . -name 'l*'").ok(), "f\n");
    fs::create_dir_all(rig.path("d/lost+found")).expect("only the root's names are hidden");
    assert_eq!(rig.status()["files"], 1);
}

fn a_planted_symlink_fifo_or_device_is_never_followed_shown_or_removed() {
    let mut rig = Rig::new(3);
    let secret = rig.outside("secret");
    fs::write(&secret, "secret").expect("a file");
    let early = rig.disks[0].clone();
    symlink(&secret, early.join("link")).expect("a symlink");
    shell(&early, "mkfifo fifo; mknod null c 1 3; mkdir d; ln -s / d/root").ok();
    rig.mount("");
    assert_eq!(shell(&rig.mountpoint(), "find . | sort").ok(), ".\n./d\n");
    // Planted again on the disk that a new file would go to, and in place of a file that was there.
    for name in ["link", "fifo", "null", "late"] {
        symlink(&secret, rig.owner(name).join(name)).or_else(|_| fs::metadata(&secret).map(drop)).expect("a symlink");
        assert_eq!(rustix::fs::stat(rig.path(name)).err(), Some(Errno::NOENT), "{name}");
        fs::write(rig.path(name), "ours").unwrap_or_else(|error| panic!("{name}: {error}"));
        assert_eq!(fs::read(rig.path(name)).expect("a file"), b"ours", "{name}");
        fs::remove_file(rig.path(name)).expect("unlink");
    }
    fs::write(rig.path("swapped"), "ours").expect("a file");
    let backing = rig.backing("swapped");
    fs::remove_file(&backing).expect("unlink");
    shell(backing.parent().expect("a disk"), "mkfifo swapped").ok();
    assert_eq!(open(&rig.path("swapped"), OFlags::RDONLY).err(), Some(Errno::NOENT), "a FIFO is not opened");
    assert_eq!(fs::read(&secret).expect("the secret"), b"secret");
    let kinds = "test -L link; test -p fifo; test -c null; test -L d/root";
    shell(&early, kinds).ok();
    let planted = rig.owner("late").join("late");
    assert!(planted.is_symlink(), "left alone");
}

fn unknown_flags_and_handles_get_an_error() {
    let rig = Rig::mounted(2, Io::Passthrough);
    fs::write(rig.path("f"), "x").expect("a file");
    let fd = open(&rig.path("f"), OFlags::RDONLY).expect("a file");
    assert_eq!(rustix::io::pwrite(&fd, b"x", 0), Err(Errno::BADF));
    assert_eq!(rustix::fs::unlinkat(CWD, rig.path("f"), AtFlags::REMOVEDIR), Err(Errno::NOTDIR));
    assert_eq!(open(&rig.path("f"), OFlags::RDONLY | OFlags::DIRECTORY).err(), Some(Errno::NOTDIR));
    assert_eq!(open(&rig.path(""), OFlags::WRONLY).err(), Some(Errno::ISDIR));
    assert_eq!(rustix::fs::rename(rig.path("f"), rig.outside("f")), Err(Errno::XDEV));
}
