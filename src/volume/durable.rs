//! Small files in a disk's `.kvspan`: read with distrust, replaced whole or not at all.
//!
//! Called by the rooms that keep one. All I/O goes through [`DiskIo`], so faults reach it like everything else. Takes no
//! lock; a file has one writer at a time.

use std::io;
use std::os::fd::AsFd;

use super::disk::{Access, DiskIo, FoundKind};
use super::name::PRIVATE_DIR;

/// What a disk has under a name.
#[derive(Debug, PartialEq, Eq)]
pub enum Found {
    /// A regular file's bytes.
    Bytes(Vec<u8>),
    /// Nothing.
    Absent,
    /// Something else; the reason is the end of a sentence.
    Unsound(String),
}

/// Reads a file of at most `bytes_max` bytes.
///
/// # Errors
/// What the disk said: whether there is such a file is then not known.
pub fn read(io: &dyn DiskIo, path: &[u8], bytes_max: usize) -> io::Result<Found> {
    let absent = |error: &io::Error| error.kind() == io::ErrorKind::NotFound;
    // Looked at before it is opened, so that no device ever is.
    match io.stat(path) {
        Ok(stat) if stat.kind != FoundKind::File => return Ok(Found::Unsound("it is not a regular file".to_string())),
        Ok(_) => {}
        Err(error) if absent(&error) => return Ok(Found::Absent),
        Err(error) => return Err(error),
    }
    let fd = match io.open(path, Access { read: true, write: false }) {
        Ok(fd) => fd,
        Err(error) if absent(&error) => return Ok(Found::Absent),
        Err(error) => return Err(error),
    };
    let stat = io.stat_fd(fd.as_fd())?;
    if stat.kind != FoundKind::File {
        return Ok(Found::Unsound("it is not a regular file".to_string()));
    }
    if stat.attr.size_bytes > bytes_max as u64 {
        return Ok(Found::Unsound(format!("it has {} bytes", stat.attr.size_bytes)));
    }
    let mut bytes = vec![0; bytes_max + 1];
    let length = io.read(fd.as_fd(), &mut bytes, 0)?;
    bytes.truncate(length);
    Ok(Found::Bytes(bytes))
}

/// Replaces a file; it is durable when this returns.
///
/// # Errors
/// What the disk said; the old file is then still there, or the new one is there and may not be durable.
pub fn replace(io: &dyn DiskIo, path: &[u8], bytes: &[u8], mode: u16) -> io::Result<()> {
    let temp = [path, b".tmp"].concat();
    match io.unlink(&temp) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let fd = match io.create(&temp, mode) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            io.mkdir(PRIVATE_DIR, 0o755)?;
            io.create(&temp, mode)?
        }
        created => created?,
    };
    io.write(fd.as_fd(), bytes, 0)?;
    io.fsync(fd.as_fd(), false)?;
    io.rename(&temp, path, true)?;
    sync_dir(io, PRIVATE_DIR)
}

/// Makes the names of a directory durable, where the file system can.
///
/// # Errors
/// What the disk said.
pub fn sync_dir(io: &dyn DiskIo, path: &[u8]) -> io::Result<()> {
    match io.fsync(io.open_dir(path)?.as_fd(), false) {
        // Some file systems cannot sync a directory.
        Err(error) if error.kind() == io::ErrorKind::InvalidInput => Ok(()),
        done => done,
    }
}
