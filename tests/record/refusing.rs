//! A real disk that refuses the calls that it is told to.

use std::collections::HashSet;
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex};

use kvspan::volume::disk::real::RealDisk;
use kvspan::volume::disk::{Access, DirReader, DiskIo, FoundStat, NewAttr, Space};
use kvspan::volume::record::rule::MountInstance;
use rustix::io::Errno;

/// Names of the calls that fail with EIO.
pub type Refused = Arc<Mutex<HashSet<&'static str>>>;

pub struct Refusing {
    pub real: RealDisk,
    pub refused: Refused,
}

macro_rules! pass_on {
    ($(fn $name:ident($($arg:ident: $kind:ty),*) -> $given:ty;)*) => {
        $(fn $name(&self, $($arg: $kind),*) -> io::Result<$given> {
            if self.refused.lock().expect("the set").contains(stringify!($name)) {
                return Err(Errno::IO.into());
            }
            self.real.$name($($arg),*)
        })*
    };
}

impl DiskIo for Refusing {
    pass_on! {
        fn open(path: &[u8], access: Access) -> OwnedFd;
        fn create(path: &[u8], mode: u16) -> OwnedFd;
        fn stat(path: &[u8]) -> FoundStat;
        fn stat_fd(fd: BorrowedFd<'_>) -> FoundStat;
        fn rename(from: &[u8], to: &[u8], replace: bool) -> ();
        fn exchange(a: &[u8], b: &[u8]) -> ();
        fn unlink(path: &[u8]) -> ();
        fn mkdir(path: &[u8], mode: u16) -> ();
        fn rmdir(path: &[u8]) -> ();
        fn list(path: &[u8]) -> Box<dyn DirReader>;
        fn set_attr(fd: BorrowedFd<'_>, new: &NewAttr) -> ();
        fn open_dir(path: &[u8]) -> OwnedFd;
        fn read(fd: BorrowedFd<'_>, buffer: &mut [u8], offset: u64) -> usize;
        fn write(fd: BorrowedFd<'_>, data: &[u8], offset: u64) -> ();
        fn fsync(fd: BorrowedFd<'_>, data_only: bool) -> ();
        fn fallocate(fd: BorrowedFd<'_>, mode: u32, offset: u64, length: u64) -> ();
        fn seek(fd: BorrowedFd<'_>, offset: u64, hole: bool) -> u64;
        fn copy(from: BorrowedFd<'_>, from_at: u64, to: BorrowedFd<'_>, to_at: u64, length: usize) -> usize;
        fn get_xattr(fd: BorrowedFd<'_>, name: &[u8]) -> Vec<u8>;
        fn list_xattrs(fd: BorrowedFd<'_>) -> Vec<u8>;
        fn set_xattr(fd: BorrowedFd<'_>, name: &[u8], value: &[u8], flags: u32) -> ();
        fn remove_xattr(fd: BorrowedFd<'_>, name: &[u8]) -> ();
        fn set_atime(path: &[u8], atime_ns: i64) -> ();
        fn space() -> Space;
        fn sync_fs() -> ();
        fn mount_instance() -> Option<MountInstance>;
    }
}
