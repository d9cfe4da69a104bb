//! Reading and writing: sizes and times at once, append, truncate, unlinked and replaced files.

use std::fs;
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::Command;
use std::thread;

use rustix::fs::{FallocateFlags, OFlags, RenameFlags, SeekFrom};
use rustix::io::Errno;

use crate::bytes::{assert_same, open, opened, pattern, read_at_most, write_all};
use crate::loops::{LoopDisk, subdir};
use crate::rig::{Io, Rig, in_both_io_modes};
use crate::run::{python, run, shell, wait_until};

in_both_io_modes! {
    size_times_and_blocks_are_right_at_once_after_each_write,
    size_is_right_at_once_after_close_and_rename,
    a_listing_or_look_up_of_a_file_that_is_being_written_shows_its_size,
    appends_of_several_writers_lose_and_double_nothing,
    truncate_down_cuts_and_truncate_up_shows_zeros,
    o_trunc_empties_a_file_that_is_there,
    o_excl_refuses_a_name_that_is_there,
    an_overwrite_in_place_keeps_the_rest,
    an_unlinked_file_that_is_open_reads_writes_and_tells_its_size,
    a_file_that_was_renamed_over_stays_readable_where_it_is_open,
    rename_moves_replaces_swaps_and_refuses_as_asked,
    fsync_and_fdatasync_reach_the_disk,
    what_a_disk_says_that_has_shut_down_comes_through_an_open_handle,
    shared_maps_write_the_file_and_private_maps_do_not,
    a_binary_stored_on_the_mount_runs,
    locks_of_one_process_keep_the_other_out,
    a_file_of_mode_0400_can_be_written_through_the_handle_that_made_it,
}

fn stat(path: &Path) -> fs::Metadata {
    fs::symlink_metadata(path).expect("stat")
}

fn size_times_and_blocks_are_right_at_once_after_each_write(io: Io) {
    let rig = Rig::mounted(2, io);
    let path = rig.path("f");
    let fd = opened(&path, OFlags::RDWR | OFlags::CREATE);
    let mut before = (stat(&path).mtime(), stat(&path).mtime_nsec());
    for n in 1..=20u64 {
        write_all(&fd, &pattern(n, 50_000)).expect("a write");
        let (by_path, by_fd) = (stat(&path), rustix::fs::fstat(&fd).expect("fstat"));
        assert_eq!((by_path.len(), by_fd.st_size as u64), (50_000 * n, 50_000 * n));
        let backing = stat(&rig.backing("f"));
        assert_eq!((by_path.mtime(), by_path.mtime_nsec()), (backing.mtime(), backing.mtime_nsec()), "mtime");
        assert_eq!(by_path.blocks(), backing.blocks(), "blocks");
        let now = (by_path.mtime(), by_path.mtime_nsec());
        assert!(now >= before, "mtime never goes back");
        before = now;
    }
    assert_eq!(stat(&path).blksize(), 4096);
}

fn size_is_right_at_once_after_close_and_rename(io: Io) {
    let rig = Rig::mounted(2, io);
    for n in 0..100usize {
        let (temp, last) = (rig.path(format!("{n}.tmp")), rig.path(format!("{n}.data")));
        let size = n * 1000 + 1;
        assert!(!last.exists());
        fs::write(&temp, pattern(1, size)).expect("a write");
        assert_eq!(stat(&temp).len(), size as u64, "after close");
        fs::rename(&temp, &last).expect("a rename");
        assert_eq!(stat(&last).len(), size as u64, "after rename");
        assert!(!temp.exists());
    }
    let (by_path, backing) = (stat(&rig.path("99.data")), stat(&rig.backing("99.data")));
    assert_eq!((by_path.mtime(), by_path.mtime_nsec()), (backing.mtime(), backing.mtime_nsec()));
    wait_until("the blocks are settled", || stat(&rig.path("99.data")).blocks() == backing.blocks());
}

fn a_listing_or_look_up_of_a_file_that_is_being_written_shows_its_size(io: Io) {
    let mut rig = Rig::new(2);
    let mode = if io == Io::Daemon { "passthrough=off" } else { "passthrough=auto" };
    // No name is remembered, so every path is looked up again.
    rig.mount(&format!("{mode},entry_ttl=0"));
    let path = rig.path("f");
    let fd = opened(&path, OFlags::RDWR | OFlags::CREATE);
    for n in 1..=10 {
        write_all(&fd, &pattern(n, 10_000)).expect("a write");
        let listed = shell(&rig.mountpoint(), "ls -l | awk '$9 == \"f\" {print $5}'");
        assert_eq!(listed.ok().trim(), (10_000 * n).to_string(), "by a listing");
        assert_eq!(stat(&path).len(), 10_000 * n, "by a look-up");
        assert_eq!(fs::read(&path).expect("a read").len() as u64, 10_000 * n, "by a reader");
        let whole = read_at_most(&fd, 1 << 20).expect("a read");
        assert_same(&whole[whole.len() - 10_000..], &pattern(n, 10_000), "by the writer");
    }
    drop(fd);
    for n in 0..200 {
        // RELEASE comes after the close: the listing may find the file still being written.
        fs::write(rig.path(format!("n{n}")), pattern(n, 5000)).expect("a file");
        assert!(fs::read_dir(rig.mountpoint()).expect("a listing").count() as u64 > n);
        assert_same(&fs::read(rig.path(format!("n{n}"))).expect("a read"), &pattern(n, 5000), "after a listing");
    }
}

fn appends_of_several_writers_lose_and_double_nothing(io: Io) {
    let rig = Rig::mounted(2, io);
    let path = rig.path("log");
    fs::write(&path, "").expect("a file");
    thread::scope(|scope| {
        for who in b'a'..b'i' {
            let path = &path;
            scope.spawn(move || {
                let fd = opened(path, OFlags::WRONLY | OFlags::APPEND);
                for _ in 0..200 {
                    assert_eq!(rustix::io::write(&fd, &[who; 37]), Ok(37));
                }
            });
        }
    });
    let found = fs::read(&path).expect("a read");
    assert_eq!(found.len(), 8 * 200 * 37);
    assert!(found.chunks(37).all(|chunk| chunk.iter().all(|byte| *byte == chunk[0])), "each append is whole");
    for who in b'a'..b'i' {
        assert_eq!(found.iter().filter(|byte| **byte == who).count(), 200 * 37);
    }
}

fn truncate_down_cuts_and_truncate_up_shows_zeros(io: Io) {
    let rig = Rig::mounted(2, io);
    let (path, bytes) = (rig.path("f"), pattern(1, 10_000));
    fs::write(&path, &bytes).expect("a file");
    let check = |wanted: &[u8]| {
        assert_eq!(stat(&path).len(), wanted.len() as u64);
        assert_same(&fs::read(&path).expect("a read"), wanted, "through the mount");
        assert_same(&fs::read(rig.backing("f")).expect("a read"), wanted, "on the disk");
    };
    shell(&rig.mountpoint(), "truncate -s 5000 f").ok();
    check(&bytes[..5000]);
    shell(&rig.mountpoint(), "truncate -s 8000 f").ok();
    check(&[&bytes[..5000], &[0; 3000]].concat());
    let fd = opened(&path, OFlags::RDWR);
    rustix::fs::ftruncate(&fd, 100).expect("ftruncate");
    check(&bytes[..100]);
    write_all(&fd, b"new").expect("a write");
    check(&[b"new", &bytes[3..100]].concat());
    let reader = opened(&path, OFlags::RDONLY);
    assert_eq!(rustix::fs::ftruncate(&reader, 0), Err(Errno::INVAL));
    rustix::fs::ftruncate(&fd, 0).expect("ftruncate");
    check(b"");
}

fn o_trunc_empties_a_file_that_is_there(io: Io) {
    let rig = Rig::mounted(2, io);
    let path = rig.path("f");
    for flags in [OFlags::WRONLY, OFlags::RDWR, OFlags::WRONLY | OFlags::CREATE] {
        fs::write(&path, pattern(1, 9000)).expect("a file");
        let reader = opened(&path, OFlags::RDONLY);
        let fd = opened(&path, flags | OFlags::TRUNC);
        assert_eq!(stat(&path).len(), 0);
        assert_eq!(read_at_most(&reader, 10).expect("a read"), b"");
        write_all(&fd, b"new").expect("a write");
        assert_eq!(read_at_most(&reader, 10).expect("a read"), b"new");
        assert_eq!(fs::read(rig.backing("f")).expect("a read"), b"new");
    }
}

fn o_excl_refuses_a_name_that_is_there(io: Io) {
    let rig = Rig::mounted(2, io);
    let exclusive = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL;
    write_all(opened(&rig.path("f"), exclusive), b"first").expect("a write");
    for _ in 0..2 {
        assert_eq!(open(&rig.path("f"), exclusive).err(), Some(Errno::EXIST));
    }
    assert_eq!(fs::read(rig.path("f")).expect("a read"), b"first");
    let made: usize = thread::scope(|scope| {
        let try_it = || open(&rig.path("g"), exclusive).is_ok() as usize;
        let threads: Vec<_> = (0..8).map(|_| scope.spawn(try_it)).collect();
        threads.into_iter().map(|thread| thread.join().expect("a thread")).sum()
    });
    assert_eq!(made, 1, "one of eight makes the file");
}

fn an_overwrite_in_place_keeps_the_rest(io: Io) {
    let rig = Rig::mounted(2, io);
    let mut bytes = pattern(1, 300_000);
    fs::write(rig.path("f"), &bytes).expect("a file");
    let fd = opened(&rig.path("f"), OFlags::RDWR);
    for (at, length) in [(0, 1), (4095, 2), (100_000, 70_000), (299_999, 1)] {
        let new = pattern(at as u64 + 7, length);
        assert_eq!(rustix::io::pwrite(&fd, &new, at as u64), Ok(length));
        bytes[at..at + length].copy_from_slice(&new);
        assert_same(&read_at_most(&fd, 300_000).expect("a read"), &bytes, "through the same handle");
        assert_same(&fs::read(rig.path("f")).expect("a read"), &bytes, "through another handle");
        assert_same(&fs::read(rig.backing("f")).expect("a read"), &bytes, "on the disk");
    }
}

fn an_unlinked_file_that_is_open_reads_writes_and_tells_its_size(io: Io) {
    let rig = Rig::mounted(2, io);
    let path = rig.path("f");
    let fd = opened(&path, OFlags::RDWR | OFlags::CREATE);
    write_all(&fd, b"before").expect("a write");
    let reader = opened(&path, OFlags::RDONLY);
    fs::remove_file(&path).expect("unlink");
    assert!(rig.disks_with("f").is_empty());
    write_all(&fd, b" after").expect("a write");
    rustix::fs::seek(&fd, SeekFrom::Start(0)).expect("a seek");
    for fd in [&fd, &reader] {
        assert_eq!(read_at_most(fd, 100).expect("a read"), b"before after");
        let stat = rustix::fs::fstat(fd).expect("fstat");
        assert_eq!((stat.st_size, stat.st_nlink), (12, 0));
    }
    rustix::fs::ftruncate(&fd, 3).expect("ftruncate");
    rustix::fs::fchmod(&fd, rustix::fs::Mode::from_raw_mode(0o600)).expect("fchmod");
    let stat = rustix::fs::fstat(&fd).expect("fstat");
    assert_eq!((stat.st_size, stat.st_mode & 0o777), (3, 0o600));
    fs::write(&path, b"another").expect("a new file of the same name");
    assert_eq!(read_at_most(&reader, 100).expect("a read"), b"bef");
    assert_eq!(fs::read(&path).expect("a read"), b"another");
    drop((fd, reader));
    assert_eq!(fs::read(&path).expect("a read"), b"another");
}

fn a_file_that_was_renamed_over_stays_readable_where_it_is_open(io: Io) {
    let rig = Rig::mounted(3, io);
    let owner = rig.owner("old");
    let other = (0..).map(|n| format!("new{n}")).find(|name| rig.owner(name) != owner).expect("a name elsewhere");
    for new in ["old.tmp", &other] {
        fs::write(rig.path("old"), pattern(1, 100_000)).expect("a file");
        fs::write(rig.path(new), pattern(2, 50_000)).expect("a file");
        let fd = opened(&rig.path("old"), OFlags::RDWR);
        fs::rename(rig.path(new), rig.path("old")).expect("a rename");
        assert_same(&read_at_most(&fd, 200_000).expect("a read"), &pattern(1, 100_000), "the old file");
        assert_eq!(rustix::fs::fstat(&fd).expect("fstat").st_nlink, 0);
        write_all(&fd, b"into the old one").expect("a write");
        assert_same(&fs::read(rig.path("old")).expect("a read"), &pattern(2, 50_000), "the new file");
        assert_same(&fs::read(rig.backing("old")).expect("a read"), &pattern(2, 50_000), "on the disk");
        assert!(rig.disks_with(new).is_empty());
    }
}

fn rename_moves_replaces_swaps_and_refuses_as_asked(io: Io) {
    let rig = Rig::mounted(1, io);
    let paths = ["a", "b"].map(|name| rig.path(name));
    let [a, b] = &paths;
    let with = |flags| rustix::fs::renameat_with(rustix::fs::CWD, a, rustix::fs::CWD, b, flags);
    fs::write(a, "a").expect("a file");
    assert_eq!(with(RenameFlags::EXCHANGE), Err(Errno::NOENT));
    with(RenameFlags::NOREPLACE).expect("a free name");
    assert!(!a.exists());
    fs::write(a, "a2").expect("a file");
    assert_eq!(with(RenameFlags::NOREPLACE), Err(Errno::EXIST));
    with(RenameFlags::EXCHANGE).expect("a swap");
    assert_eq!((fs::read(a).expect("a"), fs::read(b).expect("b")), (b"a".to_vec(), b"a2".to_vec()));
    assert_eq!(fs::read(rig.backing("b")).expect("a read"), b"a2");
    fs::rename(a, a).expect("onto itself");
    fs::rename(a, b).expect("a replacement");
    assert_eq!(fs::read(b).expect("b"), b"a");
    assert!(with(RenameFlags::WHITEOUT).is_err());
}

fn fsync_and_fdatasync_reach_the_disk(io: Io) {
    let rig = Rig::mounted(2, io);
    let fd = opened(&rig.path("f"), OFlags::RDWR | OFlags::CREATE);
    write_all(&fd, &pattern(1, 100_000)).expect("a write");
    rustix::fs::fsync(&fd).expect("fsync");
    rustix::fs::fdatasync(&fd).expect("fdatasync");
    let reader = opened(&rig.path("f"), OFlags::RDONLY);
    rustix::fs::fsync(&reader).expect("fsync of a reader");
    rustix::fs::fsync(opened(&rig.mountpoint(), OFlags::RDONLY | OFlags::DIRECTORY)).expect("fsync of the root");
    shell(&rig.mountpoint(), "sync f; sync -f f").ok();
}

fn what_a_disk_says_that_has_shut_down_comes_through_an_open_handle(io: Io) {
    let ext4 = LoopDisk::ext4("64M", &[]);
    let mut rig = Rig::bare();
    rig.use_disks(&[subdir(&ext4.path(), "disk")]);
    rig.mount_in(io);
    let paths = [rig.path("f"), subdir(&ext4.path(), "bare").join("f")];
    let handles = paths.each_ref().map(|path| {
        let fd = opened(path, OFlags::RDWR | OFlags::CREATE);
        write_all(&fd, &pattern(1, 100_000)).expect("a write");
        (fd, opened(path, OFlags::WRONLY))
    });
    run(Command::new("xfs_io").args(["-x", "-c", "shutdown"]).arg(ext4.path())).ok();
    type Call = (&'static str, fn(&OwnedFd) -> Result<(), Errno>);
    let calls: [Call; 5] = [
        ("fsync", |fd| rustix::fs::fsync(fd)),
        ("fdatasync", |fd| rustix::fs::fdatasync(fd)),
        ("write", |fd| rustix::io::pwrite(fd, b"x", 0).map(drop)),
        ("fallocate", |fd| rustix::fs::fallocate(fd, FallocateFlags::empty(), 0, 1 << 20)),
        ("ftruncate", |fd| rustix::fs::ftruncate(fd, 0)),
    ];
    for (call, make) in calls {
        let [ours, wanted] = handles.each_ref().map(|(first, second)| (make(first), make(second)));
        assert_eq!(ours, wanted, "{call}");
        assert_eq!(ours, (Err(Errno::IO), Err(Errno::IO)), "{call}");
    }
}

const MAPS: &str = r#"
import mmap, os, sys
path = sys.argv[1]
with open(path, 'r+b') as f:
    private = mmap.mmap(f.fileno(), 0, flags=mmap.MAP_PRIVATE, prot=mmap.PROT_READ | mmap.PROT_WRITE)
    private[0:3] = b'PPP'
    shared = mmap.mmap(f.fileno(), 0)
    assert shared[0:3] == b'abc', shared[0:3]
    shared[3:6] = b'SSS'
    assert os.pread(f.fileno(), 9, 0) == b'abcSSSghi'
    os.pwrite(f.fileno(), b'W', 8)
    assert shared[8:9] == b'W'
    shared.flush()
reader = open(path, 'rb')
read_only = mmap.mmap(reader.fileno(), 0, prot=mmap.PROT_READ)
assert read_only[0:9] == b'abcSSSghW', read_only[0:9]
reader.close()
assert private[0:3] == b'PPP'
"#;

fn shared_maps_write_the_file_and_private_maps_do_not(io: Io) {
    let rig = Rig::mounted(2, io);
    fs::write(rig.path("f"), b"abcdefghi".repeat(5000)).expect("a file");
    python(MAPS, &[&rig.path("f")]);
    for path in [rig.path("f"), rig.backing("f")] {
        assert_eq!(&fs::read(path).expect("a read")[..12], b"abcSSSghWabc");
    }
}

fn a_binary_stored_on_the_mount_runs(io: Io) {
    let rig = Rig::mounted(2, io);
    shell(&rig.mountpoint(), "cp /bin/echo ours; printf '#!/bin/sh\\n./ours \"$@\"\\n' > script; chmod +x script").ok();
    assert_eq!(shell(&rig.mountpoint(), "./script it runs").ok(), "it runs\n");
    assert_eq!(shell(&rig.mountpoint(), "./ours; ./ours again").ok(), "\nagain\n");
}

fn locks_of_one_process_keep_the_other_out(io: Io) {
    let rig = Rig::mounted(2, io);
    fs::write(rig.path("f"), "x").expect("a file");
    let fd: OwnedFd = opened(&rig.path("f"), OFlags::RDWR);
    rustix::fs::flock(&fd, rustix::fs::FlockOperation::LockExclusive).expect("flock");
    shell(&rig.mountpoint(), "flock -n f true").failed(1);
    rustix::fs::flock(&fd, rustix::fs::FlockOperation::Unlock).expect("flock");
    shell(&rig.mountpoint(), "flock -n f true").ok();
    let try_it = "import fcntl,sys; fcntl.lockf(open(sys.argv[1], 'r+'), fcntl.LOCK_EX | fcntl.LOCK_NB)";
    let path = rig.path("f");
    rustix::fs::fcntl_lock(&fd, rustix::fs::FlockOperation::NonBlockingLockExclusive).expect("lockf");
    let said = run(&mut crate::run::python_command(try_it, &[&path]));
    assert!(said.failed(1).contains("BlockingIOError"));
    rustix::fs::fcntl_lock(&fd, rustix::fs::FlockOperation::Unlock).expect("lockf");
    python(try_it, &[&path]);
}

fn a_file_of_mode_0400_can_be_written_through_the_handle_that_made_it(io: Io) {
    let rig = Rig::mounted(2, io);
    let mode = rustix::fs::Mode::from_raw_mode(0o400);
    let fd = rustix::fs::open(rig.path("f"), OFlags::RDWR | OFlags::CREATE, mode).expect("a file");
    write_all(&fd, b"written").expect("a write");
    assert_eq!(stat(&rig.path("f")).mode() & 0o7777, 0o400);
    drop(fd);
    assert_eq!(fs::read(rig.path("f")).expect("a read"), b"written");
}
