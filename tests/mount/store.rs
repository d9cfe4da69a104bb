//! LMCache's own sequences of system calls.

use std::fs;
use std::os::unix::fs::MetadataExt;

use rustix::fs::OFlags;
use rustix::io::Errno;

use crate::bytes::{Aligned, assert_same, key, load, open, opened, pattern, read_at_most, store, write_all};
use crate::loops::{LoopDisk, subdir};
use crate::rig::{Io, Rig, in_both_io_modes};
use crate::run::{end, python_command};

in_both_io_modes! {
    a_stored_key_loads_with_its_bytes_and_lies_whole_on_its_owner,
    a_store_over_an_older_one_replaces_all_of_it,
    a_key_that_was_never_stored_is_a_miss,
    a_temp_file_in_another_directory_is_published_on_the_same_disk,
    names_of_all_three_clients_publish_on_their_owner,
    processes_that_store_different_keys_at_once_all_succeed,
    o_direct_of_any_size_and_offset_gives_what_the_disk_gives,
    a_file_that_was_unlinked_is_a_miss_at_once_and_can_be_stored_again,
}

const SIZES: [usize; 7] = [0, 1, 4095, 4096, 4097, 1 << 20, 64 << 20];

fn a_stored_key_loads_with_its_bytes_and_lies_whole_on_its_owner(io: Io) {
    let rig = Rig::mounted(3, io);
    for (n, size) in SIZES.into_iter().enumerate() {
        for direct in [false, true] {
            let key = key(2 * n as u64 + u64::from(direct));
            let bytes = pattern(n as u64, size);
            store(&rig.mountpoint(), &key, &bytes, direct).expect("a store");
            let name = format!("{key}.data");
            let backing = rig.backing(&name);
            assert_eq!(backing.parent(), Some(rig.owner(&name).as_path()));
            assert_same(&fs::read(&backing).expect("the backing file"), &bytes, "on the disk");
            for direct in [false, true] {
                let found = load(&rig.mountpoint(), &key, size, direct).expect("a load");
                assert_same(&found, &bytes, &format!("{size} bytes, direct {direct}"));
            }
            assert_eq!(fs::metadata(rig.path(&name)).expect("stat").len(), size as u64);
            assert_eq!(rig.disks_with(&format!("{key}.tmp")), [""; 0].map(std::path::PathBuf::from));
            fs::remove_file(rig.path(&name)).expect("unlink");
            assert!(rig.disks_with(&name).is_empty());
        }
    }
}

fn a_store_over_an_older_one_replaces_all_of_it(io: Io) {
    let rig = Rig::mounted(3, io);
    for (old, new) in [(100_000, 10), (10, 100_000), (5000, 0), (8192, 8192)] {
        store(&rig.mountpoint(), "k", &pattern(1, old), false).expect("a store");
        store(&rig.mountpoint(), "k", &pattern(2, new), false).expect("a store");
        assert_same(&load(&rig.mountpoint(), "k", 200_000, false).expect("a load"), &pattern(2, new), "the new bytes");
        assert_same(&fs::read(rig.backing("k.data")).expect("the file"), &pattern(2, new), "on the disk");
    }
    assert_eq!(rig.status()["files"], 1);
}

fn a_key_that_was_never_stored_is_a_miss(io: Io) {
    let rig = Rig::mounted(2, io);
    for _ in 0..3 {
        assert_eq!(rustix::fs::stat(rig.path("k.data")).err(), Some(Errno::NOENT));
        assert_eq!(open(&rig.path("k.data"), OFlags::RDONLY).err(), Some(Errno::NOENT));
        assert_eq!(rustix::fs::unlink(rig.path("k.data")), Err(Errno::NOENT));
        assert_eq!(rustix::fs::rename(rig.path("k.tmp"), rig.path("k.data")), Err(Errno::NOENT));
    }
    store(&rig.mountpoint(), "k", b"now", false).expect("a store");
    assert_eq!(load(&rig.mountpoint(), "k", 3, false).expect("a load"), b"now");
}

fn a_temp_file_in_another_directory_is_published_on_the_same_disk(io: Io) {
    let rig = Rig::mounted(5, io);
    fs::create_dir(rig.path("tmpdir")).expect("a directory");
    for n in 0..40 {
        let name = format!("{}.data", key(n));
        let temp = rig.path("tmpdir").join(&name);
        fs::write(&temp, pattern(n, 5000)).expect("a temp file");
        fs::rename(&temp, rig.path(&name)).expect("a publish");
        assert_eq!(rig.backing(&name).parent(), Some(rig.owner(&name).as_path()));
        assert_same(&fs::read(rig.path(&name)).expect("a load"), &pattern(n, 5000), "after the publish");
    }
    let away: Vec<u64> = rig.status()["disks"]
        .as_array()
        .expect("disks")
        .iter()
        .map(|d| d["away_files"].as_u64().expect("a number"))
        .collect();
    assert_eq!(away, [0; 5]);
}

fn names_of_all_three_clients_publish_on_their_owner(io: Io) {
    let rig = Rig::mounted(4, io);
    let (hash, dir) = ("00ab12cd34ef5678", "org/model/tp_1/00a/b1");
    fs::create_dir_all(rig.path(dir)).expect("mkdir -p");
    let names = [
        ("m@0x0@0@ab@user.alice.tmp".to_string(), "m@0x0@0@ab@user.alice.data".to_string()),
        (format!("{dir}/{hash}.bin_123456.tmp"), format!("{dir}/{hash}.bin")),
        ("k_llama_0.bin.tmp".to_string(), "k_llama_0.bin".to_string()),
        (format!("k_llama_0_1.bin.tmp.4711.140052.{hash}{hash}"), "k_llama_0_1.bin".to_string()),
        (".k.data.AbC123".to_string(), "k.data".to_string()),
    ];
    for (temp, last) in names {
        fs::write(rig.path(&temp), &temp).expect("a temp file");
        fs::rename(rig.path(&temp), rig.path(&last)).expect("a publish");
        assert_eq!(fs::read(rig.path(&last)).expect("a load"), temp.as_bytes());
        assert_eq!(rig.backing(&last), rig.owner(&last).join(&last), "{last}");
    }
}

const STORE_KEYS: &str = r#"
import os, sys
mnt, first, count = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
for n in range(first, first + count):
    data = (b'%08d' % n) * 8192
    fd = os.open(f'{mnt}/k{n}.tmp', os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
    done = 0
    while done < len(data):
        done += os.write(fd, data[done:done + 20000])
    os.close(fd)
    os.rename(f'{mnt}/k{n}.tmp', f'{mnt}/k{n}.data')
    with open(f'{mnt}/k{n}.data', 'rb') as f:
        assert f.read() == data, n
"#;

fn processes_that_store_different_keys_at_once_all_succeed(io: Io) {
    let rig = Rig::mounted(3, io);
    let mountpoint = rig.mountpoint();
    let children: Vec<_> = (0..6)
        .map(|n| {
            let first = (n * 50).to_string();
            let mut command = python_command(STORE_KEYS, &[&mountpoint, first.as_ref(), "50".as_ref()]);
            command.stderr(std::process::Stdio::piped()).spawn().expect("python3")
        })
        .collect();
    for child in children {
        end(child, "a process that stores").ok();
    }
    for n in 0..300 {
        let wanted = format!("{n:08}").repeat(8192);
        assert_same(&fs::read(rig.backing(&format!("k{n}.data"))).expect("the file"), wanted.as_bytes(), "on the disk");
    }
    assert_eq!(rig.status()["files"], 300);
}

/// Every power of two from 512 bytes to 4 MiB, and its neighbours.
fn direct_sizes() -> Vec<usize> {
    [1, 511].into_iter().chain((9..=22).flat_map(|bits| (1 << bits) - 1..=(1 << bits) + 1)).collect()
}

fn o_direct_of_any_size_and_offset_gives_what_the_disk_gives(io: Io) {
    const END: u64 = 6 << 20;
    let ext4 = LoopDisk::ext4("512M", &[]);
    let mut rig = Rig::bare();
    rig.use_disks(&[0, 1].map(|n| subdir(&ext4.path(), &n.to_string())));
    rig.mount_in(io);
    let paths = [rig.path("f"), subdir(&ext4.path(), "bare").join("f")];
    for path in &paths {
        fs::write(path, pattern(1, END as usize)).expect("a file");
    }
    let [ours, bare] = paths.each_ref().map(|path| opened(path, OFlags::RDWR | OFlags::DIRECT));
    let buffered = opened(&paths[1], OFlags::RDWR);
    let mut source = Aligned::of(&pattern(2, (8 << 20) + 1));
    let (mut a, mut b) = (Aligned::new(5 << 20), Aligned::new(5 << 20));
    let mut refused = 0;
    for size in direct_sizes() {
        for offset in [0, 1, 511, 512, 513, 4095, 4096, 4097, 65_536, (1 << 20) - 512, END - 4096, END, END + 512] {
            // From a block's address mostly, sometimes from an odd one or half a block.
            for at in [0, [1, 512][size % 2]] {
                let what = format!("{size} bytes at {offset} from {at}");
                source.bytes_mut()[at] = source.bytes()[at].wrapping_add(1);
                let data = &source.bytes()[at..at + size];
                let wrote = [&ours, &bare].map(|fd| rustix::io::pwrite(fd, data, offset));
                // What the disk refuses, the daemon does through the page cache.
                let daemon_may = io == Io::Daemon && wrote[1] == Err(Errno::INVAL) && wrote[0] == Ok(size);
                assert!(wrote[0] == wrote[1] || daemon_may, "{what}: {wrote:?}");
                if daemon_may {
                    assert_eq!(rustix::io::pwrite(&buffered, data, offset), Ok(size), "{what}");
                }
                let (a, b) = (&mut a.bytes_mut()[at..at + size], &mut b.bytes_mut()[at..at + size]);
                let mut read = [rustix::io::pread(&ours, &mut *a, offset), rustix::io::pread(&bare, &mut *b, offset)];
                if io == Io::Daemon && read[1] == Err(Errno::INVAL) {
                    read[1] = rustix::io::pread(&buffered, &mut *b, offset);
                }
                assert_eq!(read[0], read[1], "{what}");
                let length = read[0].unwrap_or(0);
                assert_same(&a[..length], &b[..length], &what);
                refused += usize::from(wrote[1].is_err());
            }
        }
    }
    assert!(refused > 500, "the disk refuses what is not aligned");
    let [ours, bare] = paths.map(|path| fs::read(path).expect("a file"));
    assert_same(&ours, &bare, "the whole file");
}

fn a_file_that_was_unlinked_is_a_miss_at_once_and_can_be_stored_again(io: Io) {
    let rig = Rig::mounted(3, io);
    for round in 0..20 {
        store(&rig.mountpoint(), "k", &pattern(round, 9000), false).expect("a store");
        let before = fs::metadata(rig.path("k.data")).expect("stat").ino();
        fs::remove_file(rig.path("k.data")).expect("unlink");
        assert_eq!(rustix::fs::stat(rig.path("k.data")).err(), Some(Errno::NOENT));
        assert!(rig.disks_with("k.data").is_empty());
        store(&rig.mountpoint(), "k", &pattern(round + 1, 7000), false).expect("a store");
        assert_ne!(fs::metadata(rig.path("k.data")).expect("stat").ino(), before, "a new file has a new inode number");
        let fd = opened(&rig.path("k.data"), OFlags::RDONLY);
        assert_same(&read_at_most(&fd, 9000).expect("a read"), &pattern(round + 1, 7000), "the new file");
    }
    let fd = opened(&rig.path("n"), OFlags::WRONLY | OFlags::CREATE);
    write_all(&fd, b"x").expect("a write");
}
