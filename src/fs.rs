//! The file system in plain types: what POSIX asks of a volume.
//!
//! Called by the FUSE glue, and directly by tests: `CacheFs` over temporary directories is a whole file system in
//! process. Names no fuser type. Handles are rank 2; their table is never locked over a system call.

use std::collections::HashMap;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;

use crate::config::StatfsMode;
use crate::error::{Error, Result};
use crate::volume::attr::{DiskNo, Ino};
use crate::volume::disk::{Access, DiskIo, FoundKind, NewAttr};
use crate::volume::files::{Created, RenameMode};
use crate::volume::index::Entry;
use crate::volume::name::{self, EntryName, NameError};
use crate::volume::{Attached, NewOwner, Opened, Volume};

pub mod dir;
pub mod monitor;
pub mod xattr;

/// A file system over one volume.
pub struct CacheFs {
    volume: Arc<Volume>,
    statfs: StatfsMode,
    monitor: monitor::Monitor,
    handles: Mutex<HashMap<u64, Arc<Handle>>>,
    listings: Mutex<HashMap<u64, Arc<Mutex<dir::Listing>>>>,
    next_handle: AtomicU64,
}

/// An open file.
pub struct Handle {
    /// The inode it is open on.
    pub ino: Ino,
    /// The backing file.
    pub fd: Arc<OwnedFd>,
    disk: DiskNo,
    access: Access,
    /// The errno of an `fsync` by another handle that shares `fd`, not yet told to this one; 0: none.
    owed_errno: AtomicI32,
}

/// What an open gives back: the handle's number and what it is open on.
pub struct OpenedFile {
    /// Number of the handle, for every later call on it.
    pub handle: u64,
    /// The entry at the time of the open.
    pub entry: Entry,
    /// The backing file.
    pub fd: Arc<OwnedFd>,
    /// What the layer above keeps with the open file, shared by all its handles.
    pub attached: Arc<Attached>,
    /// It is not as it was known: whoever remembers its attributes must ask again.
    pub is_news: bool,
}

/// `statfs` of the volume, in blocks of 4096 bytes.
pub type Statfs = crate::volume::capacity::Totals;

/// The flags of an open that a file system must look at itself.
#[derive(Clone, Copy, Debug, Default)]
pub struct OpenIntent {
    /// Bytes will be read.
    pub read: bool,
    /// Bytes will be written.
    pub write: bool,
    /// The file must be new.
    pub exclusive: bool,
    /// What the file holds is dropped.
    pub truncate: bool,
}

impl CacheFs {
    /// A file system over a volume.
    pub fn new(volume: Arc<Volume>, statfs: StatfsMode, monitor: monitor::Monitor) -> Self {
        CacheFs {
            volume,
            statfs,
            monitor,
            handles: Mutex::default(),
            listings: Mutex::default(),
            next_handle: AtomicU64::new(1),
        }
    }

    /// The volume below.
    pub fn volume(&self) -> &Arc<Volume> {
        &self.volume
    }

    /// What the file system knows about its mount.
    pub fn monitor(&self) -> &monitor::Monitor {
        &self.monitor
    }

    /// How long a miss may be believed: not at all while a scan runs, nor for `negative_ttl` after it, so that a name
    /// that a disk brings back is never hidden by an older answer.
    pub fn miss_ttl(&self, negative_ttl: Duration) -> Duration {
        match self.monitor.ready_for() {
            Some(ready) if ready >= negative_ttl => negative_ttl,
            _ => Duration::ZERO,
        }
    }

    /// Handles that are open now.
    pub fn open_handles(&self) -> usize {
        self.handles.lock().len()
    }

    /// Finds a name and counts one look-up of its inode.
    ///
    /// # Errors
    /// [`Error::NotFound`] for a miss, [`Error::NameTooLong`].
    pub fn lookup(&self, parent: Ino, name: &[u8]) -> Result<Entry> {
        let name = self.visible(parent, name).map_err(|e| if is_hidden(&e) { Error::NotFound } else { e })?;
        self.volume.lookup(parent, name)
    }

    /// Takes back `count` look-ups.
    pub fn forget(&self, ino: Ino, count: u64) {
        self.volume.forget(ino, count);
    }

    /// Attributes of an inode, live while somebody writes to it.
    ///
    /// # Errors
    /// [`Error::Stale`] when it has gone.
    pub fn attributes(&self, ino: Ino) -> Result<Entry> {
        self.volume.attributes(ino)
    }

    /// Whether a file may change without the kernel's knowledge: through a map, while it is open for writing.
    pub fn changes_unseen(&self, ino: Ino) -> bool {
        self.volume.is_written(ino)
    }

    /// Hard links of an entry as `stat` shows them.
    pub fn links(&self, entry: &Entry) -> u32 {
        self.volume.links(entry)
    }

    /// Changes attributes, through an open handle where the caller names one that can.
    ///
    /// # Errors
    /// As `chmod(2)`, `chown(2)`, `truncate(2)` and `utimensat(2)`.
    pub fn set_attributes(&self, ino: Ino, handle: Option<u64>, new: &NewAttr, caller_uid: u32) -> Result<Entry> {
        let new = &self.without_setid(ino, *new, caller_uid)?;
        let handle = handle.and_then(|number| self.handle(number).ok());
        let usable = handle.filter(|h| h.ino == ino && (h.access.write || new.size_bytes.is_none()));
        self.volume.set_attr(ino, usable.as_ref().map(|h| &h.fd), new)
    }

    /// A truncation by an ordinary user takes setuid and setgid away. The kernel leaves that to us, since
    /// `FUSE_HANDLE_KILLPRIV_V2` was asked for.
    fn without_setid(&self, ino: Ino, new: NewAttr, caller_uid: u32) -> Result<NewAttr> {
        if new.size_bytes.is_none() || new.mode.is_some() || caller_uid == 0 {
            return Ok(new);
        }
        let mode = self.volume.attributes(ino)?.attr.mode;
        let drops = drops_on_write(mode);
        Ok(if drops == 0 { new } else { NewAttr { mode: Some(mode & !drops), ..new } })
    }

    /// Makes an empty file without opening it, and counts one look-up.
    ///
    /// # Errors
    /// As `mknod(2)`.
    pub fn make_file(&self, parent: Ino, name: &[u8], owner: NewOwner) -> Result<Entry> {
        let new = OpenIntent { exclusive: true, ..OpenIntent::default() };
        let made = self.create(parent, name, owner, new)?;
        self.close(made.handle);
        Ok(made.entry)
    }

    /// Creates and opens a file, or opens the one that has the name already.
    ///
    /// # Errors
    /// [`Error::Exists`] where the file had to be new; as `open(2)`.
    pub fn create(&self, parent: Ino, name: &[u8], owner: NewOwner, intent: OpenIntent) -> Result<OpenedFile> {
        let name = self.visible(parent, name)?;
        match self.volume.create((parent, name), owner)? {
            Created::New(opened) => Ok(self.keep(opened, Access { read: intent.read, write: true })),
            Created::Existing(_) if intent.exclusive => Err(Error::Exists),
            Created::Existing(_) => {
                // Counts the look-up that the answer to a create stands for.
                let entry = self.volume.lookup(parent, name)?;
                self.open(entry.ino, intent).inspect_err(|_| self.volume.forget(entry.ino, 1))
            }
        }
    }

    /// Opens a file.
    ///
    /// # Errors
    /// [`Error::NotFound`] when its disk has it no more or cannot be read.
    pub fn open(&self, ino: Ino, intent: OpenIntent) -> Result<OpenedFile> {
        let access = Access { read: intent.read, write: intent.write || intent.truncate };
        let opened = self.keep(self.volume.open(ino, access)?, access);
        if !intent.truncate {
            return Ok(opened);
        }
        let empty = NewAttr { size_bytes: Some(0), ..NewAttr::default() };
        match self.volume.set_attr(ino, Some(&opened.fd), &empty) {
            Ok(entry) => Ok(OpenedFile { entry, ..opened }),
            Err(error) => {
                self.close(opened.handle);
                Err(error)
            }
        }
    }

    /// Opens a file for a user. For an ordinary one, opening for writing takes setuid and setgid away: the kernel
    /// leaves that to us (see [`without_setid`](Self::without_setid)), and passthrough hides the writes themselves.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub fn open_as(&self, ino: Ino, intent: OpenIntent, caller_uid: u32) -> Result<OpenedFile> {
        let opened = self.open(ino, intent)?;
        let drops = drops_on_write(opened.entry.attr.mode);
        if drops == 0 || caller_uid == 0 || !(intent.write || intent.truncate) {
            return Ok(opened);
        }
        let new = NewAttr { mode: Some(opened.entry.attr.mode & !drops), ..NewAttr::default() };
        match self.volume.set_attr(ino, Some(&opened.fd), &new) {
            Ok(entry) => Ok(OpenedFile { entry, ..opened }),
            Err(error) => {
                self.close(opened.handle);
                Err(error)
            }
        }
    }

    fn keep(&self, opened: Opened, access: Access) -> OpenedFile {
        let Opened { entry, fd, attached, is_news } = opened;
        let handle = self.next_handle.fetch_add(1, Ordering::Relaxed);
        let owed_errno = AtomicI32::new(0);
        let kept = Handle { ino: entry.ino, fd: Arc::clone(&fd), disk: entry.disk, access, owed_errno };
        self.handles.lock().insert(handle, Arc::new(kept));
        OpenedFile { handle, entry, fd, attached, is_news }
    }

    /// Refuses an open file that is not a regular one: somebody swapped it behind our back.
    ///
    /// # Errors
    /// [`Error::NotFound`] for such a one; the caller closes the handle.
    pub fn check_regular(&self, opened: &OpenedFile) -> Result<()> {
        let io = &self.volume.disk(opened.entry.disk)?.io;
        let stat = io.stat_fd(opened.fd.as_fd()).map_err(|e| Error::disk(opened.entry.disk, e))?;
        if stat.kind == FoundKind::File { Ok(()) } else { Err(Error::NotFound) }
    }

    /// Gives a handle back.
    pub fn close(&self, handle: u64) {
        let Some(handle) = self.handles.lock().remove(&handle) else {
            return;
        };
        let (ino, access) = (handle.ino, handle.access);
        // Given away, so that the volume decides when it is closed.
        let fd = Arc::try_unwrap(handle).map_or_else(|shared| Arc::clone(&shared.fd), |handle| handle.fd);
        self.volume.close(ino, fd, access);
    }

    fn handle(&self, number: u64) -> Result<Arc<Handle>> {
        self.handles.lock().get(&number).cloned().ok_or(Error::BadHandle)
    }

    /// Runs a call on the backing file of a handle.
    fn on_file<T>(&self, number: u64, call: impl FnOnce(&dyn DiskIo, &Handle) -> std::io::Result<T>) -> Result<T> {
        let handle = self.handle(number)?;
        let disk = self.volume.disk(handle.disk)?;
        call(disk.io.as_ref(), &handle).map_err(|e| Error::disk(handle.disk, e))
    }

    /// Reads up to `buffer.len()` bytes; fewer only at the end of the file.
    ///
    /// # Errors
    /// [`Error::BadHandle`], or what the disk said.
    pub fn read(&self, handle: u64, buffer: &mut [u8], offset: u64) -> Result<usize> {
        self.on_file(handle, |io, handle| io.read(handle.fd.as_fd(), buffer, offset))
    }

    /// Writes all of `data`.
    ///
    /// # Errors
    /// [`Error::BadHandle`], or what the disk said.
    pub fn write(&self, handle: u64, data: &[u8], offset: u64) -> Result<()> {
        self.on_file(handle, |io, handle| io.write(handle.fd.as_fd(), data, offset))
    }

    /// Makes a file durable, on the disk itself. A disk says once for each open file that something was lost; handles
    /// share one, so what one of them hears the others are told at their next call.
    ///
    /// # Errors
    /// What the disk said, to this handle or to another one of the file.
    pub fn fsync(&self, number: u64, data_only: bool) -> Result<()> {
        let handle = self.handle(number)?;
        let owed = handle.owed_errno.swap(0, Ordering::Relaxed);
        let done = self.on_file(number, |io, handle| io.fsync(handle.fd.as_fd(), data_only));
        match &done {
            Ok(()) if owed != 0 => Err(Error::disk(handle.disk, std::io::Error::from_raw_os_error(owed))),
            Ok(()) => Ok(()),
            Err(error) => {
                let handles = self.handles.lock();
                let others = handles.values().filter(|other| !Arc::ptr_eq(other, &handle));
                for other in others.filter(|other| Arc::ptr_eq(&other.fd, &handle.fd)) {
                    other.owed_errno.store(error.errno(), Ordering::Relaxed);
                }
                drop(handles);
                done
            }
        }
    }

    /// `fallocate(2)`.
    ///
    /// # Errors
    /// What the disk said.
    pub fn fallocate(&self, handle: u64, mode: u32, offset: u64, length: u64) -> Result<()> {
        self.on_file(handle, |io, handle| io.fallocate(handle.fd.as_fd(), mode, offset, length))
    }

    /// The next data or hole at or after `offset`.
    ///
    /// # Errors
    /// What the disk said: `ENXIO` beyond the end.
    pub fn seek(&self, handle: u64, offset: u64, hole: bool) -> Result<u64> {
        self.on_file(handle, |io, handle| io.seek(handle.fd.as_fd(), offset, hole))
    }

    /// Copies between two open files; may copy less than asked.
    ///
    /// # Errors
    /// [`Error::CrossDisk`] for files on two disks, which makes the caller copy by itself.
    pub fn copy(&self, from: (u64, u64), to: (u64, u64), length: u64) -> Result<usize> {
        let target = self.handle(to.0)?;
        let length = usize::try_from(length.min(1 << 30)).unwrap_or(usize::MAX);
        if self.handle(from.0)?.disk != target.disk {
            return Err(Error::CrossDisk);
        }
        self.on_file(from.0, |io, source| io.copy(source.fd.as_fd(), from.1, target.fd.as_fd(), to.1, length))
    }

    /// Removes a file.
    ///
    /// # Errors
    /// As `unlink(2)`.
    pub fn unlink(&self, parent: Ino, name: &[u8]) -> Result<()> {
        self.volume.unlink((parent, self.visible(parent, name)?))
    }

    /// Renames.
    ///
    /// # Errors
    /// As `renameat2(2)`.
    pub fn rename(&self, from: (Ino, &[u8]), to: (Ino, &[u8]), mode: RenameMode) -> Result<()> {
        let from = (from.0, self.visible(from.0, from.1)?);
        let to = (to.0, self.visible(to.0, to.1)?);
        self.volume.rename(from, to, mode)
    }

    /// Makes a directory.
    ///
    /// # Errors
    /// As `mkdir(2)`.
    pub fn mkdir(&self, parent: Ino, name: &[u8], owner: NewOwner) -> Result<Entry> {
        self.volume.mkdir((parent, self.visible(parent, name)?), owner)
    }

    /// Removes an empty directory.
    ///
    /// # Errors
    /// As `rmdir(2)`.
    pub fn rmdir(&self, parent: Ino, name: &[u8]) -> Result<()> {
        self.volume.rmdir((parent, self.visible(parent, name)?))
    }

    /// Makes a directory's names durable on every disk that has a copy.
    ///
    /// # Errors
    /// What the first disk that failed said.
    pub fn fsync_dir(&self, dir: Ino) -> Result<()> {
        self.volume.fsync_dir(dir)
    }

    /// Size and room of the volume.
    pub fn statfs(&self) -> Statfs {
        self.volume.statfs(self.statfs)
    }

    /// A name that clients may use. What kvspan and the file systems keep in a disk's root is hidden.
    fn visible<'a>(&self, parent: Ino, bytes: &'a [u8]) -> Result<EntryName<'a>> {
        let parsed = EntryName::new(bytes).map_err(|error| match error {
            NameError::TooLong => Error::NameTooLong,
            NameError::Invalid => Error::Invalid,
        })?;
        if parent == Ino::ROOT && name::is_hidden(bytes) { Err(Error::NotPermitted) } else { Ok(parsed) }
    }
}

/// The bits that a write by an ordinary user takes from a mode. setgid without group execution marks mandatory
/// locking, not a program.
fn drops_on_write(mode: u16) -> u16 {
    mode & if mode & 0o010 != 0 { 0o6000 } else { 0o4000 }
}

fn is_hidden(error: &Error) -> bool {
    matches!(error, Error::NotPermitted)
}
