//! Recovery: reads the disks into the index while the volume already serves.
//!
//! One thread a disk calls [`scan_disk`]; a listing that comes before the end reads the directory itself through
//! [`ListingScan`]. Both take the same step, [`Volume::scan_name`], which looks at an object under its name lock, so
//! that a rename cannot leave a ghost behind. No lock is held between two names.

use std::io;

use super::Volume;
use super::attr::{DiskNo, Ino, Kind};
use super::disk::{DirReader, FoundKind};
use super::name::{self, EntryName};
use crate::error::{Error, Result};
use crate::messages::event;

/// What a scan came across.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ScanReport {
    /// Files that are in the index now.
    pub files: u64,
    /// Directories that could not be read to their end: their files are missing from the index.
    pub unreadable: u64,
}

/// Scans one disk to its end and marks it scanned. What lies in a directory below the root that could not be read is a
/// miss until a rescan can read it.
///
/// `stop` is asked between batches; a scan that was stopped marks nothing.
///
/// # Errors
/// What the disk said about its own root directory.
pub fn scan_disk(volume: &Volume, no: DiskNo, stop: &dyn Fn() -> bool) -> Result<ScanReport> {
    let _alone = volume.disk(no)?.begin_scan();
    let mut report = ScanReport::default();
    let mut pending: Vec<Ino> = vec![Ino::ROOT];
    while let Some(dir) = pending.pop() {
        match scan_dir(volume, no, dir, &mut pending, &mut report, stop) {
            Ok(true) => {}
            Ok(false) => return Ok(report),
            Err(error) if dir == Ino::ROOT => return Err(error),
            Err(error) => {
                report.unreadable += 1;
                event!(Warn, volume.about_in(no, dir, b"").error(&error), "a directory could not be scanned");
            }
        }
    }
    volume.order_by_last_use(no);
    // Names that could not be read are still on the disk: a disk that is not scanned is asked for them.
    if report.unreadable == 0 {
        volume.disk(no)?.set_scanned();
    }
    volume.removal_applied(no, report.unreadable == 0);
    if report.unreadable == 0 {
        volume.removed_applied(no);
    }
    Ok(report)
}

/// Scans one directory of one disk; false when stopped.
fn scan_dir(
    volume: &Volume,
    no: DiskNo,
    dir: Ino,
    pending: &mut Vec<Ino>,
    report: &mut ScanReport,
    stop: &dyn Fn() -> bool,
) -> Result<bool> {
    let Some(mut reader) = volume.open_listing(no, dir)? else {
        return Ok(true);
    };
    loop {
        if stop() {
            return Ok(false);
        }
        let batch = reader.next_batch().map_err(|e| Error::disk(no, e))?;
        if batch.is_empty() {
            return Ok(true);
        }
        for (name, kind) in batch {
            match volume.scan_name(no, dir, &name, kind) {
                Ok(Some((_, Kind::File))) => report.files += 1,
                Ok(Some((ino, Kind::Dir))) => pending.push(ino),
                Ok(None) => {}
                Err(error) => {
                    report.unreadable += 1;
                    event!(Warn, volume.about_in(no, dir, &name).error(&error), "a name could not be scanned");
                }
            }
        }
    }
}

impl Volume {
    /// Starts to list a directory of a disk; `None` when the disk has no copy of it.
    pub(super) fn open_listing(&self, no: DiskNo, dir: Ino) -> Result<Option<Box<dyn DirReader>>> {
        let path = if dir == Ino::ROOT {
            Vec::new()
        } else {
            match self.path(dir) {
                Some(path) => path,
                None => return Ok(None),
            }
        };
        match self.disk(no)?.io.list(&path) {
            Ok(reader) => Ok(Some(reader)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(Error::disk(no, error)),
        }
    }

    /// Takes one name that a listing of a disk returned into the index.
    ///
    /// Returns the entry if the index shows this very object, `None` if it is left alone or has gone.
    pub(super) fn scan_name(
        &self,
        no: DiskNo,
        dir: Ino,
        bytes: &[u8],
        listed: FoundKind,
    ) -> Result<Option<(Ino, Kind)>> {
        if dir == Ino::ROOT && name::is_hidden(bytes) {
            return Ok(None);
        }
        let disk = self.disk(no)?;
        let Ok(entry_name) = EntryName::new(bytes) else {
            disk.count_foreign();
            return Ok(None);
        };
        if listed == FoundKind::Foreign {
            disk.count_foreign();
            event!(Warn, self.about_in(no, dir, bytes), "what is neither file nor directory is left alone");
            return Ok(None);
        }
        let _tree = self.tree_for(dir);
        let _name = self.names.lock(dir, bytes)?;
        let known = self.find(dir, entry_name).filter(|entry| entry.kind == Kind::File && entry.disk == no);
        if let Some(entry) = known {
            return Ok(Some((entry.ino, Kind::File)));
        }
        let Some(path) = self.path_of(dir, entry_name) else {
            return Ok(None);
        };
        let stat = match disk.io.stat(&path) {
            Ok(stat) => stat,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(Error::disk(no, error)),
        };
        if self.is_lost(no, (dir, entry_name), &stat) || self.remove_orphan(no, bytes, &path, &stat) {
            return Ok(None);
        }
        if !self.adopt(no, dir, entry_name, &stat) {
            if stat.kind == FoundKind::Foreign {
                disk.count_foreign();
            }
            return Ok(None);
        }
        Ok(self.find(dir, entry_name).map(|entry| (entry.ino, entry.kind)))
    }

    /// Puts the files that the scan of a disk found into the order of their last use, a bounded number under the lock
    /// at a time. Files that were used meanwhile stay warmer than all of them.
    pub fn order_by_last_use(&self, no: DiskNo) {
        const SLOTS: u32 = 8_192;
        const FILES: usize = 2_048;
        let (mut found, mut next) = (Vec::new(), Some(0));
        while let Some(from) = next {
            next = self.shared.lock().index.scanned(no, from, SLOTS, &mut found);
        }
        found.sort_unstable();
        for batch in found.chunks(FILES) {
            let mut shared = self.shared.lock();
            for (_, ino) in batch {
                shared.index.settle(*ino);
            }
        }
    }
}

/// A listing that comes before the scan has ended: reads the directory's copies itself, batch by batch. What it
/// finds enters the index behind all that it has handed out, so cookies stay in order.
pub struct ListingScan {
    dir: Ino,
    left: Vec<DiskNo>,
    reader: Option<(DiskNo, Box<dyn DirReader>)>,
}

impl ListingScan {
    /// A scan of one directory over the disks that have not been scanned.
    pub fn new(volume: &Volume, dir: Ino) -> Self {
        let left = volume.numbered().filter(|(_, disk)| !disk.is_scanned()).map(|(no, _)| no).collect();
        ListingScan { dir, left, reader: None }
    }

    /// Takes the next batch of names into the index; false when every copy has been read.
    ///
    /// # Errors
    /// What a disk said: the listing would not be complete.
    pub fn advance(&mut self, volume: &Volume) -> Result<bool> {
        loop {
            if let Some((no, reader)) = &mut self.reader {
                let no = *no;
                let batch = reader.next_batch().map_err(|e| Error::disk(no, e))?;
                if !batch.is_empty() {
                    for (name, kind) in batch {
                        volume.scan_name(no, self.dir, &name, kind)?;
                    }
                    return Ok(true);
                }
                self.reader = None;
            }
            let Some(no) = self.left.pop() else {
                return Ok(false);
            };
            self.reader = volume.open_listing(no, self.dir)?.map(|reader| (no, reader));
        }
    }
}
