//! Mixed opens of one inode: the kernel wants one I/O mode at a time, and clients must never notice.

use std::fs;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::process::Stdio;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use rustix::fs::OFlags;
use rustix::io::Errno;

use crate::bytes::{Aligned, BLOCK, assert_same, open, opened, pattern, read_at_most};
use crate::rig::{Io, Rig, in_both_io_modes};
use crate::run::{end, python, python_command, shell, wait_until};

in_both_io_modes! {
    opens_of_one_file_mix_in_every_order_and_mode,
    readers_and_a_writer_that_reopens_in_every_mode_see_no_error,
    dd_with_o_direct_and_a_map_share_one_file,
    many_files_mapped_and_closed_leave_no_descriptor_in_the_daemon,
    a_file_shows_how_its_bytes_travel,
}

const OPENS: [OFlags; 7] = [
    OFlags::RDONLY,
    OFlags::WRONLY,
    OFlags::RDWR,
    OFlags::RDONLY.union(OFlags::DIRECT),
    OFlags::RDWR.union(OFlags::DIRECT),
    OFlags::WRONLY.union(OFlags::APPEND),
    OFlags::RDWR.union(OFlags::TRUNC),
];

/// Reads and writes one block by a handle, as far as its mode allows.
fn use_handle(fd: &OwnedFd, flags: OFlags, mark: u8) {
    let mode = flags & OFlags::RWMODE;
    let mut buffer = Aligned::of(&[mark; BLOCK]);
    if mode != OFlags::RDONLY {
        assert_eq!(rustix::io::pwrite(fd, buffer.bytes(), 0), Ok(BLOCK), "a write by {flags:?}");
    }
    if mode != OFlags::WRONLY {
        let read = rustix::io::pread(fd, buffer.bytes_mut(), 0);
        assert_eq!(read, Ok(BLOCK), "a read by {flags:?}");
        if mode == OFlags::RDWR {
            assert_same(buffer.bytes(), &[mark; BLOCK], "what was just written");
        }
    }
}

fn opens_of_one_file_mix_in_every_order_and_mode(io: Io) {
    let rig = Rig::mounted(2, io);
    let path = rig.path("f");
    let mut mark = 0;
    for first in OPENS {
        for second in OPENS {
            for third in OPENS {
                fs::write(&path, [7; BLOCK]).expect("a file");
                let mut handles = Vec::new();
                for flags in [first, second, third] {
                    let fd = open(&path, flags);
                    let fd = fd.unwrap_or_else(|errno| panic!("{first:?}, {second:?}, {third:?}: {flags:?}: {errno}"));
                    if flags.contains(OFlags::TRUNC) {
                        fs::write(&path, [7; BLOCK]).expect("a file");
                    }
                    mark = if mark == 250 { 1 } else { mark + 1 };
                    handles.push((fd, flags));
                    handles.iter().for_each(|(fd, flags)| use_handle(fd, *flags, mark));
                }
                // The first goes first, so that the last ones outlive the one that decided the mode.
                while !handles.is_empty() {
                    handles.remove(0);
                    handles.iter().for_each(|(fd, flags)| use_handle(fd, *flags, mark));
                }
            }
        }
    }
}

fn readers_and_a_writer_that_reopens_in_every_mode_see_no_error(io: Io) {
    let rig = Rig::mounted(2, io);
    let paths: Vec<_> = (0..4).map(|n| rig.path(format!("f{n}"))).collect();
    for path in &paths {
        fs::write(path, [1; 2 * BLOCK]).expect("a file");
    }
    let done = AtomicBool::new(false);
    let read = |path: &Path, direct| {
        let mut flags = OFlags::RDONLY;
        flags.set(OFlags::DIRECT, direct);
        let found = read_at_most(opened(path, flags), 2 * BLOCK).expect("a read");
        assert_eq!(found.len(), 2 * BLOCK);
    };
    thread::scope(|scope| {
        for n in 0..32usize {
            let (paths, done) = (&paths, &done);
            scope.spawn(move || {
                while !done.load(Ordering::Relaxed) {
                    read(&paths[n % 4], n % 3 == 0);
                }
            });
        }
        let writer = scope.spawn(|| {
            for n in 0..1000usize {
                let flags = OPENS[n % 6];
                use_handle(&opened(&paths[n % 4], flags), flags, (n % 200) as u8);
            }
        });
        let wrote = writer.join();
        done.store(true, Ordering::Relaxed);
        wrote.expect("the writer");
    });
}

const HOLD_A_MAP: &str = r#"
import mmap, os, sys
f = open(sys.argv[1], 'r+b')
m = mmap.mmap(f.fileno(), 0)
print(len(m), flush=True)
n = 0
while not os.path.exists(sys.argv[2]):
    m[0:4] = n.to_bytes(4, 'little')
    assert m[1 << 20:(1 << 20) + 4] is not None
    n += 1
m.flush()
"#;

fn dd_with_o_direct_and_a_map_share_one_file(io: Io) {
    let rig = Rig::mounted(2, io);
    let (file, stop) = (rig.path("f"), rig.outside("stop"));
    fs::write(&file, pattern(1, 4 << 20)).expect("a file");
    let mut mapper = python_command(HOLD_A_MAP, &[&file, &stop]);
    let mapper = mapper.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("python3");
    let script = "for n in 1 2 3 4 5; do
        dd if=f of=/dev/null bs=64k iflag=direct status=none
        dd if=/dev/zero of=f bs=64k seek=32 count=16 conv=notrunc oflag=direct status=none
        dd if=f of=/dev/null bs=1M status=none
        dd if=/dev/zero of=f bs=10000 seek=300 count=7 conv=notrunc status=none
    done";
    let said = shell(&rig.mountpoint(), script);
    fs::write(&stop, "").expect("a file");
    end(mapper, "the process that holds a map").ok();
    said.ok();
    let bytes = fs::read(&file).expect("a read");
    assert_same(&bytes[4..2 << 20], &pattern(1, 4 << 20)[4..2 << 20], "what nobody wrote");
    assert_same(&bytes[2 << 20..3 << 20], &[0; 1 << 20], "what dd wrote");
    assert_same(&fs::read(rig.backing("f")).expect("a read"), &bytes, "on the disk");
}

const MAP_MANY: &str = r#"
import mmap, os, sys
names = [f'{sys.argv[1]}/m{n % 500}' for n in range(int(sys.argv[2]))]
held = []
for name in names:
    fd = os.open(name, os.O_RDONLY)
    m = mmap.mmap(fd, 4096, prot=mmap.PROT_READ)
    os.close(fd)
    assert m[0:2] == b'mm', name
    held.append(m)
    if len(held) > 400:
        held.pop(0).close()
"#;

fn many_files_mapped_and_closed_leave_no_descriptor_in_the_daemon(io: Io) {
    let rig = Rig::mounted(2, io);
    for n in 0..500 {
        fs::write(rig.path(format!("m{n}")), [b'm'; 4096]).expect("a file");
    }
    wait_until("all files are closed", || rig.open_fds() < 100);
    let before = rig.open_fds();
    python(MAP_MANY, &[&rig.mountpoint(), "20000".as_ref()]);
    wait_until("no file is open twice", || rig.open_fds() <= before + 500);
    (0..500).for_each(|n| fs::remove_file(rig.path(format!("m{n}"))).expect("an unlink"));
    wait_until("every descriptor is given back", || rig.open_fds() <= before);
}

fn a_file_shows_how_its_bytes_travel(io: Io) {
    let rig = Rig::mounted(2, io);
    fs::write(rig.path("f"), "x").expect("a file");
    let _open = opened(&rig.path("f"), OFlags::RDONLY);
    let mut value = [0; 64];
    let length = rustix::fs::getxattr(rig.path("f"), "user.kvspan.io_mode", &mut value).expect("getxattr");
    assert_eq!(&value[..length], io.word().as_bytes());
    assert_eq!(open(&rig.path("g"), OFlags::RDONLY).err(), Some(Errno::NOENT));
}
