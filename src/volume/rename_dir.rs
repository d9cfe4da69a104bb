//! The rename of a directory: one rename on each disk that has a copy, all or none.
//!
//! Called by a rename, which has the tree and both names for itself. What must hold if it stops half-way is written to
//! the disks before ([`super::intent`]). In process a disk that refuses has the others take it back; if one cannot, the
//! record stays, and the index follows what really happened.

use rustix::io::Errno;
use uuid::Uuid;

use super::attr::{DiskNo, Ino, Kind};
use super::disk::{FoundKind, FoundStat};
use super::files::{Place, is_gone};
use super::index::Entry;
use super::intent::{Intent, Member, Task};
use super::{Volume, now_ns};
use crate::error::{Error, Result};
use crate::messages::event;

/// Entries that are looked at in one hold of the index lock.
const ENTRIES_PER_HOLD: usize = 4_096;

impl Volume {
    /// Renames a directory on every disk that has it; all or none.
    pub(super) fn rename_dir(
        &self,
        from: Place<'_>,
        to: Place<'_>,
        source: &Entry,
        target: Option<&Entry>,
    ) -> Result<()> {
        if self.misses_a_disk() || self.awaits_removed_names() || self.has_unsettled_rename() {
            // A copy could not follow, or would bring back what was taken away below its old name.
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
        let intent = self.plan_rename((source, old_path), (target, to.0, new_path))?;
        self.intend(&intent)?;
        match self.move_copies(&intent) {
            Ok(()) => {
                let published = self.published(from, to, source);
                self.settle_rename(&intent);
                published
            }
            Err((moved, error)) => Err(self.move_back(&intent, moved, source, target, error)),
        }
    }

    /// What each disk has to do. Where a copy goes, its new parent is made here, so that nothing but renames is left.
    fn plan_rename(
        &self,
        (source, from): (&Entry, Vec<u8>),
        (target, to_dir, to): (Option<&Entry>, Ino, Vec<u8>),
    ) -> Result<Intent> {
        let mut copies = self.look_everywhere(&from)?;
        copies.retain(|(_, found)| found.kind == FoundKind::Dir);
        let replaced = self.look_everywhere(&to)?;
        if replaced.iter().any(|(_, found)| found.kind != FoundKind::Dir) {
            return Err(Error::NotDirectory);
        }
        if copies.is_empty() {
            return Err(Error::NotFound);
        }
        self.learn_copies(source.ino, &copies);
        if let Some(target) = target {
            self.learn_copies(target.ino, &replaced);
        }
        let mut members = Vec::new();
        for (no, found) in &copies {
            self.ensure_dir(*no, to_dir)?;
            members.push(self.member(*no, Task::Rename, found)?);
        }
        for (no, found) in &replaced {
            if !copies.iter().any(|(with_copy, _)| with_copy == no) {
                members.push(self.member(*no, Task::Clear, found)?);
            }
        }
        Ok(Intent { id: Uuid::new_v4(), time_ns: now_ns(), from, to, members })
    }

    fn member(&self, no: DiskNo, task: Task, found: &FoundStat) -> Result<Member> {
        Ok(Member { disk: self.disk(no)?.id, task, done: false, dir: found.stamps().id })
    }

    /// What every disk has at a path. One that has not been scanned may have a copy that nobody knows of, and so may one
    /// that failed while it was being made.
    ///
    /// # Errors
    /// [`Error::CrossDisk`] while a disk cannot say: its copy would be left behind.
    fn look_everywhere(&self, path: &[u8]) -> Result<Vec<(DiskNo, FoundStat)>> {
        let mut found = Vec::new();
        for (no, disk) in self.numbered() {
            match disk.io.stat(path) {
                Ok(stat) => found.push((no, stat)),
                Err(error) if is_gone(&error) => {}
                Err(error) => {
                    event!(Warn, disk.about().path(path).error(&error), "a directory cannot be looked at");
                    return Err(Error::CrossDisk);
                }
            }
        }
        Ok(found)
    }

    fn learn_copies(&self, dir: Ino, copies: &[(DiskNo, FoundStat)]) {
        let set = copies.iter().fold(0, |set, (no, _)| set | (1 << no.0));
        self.shared.lock().set_copies(dir, set);
    }

    /// Does what is planned, disk by disk.
    ///
    /// # Errors
    /// How many disks had done it when one refused, and what that said.
    fn move_copies(&self, intent: &Intent) -> std::result::Result<(), (usize, Error)> {
        for (at, (no, disk, member)) in self.members_of(intent).enumerate() {
            let moved = match member.task {
                Task::Rename => disk.io.rename(&intent.from, &intent.to, true),
                Task::Clear => disk.io.rmdir(&intent.to),
            };
            if let Err(error) = moved {
                let about = disk.about().path(&intent.from).to(&intent.to).error(&error);
                event!(Warn, about, "a directory cannot be renamed");
                return Err((at, Error::disk(no, error)));
            }
        }
        Ok(())
    }

    /// A disk has refused: the others take back what they have done, and the empty directory that was replaced is made
    /// again. Returns what the caller hears.
    fn move_back(&self, intent: &Intent, moved: usize, source: &Entry, target: Option<&Entry>, error: Error) -> Error {
        let replaced = target.map_or(0, |target| self.shared.lock().index.dir_disks(target.ino));
        let mut stuck = Vec::new();
        for (no, disk, member) in self.members_of(intent).take(moved) {
            if member.task == Task::Rename
                && let Err(error) = disk.io.rename(&intent.to, &intent.from, false)
            {
                let about = disk.about().path(&intent.to).to(&intent.from).error(&error);
                event!(Error, about, "a directory cannot be renamed back");
                stuck.push(no);
            } else if let Some(target) = target.filter(|_| replaced & (1 << no.0) != 0) {
                self.make_again(&[no], &intent.to, &target.attr);
            }
        }
        let Some(first) = stuck.first() else {
            self.settle_rename(intent);
            return error;
        };
        self.leave_rename(intent, "a disk failed, and another one could not take it back");
        self.forget_copies(source.ino, &stuck);
        Error::disk(*first, Errno::IO.into())
    }

    /// These disks' copies of a directory have got another name: what lies in them is a miss until the rename is
    /// finished.
    fn forget_copies(&self, dir: Ino, stuck: &[DiskNo]) {
        let set: u64 = stuck.iter().fold(0, |set, no| set | (1 << no.0));
        let mut pending = vec![dir];
        while let Some(dir) = pending.pop() {
            {
                let mut shared = self.shared.lock();
                let left = shared.index.dir_disks(dir) & !set;
                shared.set_copies(dir, left);
            }
            let mut next = Some(0);
            while let Some(after) = next.take() {
                let (mut files, mut looked) = (Vec::new(), 0);
                self.shared.lock().index.list(dir, after, &mut |listed| {
                    match listed.kind {
                        Kind::Dir => pending.push(listed.ino),
                        Kind::File => files.push(listed.ino),
                    }
                    looked += 1;
                    next = (looked == ENTRIES_PER_HOLD).then_some(listed.cookie);
                    next.is_none()
                });
                for ino in files {
                    let entry = self.shared.lock().index.get(ino).filter(|entry| stuck.contains(&entry.disk));
                    entry.iter().for_each(|entry| self.hide(entry));
                }
            }
        }
    }
}
