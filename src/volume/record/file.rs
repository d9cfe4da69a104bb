//! The record's file on a disk: read with distrust, replaced whole or not at all.
//!
//! Called by the record's keeper. Takes no lock; the keeper lets one thread at a time write.

use std::io;

use super::format::{self, RECORD_BYTES_MAX, Record};
use crate::volume::disk::{DiskIo, FoundKind};
use crate::volume::durable;
use crate::volume::name::PRIVATE_DIR;

const RECORD: &[u8] = b".kvspan/record";

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
    Ok(match durable::read(io, RECORD, RECORD_BYTES_MAX)? {
        durable::Found::Absent => Found::Absent,
        durable::Found::Unsound(reason) => Found::Unsound(reason),
        durable::Found::Bytes(bytes) => match format::decode(&bytes) {
            Ok(record) => Found::Record(Box::new(record)),
            Err(reason) => Found::Unsound(reason),
        },
    })
}

/// Replaces the record; it is durable when this returns.
///
/// # Errors
/// What the disk said; the old record is then still there, or the new one is there and may not be durable.
pub fn write(io: &dyn DiskIo, record: &Record) -> io::Result<()> {
    let bytes = format::encode(record).map_err(io::Error::other)?;
    durable::replace(io, RECORD, &bytes, 0o644)
}

/// Whether the disk has a place for a record: a directory that was never labelled has none.
///
/// # Errors
/// What the disk said.
pub fn has_place(io: &dyn DiskIo) -> io::Result<bool> {
    match io.stat(PRIVATE_DIR) {
        Ok(stat) => Ok(stat.kind == FoundKind::Dir),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}
