//! Replacing a name whose old file lies on another disk, or is not known: two steps, and a crash may come between.
//!
//! Called by a rename under both name locks. Of two copies of a name the one with the later birth is shown after a
//! crash (DESIGN.md section 4), so the order of the steps follows the births.

use std::io;

use rustix::io::Errno;

use super::Volume;
use super::attr::DiskNo;
use super::disk::FoundKind;
use super::index::Entry;
use crate::error::{Error, Result, is_disk_trouble};
use crate::messages::event;

impl Volume {
    /// Before a rename over a file on another disk: takes that file away if it is not older than the new one. Left
    /// until after the rename, as [`remove_older`](Self::remove_older) leaves it, it would win over the new one if it
    /// stayed; taken away before, a crash costs no more than the name. Returns whether it has gone.
    ///
    /// # Errors
    /// What its disk said when it refused the unlink: both files are then where they were.
    pub(super) fn remove_younger(&self, target: &Entry, path: &[u8], source: &Entry, from: &[u8]) -> Result<bool> {
        let birth = |no: DiskNo, path: &[u8]| -> Result<Option<i64>> {
            match self.disk(no)?.io.stat(path) {
                Ok(stat) => Ok(Some(stat.birth_ns)),
                Err(error) if is_missing(&error) => Ok(None),
                Err(error) => Err(Error::disk(no, error)),
            }
        };
        let old = match birth(target.disk, path) {
            // A disk in trouble must not stop a store: what it holds is a replaced copy, if it comes back.
            Err(Error::Disk { error, .. }) if is_disk_trouble(&error) => return Ok(false),
            old => old?,
        };
        let (Some(new), Some(old)) = (birth(source.disk, from)?, old) else {
            return Ok(false);
        };
        if old < new {
            return Ok(false);
        }
        match self.disk(target.disk)?.io.unlink(path) {
            Err(error) if !is_missing(&error) => Err(Error::disk(target.disk, error)),
            _ => {
                let _kept = self.shared.lock().unlink(target.ino);
                Ok(true)
            }
        }
    }

    /// After a rename over a file on another disk that is older than the new one.
    pub(super) fn remove_older(&self, target: &Entry, path: &[u8]) {
        let removed = self.disk(target.disk).map(|disk| disk.io.unlink(path));
        if let Ok(Err(error)) = removed
            && !is_missing(&error)
        {
            // Two copies now; the younger one, ours, wins at every later scan.
            event!(Warn, self.about(target.disk).path(path).error(&error), "a replaced copy stays");
        }
    }

    /// The disk has an object under the new name that the index does not know. A file is an older copy and is
    /// replaced; anything else is left alone.
    pub(super) fn replace_unknown(&self, no: DiskNo, old_path: &[u8], new_path: &[u8]) -> Result<()> {
        let disk = self.disk(no)?;
        let stat = disk.io.stat(new_path).map_err(|e| Error::disk(no, e))?;
        if stat.kind != FoundKind::File {
            disk.count_foreign();
            return Err(Error::Exists);
        }
        disk.io.rename(old_path, new_path, true).map_err(|e| Error::disk(no, e))
    }
}

fn is_missing(error: &io::Error) -> bool {
    error.raw_os_error() == Some(Errno::NOENT.raw_os_error())
}
