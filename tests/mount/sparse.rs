//! Holes, reserved room and copies that the kernel makes.

use std::fs;
use std::os::unix::fs::MetadataExt;

use rustix::fs::{FallocateFlags, OFlags, SeekFrom};
use rustix::io::Errno;

use crate::bytes::{assert_same, opened, pattern, read_at_most};
use crate::rig::{Io, Rig, in_both_io_modes};
use crate::run::shell;

in_both_io_modes! {
    holes_are_found_where_the_disk_has_them,
    fallocate_reserves_extends_and_punches_as_on_the_disk,
    a_sparse_file_reads_as_zeros_and_takes_no_room,
    copy_file_range_copies_within_and_across_disks,
    cp_copies_every_byte,
}

fn holes_are_found_where_the_disk_has_them(io: Io) {
    let rig = Rig::mounted(2, io);
    let fd = opened(&rig.path("f"), OFlags::RDWR | OFlags::CREATE);
    rustix::io::pwrite(&fd, &pattern(1, 4096), 1 << 20).expect("a write");
    rustix::io::pwrite(&fd, &pattern(2, 4096), 3 << 20).expect("a write");
    let size = (3 << 20) + 4096;
    let backing = opened(&rig.backing("f"), OFlags::RDONLY);
    for from in [0, 4096, 1 << 20, (1 << 20) + 4096, 2 << 20, 3 << 20, size - 1, size, size + 1] {
        for seek in [SeekFrom::Data(from), SeekFrom::Hole(from)] {
            assert_eq!(rustix::fs::seek(&fd, seek), rustix::fs::seek(&backing, seek), "{seek:?}");
        }
    }
    assert_eq!(rustix::fs::seek(&fd, SeekFrom::Data(0)), Ok(1 << 20));
    assert_eq!(rustix::fs::seek(&fd, SeekFrom::Data(size)), Err(Errno::NXIO));
    assert_eq!(rustix::fs::seek(&fd, SeekFrom::End(-96)), Ok(size - 96));
}

fn fallocate_reserves_extends_and_punches_as_on_the_disk(io: Io) {
    let rig = Rig::mounted(2, io);
    let fd = opened(&rig.path("f"), OFlags::RDWR | OFlags::CREATE);
    let stat = || fs::metadata(rig.path("f")).expect("stat");
    rustix::fs::fallocate(&fd, FallocateFlags::KEEP_SIZE, 0, 1 << 20).expect("fallocate");
    assert_eq!(stat().len(), 0);
    assert!(stat().blocks() >= 2048, "room is reserved: {} blocks", stat().blocks());
    rustix::fs::fallocate(&fd, FallocateFlags::empty(), 0, 2 << 20).expect("fallocate");
    assert_eq!((stat().len(), rustix::fs::fstat(&fd).expect("fstat").st_size), (2 << 20, 2 << 20));
    rustix::io::pwrite(&fd, &pattern(1, 1 << 20), 0).expect("a write");
    let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    rustix::fs::fallocate(&fd, punch, 4096, 8192).expect("a hole");
    let mut wanted = pattern(1, 1 << 20);
    wanted[4096..4096 + 8192].fill(0);
    assert_same(&read_at_most(&fd, 1 << 20).expect("a read"), &wanted, "after the hole");
    assert_same(&fs::read(rig.backing("f")).expect("a read")[..1 << 20], &wanted, "on the disk");
    let bare = opened(&rig.outside("bare"), OFlags::RDWR | OFlags::CREATE);
    for flags in [FallocateFlags::ZERO_RANGE, FallocateFlags::COLLAPSE_RANGE, FallocateFlags::INSERT_RANGE] {
        rustix::fs::ftruncate(&bare, 2 << 20).expect("ftruncate");
        rustix::fs::ftruncate(&fd, 2 << 20).expect("ftruncate");
        let (ours, disks) = (rustix::fs::fallocate(&fd, flags, 0, 4096), rustix::fs::fallocate(&bare, flags, 0, 4096));
        // The kernel itself refuses some modes for every FUSE file system.
        assert!(ours == disks || ours == Err(Errno::OPNOTSUPP), "{flags:?}: {ours:?}, on the disk {disks:?}");
    }
}

fn a_sparse_file_reads_as_zeros_and_takes_no_room(io: Io) {
    let rig = Rig::mounted(2, io);
    shell(&rig.mountpoint(), "truncate -s 1G f").ok();
    let stat = fs::metadata(rig.path("f")).expect("stat");
    assert_eq!((stat.len(), stat.blocks()), (1 << 30, 0));
    let fd = opened(&rig.path("f"), OFlags::RDONLY);
    let mut buffer = [1; 5000];
    assert_eq!(rustix::io::pread(&fd, &mut buffer, 500_000_000), Ok(5000));
    assert_eq!(buffer, [0; 5000]);
    assert_eq!(rig.status()["used_bytes"], 0);
}

fn copy_file_range_copies_within_and_across_disks(io: Io) {
    let rig = Rig::mounted(3, io);
    let owner = rig.owner("f");
    let near = (0..).map(|n| format!("n{n}")).find(|name| rig.owner(name) == owner).expect("a name");
    let far = (0..).map(|n| format!("n{n}")).find(|name| rig.owner(name) != owner).expect("a name");
    let bytes = pattern(3, 300_001);
    fs::write(rig.path("f"), &bytes).expect("a file");
    for name in [&near, &far] {
        let from = opened(&rig.path("f"), OFlags::RDONLY);
        let to = opened(&rig.path(name), OFlags::RDWR | OFlags::CREATE);
        let (mut at, mut to_at) = (100, 7);
        loop {
            let copied = rustix::fs::copy_file_range(&from, Some(&mut at), &to, Some(&mut to_at), 1 << 20);
            if copied.expect("copy_file_range") == 0 {
                break;
            }
        }
        assert_eq!(rustix::fs::fstat(&to).expect("fstat").st_size, 7 + 300_001 - 100);
        let wanted = [&[0; 7], &bytes[100..]].concat();
        assert_same(&read_at_most(&to, 400_000).expect("a read"), &wanted, "through the same handle");
        assert_same(&fs::read(rig.path(name)).expect("a read"), &wanted, "through the mount");
        assert_same(&fs::read(rig.backing(name)).expect("a read"), &wanted, "on the disk");
    }
}

fn cp_copies_every_byte(io: Io) {
    let rig = Rig::mounted(3, io);
    fs::write(rig.path("f"), pattern(4, 5_000_000)).expect("a file");
    shell(&rig.mountpoint(), "truncate -s 20M sparse; echo end >> sparse").ok();
    shell(&rig.mountpoint(), "for n in 1 2 3 4 5 6; do cp f c$n; cp sparse s$n; cmp f c$n; cmp sparse s$n; done").ok();
    shell(&rig.mountpoint(), "cp -a f ../out; cmp f ../out; cp ../out back; cmp f back; cat f > cat; cmp f cat").ok();
    assert_same(&fs::read(rig.backing("c6")).expect("a read"), &pattern(4, 5_000_000), "on the disk");
}
