//! Maps: what is written through one shows, also when it outlives the handle that it was made with.

use std::fs;
use std::path::Path;

use crate::loops::{LoopDisk, subdir};
use crate::rig::{Io, Rig, in_both_io_modes};
use crate::run::{python, wait_until};

in_both_io_modes! {
    a_write_through_a_map_shows_at_once_while_a_handle_can_write_and_else_within_entry_ttl,
    room_that_is_taken_through_a_map_is_counted_when_its_handle_has_gone,
}

/// A map without Python's own copy of the descriptor, which would keep the handle open.
const MAP: &str = r#"
import ctypes, os, sys, time
libc = ctypes.CDLL(None, use_errno=True)
libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
def map_shared(fd, length):
    at = libc.mmap(None, length, 3, 1, fd, 0)
    assert at != ctypes.c_void_p(-1).value, ctypes.get_errno()
    def flush():
        assert libc.msync(ctypes.c_void_p(at), ctypes.c_size_t(length), 4) == 0, ctypes.get_errno()
    return (ctypes.c_ubyte * length).from_address(at), flush
"#;

/// Prints which writes through a map move mtime and ctime. Through the daemon a write is one when the kernel has written
/// the page back, at the latest by msync.
const TIMES: &str = r#"
os.chdir(sys.argv[1])
written_back = sys.argv[2] == 'daemon'
with open('f', 'wb') as f:
    f.write(b'a' * 65536)
os.stat('f')
fd = os.open('f', os.O_RDWR)
shared, flush = map_shared(fd, 65536)
def write(label, at, within):
    # A page that is dirty already tells nobody of another write.
    flush()
    time.sleep(0.02)
    before = os.stat('f')
    if 'listed' in label:
        list(os.scandir('.'))
    shared[at] = ord('z')
    if written_back:
        flush()
    deadline = time.monotonic() + within
    while True:
        after = os.stat('f')
        moved = after.st_mtime_ns > before.st_mtime_ns and after.st_ctime_ns > before.st_ctime_ns
        if moved or time.monotonic() > deadline:
            break
        time.sleep(0.01)
    print(label, moved, after.st_size)
write('the first page', 0, 0)
write('another page', 5000, 0)
write('a page once more, listed', 5001, 0)
os.close(fd)
write('without a handle', 9000, 30)
write('and once more, listed', 9001, 30)
reader = os.open('f', os.O_RDONLY)
write('with a reader', 13000, 30)
print(os.pread(reader, 3, 5000), os.pread(reader, 2, 9000), os.pread(reader, 1, 13000))
"#;

fn a_write_through_a_map_shows_at_once_while_a_handle_can_write_and_else_within_entry_ttl(io: Io) {
    let ext4 = LoopDisk::ext4("128M", &[]);
    let bare = subdir(&ext4.path(), "bare");
    let mut rig = Rig::bare();
    rig.use_disks(&[0, 1].map(|n| subdir(&ext4.path(), &n.to_string())));
    rig.mount(&format!("entry_ttl=1s,{}", io.option()));
    let times = |dir: &Path| python(&format!("{MAP}{TIMES}"), &[dir, io.word().as_ref()]);
    let found = times(&rig.mountpoint());
    assert_eq!(found, times(&bare));
    assert_eq!(found.matches("True 65536").count(), 6, "{found}");
}

/// Fills a file through a map whose handle is closed.
const FILL: &str = r#"
fd = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT)
os.truncate(fd, 1 << 20)
shared, flush = map_shared(fd, 1 << 20)
os.close(fd)
# Several syncs later.
time.sleep(1)
ctypes.memset(shared, ord('z'), 1 << 20)
flush()
"#;

fn room_that_is_taken_through_a_map_is_counted_when_its_handle_has_gone(io: Io) {
    let mut rig = Rig::new(2);
    rig.mount(&format!("sync_interval=200ms,{}", io.option()));
    python(&format!("{MAP}{FILL}"), &[&rig.path("f")]);
    wait_until("the room is counted", || rig.status()["used_bytes"] == 1 << 20);
    assert_eq!(fs::read(rig.backing("f")).expect("a read"), vec![b'z'; 1 << 20]);
}
