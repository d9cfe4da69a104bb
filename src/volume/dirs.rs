//! Directories: mirrored over the disks that need them, one entry in the index.
//!
//! `mkdir` makes a directory on the owner of its name and on any other disk when a file first goes there. Called by
//! `crate::fs` and by [`super::files`]. Locks as there; renaming a directory has the tree for itself.

use std::io;
use std::os::fd::AsFd;

use parking_lot::{RwLockReadGuard, RwLockWriteGuard};
use rustix::io::Errno;

use super::attr::{Attr, DiskNo, Ino, Kind};
use super::disk::{FoundStat, NewAttr};
use super::files::Place;
use super::index::{Entry, Index, NewEntry};
use super::name::EntryName;
use super::{NewOwner, Shared, Volume, now_ns};
use crate::error::{Error, Result, is_disk_full, is_disk_trouble};
use crate::messages::event;

impl Volume {
    /// Makes a directory on the owner of its name, or on the next disk in rank that takes it, and counts one look-up.
    ///
    /// # Errors
    /// [`Error::Exists`], [`Error::Stale`] when the parent has gone, or what the last disk said.
    pub fn mkdir(&self, place: Place<'_>, owner: NewOwner) -> Result<Entry> {
        let (parent, name) = place;
        let _tree = self.tree_for(parent);
        let _name = self.names.lock(parent, name.as_bytes())?;
        if self.find_or_probe(parent, name)?.is_some() {
            return Err(Error::Exists);
        }
        let mut last = Error::NoDisk;
        for no in self.rank(name) {
            match self.mkdir_on(no, place, owner) {
                Err(Error::Disk { disk, error }) if is_disk_full(&error) || is_disk_trouble(&error) => {
                    last = Error::Disk { disk, error };
                }
                done => return done,
            }
        }
        Err(last)
    }

    fn mkdir_on(&self, no: DiskNo, place: Place<'_>, owner: NewOwner) -> Result<Entry> {
        let (parent, name) = place;
        self.ensure_dir(no, parent)?;
        let path = self.path_of(parent, name).ok_or(Error::NotFound)?;
        let above = self.shared.lock().index.get(parent).ok_or(Error::NotFound)?;
        let inherits = above.attr.mode & 0o2000 != 0;
        let gid = if inherits { above.attr.gid } else { owner.gid };
        let mode = if inherits { owner.mode | 0o2000 } else { owner.mode };
        let attr = self.make_dir(no, &path, &Attr { mode, uid: owner.uid, gid, ..Attr::default() })?;
        let new = NewEntry { kind: Kind::Dir, disk: no, attr, writing: false, away: false };
        let mut shared = self.shared.lock();
        let ino = shared.index.insert(parent, name.as_bytes(), new).map_err(|_| Error::NoSpace)?;
        shared.index.set_dir_disks(ino, 1 << no.0);
        shared.changed_dir(parent, now_ns());
        shared.index.add_lookups(ino, 1);
        shared.index.get(ino).ok_or(Error::Stale)
    }

    /// Makes one copy of a directory. One that is there already (a crash, or another mount of the disk) is taken.
    pub(super) fn make_dir(&self, no: DiskNo, path: &[u8], like: &Attr) -> Result<Attr> {
        let io = &self.disk(no)?.io;
        let made = match io.mkdir(path, like.mode) {
            Err(error) if error.raw_os_error() == Some(Errno::EXIST.raw_os_error()) => false,
            made => made.map(|()| true).map_err(|e| Error::disk(no, e))?,
        };
        let attempt = || -> io::Result<Attr> {
            let fd = io.open_dir(path)?;
            let found = io.stat_fd(fd.as_fd())?.attr;
            if (found.uid, found.gid, found.mode) != (like.uid, like.gid, like.mode) {
                let new =
                    NewAttr { mode: Some(like.mode), uid: Some(like.uid), gid: Some(like.gid), ..NewAttr::default() };
                io.set_attr(fd.as_fd(), &new)?;
            }
            Ok(io.stat_fd(fd.as_fd())?.attr)
        };
        attempt().map_err(|error| {
            if made {
                // A half-made copy must not stay; if this fails too, the next scan shows it.
                let _ = io.rmdir(path);
            }
            Error::disk(no, error)
        })
    }

    /// A directory seen on a second disk: attributes are the owner's copy's (else the lowest UUID's), times the
    /// latest of all.
    pub(super) fn adopt_dir_copy(&self, no: DiskNo, known: &Entry, name: EntryName<'_>, stat: &FoundStat) {
        let owner = self.owner(name.as_bytes());
        let lower_id = || self.disks.get(no.index()).map(|d| d.id) < self.disks.get(known.disk.index()).map(|d| d.id);
        let leads = known.disk != no && (owner == Some(no) || (owner != Some(known.disk) && lower_id()));
        let mut attr = if leads { stat.attr } else { known.attr };
        attr.mtime_ns = known.attr.mtime_ns.max(stat.attr.mtime_ns);
        attr.ctime_ns = known.attr.ctime_ns.max(stat.attr.ctime_ns);
        let mut shared = self.shared.lock();
        let set = shared.index.dir_disks(known.ino) | (1 << no.0);
        shared.index.set_dir_disks(known.ino, set);
        shared.index.set_attr(known.ino, attr);
        if leads {
            shared.index.set_disk(known.ino, no);
        }
    }

    /// Sees to it that a disk has a directory, and all above it, before something is put there.
    pub(super) fn ensure_dir(&self, no: DiskNo, dir: Ino) -> Result<()> {
        let (mut chain, mut at) = (Vec::new(), dir);
        {
            let shared = self.shared.lock();
            while at != Ino::ROOT && shared.index.dir_disks(at) & (1 << no.0) == 0 {
                let entry = shared.index.get(at).filter(|entry| entry.linked).ok_or(Error::NotFound)?;
                chain.push(entry);
                at = entry.parent;
            }
        }
        for entry in chain.into_iter().rev() {
            let path = self.path(entry.ino).ok_or(Error::NotFound)?;
            self.make_dir(no, &path, &entry.attr)?;
            let mut shared = self.shared.lock();
            let set = shared.index.dir_disks(entry.ino) | (1 << no.0);
            shared.index.set_dir_disks(entry.ino, set);
        }
        Ok(())
    }

    /// A disk says that a directory is not there: makes it again, and all above it. A copy can be lost to a rename that
    /// stopped half-way, or to somebody behind our back.
    pub(super) fn remake_dir(&self, no: DiskNo, dir: Ino) -> Result<()> {
        let mut at = dir;
        {
            let mut shared = self.shared.lock();
            while at != Ino::ROOT {
                let set = shared.index.dir_disks(at) & !(1 << no.0);
                shared.index.set_dir_disks(at, set);
                at = shared.index.get(at).filter(|entry| entry.linked).ok_or(Error::NotFound)?.parent;
            }
        }
        self.ensure_dir(no, dir)
    }

    /// Removes a directory that is empty on every disk.
    ///
    /// # Errors
    /// [`Error::NotEmpty`] also when a disk hides an object there that is not ours to remove.
    pub fn rmdir(&self, place: Place<'_>) -> Result<()> {
        let (parent, name) = place;
        let _alone = self.tree_alone()?;
        let _name = self.names.lock(parent, name.as_bytes())?;
        let entry = self.find_or_probe(parent, name)?.ok_or(Error::NotFound)?;
        if entry.kind != Kind::Dir {
            return Err(Error::NotDirectory);
        }
        if self.shared.lock().index.child_count(entry.ino) > 0 {
            return Err(Error::NotEmpty);
        }
        let path = self.path_of(parent, name).ok_or(Error::NotFound)?;
        let copies = self.shared.lock().index.dir_disks(entry.ino);
        let mut removed = Vec::new();
        for (no, disk) in self.numbered() {
            match disk.io.rmdir(&path) {
                Ok(()) => removed.push(no),
                Err(error) if copies & (1 << no.0) == 0 || is_missing(&error) => {
                    if !is_missing(&error) {
                        self.make_again(&removed, &path, &entry.attr);
                        return Err(Error::disk(no, error));
                    }
                }
                Err(error) => {
                    self.make_again(&removed, &path, &entry.attr);
                    return Err(Error::disk(no, error));
                }
            }
        }
        let mut shared = self.shared.lock();
        shared.index.unlink(entry.ino);
        shared.changed_dir(parent, now_ns());
        Ok(())
    }

    pub(super) fn make_again(&self, removed: &[DiskNo], path: &[u8], like: &Attr) {
        for &no in removed {
            if let Err(error) = self.make_dir(no, path, like) {
                event!(Warn, self.about(no).path(path).error(&error), "a directory could not be made again");
            }
        }
    }

    /// Changes attributes of every copy of a directory.
    pub(super) fn set_dir_attr(&self, ino: Ino, new: &NewAttr) -> Result<Entry> {
        let _tree = self.tree_if_nested(ino);
        let path = if ino == Ino::ROOT { Vec::new() } else { self.path(ino).ok_or(Error::Stale)? };
        let (leader, copies) = {
            let shared = self.shared.lock();
            (shared.index.get(ino).ok_or(Error::Stale)?.disk, shared.index.dir_disks(ino))
        };
        let mut attr = None;
        for (no, disk) in self.numbered().filter(|(no, _)| copies & (1 << no.0) != 0) {
            let change = || -> io::Result<Attr> {
                let fd = disk.io.open_dir(&path)?;
                disk.io.set_attr(fd.as_fd(), new)?;
                Ok(disk.io.stat_fd(fd.as_fd())?.attr)
            };
            let changed = change().map_err(|e| Error::disk(no, e))?;
            if no == leader || attr.is_none() {
                attr = Some(changed);
            }
        }
        let mut shared = self.shared.lock();
        if let (Some(attr), Some(entry)) = (attr, shared.index.get(ino)) {
            // The index keeps the times of the names; the disks' copies have them only by chance.
            let mtime_ns = if new.mtime.is_some() { attr.mtime_ns } else { entry.attr.mtime_ns };
            shared.index.set_attr(ino, Attr { mtime_ns, ctime_ns: now_ns(), ..attr });
        }
        shared.index.get(ino).ok_or(Error::Stale)
    }

    /// Calls `each` for the entries of a directory after a cookie, with their names and hard links, until it returns
    /// false.
    pub fn list(&self, dir: Ino, after: u64, each: &mut dyn FnMut(&[u8], Entry, u32) -> bool) {
        let shared = self.shared.lock();
        shared.index.list(dir, after, &mut |listed| match shared.index.get(listed.ino) {
            Some(entry) => each(listed.name, entry, links(&shared.index, &entry)),
            None => true,
        });
    }

    /// The directory that holds an inode; the root holds itself.
    pub fn parent(&self, ino: Ino) -> Ino {
        self.shared.lock().index.get(ino).map_or(Ino::ROOT, |entry| entry.parent)
    }

    /// Makes a directory's names durable on every disk that has a copy.
    ///
    /// # Errors
    /// What the first disk that failed said.
    pub fn fsync_dir(&self, dir: Ino) -> Result<()> {
        let _tree = self.tree_if_nested(dir);
        let path = if dir == Ino::ROOT { Vec::new() } else { self.path(dir).ok_or(Error::Stale)? };
        let copies = self.shared.lock().index.dir_disks(dir);
        for (no, disk) in self.numbered().filter(|(no, _)| copies & (1 << no.0) != 0) {
            let synced = disk.io.open_dir(&path).and_then(|fd| disk.io.fsync(fd.as_fd(), false));
            synced.map_err(|e| Error::disk(no, e))?;
        }
        Ok(())
    }

    /// Hard links of an entry as `stat` shows them.
    pub fn links(&self, entry: &Entry) -> u32 {
        links(&self.shared.lock().index, entry)
    }

    /// One more look-up of each inode that a listing handed out.
    pub fn count_listed(&self, inodes: &[Ino]) {
        let mut shared = self.shared.lock();
        for ino in inodes {
            shared.index.add_lookups(*ino, 1);
        }
    }

    /// The tree for one request alone.
    ///
    /// # Errors
    /// [`Error::Busy`] when others have been at work below it for the whole deadline.
    pub(super) fn tree_alone(&self) -> Result<RwLockWriteGuard<'_, ()>> {
        self.tree.try_write_for(self.settings.io_timeout).ok_or(Error::Busy)
    }

    /// Shared hold on the tree for an inode that does not lie in the root.
    pub(super) fn tree_if_nested(&self, ino: Ino) -> Option<RwLockReadGuard<'_, ()>> {
        let parent = self.shared.lock().index.get(ino).map_or(Ino::ROOT, |entry| entry.parent);
        self.tree_for(parent)
    }

    /// Which disks hold a copy of a directory.
    pub fn dir_disks(&self, dir: Ino) -> Vec<&super::disk::Disk> {
        let set = self.shared.lock().index.dir_disks(dir);
        self.numbered().filter(|(no, _)| set & (1 << no.0) != 0).map(|(_, disk)| disk).collect()
    }
}

impl Shared {
    /// A directory has copies on these disks; its attributes are those of one of them.
    pub(super) fn set_copies(&mut self, dir: Ino, set: u64) {
        self.index.set_dir_disks(dir, set);
        if set != 0 && self.index.get(dir).is_some_and(|entry| set & (1 << entry.disk.0) == 0) {
            self.index.set_disk(dir, DiskNo(set.trailing_zeros() as u8));
        }
    }
}

fn links(index: &Index, entry: &Entry) -> u32 {
    match entry.kind {
        Kind::Dir => index.subdir_count(entry.ino).saturating_add(2),
        Kind::File => u32::from(entry.linked),
    }
}

fn is_missing(error: &io::Error) -> bool {
    error.raw_os_error() == Some(Errno::NOENT.raw_os_error())
}
