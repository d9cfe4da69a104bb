//! Open files: what each inode with handles shares, and what stays open without a handle.
//!
//! Called by `crate::fs` for opens and closes, by renames and removals. A file that was only read stays open after its last
//! handle, the least recently used ones closed first: its next load costs one look at its name instead of an open and a
//! registration with the kernel. It would keep the blocks of a file that has gone, so it goes with the name. Descriptors
//! are closed after the index lock, never under it.

use std::any::Any;
use std::collections::hash_map;
use std::num::NonZeroUsize;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, OnceLock};

use lru::LruCache;
use rustix::io::Errno;

use super::attr::{Ino, Kind};
use super::deferred::LastReference;
use super::disk::{Access, FoundKind, FoundStat};
use super::files::{is, is_gone};
use super::index::Entry;
use super::readings::Reading;
use super::record::now;
use super::record::rule::{Clock, FileId};
use super::{Opened, Shared, Volume, now_ns};
use crate::error::{Error, Result, is_disk_trouble};
use crate::messages::event;

/// What the layer above keeps with an open file; it goes when the file is closed.
pub type Attached = OnceLock<Box<dyn Any + Send + Sync>>;

/// One open inode.
pub(super) struct OpenFile {
    pub(super) handles: u32,
    pub(super) writers: u32,
    pub(super) fd: Arc<OwnedFd>,
    attached: Arc<Attached>,
    pub(super) writable: bool,
    /// Another file has its name now: it stays open until the kernel forgets it, for who has just found it.
    replaced: bool,
    /// When it was first opened for writing, of those who write now.
    pub(super) written_since: Clock,
    /// Which file of its disk it is, once that has been asked.
    id: Option<FileId>,
}

/// Files without a handle that stay open, the least recently used ones at one end.
pub(super) struct KeptFiles(Option<LruCache<Ino, OpenFile>>);

impl KeptFiles {
    /// At most `most` files.
    pub(super) fn new(most: usize) -> Self {
        KeptFiles(NonZeroUsize::new(most).map(LruCache::new))
    }

    /// The inodes of all of them.
    pub(super) fn inodes(&self) -> impl Iterator<Item = Ino> {
        self.0.iter().flat_map(LruCache::iter).map(|(ino, _)| *ino)
    }

    fn take(&mut self, ino: Ino) -> Option<OpenFile> {
        self.0.as_mut()?.pop(&ino)
    }

    /// Keeps a file; what has to be closed for it.
    fn keep(&mut self, ino: Ino, file: OpenFile) -> Option<OpenFile> {
        match &mut self.0 {
            Some(files) => files.push(ino, file).map(|(_, closed)| closed),
            None => Some(file),
        }
    }
}

impl OpenFile {
    /// A file that nobody has open yet.
    fn new(fd: OwnedFd, writable: bool) -> OpenFile {
        OpenFile {
            handles: 0,
            writers: 0,
            fd: Arc::new(fd),
            attached: Arc::default(),
            writable,
            replaced: false,
            written_since: Clock::default(),
            id: None,
        }
    }

    fn add_handle(&mut self, writes: bool) {
        self.handles += 1;
        if writes {
            if self.writers == 0 {
                self.written_since = now();
            }
            self.writers += 1;
        }
    }
}

impl Shared {
    /// Takes a file's name out of the index. What was kept open goes too: to be dropped after the lock.
    #[must_use]
    pub(super) fn unlink(&mut self, ino: Ino) -> Option<OpenFile> {
        self.index.unlink(ino);
        self.kept.take(ino)
    }

    /// What was kept open of a file that is about to go: to be dropped after the lock.
    #[must_use]
    pub(super) fn take_kept(&mut self, ino: Ino) -> Option<OpenFile> {
        self.kept.take(ino)
    }

    /// A file that was just created is open, with one handle that writes.
    pub(super) fn open_created(&mut self, entry: Entry, fd: OwnedFd) -> Opened {
        self.index.set_pinned(entry.ino, true);
        let open = self.open.entry(entry.ino).or_insert(OpenFile::new(fd, true));
        open.add_handle(true);
        let opened = Opened { entry, fd: Arc::clone(&open.fd), attached: Arc::clone(&open.attached), is_news: false };
        self.add_writer(entry.disk, entry.ino);
        opened
    }
}

impl Volume {
    /// Opens a file and pins it until [`close`](Self::close).
    ///
    /// # Errors
    /// [`Error::NotFound`] when the disk no longer has it or cannot be read: a miss.
    pub fn open(&self, ino: Ino, access: Access) -> Result<Opened> {
        if let Some(opened) = self.share_open(ino, access) {
            return Ok(opened);
        }
        let _tree = self.tree_if_nested(ino);
        let (entry, _, _guard) = self.lock_entry(ino)?;
        if entry.kind == Kind::Dir {
            return Err(Error::IsDirectory);
        }
        if access.write {
            self.ready_to_write(entry.disk)?;
        }
        let path = self.path(ino).ok_or(Error::Stale)?;
        let (file, found) = match self.reopen_kept(&entry, &path, access) {
            Some(reopened) => reopened,
            None => self.open_on_disk(&entry, &path, access)?,
        };
        let opened = self.count_open(ino, Some(file), access)?;
        Ok(Opened { is_news: found, ..opened })
    }

    /// Opens a file that is not open, and looks at it: somebody may have changed or replaced it behind our back, and a
    /// size from before would cut it short. Whether it is another one than the index knew.
    fn open_on_disk(&self, entry: &Entry, path: &[u8], access: Access) -> Result<(OpenFile, bool)> {
        let disk = self.disk(entry.disk)?;
        // A writer's file is opened for both: one fd then serves later reads, fallocate and copies.
        let wanted = Access { read: true, write: access.write };
        let opened = match disk.io.open(path, wanted) {
            Err(error) if is(&error, Errno::ACCESS) && access.write => {
                disk.io.open(path, Access { read: false, write: true })
            }
            opened => opened,
        };
        let reading = self.begin_reading(entry.ino);
        let looked = opened.and_then(|fd| disk.io.stat_fd(fd.as_fd()).map(|found| (fd, found)));
        let (fd, found) = looked.map_err(|error| {
            if is_gone(&error) {
                self.forget_entry(entry.ino);
                return Error::NotFound;
            }
            if is_disk_trouble(&error) {
                event!(Warn, disk.about().path(path).error(&error), "a file cannot be opened");
                return Error::NotFound;
            }
            Error::disk(entry.disk, error)
        })?;
        let file = OpenFile { id: Some(found.stamps().id), ..OpenFile::new(fd, access.write) };
        Ok((file, self.take_over(entry, &found, reading)))
    }

    /// The file as it was kept open, if a reader wants it and it is still the one that its disk has under the name; and
    /// whether it has been changed.
    fn reopen_kept(&self, entry: &Entry, path: &[u8], access: Access) -> Option<(OpenFile, bool)> {
        let kept = self.shared.lock().kept.take(entry.ino)?;
        if access.write {
            return None;
        }
        let reading = self.begin_reading(entry.ino);
        let here = self.disk(entry.disk).ok()?.io.stat(path).ok()?;
        let is_same = here.kind == FoundKind::File && kept.id == Some(here.stamps().id);
        is_same.then(|| (kept, self.take_over(entry, &here, reading)))
    }

    /// Takes over what was changed on a file behind our back. Whether the kernel must ask again before it is read.
    fn take_over(&self, entry: &Entry, found: &FoundStat, reading: Reading<'_>) -> bool {
        let moved = (found.attr.size_bytes, found.attr.mtime_ns) != (entry.attr.size_bytes, entry.attr.mtime_ns);
        self.refresh_file(entry, found, reading) && moved
    }

    /// Joins handles that are open already, if one fd serves all.
    fn share_open(&self, ino: Ino, access: Access) -> Option<Opened> {
        let serves = self.shared.lock().open.get(&ino).is_some_and(|open| open.writable || !access.write);
        if serves { self.count_open(ino, None, access).ok() } else { None }
    }

    /// One more handle of a file, which is open already or as `file`.
    fn count_open(&self, ino: Ino, file: Option<OpenFile>, access: Access) -> Result<Opened> {
        let mut shared = self.shared.lock();
        if file.is_none() && !shared.open.get(&ino).is_some_and(|open| open.writable || !access.write) {
            return Err(Error::Stale);
        }
        if !access.write {
            shared.end_probation(ino);
        }
        shared.note_use(ino, now_ns());
        shared.index.set_pinned(ino, true);
        let entry = shared.index.get(ino).ok_or(Error::Stale)?;
        let open = match (shared.open.entry(ino), file) {
            (hash_map::Entry::Vacant(place), Some(file)) => place.insert(file),
            (hash_map::Entry::Vacant(_), None) => return Err(Error::Stale),
            (hash_map::Entry::Occupied(open), file) => {
                let open = open.into_mut();
                if let Some(file) = file.filter(|file| file.writable && !open.writable) {
                    (open.fd, open.writable) = (file.fd, true);
                }
                open
            }
        };
        open.add_handle(access.write);
        let opened = Opened { entry, fd: Arc::clone(&open.fd), attached: Arc::clone(&open.attached), is_news: false };
        if access.write {
            shared.add_writer(entry.disk, ino);
        }
        Ok(opened)
    }

    /// What is attached to a file that has handles.
    pub fn attached(&self, ino: Ino) -> Option<Arc<Attached>> {
        self.shared.lock().open.get(&ino).map(|open| Arc::clone(&open.attached))
    }

    /// Gives a handle back. After a writer's last handle the size is settled; after the very last one the file is
    /// no longer pinned, and an unlinked one is gone.
    pub fn close(&self, ino: Ino, fd: Arc<OwnedFd>, access: Access) {
        let was_writer = access.write;
        let entry = self.shared.lock().index.get(ino);
        if was_writer {
            self.settle_closed(ino, &fd);
        }
        drop(fd);
        let mut shared = self.shared.lock();
        let Some(open) = shared.open.get_mut(&ino) else {
            return;
        };
        open.handles = open.handles.saturating_sub(1);
        open.writers = open.writers.saturating_sub(u32::from(was_writer));
        let (handles, writers) = (open.handles, open.writers);
        if was_writer && let Some(entry) = entry {
            shared.remove_writer(entry.disk, ino);
            let attr = shared.index.get(ino).map_or(entry.attr, |entry| entry.attr);
            shared.sizes.add(if attr.is_swollen() { attr.size_bytes } else { attr.bytes_on_disk() });
        }
        if writers == 0 {
            shared.index.set_writing(ino, false);
        }
        if was_writer {
            shared.note_unmeasured([ino]);
        }
        if access.read && access.write {
            shared.note_mapped(ino);
        }
        let swollen = was_writer && writers == 0 && shared.is_swollen(ino);
        let last = if handles == 0 { shared.close_last(ino) } else { None };
        drop(shared);
        self.drop_later(last);
        if swollen && let Some(entry) = entry {
            self.settle_closed_swollen(entry.disk, ino);
        }
    }

    /// A file that is about to be replaced stays open while the kernel knows it: a client that found the old file is
    /// to get it, as on every file system, and not `ESTALE`.
    pub(super) fn keep_for_openers(&self, target: &Entry, path: &[u8]) {
        if target.lookups == 0 {
            return;
        }
        if let Some(open) = self.shared.lock().open.get_mut(&target.ino) {
            open.replaced = true;
            return;
        }
        let Ok(io) = self.disk(target.disk).map(|disk| &disk.io) else {
            return;
        };
        // For both, as an open for writing has it; a daemon without privileges may have to do with reading.
        let both = io.open(path, Access { read: true, write: true }).map(|fd| (fd, true));
        let opened = both.or_else(|_| io.open(path, Access { read: true, write: false }).map(|fd| (fd, false)));
        if let Ok((fd, writable)) = opened {
            let kept = OpenFile::new(fd, writable);
            self.shared.lock().open.entry(target.ino).or_insert(kept).replaced = true;
        }
    }

    /// Closes what [`keep_for_openers`](Self::keep_for_openers) opened, where it is needed no more: the file was not
    /// replaced after all, or the kernel has forgotten it.
    pub(super) fn let_go_of_unneeded(&self, ino: Ino) {
        let last = {
            let mut shared = self.shared.lock();
            let entry = shared.index.get(ino);
            let needed = entry.is_some_and(|entry| !entry.linked);
            if let Some(open) = shared.open.get_mut(&ino) {
                open.replaced &= needed;
            }
            let kept = shared.open.get(&ino).is_some_and(|open| open.handles == 0);
            if kept && !needed { shared.open.remove(&ino).map(|file| LastReference::of(file, entry)) } else { None }
        };
        self.drop_later(last);
    }

    /// Holds a file that is about to lose its name and that nobody has open, so that its blocks are not freed in the
    /// call that takes the name away.
    pub(super) fn last_reference(&self, entry: &Entry, path: &[u8]) -> Option<LastReference> {
        let (kept, is_open) = {
            let mut shared = self.shared.lock();
            (shared.kept.take(entry.ino), shared.open.contains_key(&entry.ino))
        };
        let file = match kept {
            Some(kept) => kept,
            None if is_open || !self.is_worth_deferring(entry) => return None,
            None => {
                let io = &self.disk(entry.disk).ok()?.io;
                OpenFile::new(io.open(path, Access { read: true, write: false }).ok()?, false)
            }
        };
        Some(LastReference::of(file, Some(*entry)))
    }
}

impl Shared {
    /// The last handle of a file has gone. What is to be dropped after the lock: the file itself if it is not kept, or
    /// another one that is closed for it.
    fn close_last(&mut self, ino: Ino) -> Option<LastReference> {
        let entry = self.index.get(ino);
        self.index.set_pinned(ino, false);
        // It was in use until now, and may have been passed over as a victim because of that.
        self.index.touch(ino, now_ns());
        let linked = entry.is_some_and(|entry| entry.linked);
        let found_again = !linked && self.index.get(ino).is_some_and(|entry| entry.lookups > 0);
        if found_again && self.open.get(&ino).is_some_and(|open| open.replaced) {
            return None;
        }
        let file = self.open.remove(&ino)?;
        // A descriptor that can write would hold what its file system has allocated ahead.
        if !linked || file.writable {
            return Some(LastReference::of(file, entry.filter(|_| !linked)));
        }
        self.kept.keep(ino, file).map(|closed| LastReference::of(closed, None))
    }
}
