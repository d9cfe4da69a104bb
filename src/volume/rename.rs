//! Renames: each as one change of disk and index.
//!
//! Called by `crate::fs`. Takes two name locks and, for nested paths or a directory, the tree lock; the index lock only
//! between system calls. A file never moves between disks.

use rustix::io::Errno;

use super::attr::{Attr, Ino, Kind};
use super::files::{Place, RenameMode, is, is_gone};
use super::index::Entry;
use super::{Shared, Volume, now_ns};
use crate::error::{Error, Result};

impl Volume {
    /// Renames. A file never moves between disks: under a name with another owner it is away.
    ///
    /// # Errors
    /// As `renameat2(2)`; [`Error::CrossDisk`]-like cases of an exchange over two disks are [`Error::Invalid`].
    pub fn rename(&self, from: Place<'_>, to: Place<'_>, mode: RenameMode) -> Result<()> {
        let is_dir = self.find(from.0, from.1).is_some_and(|entry| entry.kind == Kind::Dir);
        let _alone = if is_dir { Some(self.tree_alone()?) } else { None };
        let nested = if from.0 == Ino::ROOT { to.0 } else { from.0 };
        let _tree = if is_dir { None } else { self.tree_for(nested) };
        let _names = self.names.lock_two((from.0, from.1.as_bytes()), (to.0, to.1.as_bytes()))?;
        let source = self.find_or_probe(from.0, from.1)?.ok_or(Error::NotFound)?;
        let target = self.find_or_probe(to.0, to.1)?;
        if target.is_some_and(|target| target.ino == source.ino) {
            return if mode == RenameMode::NoReplace { Err(Error::Exists) } else { Ok(()) };
        }
        match (mode, target) {
            (RenameMode::NoReplace, Some(_)) => Err(Error::Exists),
            (RenameMode::Exchange, None) => Err(Error::NotFound),
            (RenameMode::Exchange, Some(target)) => self.exchange(from, to, &source, &target),
            // The kind was looked at before the names were locked; a directory needs the tree for itself.
            _ if (source.kind == Kind::Dir) != is_dir => Err(Error::Busy),
            _ if is_dir => self.rename_dir(from, to, &source, target.as_ref()),
            _ => self.rename_file(from, to, &source, target.as_ref()),
        }
    }

    fn rename_file(&self, from: Place<'_>, to: Place<'_>, source: &Entry, target: Option<&Entry>) -> Result<()> {
        if target.is_some_and(|target| target.kind == Kind::Dir) {
            return Err(Error::IsDirectory);
        }
        self.ensure_dir(source.disk, to.0)?;
        let Some(target) = target else {
            return self.rename_over(from, to, source, None);
        };
        let path = self.path_of(to.0, to.1).ok_or(Error::NotFound)?;
        self.keep_for_openers(target, &path);
        let last = self.last_reference(target, &path);
        let renamed = self.rename_over(from, to, source, Some(target));
        self.let_go_of_unneeded(target.ino);
        self.drop_later(last);
        renamed
    }

    /// Renames on the source's disk; the copy that another disk has of the replaced file goes last.
    fn rename_over(&self, from: Place<'_>, to: Place<'_>, source: &Entry, target: Option<&Entry>) -> Result<()> {
        let disk = self.disk(source.disk)?;
        let old_path = self.path_of(from.0, from.1).ok_or(Error::NotFound)?;
        let new_path = self.path_of(to.0, to.1).ok_or(Error::NotFound)?;
        let other = target.filter(|target| target.disk != source.disk);
        let replace = target.is_some() && other.is_none();
        let target_stays = match other {
            Some(target) => !self.remove_younger(target, &new_path, source, &old_path)?,
            None => false,
        };
        match disk.io.rename(&old_path, &new_path, replace) {
            Err(error) if is(&error, Errno::EXIST) && !replace => {
                self.replace_unknown(source.disk, &old_path, &new_path)?;
            }
            Err(error) if is_gone(&error) => {
                if disk.io.stat(&old_path).is_err_and(|e| is_gone(&e)) {
                    self.forget_entry(source.ino);
                    return Err(Error::NotFound);
                }
                self.remake_dir(source.disk, to.0)?;
                disk.io.rename(&old_path, &new_path, replace).map_err(|e| Error::disk(source.disk, e))?;
            }
            done => done.map_err(|e| Error::disk(source.disk, e))?,
        }
        self.published(from, to, source)?;
        if let Some(target) = other.filter(|_| target_stays) {
            self.remove_older(target, &new_path);
        }
        self.name_published(from, to, source.disk);
        Ok(())
    }

    /// The index follows a rename that the disk has done.
    pub(super) fn published(&self, from: Place<'_>, to: Place<'_>, source: &Entry) -> Result<()> {
        let now = now_ns();
        let away = self.is_away(to.1.as_bytes(), source.disk);
        let mut shared = self.shared.lock();
        shared.index.rename(source.ino, to.0, to.1.as_bytes()).map_err(|_| Error::Stale)?;
        shared.changed_dir(from.0, now);
        shared.changed_dir(to.0, now);
        if source.kind == Kind::File {
            shared.index.set_away(source.ino, away);
            shared.index.set_writing(source.ino, false);
            shared.index.touch(source.ino, now);
        }
        shared.renamed(source.ino, now);
        Ok(())
    }

    fn exchange(&self, from: Place<'_>, to: Place<'_>, source: &Entry, target: &Entry) -> Result<()> {
        if source.kind == Kind::Dir || target.kind == Kind::Dir || source.disk != target.disk {
            return Err(Error::Invalid);
        }
        let old_path = self.path_of(from.0, from.1).ok_or(Error::NotFound)?;
        let new_path = self.path_of(to.0, to.1).ok_or(Error::NotFound)?;
        let no = source.disk;
        self.disk(no)?.io.exchange(&old_path, &new_path).map_err(|e| Error::disk(no, e))?;
        let now = now_ns();
        let mut shared = self.shared.lock();
        shared.index.exchange(source.ino, target.ino).map_err(|_| Error::Stale)?;
        for (ino, name) in [(source.ino, to.1), (target.ino, from.1)] {
            shared.index.set_away(ino, self.is_away(name.as_bytes(), no));
            shared.renamed(ino, now);
        }
        shared.changed_dir(from.0, now);
        shared.changed_dir(to.0, now);
        drop(shared);
        self.names_exchanged(from, to, no);
        Ok(())
    }
}

impl Shared {
    /// A new name moves ctime.
    fn renamed(&mut self, ino: Ino, now: i64) {
        if let Some(entry) = self.index.get(ino) {
            self.index.set_attr(ino, Attr { ctime_ns: now, ..entry.attr });
        }
    }
}
