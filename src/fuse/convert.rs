//! Between the kernel's words and plain types. Pure, except for the thread's read buffer. Called by the glue.

use std::cell::RefCell;
use std::time::{Duration, SystemTime};

use fuser::{Errno, FileAttr, FileType, Generation, INodeNo, ReplyEntry, TimeOrNow};
use rustix::fs::OFlags;

use crate::error::{Error, Result};
use crate::fs::{CacheFs, OpenIntent};
use crate::volume::attr::{Ino, Kind};
use crate::volume::disk::NewTime;
use crate::volume::index::Entry;

/// `f_bsize` and `f_frsize`: LMCache takes it for the block size of O_DIRECT.
pub const STATFS_BLOCK_BYTES: u32 = 4096;

const SEEK_DATA: i32 = 3;
const SEEK_HOLE: i32 = 4;

/// The error as the kernel wants it.
pub fn errno(error: &Error) -> Errno {
    Errno::from_i32(error.errno())
}

/// Inode numbers hold their own generation.
pub fn generation() -> Generation {
    Generation(0)
}

/// The kind as a listing shows it.
pub fn file_type(kind: Kind) -> FileType {
    match kind {
        Kind::File => FileType::RegularFile,
        Kind::Dir => FileType::Directory,
    }
}

/// The attributes of an entry.
pub fn file_attr(entry: &Entry, links: u32) -> FileAttr {
    let attr = &entry.attr;
    FileAttr {
        ino: INodeNo(entry.ino.0),
        size: attr.size_bytes,
        blocks: attr.blocks_512,
        atime: system_time(attr.atime_ns),
        mtime: system_time(attr.mtime_ns),
        ctime: system_time(attr.ctime_ns),
        crtime: SystemTime::UNIX_EPOCH,
        kind: file_type(entry.kind),
        perm: attr.mode,
        nlink: links,
        uid: attr.uid,
        gid: attr.gid,
        rdev: 0,
        blksize: STATFS_BLOCK_BYTES,
        flags: 0,
    }
}

/// Attributes for `.` and `..` in a listing, of which the kernel uses the number only.
pub fn dot_attr(ino: Ino) -> FileAttr {
    FileAttr {
        ino: INodeNo(ino.0),
        size: 0,
        blocks: 0,
        atime: SystemTime::UNIX_EPOCH,
        mtime: SystemTime::UNIX_EPOCH,
        ctime: SystemTime::UNIX_EPOCH,
        crtime: SystemTime::UNIX_EPOCH,
        kind: FileType::Directory,
        perm: 0,
        nlink: 2,
        uid: 0,
        gid: 0,
        rdev: 0,
        blksize: STATFS_BLOCK_BYTES,
        flags: 0,
    }
}

/// Answers that a name is not there, and how long the kernel may believe it: inode 0 with a TTL.
pub fn reply_miss(reply: ReplyEntry, ttl: Duration) {
    if ttl.is_zero() {
        reply.error(Errno::ENOENT);
    } else {
        reply.entry(&ttl, &dot_attr(Ino(0)), generation());
    }
}

fn system_time(ns: i64) -> SystemTime {
    let distance = Duration::from_nanos(ns.unsigned_abs());
    if ns >= 0 { SystemTime::UNIX_EPOCH + distance } else { SystemTime::UNIX_EPOCH - distance }
}

/// A time that a client sets.
pub fn new_time(time: TimeOrNow) -> NewTime {
    match time {
        TimeOrNow::Now => NewTime::Now,
        TimeOrNow::SpecificTime(time) => NewTime::At(match time.duration_since(SystemTime::UNIX_EPOCH) {
            Ok(after) => i64::try_from(after.as_nanos()).unwrap_or(i64::MAX),
            Err(before) => i64::try_from(before.duration().as_nanos()).map_or(i64::MIN, |ns| -ns),
        }),
    }
}

/// What a file system must know of `open(2)`'s flags.
pub fn open_intent(flags: i32) -> OpenIntent {
    let flags = OFlags::from_bits_retain(flags.cast_unsigned());
    let mode = flags & OFlags::RWMODE;
    OpenIntent {
        read: mode != OFlags::WRONLY,
        write: mode != OFlags::RDONLY,
        exclusive: flags.contains(OFlags::EXCL),
        truncate: flags.contains(OFlags::TRUNC),
    }
}

/// `lseek` for data and holes; the kernel answers every other kind itself.
pub fn seek(fs: &CacheFs, handle: u64, offset: i64, whence: i32) -> Result<i64> {
    let from = u64::try_from(offset).map_err(|_| Error::Beyond)?;
    let to = match whence {
        SEEK_DATA => fs.seek(handle, from, false)?,
        SEEK_HOLE => fs.seek(handle, from, true)?,
        _ => return Err(Error::Invalid),
    };
    i64::try_from(to).map_err(|_| Error::Invalid)
}

/// Lends the thread's buffer for one read: allocating and clearing a megabyte for each request would cost more than
/// the request.
pub fn with_read_buffer(size: usize, use_it: impl FnOnce(&mut [u8])) {
    thread_local! {
        static BUFFER: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
    }
    BUFFER.with_borrow_mut(|buffer| {
        if buffer.len() < size {
            buffer.resize(size, 0);
        }
        use_it(buffer.get_mut(..size).unwrap_or_default());
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_before_the_epoch_survive() {
        for ns in [0, 1, -1, 1_700_000_000_123_456_789, -86_400_000_000_001] {
            assert_eq!(new_time(TimeOrNow::SpecificTime(system_time(ns))), NewTime::At(ns));
        }
    }

    #[test]
    fn open_flags_say_what_is_read_and_written() {
        let bits = |flags: OFlags| flags.bits().cast_signed();
        let ro = open_intent(bits(OFlags::RDONLY | OFlags::DIRECT));
        assert!(ro.read && !ro.write && !ro.truncate && !ro.exclusive);
        let wo = open_intent(bits(OFlags::WRONLY | OFlags::TRUNC | OFlags::CREATE));
        assert!(!wo.read && wo.write && wo.truncate);
        let rw = open_intent(bits(OFlags::RDWR | OFlags::EXCL));
        assert!(rw.read && rw.write && rw.exclusive);
    }
}
