//! A disk: one directory fd on one file system, and the narrow seam through which all its I/O goes.
//!
//! Called by the volume and its recovery only. [`DiskIo`] is where faults come in for tests; [`real::RealDisk`]
//! is what a mount uses. A [`Disk`] adds what the volume knows about it. Holds one short lock around the last
//! figures of the file system's room, never over a system call.

use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::{Mutex, MutexGuard};
use uuid::Uuid;

use super::attr::Attr;
use super::deferred::Deferred;
use super::record::Keeper;
use super::record::rule::MountInstance;
use crate::config::Amount;
use crate::messages::About;
use crate::sync::Bell;

pub mod real;

/// What the disk says an object is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FoundKind {
    /// A regular file.
    File,
    /// A directory.
    Dir,
    /// A symlink, FIFO, socket or device: never opened, followed or deleted.
    Foreign,
    /// The listing did not say.
    Unknown,
}

/// What a disk says about an object.
#[derive(Clone, Copy, Debug)]
pub struct FoundStat {
    /// What it is.
    pub kind: FoundKind,
    /// Its attributes.
    pub attr: Attr,
    /// Its inode number on the disk.
    pub ino: u64,
    /// Birth time in nanoseconds since the epoch; `i64::MIN` where the file system keeps none.
    pub birth_ns: i64,
}

/// How a file is to be opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Access {
    /// Bytes will be read.
    pub read: bool,
    /// Bytes will be written.
    pub write: bool,
}

/// The attributes that a SETATTR changes; `None` leaves one as it is.
#[derive(Clone, Copy, Debug, Default)]
pub struct NewAttr {
    /// Length in bytes.
    pub size_bytes: Option<u64>,
    /// Permission bits.
    pub mode: Option<u16>,
    /// Owner.
    pub uid: Option<u32>,
    /// Group.
    pub gid: Option<u32>,
    /// Last access.
    pub atime: Option<NewTime>,
    /// Last change of the contents.
    pub mtime: Option<NewTime>,
}

/// A time to be set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NewTime {
    /// Nanoseconds since the epoch.
    At(i64),
    /// The disk's own clock.
    Now,
}

/// Room on the file system below a disk.
#[derive(Clone, Copy, Debug, Default)]
pub struct Space {
    /// Device number: disks with the same one share their room.
    pub device: u64,
    /// Bytes that files can take in all: `f_blocks - (f_bfree - f_bavail)`.
    pub size_bytes: u64,
    /// Bytes that are taken, by anybody.
    pub used_bytes: u64,
    /// Bytes that are free for the daemon (`f_bavail`).
    pub available_bytes: u64,
    /// Inodes in all; 0 where the file system does not count them.
    pub inodes: u64,
    /// Inodes that are free.
    pub inodes_free: u64,
}

/// One name that a listing returned.
pub type FoundName = (Vec<u8>, FoundKind);

/// An open directory of a disk, read batch by batch.
pub trait DirReader: Send {
    /// The next names, in the disk's order, without `.` and `..`; empty at the end.
    ///
    /// # Errors
    /// What `getdents64` said; the listing is then incomplete, which is never the same as its end.
    fn next_batch(&mut self) -> io::Result<Vec<FoundName>>;
}

/// Everything that a volume asks of a disk. Paths are relative to the disk's directory, without leading or
/// trailing slash, never `.` or `..`; the empty path is the disk's directory itself. Errors are the system
/// call's.
pub trait DiskIo: Send + Sync + 'static {
    /// Opens a file that is there. Never waits, not even on a FIFO that took the file's place.
    fn open(&self, path: &[u8], access: Access) -> io::Result<OwnedFd>;
    /// Creates a regular file that must not be there, for reading and writing.
    fn create(&self, path: &[u8], mode: u16) -> io::Result<OwnedFd>;
    /// Looks at an object without opening or following it.
    fn stat(&self, path: &[u8]) -> io::Result<FoundStat>;
    /// Looks at an open file.
    fn stat_fd(&self, fd: BorrowedFd<'_>) -> io::Result<FoundStat>;
    /// Renames on this disk; with `replace` false an object at `to` is `EEXIST`.
    fn rename(&self, from: &[u8], to: &[u8], replace: bool) -> io::Result<()>;
    /// Swaps two names on this disk.
    fn exchange(&self, a: &[u8], b: &[u8]) -> io::Result<()>;
    /// Unlinks a file.
    fn unlink(&self, path: &[u8]) -> io::Result<()>;
    /// Makes a directory.
    fn mkdir(&self, path: &[u8], mode: u16) -> io::Result<()>;
    /// Removes an empty directory.
    fn rmdir(&self, path: &[u8]) -> io::Result<()>;
    /// Starts to list a directory.
    fn list(&self, path: &[u8]) -> io::Result<Box<dyn DirReader>>;
    /// Changes attributes of an open file or directory.
    fn set_attr(&self, fd: BorrowedFd<'_>, new: &NewAttr) -> io::Result<()>;
    /// Opens a directory for [`set_attr`](DiskIo::set_attr), [`fsync`](DiskIo::fsync) and xattrs.
    fn open_dir(&self, path: &[u8]) -> io::Result<OwnedFd>;
    /// Reads at an offset; fewer bytes than asked only at the end of the file.
    fn read(&self, fd: BorrowedFd<'_>, buffer: &mut [u8], offset: u64) -> io::Result<usize>;
    /// Writes all of `data` at an offset.
    fn write(&self, fd: BorrowedFd<'_>, data: &[u8], offset: u64) -> io::Result<()>;
    /// Makes a file's data (and its metadata unless `data_only`) durable.
    fn fsync(&self, fd: BorrowedFd<'_>, data_only: bool) -> io::Result<()>;
    /// `fallocate(2)` with the mode bits as the kernel gives them.
    fn fallocate(&self, fd: BorrowedFd<'_>, mode: u32, offset: u64, length: u64) -> io::Result<()>;
    /// The next data or hole at or after an offset.
    fn seek(&self, fd: BorrowedFd<'_>, offset: u64, hole: bool) -> io::Result<u64>;
    /// Copies bytes between two open files of the same disk; may copy less than asked.
    fn copy(
        &self,
        from: BorrowedFd<'_>,
        from_at: u64,
        to: BorrowedFd<'_>,
        to_at: u64,
        length: usize,
    ) -> io::Result<usize>;
    /// Reads an extended attribute.
    fn get_xattr(&self, fd: BorrowedFd<'_>, name: &[u8]) -> io::Result<Vec<u8>>;
    /// Names of all extended attributes, each ended by a NUL.
    fn list_xattrs(&self, fd: BorrowedFd<'_>) -> io::Result<Vec<u8>>;
    /// Sets an extended attribute; `flags` are `setxattr(2)`'s.
    fn set_xattr(&self, fd: BorrowedFd<'_>, name: &[u8], value: &[u8], flags: u32) -> io::Result<()>;
    /// Removes an extended attribute.
    fn remove_xattr(&self, fd: BorrowedFd<'_>, name: &[u8]) -> io::Result<()>;
    /// Sets the last access of a file, without opening or following anything.
    fn set_atime(&self, path: &[u8], atime_ns: i64) -> io::Result<()>;
    /// Room on the file system.
    fn space(&self) -> io::Result<Space>;
    /// Makes all that was written on the file system durable. An error says that some of it may be lost for good, and
    /// is said once.
    fn sync_fs(&self) -> io::Result<()>;
    /// The mount that the disk lies on, if the kernel tells.
    fn mount_instance(&self) -> io::Result<Option<MountInstance>>;
}

/// What an operator asked one disk to keep to.
#[derive(Clone, Copy, Debug)]
pub struct DiskLimits {
    /// Bytes that the disk may hold.
    pub limit: Amount,
    /// Bytes that its file system must keep free.
    pub reserve: Amount,
}

/// One disk of the volume.
pub struct Disk {
    /// The UUID of its label.
    pub id: Uuid,
    /// Its directory on the host, as it was configured.
    pub path: PathBuf,
    /// The way to its files.
    pub io: Box<dyn DiskIo>,
    /// Limit and reserve.
    pub limits: DiskLimits,
    /// Wakes the disk's evictor.
    pub bell: Bell,
    /// What a power loss may tear.
    pub record: Keeper,
    /// Removed files whose blocks are still to be freed.
    pub(super) deferred: Deferred,
    scanned: AtomicBool,
    /// Rank 0: one scan at a time, held from its beginning to its end.
    scan: Mutex<()>,
    foreign: AtomicU64,
    undeletable: AtomicU64,
    bound_bytes: AtomicU64,
    /// Bytes that were not the volume's at the last sync; `u64::MAX` while nobody has said.
    foreign_bytes: AtomicU64,
    space: Mutex<Space>,
}

impl Disk {
    /// A disk whose files have not been scanned yet.
    pub fn new(id: Uuid, path: PathBuf, io: Box<dyn DiskIo>, limits: DiskLimits) -> Self {
        let record = Keeper::of(About::disk(&path, id));
        Disk {
            id,
            path,
            io,
            limits,
            scanned: AtomicBool::new(false),
            bell: Bell::default(),
            record,
            deferred: Deferred::default(),
            scan: Mutex::new(()),
            foreign: AtomicU64::new(0),
            undeletable: AtomicU64::new(0),
            bound_bytes: AtomicU64::new(u64::MAX),
            foreign_bytes: AtomicU64::new(u64::MAX),
            space: Mutex::new(Space::default()),
        }
    }

    /// What a message about the disk says of it.
    pub fn about(&self) -> About {
        About::disk(&self.path, self.id)
    }

    /// Whether the index knows all that is on the disk.
    pub fn is_scanned(&self) -> bool {
        self.scanned.load(Ordering::Acquire)
    }

    /// Notes that the recovery scan has reached the end of the disk.
    pub fn set_scanned(&self) {
        self.scanned.store(true, Ordering::Release);
    }

    /// Waits for a scan of the disk that is running, and keeps others out until the guard is dropped.
    pub(super) fn begin_scan(&self) -> MutexGuard<'_, ()> {
        self.scan.lock()
    }

    /// Counts an object that is left alone: a symlink, FIFO, socket or device.
    pub fn count_foreign(&self) {
        self.foreign.fetch_add(1, Ordering::Relaxed);
    }

    /// Replaces the count by that of a whole walk.
    pub(super) fn set_foreign(&self, objects: u64) {
        self.foreign.store(objects, Ordering::Relaxed);
    }

    /// Objects that were left alone so far.
    pub fn foreign_objects(&self) -> u64 {
        self.foreign.load(Ordering::Relaxed)
    }

    /// Counts a victim that could not be unlinked; how many there were before.
    pub fn count_undeletable(&self) -> u64 {
        self.undeletable.fetch_add(1, Ordering::Relaxed)
    }

    /// Victims that could not be unlinked so far.
    pub fn undeletable_victims(&self) -> u64 {
        self.undeletable.load(Ordering::Relaxed)
    }

    /// Bytes that the disk may hold, as of the last reading.
    pub fn bound_bytes(&self) -> u64 {
        self.bound_bytes.load(Ordering::Relaxed)
    }

    pub(super) fn set_bound_bytes(&self, bytes: u64) {
        self.bound_bytes.store(bytes, Ordering::Relaxed);
    }

    /// Bytes on the file system that were not the volume's at the last sync, if that is known.
    pub fn foreign_bytes(&self) -> Option<u64> {
        Some(self.foreign_bytes.load(Ordering::Relaxed)).filter(|bytes| *bytes != u64::MAX)
    }

    /// Notes what was not the volume's at the last sync.
    pub fn set_foreign_bytes(&self, bytes: u64) {
        self.foreign_bytes.store(bytes, Ordering::Relaxed);
    }

    /// Room on the file system when it was last asked.
    pub fn space(&self) -> Space {
        *self.space.lock()
    }

    /// Asks the file system for its room.
    ///
    /// # Errors
    /// What `fstatvfs` said; the last figures stay.
    pub fn refresh_space(&self) -> io::Result<()> {
        let space = self.io.space()?;
        *self.space.lock() = space;
        Ok(())
    }
}
