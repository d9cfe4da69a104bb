//! The record's file on a disk: read with distrust, replaced whole or not at all.
//!
//! Called by the record's keeper. All I/O goes through [`DiskIo`], so faults reach it like everything else. Takes no
//! lock; the keeper lets one thread at a time write.

use std::io;
use std::os::fd::AsFd;

use super::format::{self, RECORD_BYTES_MAX, Record};
use crate::volume::disk::{Access, DiskIo, FoundKind};

/// The directory that holds it.
const DIR: &[u8] = b".kvspan";
const RECORD: &[u8] = b".kvspan/record";
const TEMP: &[u8] = b".kvspan/record.tmp";

/// What a disk has for a record.
#[derive(Debug, PartialEq, Eq)]
pub enum Found {
    /// A sound record.
    Record(Box<Record>),
    /// None was ever written.
    Absent,
    /// Something else; the reason is the end of a sentence.
    Unsound(String),
}

/// Reads the record.
///
/// # Errors
/// What the disk said: whether there is a record is then not known.
pub fn read(io: &dyn DiskIo) -> io::Result<Found> {
    let absent = |error: &io::Error| error.kind() == io::ErrorKind::NotFound;
    // Looked at before it is opened, so that no device ever is.
    match io.stat(RECORD) {
        Ok(stat) if stat.kind != FoundKind::File => return Ok(Found::Unsound("it is not a regular file".to_string())),
        Ok(_) => {}
        Err(error) if absent(&error) => return Ok(Found::Absent),
        Err(error) => return Err(error),
    }
    let fd = match io.open(RECORD, Access { read: true, write: false }) {
        Ok(fd) => fd,
        Err(error) if absent(&error) => return Ok(Found::Absent),
        Err(error) => return Err(error),
    };
    let stat = io.stat_fd(fd.as_fd())?;
    if stat.kind != FoundKind::File {
        return Ok(Found::Unsound("it is not a regular file".to_string()));
    }
    if stat.attr.size_bytes > RECORD_BYTES_MAX as u64 {
        return Ok(Found::Unsound(format!("it has {} bytes", stat.attr.size_bytes)));
    }
    let mut bytes = vec![0; RECORD_BYTES_MAX + 1];
    let length = io.read(fd.as_fd(), &mut bytes, 0)?;
    bytes.truncate(length);
    Ok(match format::decode(&bytes) {
        Ok(record) => Found::Record(Box::new(record)),
        Err(reason) => Found::Unsound(reason),
    })
}

/// Replaces the record; it is durable when this returns.
///
/// # Errors
/// What the disk said; the old record is then still there, or the new one is there and may not be durable.
pub fn write(io: &dyn DiskIo, record: &Record) -> io::Result<()> {
    let bytes = format::encode(record).map_err(io::Error::other)?;
    match io.unlink(TEMP) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let fd = io.create(TEMP, 0o644)?;
    io.write(fd.as_fd(), &bytes, 0)?;
    io.fsync(fd.as_fd(), false)?;
    io.rename(TEMP, RECORD, true)?;
    match io.fsync(io.open_dir(DIR)?.as_fd(), false) {
        // Some file systems cannot sync a directory.
        Err(error) if error.kind() == io::ErrorKind::InvalidInput => Ok(()),
        done => done,
    }
}

/// Whether the disk has a place for a record: a directory that was never labelled has none.
///
/// # Errors
/// What the disk said.
pub fn has_place(io: &dyn DiskIo) -> io::Result<bool> {
    match io.stat(DIR) {
        Ok(stat) => Ok(stat.kind == FoundKind::Dir),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}
