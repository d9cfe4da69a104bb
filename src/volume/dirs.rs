//! Directories: mirrored over the disks that need them, one entry in the index.
//!
//! `mkdir` makes a directory on the owner of its name and on any other disk when a file first goes there. Called by
//! `crate::fs` and by [`super::files`]. Locks as there; renaming a directory has the tree for itself.

use std::io;
use std::os::fd::AsFd;

use parking_lot::{RwLockReadGuard, RwLockWriteGuard};
use rustix::io::Errno;

use super::attr::{Attr, DiskNo, Ino, Kind};
use super::disk::{FoundKind, FoundStat, NewAttr};
use super::files::Place;
use super::index::{Entry, Index, NewEntry};
use super::name::EntryName;
use super::{NewOwner, Volume, now_ns};
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
    fn make_dir(&self, no: DiskNo, path: &[u8], like: &Attr) -> Result<Attr> {
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

    fn make_again(&self, removed: &[DiskNo], path: &[u8], like: &Attr) {
        for &no in removed {
            if let Err(error) = self.make_dir(no, path, like) {
                event!(Warn, self.about(no).path(path).error(&error), "a directory could not be made again");
            }
        }
    }

    /// Renames a directory on every disk that has it; all or none.
    pub(super) fn rename_dir(
        &self,
        from: Place<'_>,
        to: Place<'_>,
        source: &Entry,
        target: Option<&Entry>,
    ) -> Result<()> {
        if self.misses_a_disk() {
            // Its copy could not follow, and would bring the old name back.
            return Err(Error::CrossDisk);
        }
        let old_path = self.path_of(from.0, from.1).ok_or(Error::NotFound)?;
        let new_path = self.path_of(to.0, to.1).ok_or(Error::NotFound)?;
        if new_path.strip_prefix(&old_path[..]).is_some_and(|rest| rest.first() == Some(&b'/')) {
            return Err(Error::Invalid);
        }
        if let Some(target) = target {
            if target.kind != Kind::Dir {
                return Err(Error::NotDirectory);
            }
            if self.shared.lock().index.child_count(target.ino) > 0 {
                return Err(Error::NotEmpty);
            }
        }
        self.learn_copies(source.ino, &old_path)?;
        if let Some(target) = target {
            self.learn_copies(target.ino, &new_path)?;
        }
        let mut done = Vec::new();
        for (no, disk) in self.numbered() {
            match self.move_dir_copy(no, source, to.0, &old_path, &new_path) {
                Ok(true) => done.push(no),
                Ok(false) => {}
                Err(error) => {
                    event!(Warn, disk.about().path(&old_path).error(&error), "a directory could not be renamed");
                    self.move_dir_back(&done, source, target, &old_path, &new_path);
                    return Err(error);
                }
            }
        }
        self.published(from, to, source)
    }

    /// One disk has refused the rename of a directory: the others take it back, and the empty directory that it had
    /// replaced is made again.
    fn move_dir_back(&self, done: &[DiskNo], source: &Entry, target: Option<&Entry>, old_path: &[u8], new_path: &[u8]) {
        let copies_of = |ino| self.shared.lock().index.dir_disks(ino);
        let copies = copies_of(source.ino);
        for &no in done.iter().filter(|no| copies & (1 << no.0) != 0) {
            let moved = self.disk(no).map(|disk| disk.io.rename(new_path, old_path, false));
            if let Ok(Err(error)) = moved {
                event!(Error, self.about(no).path(new_path).error(&error), "a directory is half renamed");
            }
        }
        if let Some(target) = target {
            let replaced = copies_of(target.ino);
            let gone: Vec<DiskNo> = done.iter().copied().filter(|no| replaced & (1 << no.0) != 0).collect();
            self.make_again(&gone, new_path, &target.attr);
        }
    }

    /// Asks the disks that are not known to have a copy of a directory: one that has not been scanned may have it, and
    /// so may one that failed while it was being made.
    ///
    /// # Errors
    /// [`Error::CrossDisk`] while one of them cannot say: its copy would be left behind under the old name.
    fn learn_copies(&self, dir: Ino, path: &[u8]) -> Result<()> {
        let known = self.shared.lock().index.dir_disks(dir);
        for (no, disk) in self.numbered().filter(|(no, _)| known & (1 << no.0) == 0) {
            match disk.io.stat(path) {
                Ok(stat) if stat.kind == FoundKind::Dir => {
                    let mut shared = self.shared.lock();
                    let set = shared.index.dir_disks(dir) | (1 << no.0);
                    shared.index.set_dir_disks(dir, set);
                }
                Ok(_) => {}
                Err(error) if is_missing(&error) => {}
                Err(error) => {
                    event!(Warn, disk.about().path(path).error(&error), "a directory cannot be looked at");
                    return Err(Error::CrossDisk);
                }
            }
        }
        Ok(())
    }

    /// Renames one disk's copy of a directory, if it has one; an empty copy of the target, if any, goes. Returns whether
    /// anything was done.
    fn move_dir_copy(&self, no: DiskNo, source: &Entry, to: Ino, old_path: &[u8], new_path: &[u8]) -> Result<bool> {
        let io = &self.disk(no)?.io;
        let has_copy = self.shared.lock().index.dir_disks(source.ino) & (1 << no.0) != 0;
        if !has_copy {
            return match io.rmdir(new_path) {
                Ok(()) => Ok(true),
                Err(error) if is_missing(&error) => Ok(false),
                Err(error) => Err(Error::disk(no, error)),
            };
        }
        self.ensure_dir(no, to)?;
        io.rename(old_path, new_path, true).map_err(|e| Error::disk(no, e))?;
        Ok(true)
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

fn links(index: &Index, entry: &Entry) -> u32 {
    match entry.kind {
        Kind::Dir => index.subdir_count(entry.ino).saturating_add(2),
        Kind::File => u32::from(entry.linked),
    }
}

fn is_missing(error: &io::Error) -> bool {
    error.raw_os_error() == Some(Errno::NOENT.raw_os_error())
}
