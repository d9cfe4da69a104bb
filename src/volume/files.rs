//! Files: create, open, close, unlink and attributes, each as one change of disk and index.
//!
//! Called by `crate::fs`. Takes name locks and, for nested paths, the tree lock; the index lock only between system
//! calls.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::Instant;

use rustix::io::Errno;

use super::attr::{Attr, DiskNo, Ino, Kind};
use super::deferred::LastReference;
use super::disk::{Access, NewAttr, NewTime};
use super::index::{Entry, NewEntry};
use super::name::{self, EntryName};
use super::{NewOwner, Opened, Volume, now_ns};
use crate::config::PlacementPolicy;
use crate::error::{Error, Result, is_disk_full};
use crate::messages::event;

/// What a rename does with a name that is taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RenameMode {
    /// The entry that has the name goes.
    Replace,
    /// The rename is refused.
    NoReplace,
    /// The two entries swap names.
    Exchange,
}

/// What became of a create.
pub enum Created {
    /// A new file, open for reading and writing.
    New(Opened),
    /// Another request, or somebody behind our back, had made the file already.
    Existing(Ino),
}

/// A name in a directory.
pub type Place<'a> = (Ino, EntryName<'a>);

impl Volume {
    /// Creates a regular file on the first disk in rank that takes it. A new file is open, pinned, and counted as
    /// looked up once.
    ///
    /// # Errors
    /// [`Error::Stale`] when the directory has gone; [`Error::NoSpace`] or the last disk's error when none took it.
    pub fn create(&self, place: Place<'_>, owner: NewOwner) -> Result<Created> {
        let (parent, name) = place;
        let _tree = self.tree_for(parent);
        let _name = self.names.lock(parent, name.as_bytes())?;
        if let Some(entry) = self.find_or_probe(parent, name)? {
            return Ok(Created::Existing(entry.ino));
        }
        let scan_patience = Instant::now() + self.settings.io_timeout;
        let mut last = match self.create_with_room(self.first_choice(name)?, place, owner, scan_patience) {
            Err(error) if tries_next(&error) => error,
            done => return done,
        };
        for no in self.rank(name).into_iter().skip(1) {
            match self.create_with_room(no, place, owner, scan_patience) {
                Err(error) if tries_next(&error) => last = error,
                done => return done,
            }
        }
        Err(match last {
            Error::Disk { error, .. } if is_disk_full(&error) => Error::NoSpace,
            other => other,
        })
    }

    fn first_choice(&self, name: EntryName<'_>) -> Result<DiskNo> {
        match self.settings.policy {
            PlacementPolicy::Rendezvous => self.owner(name.as_bytes()),
            PlacementPolicy::MostFree => self.rank(name).first().copied(),
        }
        .ok_or(Error::NoDisk)
    }

    /// Creates a file on one disk, if it has room or can make some. `scan_patience` is until when all disks together may
    /// keep the caller waiting for a scan's first files.
    fn create_with_room(
        &self,
        no: DiskNo,
        place: Place<'_>,
        owner: NewOwner,
        scan_patience: Instant,
    ) -> Result<Created> {
        if !self.make_room(no) && !self.wait_for_first_batch(no, scan_patience) {
            return Err(Error::disk(no, Errno::NOSPC.into()));
        }
        match self.create_on(no, place, owner) {
            // The disk is fuller than its last reading said: out of blocks or inodes.
            Err(Error::Disk { error, .. }) if is_disk_full(&error) && self.evict_for_create(no) => {
                self.create_on(no, place, owner)
            }
            done => done,
        }
    }

    /// Creates a file on one disk. The caller holds the name.
    fn create_on(&self, no: DiskNo, place: Place<'_>, owner: NewOwner) -> Result<Created> {
        let (parent, name) = place;
        let disk = self.disk(no)?;
        self.ready_to_write(no)?;
        self.ensure_dir(no, parent)?;
        let path = self.path_of(parent, name).ok_or(Error::NotFound)?;
        let mut created = disk.io.create(&path, owner.mode);
        if parent != Ino::ROOT && created.as_ref().is_err_and(is_gone) {
            self.remake_dir(no, parent)?;
            created = disk.io.create(&path, owner.mode);
        }
        let fd = match created {
            Ok(fd) => fd,
            Err(error) if is(&error, Errno::EXIST) => return self.found_in_the_way(no, place, &path),
            Err(error) => return Err(Error::disk(no, error)),
        };
        let attr = match self.own(no, place, &fd, owner) {
            Ok(attr) => attr,
            Err(error) => {
                // The half-made file must not stay; if this fails too, the next scan shows it.
                let _ = disk.io.unlink(&path);
                return Err(error);
            }
        };
        let away = self.is_away(name.as_bytes(), no);
        let new = NewEntry { kind: Kind::File, disk: no, attr, writing: true, away };
        let mut shared = self.shared.lock();
        let inserted = shared.index.insert(parent, name.as_bytes(), new);
        let Ok(ino) = inserted else {
            drop(shared);
            let _ = disk.io.unlink(&path);
            return Err(Error::NoSpace);
        };
        shared.changed_dir(parent, now_ns());
        shared.index.add_lookups(ino, 1);
        let entry = shared.index.get(ino).ok_or(Error::Stale)?;
        Ok(Created::New(shared.open_created(entry, fd)))
    }

    /// Gives a new file to its caller, and reads what the disk made of it: since multigrain timestamps (Linux 6.13) no
    /// clock says exactly how a file system has stamped a file, and times that move later look like a change. Not so of a
    /// temp file, whose rename is such a change: a store needs no call for it.
    fn own(&self, no: DiskNo, place: Place<'_>, fd: &OwnedFd, owner: NewOwner) -> Result<Attr> {
        let (parent, name) = place;
        let dir = self.shared.lock().index.get(parent).ok_or(Error::NotFound)?;
        let inherits = dir.attr.mode & 0o2000 != 0;
        let gid = if inherits { dir.attr.gid } else { owner.gid };
        let (my_uid, my_gid) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
        let found_gid = if inherits { dir.attr.gid } else { my_gid };
        let io = &self.disk(no)?.io;
        if owner.uid != my_uid || gid != found_gid {
            let setid = (owner.mode & 0o6000 != 0).then_some(owner.mode);
            let new = NewAttr { uid: Some(owner.uid), gid: Some(gid), mode: setid, ..NewAttr::default() };
            io.set_attr(fd.as_fd(), &new).map_err(|e| Error::disk(no, e))?;
        }
        if !name::is_temp_name(name.as_bytes()) {
            return Ok(io.stat_fd(fd.as_fd()).map_err(|e| Error::disk(no, e))?.attr);
        }
        let now = now_ns();
        let (mtime_ns, ctime_ns, atime_ns) = (now, now, now);
        Ok(Attr { mode: owner.mode, uid: owner.uid, gid, mtime_ns, ctime_ns, atime_ns, ..Attr::default() })
    }

    /// The disk has an object under a name that the index does not know: a file is taken in, anything else is left
    /// alone and the next disk takes the new file.
    fn found_in_the_way(&self, no: DiskNo, place: Place<'_>, path: &[u8]) -> Result<Created> {
        let disk = self.disk(no)?;
        let stat = disk.io.stat(path).map_err(|e| Error::disk(no, e))?;
        if self.adopt(no, place.0, place.1, &stat)
            && let Some(entry) = self.find(place.0, place.1)
        {
            return Ok(Created::Existing(entry.ino));
        }
        disk.count_foreign();
        event!(Warn, disk.about().path(path), "an object that is not a file is in the way");
        Err(Error::disk(no, Errno::EXIST.into()))
    }

    /// Unlinks a file: the index first, so that no look-up finds it any more, then the disk.
    ///
    /// # Errors
    /// [`Error::NotFound`], [`Error::IsDirectory`], or what the disk said; the name is then back.
    pub fn unlink(&self, place: Place<'_>) -> Result<()> {
        let (parent, name) = place;
        let _tree = self.tree_for(parent);
        let _name = self.names.lock(parent, name.as_bytes())?;
        let entry = self.find_or_probe(parent, name)?.ok_or(Error::NotFound)?;
        if entry.kind == Kind::Dir {
            return Err(Error::IsDirectory);
        }
        let path = self.path_of(parent, name).ok_or(Error::NotFound)?;
        let disk = self.disk(entry.disk)?;
        let last = self.last_reference(&entry, &path);
        // A handle that was closed since has kept the file open once more.
        let again = {
            let mut shared = self.shared.lock();
            shared.changed_dir(parent, now_ns());
            shared.unlink(entry.ino)
        };
        let again = again.map(|file| LastReference::of(file, Some(entry)));
        match disk.io.unlink(&path) {
            Ok(()) => {
                self.name_removed(place);
                self.drop_later(last);
                self.drop_later(again);
                Ok(())
            }
            Err(error) if is_gone(&error) => Err(Error::NotFound),
            Err(error) => {
                self.put_back(place, &entry);
                Err(Error::disk(entry.disk, error))
            }
        }
    }

    /// The disk kept a file that the index had given up: the name is shown again. Whoever has the file open has it still,
    /// so the entry is the same one while it lives. The caller still holds the name.
    pub(super) fn put_back(&self, place: Place<'_>, entry: &Entry) {
        let mut shared = self.shared.lock();
        if shared.index.relink(entry.ino, place.0) {
            return;
        }
        let Entry { kind, disk, attr, away, .. } = *entry;
        let new = NewEntry { kind, disk, attr, writing: false, away };
        match shared.index.insert(place.0, place.1.as_bytes(), new) {
            Ok(ino) => _ = shared.unsettled.insert(ino),
            Err(_) => event!(Error, self.about(disk), "a file that could not be unlinked is no longer shown"),
        }
    }

    /// The disk no longer has a file that the index shows: somebody removed it behind our back.
    pub(super) fn forget_entry(&self, ino: Ino) {
        let _kept = self.shared.lock().unlink(ino);
    }

    /// Changes attributes of a file or directory, through `fd` where the caller has it open for writing.
    ///
    /// # Errors
    /// [`Error::Stale`] for an entry that has gone, or what the disk said.
    pub fn set_attr(&self, ino: Ino, fd: Option<&Arc<OwnedFd>>, new: &NewAttr) -> Result<Entry> {
        let entry = self.shared.lock().index.get(ino).ok_or(Error::Stale)?;
        if entry.kind == Kind::Dir {
            return self.set_dir_attr(ino, new);
        }
        if new.size_bytes.is_some() {
            self.ready_to_write(entry.disk)?;
        }
        let io = &self.disk(entry.disk)?.io;
        let own;
        let fd = match fd {
            Some(fd) => fd,
            None => {
                own = self.fd_for(ino, new.size_bytes.is_some())?;
                &own
            }
        };
        io.set_attr(fd.as_fd(), new).map_err(|e| Error::disk(entry.disk, e))?;
        self.refresh_or_note(&entry, fd)?;
        let mut shared = self.shared.lock();
        if new.atime.is_some() && new.mtime.is_none() {
            // A client's mark of use; whoever copies a file sets both times.
            shared.end_probation(ino);
        }
        match new.atime {
            Some(NewTime::At(ns)) => shared.index.set_last_use(ino, ns.min(now_ns())),
            Some(NewTime::Now) => shared.note_use(ino, now_ns()),
            None => {}
        }
        shared.index.get(ino).ok_or(Error::Stale)
    }

    /// The root has no name that could be locked, and cannot go.
    fn root_fd(&self) -> Result<Arc<OwnedFd>> {
        let root = self.shared.lock().index.get(Ino::ROOT).ok_or(Error::Stale)?;
        let opened = self.disk(root.disk)?.io.open_dir(b"");
        opened.map(Arc::new).map_err(|e| Error::disk(root.disk, e))
    }

    /// An fd of a file for one operation: one that is open already, or a new one.
    ///
    /// # Errors
    /// [`Error::NotFound`] or [`Error::Stale`] when the file has gone, or what the disk said.
    pub fn fd_for(&self, ino: Ino, write: bool) -> Result<Arc<OwnedFd>> {
        let shared_fd = {
            let shared = self.shared.lock();
            shared.open.get(&ino).filter(|open| open.writable || !write).map(|open| Arc::clone(&open.fd))
        };
        if let Some(fd) = shared_fd {
            return Ok(fd);
        }
        if ino == Ino::ROOT {
            return self.root_fd();
        }
        let _tree = self.tree_if_nested(ino);
        let (entry, _, _guard) = self.lock_entry(ino)?;
        let path = self.path(ino).ok_or(Error::Stale)?;
        let io = &self.disk(entry.disk)?.io;
        let opened = match entry.kind {
            Kind::Dir => io.open_dir(&path),
            Kind::File => match io.open(&path, Access { read: !write, write }) {
                Err(error) if is(&error, Errno::ACCESS) && !write => {
                    io.open(&path, Access { read: false, write: true })
                }
                opened => opened,
            },
        };
        match opened {
            Ok(fd) => Ok(Arc::new(fd)),
            Err(error) if is_gone(&error) => {
                self.forget_entry(ino);
                Err(Error::NotFound)
            }
            Err(error) => Err(Error::disk(entry.disk, error)),
        }
    }
}

/// Whether a create goes on to the next disk: this one is full, in trouble, not writable, or holds an object in the way.
/// What every disk would say stays the answer.
fn tries_next(error: &Error) -> bool {
    let everywhere = [Errno::NAMETOOLONG, Errno::INVAL, Errno::MFILE, Errno::NFILE, Errno::NOMEM, Errno::BADF];
    matches!(error, Error::Disk { error, .. } if !everywhere.iter().any(|errno| is(error, *errno)))
}

pub(super) fn is(error: &io::Error, errno: Errno) -> bool {
    error.raw_os_error() == Some(errno.raw_os_error())
}

/// Whether the object is no longer there, or is no longer what it was: a symlink in its place is not followed.
pub(super) fn is_gone(error: &io::Error) -> bool {
    is(error, Errno::NOENT) || is(error, Errno::NOTDIR) || is(error, Errno::LOOP)
}
