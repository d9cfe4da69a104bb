//! The errors of a running volume, and the one place where they become errno.
//!
//! Used by every layer below the FUSE glue; the glue calls [`Error::errno`] and nothing else.

use std::io;

use rustix::io::Errno;

use crate::volume::attr::DiskNo;

mod setup;

pub use setup::*;

/// Why an operation of the volume did not happen.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// No entry has that name.
    #[error("no such entry")]
    NotFound,
    /// The inode number is of an entry that has gone: the kernel should look the name up again.
    #[error("the entry has gone")]
    Stale,
    /// An entry with that name is there already.
    #[error("the entry exists")]
    Exists,
    /// A directory was needed.
    #[error("not a directory")]
    NotDirectory,
    /// A directory was given where a file was needed.
    #[error("is a directory")]
    IsDirectory,
    /// The directory still has entries, or hides objects that are not ours to remove.
    #[error("the directory is not empty")]
    NotEmpty,
    /// A name longer than 255 bytes.
    #[error("the name is too long")]
    NameTooLong,
    /// A name or an argument that can never be right.
    #[error("invalid argument")]
    Invalid,
    /// A place in a file where no data and no hole can be.
    #[error("beyond the end")]
    Beyond,
    /// The operation is not for this kind of entry or for this caller.
    #[error("not permitted")]
    NotPermitted,
    /// The operation would need more than one disk to act as one.
    #[error("the operation crosses disks")]
    CrossDisk,
    /// No disk can take a new file.
    #[error("no disk has room")]
    NoSpace,
    /// No disk of the volume can be reached.
    #[error("no disk can be reached")]
    NoDisk,
    /// A file handle that is not open.
    #[error("bad file handle")]
    BadHandle,
    /// There is no such extended attribute.
    #[error("no such attribute")]
    NoAttribute,
    /// The caller's buffer is too small for the attribute.
    #[error("the buffer is too small")]
    BufferTooSmall,
    /// The operation is not offered.
    #[error("not supported")]
    NotSupported,
    /// Another request holds the name for longer than `io_timeout`.
    #[error("the name is busy")]
    Busy,
    /// A system call on a disk failed.
    #[error("{}", io_text(.error))]
    Disk {
        /// The disk it failed on.
        disk: DiskNo,
        /// What the disk's file system said.
        error: io::Error,
    },
}

impl Error {
    /// Wraps what a disk's file system said.
    pub fn disk(disk: DiskNo, error: io::Error) -> Self {
        Error::Disk { disk, error }
    }

    /// The errno that a client sees, as a positive number.
    pub fn errno(&self) -> i32 {
        let errno = match self {
            Error::NotFound => Errno::NOENT,
            Error::Stale => Errno::STALE,
            Error::Exists => Errno::EXIST,
            Error::NotDirectory => Errno::NOTDIR,
            Error::IsDirectory => Errno::ISDIR,
            Error::NotEmpty => Errno::NOTEMPTY,
            Error::NameTooLong => Errno::NAMETOOLONG,
            Error::Invalid => Errno::INVAL,
            Error::Beyond => Errno::NXIO,
            Error::NotPermitted => Errno::PERM,
            Error::CrossDisk => Errno::XDEV,
            Error::NoSpace => Errno::NOSPC,
            Error::NoDisk | Error::Busy => Errno::IO,
            Error::BadHandle => Errno::BADF,
            Error::NoAttribute => Errno::NODATA,
            Error::BufferTooSmall => Errno::RANGE,
            Error::NotSupported => Errno::OPNOTSUPP,
            Error::Disk { error, .. } => return error.raw_os_error().unwrap_or(Errno::IO.raw_os_error()),
        };
        errno.raw_os_error()
    }
}

/// Whether a system call's error says that the disk itself is in trouble (DESIGN.md section 6), and not that
/// the request was wrong or the disk full.
pub fn is_disk_trouble(error: &io::Error) -> bool {
    let Some(code) = error.raw_os_error() else {
        return false;
    };
    matches!(
        Errno::from_raw_os_error(code),
        Errno::IO | Errno::NXIO | Errno::NODEV | Errno::ROFS | Errno::UCLEAN | Errno::STALE | Errno::SHUTDOWN
    )
}

/// Whether a system call's error says that the disk cannot take more: it is then passed over, not blamed.
pub fn is_disk_full(error: &io::Error) -> bool {
    let Some(code) = error.raw_os_error() else {
        return false;
    };
    matches!(Errno::from_raw_os_error(code), Errno::NOSPC | Errno::DQUOT)
}

/// The result of an operation of the volume.
pub type Result<T> = std::result::Result<T, Error>;
