//! Faults that people met in file systems like this one: I/O modes, what changes on a disk behind the mount, odd disks.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;

use rustix::fs::{OFlags, statvfs};
use rustix::io::Errno;

use crate::bytes::{Aligned, BLOCK, assert_same, key, load, open, opened, pattern, read_at_most, store};
use crate::rig::{Io, KVSPAN, Rig, daemons, in_both_io_modes, is_mounted, kvspan, on_a_mount};
use crate::run::{python, run, shell, wait_until};

in_both_io_modes! {
    each_of_many_files_mapped_and_closed_leaves_no_descriptor,
    o_direct_from_and_to_unaligned_memory_gives_what_the_disk_gives,
    a_file_that_was_cut_short_on_its_disk_reads_short_through_the_mount,
    a_file_that_was_removed_from_its_disk_is_a_miss_and_not_listed,
    a_file_that_was_replaced_or_grew_on_its_disk_loads_whole_at_once,
    handles_closed_during_reads_and_syncs_are_given_back,
}

on_a_mount! {
    a_read_only_disk_is_read_and_takes_no_files,
    a_disk_given_twice_is_refused_by_whatever_path,
    a_mount_point_and_a_disk_in_each_other_are_refused_by_whatever_path,
    an_evicted_file_leaves_its_directory_behind,
}

/// Files that stay open for their next load, at most.
const KEPT_FILES: usize = 16_384;

/// Maps each file of a directory, looks at it by the map alone, and holds the last hundred maps.
const MAP_EACH: &str = r#"
import mmap, os, sys
held, seen = [], 0
for entry in os.scandir(sys.argv[1]):
    fd = os.open(entry.path, os.O_RDONLY)
    m = mmap.mmap(fd, 1, prot=mmap.PROT_READ)
    os.close(fd)
    assert m[0:1] == b'm', entry.name
    held.append(m)
    seen += 1
    if len(held) > 100:
        held.pop(0).close()
print(seen)
"#;

fn each_of_many_files_mapped_and_closed_leaves_no_descriptor(io: Io) {
    let files = if std::env::var_os("KVSPAN_FULL").is_some() { 100_000 } else { 10_000 };
    let mut rig = Rig::new(2);
    for n in 0..files {
        fs::write(rig.disks[n % 2].join(format!("{n}.data")), "m").expect("a file");
    }
    rig.mount_in(io);
    let before = rig.open_fds();
    assert_eq!(python(MAP_EACH, &[&rig.mountpoint()]).trim(), files.to_string());
    wait_until("no more than may stay open is open", || rig.open_fds() <= before + files.min(KEPT_FILES));
    run(Command::new("find").arg(rig.mountpoint()).args(["-name", "*.data", "-delete"])).ok();
    wait_until("every descriptor is given back", || rig.open_fds() <= before);
}

fn o_direct_from_and_to_unaligned_memory_gives_what_the_disk_gives(io: Io) {
    let rig = Rig::mounted(2, io);
    let paths = [rig.path("f"), rig.outside("f")];
    let files = paths.each_ref().map(|path| opened(path, OFlags::RDWR | OFlags::DIRECT | OFlags::CREATE));
    let sizes = (9..=22).map(|power| 1usize << power);
    for (size, shift) in sizes.flat_map(|size| [(size, 0), (size, 1), (size, 256), (size, 512)]) {
        let what = format!("{size} bytes, memory shifted by {shift}");
        let data = Aligned::of(&pattern(size as u64, size + shift));
        let wrote = files.each_ref().map(|fd| rustix::io::pwrite(fd, &data.bytes()[shift..], BLOCK as u64));
        // Where the disk says EINVAL the daemon may do it through the page cache.
        assert!(wrote[0] == wrote[1] || (io == Io::Daemon && wrote[1] == Err(Errno::INVAL)), "{what}: {wrote:?}");
        if wrote[1] != wrote[0] {
            let buffered = opened(&paths[1], OFlags::WRONLY);
            assert_eq!(rustix::io::pwrite(&buffered, &data.bytes()[shift..], BLOCK as u64), Ok(size));
        }
        let mut found = [Aligned::new(size + shift), Aligned::new(size + shift)];
        let [ours, bare] = &mut found;
        let read = rustix::io::pread(&files[0], &mut ours.bytes_mut()[shift..], BLOCK as u64);
        let wanted = rustix::io::pread(&files[1], &mut bare.bytes_mut()[shift..], BLOCK as u64);
        assert!(read == wanted || (io == Io::Daemon && wanted == Err(Errno::INVAL)), "{what}: {read:?}, {wanted:?}");
        if wanted.is_ok() {
            assert_same(ours.bytes(), bare.bytes(), &what);
        }
    }
    let [ours, bare] = paths.map(|path| fs::read(path).expect("a read"));
    assert_same(&ours, &bare, "the whole file");
}

fn a_file_that_was_cut_short_on_its_disk_reads_short_through_the_mount(io: Io) {
    let mut rig = Rig::new(2);
    rig.mount_in(io);
    for (n, length) in [(1, 10), (2, 5000), (3, 0)] {
        store(&rig.mountpoint(), &key(n), &pattern(n, 300_000), false).expect("a store");
        let name = format!("{}.data", key(n));
        let held = opened(&rig.path(&name), OFlags::RDONLY);
        let cut = fs::File::options().write(true).open(rig.backing(&name)).expect("the file on its disk");
        cut.set_len(length).expect("cut");
        let wanted = &pattern(n, 300_000)[..length as usize];
        assert_same(&read_at_most(&held, 300_000).expect("a read by the open handle"), wanted, "by the open handle");
        assert_same(&load(&rig.mountpoint(), &key(n), 300_000, false).expect("a load"), wanted, "by a new one");
        assert_same(&load(&rig.mountpoint(), &key(n), 300_000, true).expect("a load"), wanted, "with O_DIRECT");
    }
    rig.umount();
    rig.mount_in(io);
    for (n, length) in [(1, 10), (2, 5000), (3, 0)] {
        assert_eq!(fs::metadata(rig.path(format!("{}.data", key(n)))).expect("stat").len(), length);
    }
}

fn a_file_that_was_removed_from_its_disk_is_a_miss_and_not_listed(io: Io) {
    let rig = Rig::mounted(3, io);
    let before = rig.open_fds();
    for n in 0..30 {
        store(&rig.mountpoint(), &key(n), &pattern(n, 8192), false).expect("a store");
    }
    // One that its writer still holds is there for others too.
    wait_until("every file is closed", || rig.open_fds() <= before && rig.status()["used_bytes"] == 30 * 8192);
    let names: Vec<String> = (0..30).map(|n| format!("{}.data", key(n))).collect();
    for name in &names[..10] {
        fs::remove_file(rig.backing(name)).expect("gone from its disk");
        assert_eq!(open(&rig.path(name), OFlags::RDONLY).err(), Some(Errno::NOENT), "{name}");
        assert_eq!(rustix::fs::stat(rig.path(name)).err(), Some(Errno::NOENT), "{name}");
    }
    let listed: BTreeSet<_> =
        fs::read_dir(rig.mountpoint()).expect("a listing").flatten().map(|e| e.file_name()).collect();
    assert_eq!(listed, names[10..].iter().map(Into::into).collect());
    for n in 0..10 {
        store(&rig.mountpoint(), &key(n), &pattern(n + 1, 4096), false).expect("a store");
        assert_eq!(load(&rig.mountpoint(), &key(n), 9000, false), Ok(pattern(n + 1, 4096)));
    }
    wait_until("usage is that of the disks", || rig.status()["used_bytes"] == 20 * 8192 + 10 * 4096);
    wait_until("what was loaded is all that stays open", || rig.open_fds() <= before + 10);
}

fn a_file_that_was_replaced_or_grew_on_its_disk_loads_whole_at_once(io: Io) {
    let rig = Rig::mounted(2, io);
    fs::write(rig.path("k.data"), pattern(1, 100_000)).expect("a store");
    let backing = rig.backing("k.data");
    for (bytes, in_place) in [(pattern(2, 234_567), false), (pattern(2, 300_000), true), (pattern(3, 50_000), false)] {
        // Known to the kernel, sizes and all.
        let known = fs::read(rig.path("k.data")).expect("a load").len();
        assert_eq!(fs::metadata(rig.path("k.data")).expect("stat").len(), known as u64);
        if in_place {
            fs::write(&backing, &bytes).expect("changed on the disk");
        } else {
            fs::write(rig.outside("new"), &bytes).expect("a file");
            fs::copy(rig.outside("new"), backing.with_file_name("new")).expect("a copy");
            fs::rename(backing.with_file_name("new"), &backing).expect("replaced on the disk");
        }
        assert_same(&fs::read(rig.path("k.data")).expect("a load"), &bytes, "the file as it is now");
        assert_eq!(fs::metadata(rig.path("k.data")).expect("stat").len(), bytes.len() as u64);
    }
}

fn handles_closed_during_reads_and_syncs_are_given_back(io: Io) {
    let rounds = if std::env::var_os("KVSPAN_FULL").is_some() { 12_500 } else { 300 };
    let rig = Rig::mounted(2, io);
    for n in 0..4 {
        store(&rig.mountpoint(), &key(n), &pattern(n, 100_000), false).expect("a store");
    }
    wait_until("all files are closed", || rig.status()["files"] == 4 && rig.open_fds() < 100);
    let before = rig.open_fds();
    thread::scope(|scope| {
        for n in 0..8u64 {
            let rig = &rig;
            scope.spawn(move || {
                for round in 0..rounds {
                    let fd = opened(&rig.path(format!("{}.data", key((n + round) % 4))), OFlags::RDWR);
                    let reader = rustix::io::dup(&fd).expect("dup");
                    thread::scope(|both| {
                        both.spawn(move || read_at_most(&reader, 100_000).expect("a read"));
                        if round % 16 == 0 {
                            rustix::fs::fsync(&fd).expect("a sync");
                        }
                        drop(fd);
                    });
                }
            });
        }
    });
    wait_until("every descriptor is given back", || rig.open_fds() <= before);
}

fn a_read_only_disk_is_read_and_takes_no_files() {
    let mut rig = Rig::bare();
    let disks = ["t1", "t2"].map(|name| rig.tmpfs(name, "64M"));
    rig.use_disks(&disks);
    rig.mount("");
    for n in 0..20 {
        store(&rig.mountpoint(), &key(n), &pattern(n, 8192), false).expect("a store");
    }
    rig.umount();
    run(Command::new("mount").args(["-o", "remount,ro"]).arg(&disks[0])).ok();
    rig.mount("");
    for n in 0..20 {
        assert_eq!(load(&rig.mountpoint(), &key(n), 9000, false), Ok(pattern(n, 8192)), "a hit");
        store(&rig.mountpoint(), &key(100 + n), &pattern(n, 8192), false).expect("a store");
        assert_eq!(rig.backing(&format!("{}.data", key(100 + n))).parent(), Some(disks[1].as_path()));
    }
    let room = statvfs(rig.mountpoint()).expect("statvfs");
    assert!(room.f_bavail > 0 && room.f_bavail <= room.f_bfree && room.f_bfree <= room.f_blocks);
    assert_eq!(shell(&rig.mountpoint(), "df -B 64k . | wc -l").ok(), "2\n");
    rig.umount();
    run(Command::new("mount").args(["-o", "remount,rw"]).arg(&disks[0])).ok();
}

/// The mount of SOURCE on a mount point must be refused; what it said.
fn refused(source: &str, mountpoint: &Path) -> String {
    let said = kvspan("mount", &[Path::new(source), mountpoint]);
    assert!(matches!(said.code, Some(2 | 32)), "{said:?}");
    assert!(!is_mounted(mountpoint) && daemons(mountpoint).is_empty());
    said.err
}

fn a_disk_given_twice_is_refused_by_whatever_path() {
    let rig = Rig::new(2);
    let disk = rig.disks[0].display().to_string();
    let link = rig.outside("link");
    std::os::unix::fs::symlink(&rig.disks[0], &link).expect("a symlink");
    for again in
        [disk.clone(), format!("{disk}/"), format!("{disk}/."), format!("{disk}/../d1"), link.display().to_string()]
    {
        let said = refused(&format!("{}:{again}", rig.source()), &rig.mountpoint());
        assert!(said.contains(&disk), "{again}: {said}");
    }
    let copy = rig.outside("copy");
    run(Command::new("cp").arg("-a").arg(&rig.disks[0]).arg(&copy)).ok();
    let said = refused(&format!("{}:{}", rig.source(), copy.display()), &rig.mountpoint());
    assert!(said.contains(&disk) && said.contains(copy.to_str().expect("UTF-8")), "a copy has the id too: {said}");
}

fn a_mount_point_and_a_disk_in_each_other_are_refused_by_whatever_path() {
    let rig = Rig::new(2);
    let inside = rig.disks[1].join("a/b");
    fs::create_dir_all(&inside).expect("a directory");
    let link = rig.outside("link");
    std::os::unix::fs::symlink(&inside, &link).expect("a symlink");
    let above = rig.outside("above");
    std::os::unix::fs::symlink(rig.outside(""), &above).expect("a symlink");
    let dots = PathBuf::from(format!("{}/../d2/a/b", rig.disks[0].display()));
    for mountpoint in [&inside, &link, &dots, &above] {
        let said = refused(&rig.source(), mountpoint);
        assert!(said.contains(rig.disks[usize::from(mountpoint != &above)].to_str().expect("UTF-8")), "{said}");
    }
    let relative = Command::new(KVSPAN).args(["mount", &rig.source(), "a/b"]).current_dir(&rig.disks[1]).output();
    assert_eq!(relative.expect("kvspan").status.code(), Some(32));
    assert!(!is_mounted(&inside));
}

fn an_evicted_file_leaves_its_directory_behind() {
    let mut rig = Rig::mounted(2, Io::Passthrough);
    shell(&rig.mountpoint(), "for d in a/b a/c d; do mkdir -p $d; for n in 1 2 3 4 5 6; do echo x > $d/$n; done; done")
        .ok();
    wait_until("all sizes are settled", || rig.status()["used_bytes"] == 18 * 4096);
    let wanted = ".\n./a\n./a/b\n./a/c\n./d\n";
    kvspan("evict", &[rig.mountpoint(), "1G".into()]).ok();
    wait_until("everything is evicted", || rig.status()["files"] == 0);
    assert_eq!(shell(&rig.mountpoint(), "find . | sort").ok(), wanted);
    rig.umount();
    rig.mount("");
    assert_eq!(
        shell(&rig.mountpoint(), "find . | sort; echo y > a/b/1; cat a/b/1; rm a/b/1; rmdir a/b").ok(),
        format!("{wanted}y\n")
    );
}
