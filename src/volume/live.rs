//! Live attributes: what a file that is being written looks like is asked of its disk, since passthrough hides writes.
//!
//! Called by look-ups, listings, SETATTR, RELEASE and the evictor. The index lock is held before and after the system
//! call, never over it.

use std::collections::HashSet;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use super::attr::{Attr, Ino, Kind};
use super::index::Entry;
use super::{Volume, now_ns};
use crate::error::{Error, Result};
use crate::messages::event;

impl Volume {
    /// Reads the attributes of an open file from its disk into the index.
    pub(super) fn refresh(&self, entry: &Entry, fd: &OwnedFd) -> Result<Attr> {
        let reading = self.begin_reading(entry.ino);
        let stat = self.disk(entry.disk)?.io.stat_fd(fd.as_fd()).map_err(|e| Error::disk(entry.disk, e))?;
        let mut shared = self.shared.lock();
        let known = shared.index.get(entry.ino).map_or(entry.attr, |entry| entry.attr);
        if !reading.end_as_latest(&mut shared) {
            return Ok(known);
        }
        let attr = Attr { atime_ns: known.atime_ns, ..stat.attr };
        shared.index.set_attr(entry.ino, attr);
        Ok(attr)
    }

    /// Extended attributes of a file or directory were changed by an open file: that moves its ctime.
    ///
    /// # Errors
    /// What the disk said.
    pub fn xattrs_changed(&self, entry: &Entry, fd: &OwnedFd) -> Result<()> {
        if entry.kind == Kind::File {
            return self.refresh_or_note(entry, fd);
        }
        // The index keeps the times of the names; the disks' copies have them only by chance.
        let mut shared = self.shared.lock();
        if let Some(entry) = shared.index.get(entry.ino) {
            shared.index.set_attr(entry.ino, Attr { ctime_ns: now_ns(), ..entry.attr });
        }
        Ok(())
    }

    /// Refreshes what was just changed; if the disk does not say, it is asked again before the entry is shown.
    pub(super) fn refresh_or_note(&self, entry: &Entry, fd: &OwnedFd) -> Result<()> {
        let known = self.refresh(entry, fd);
        known.map(drop).inspect_err(|_| _ = self.shared.lock().unsettled.insert(entry.ino))
    }

    /// An entry as it is now. A file can be found by its final name before the kernel has released its writer, and an
    /// old size, believed by the kernel, would cut it short.
    ///
    /// # Errors
    /// [`Error::NotFound`] while its disk cannot say.
    pub(super) fn live(&self, entry: Entry) -> Result<Entry> {
        let (entry, fd, unsettled, mapped) = {
            let shared = self.shared.lock();
            // Read again in one hold with the writers: the last of them may have gone since the caller looked.
            let entry = shared.index.get(entry.ino).unwrap_or(entry);
            let writing = shared.open.get(&entry.ino).filter(|open| open.writers > 0);
            let fd = writing.map(|open| Arc::clone(&open.fd));
            (entry, fd, shared.unsettled.contains(&entry.ino), shared.mapped.contains(&entry.ino))
        };
        match fd.map(|fd| self.refresh(&entry, &fd)) {
            Some(Ok(attr)) => Ok(Entry { attr, ..entry }),
            Some(Err(error)) => {
                event!(
                    Debug,
                    self.about(entry.disk).error(&error),
                    "the size of a file that is being written is not known"
                );
                Err(Error::NotFound)
            }
            None if unsettled => self.settle(entry.ino),
            None if mapped => Ok(self.look_again_at(entry)),
            None => Ok(entry),
        }
    }

    /// Whether a file is open for writing.
    pub fn is_written(&self, ino: Ino) -> bool {
        self.shared.lock().writers_of(ino) > 0
    }

    /// Asks the disk again what a file has become, since it could not say when the file was closed.
    ///
    /// # Errors
    /// [`Error::NotFound`] while it still cannot: the size that the index has is not the file's, so it is a miss.
    fn settle(&self, ino: Ino) -> Result<Entry> {
        let _tree = self.tree_if_nested(ino);
        let (entry, _, _name) = self.lock_entry(ino)?;
        let path = self.path(ino).ok_or(Error::Stale)?;
        let reading = self.begin_reading(ino);
        let stat = self.disk(entry.disk)?.io.stat(&path).map_err(|_| Error::NotFound)?;
        let mut shared = self.shared.lock();
        if reading.end_as_latest(&mut shared) {
            shared.index.set_attr(ino, Attr { atime_ns: entry.attr.atime_ns, ..stat.attr });
            shared.unsettled.remove(&ino);
        }
        shared.index.get(ino).ok_or(Error::Stale)
    }

    /// A writer has closed its file: the index learns what it has become.
    pub(super) fn settle_closed(&self, ino: Ino, fd: &OwnedFd) {
        let Some(entry) = self.shared.lock().index.get(ino) else {
            return;
        };
        let known = self.refresh(&entry, fd);
        let mut shared = self.shared.lock();
        match known {
            Ok(_) => _ = shared.unsettled.remove(&ino),
            Err(error) if entry.linked => {
                event!(Warn, self.about(entry.disk).error(&error), "the size of a file that was written is not known");
                shared.unsettled.insert(ino);
            }
            Err(_) => {}
        }
    }

    /// Reads the sizes of the files in a directory that are being written, before a listing shows them: the kernel
    /// takes a listed size for the file's, and would end reads there. Returns those files.
    pub fn refresh_writers(&self, dir: Ino) -> HashSet<Ino> {
        let written: Vec<(Entry, Arc<OwnedFd>)> = {
            let shared = self.shared.lock();
            let open = self.numbered().flat_map(|(no, _)| shared.writing_on(no));
            let entries = open.filter_map(|(ino, open)| Some((shared.index.get(ino)?, Arc::clone(&open.fd))));
            entries.filter(|(entry, _)| entry.linked && entry.parent == dir).collect()
        };
        for (entry, fd) in &written {
            if let Err(error) = self.refresh(entry, fd) {
                event!(
                    Debug,
                    self.about(entry.disk).error(&error),
                    "the size of a file that is being written is not known"
                );
            }
        }
        written.into_iter().map(|(entry, _)| entry.ino).collect()
    }
}
