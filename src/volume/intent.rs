//! `.kvspan/renames`: what the rename of a directory over several disks is about to do (DESIGN.md section 6).
//!
//! Before the first disk renames its copy, every disk that takes part holds the whole rename, durable; the record goes
//! when each has followed, durable too. The next mount finishes what it finds, forward, before a name is shown
//! ([`Volume::replay_renames`]):
//!
//! - It goes forward if every disk of it that is there holds it, or if one of them has followed, by its record or by what
//!   it shows. Otherwise it was never begun, and is dropped. A disk that is missing or whose record cannot be read says
//!   nothing.
//! - A disk follows whose directory still is the one that was meant, by inode number and birth time. A name that is not
//!   there, or is another directory by now, is left alone: so a replay can be repeated at will. What is in the way and
//!   no empty directory is left alone too, and said.
//! - What cannot follow yet is waited for: the record stays, and says which disks have followed.
//!
//! Invariant: a disk that has followed holds the record until every disk has.
//!
//! Called by the rename of a directory, by a mount and by the rescan of a disk that could not be read, each with the
//! tree for itself; the lock here is held for a few instructions. While a disk that is there holds a record that this
//! mount could not settle, no directory is renamed (`EXDEV`).

mod format;

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use rustix::io::Errno;
use uuid::Uuid;

use super::attr::{Attr, DiskNo};
use super::disk::{Disk, DiskIo, FoundKind, FoundStat};
use super::files::{is, is_gone};
use super::{Volume, durable};
use crate::error::{Error, Result};
use crate::messages::{About, event};
pub(super) use format::{Intent, Member, Task};

const RENAMES: &[u8] = b".kvspan/renames";

/// What of the renames of directories is not over.
#[derive(Default)]
pub(super) struct Renames {
    /// Renames that wait for a disk which is not there: every list that is written keeps them.
    waiting: Mutex<Vec<Intent>>,
    /// A disk that is there has not followed, or keeps a record that it should not.
    unsettled: AtomicBool,
}

/// What a disk holds.
enum Held {
    Known(Vec<Intent>),
    /// It cannot be read, or is no record: no evidence for anything.
    Unknown,
}

impl Held {
    fn intents(&self) -> &[Intent] {
        match self {
            Held::Known(intents) => intents,
            Held::Unknown => &[],
        }
    }

    fn lacks(&self, id: Uuid) -> bool {
        matches!(self, Held::Known(intents) if !intents.iter().any(|intent| intent.id == id))
    }
}

impl Volume {
    /// Whether a disk that is there holds the record of a rename that this mount could not settle.
    pub fn has_unsettled_rename(&self) -> bool {
        self.renames.unsettled.load(Ordering::Acquire)
    }

    /// Writes a rename to every disk that takes part. One disk alone needs none: it renames or it does not.
    ///
    /// # Errors
    /// What a disk said. No disk may rename then; those that have the record are told to forget it.
    pub(super) fn intend(&self, intent: &Intent) -> Result<()> {
        if intent.members.len() < 2 {
            return Ok(());
        }
        let mut list = self.renames.waiting.lock().clone();
        list.push(intent.clone());
        let bytes = format::encode(&list);
        if bytes.len() > format::FILE_BYTES_MAX {
            log::warn!("too many renames of directories wait for a missing disk; none is begun");
            return Err(Error::CrossDisk);
        }
        for (no, disk, _) in self.members_of(intent) {
            if let Err(error) = durable::replace(disk.io.as_ref(), RENAMES, &bytes, 0o600) {
                event!(Warn, disk.about().error(&error), "the record of a rename cannot be written");
                self.forget_rename(intent);
                return Err(Error::disk(no, error));
            }
        }
        Ok(())
    }

    /// Every disk has followed, or none has any more: makes that durable and removes the record.
    pub(super) fn settle_rename(&self, intent: &Intent) {
        if intent.members.len() < 2 {
            return;
        }
        for (_, disk, _) in self.members_of(intent) {
            if let Err(error) = sync_parents(disk.io.as_ref(), intent) {
                return self.leave_rename(intent, &format!("disk {} cannot sync it: {error}", disk.path.display()));
            }
        }
        self.forget_rename(intent);
    }

    /// Leaves the record for the next mount.
    pub(super) fn leave_rename(&self, intent: &Intent, why: &str) {
        self.renames.unsettled.store(true, Ordering::Release);
        event!(Error, about(intent), "the rename of a directory is left to the next mount: {why}");
    }

    fn forget_rename(&self, intent: &Intent) {
        let waiting = self.renames.waiting.lock().clone();
        for (_, disk, _) in self.members_of(intent) {
            self.put_renames(disk, &waiting);
        }
    }

    /// Gives a disk the list of what is still waited for.
    fn put_renames(&self, disk: &Disk, waiting: &[Intent]) {
        let put = match waiting {
            [] => disk.io.unlink(RENAMES),
            some => durable::replace(disk.io.as_ref(), RENAMES, &format::encode(some), 0o600),
        };
        match put {
            Err(error) if !is_gone(&error) => {
                self.renames.unsettled.store(true, Ordering::Release);
                event!(Warn, disk.about().error(&error), "the record of a rename that is over stays");
            }
            _ => {}
        }
    }

    /// The disks of a rename that are there.
    pub(super) fn members_of<'a>(
        &'a self,
        intent: &'a Intent,
    ) -> impl DoubleEndedIterator<Item = (DiskNo, &'a Disk, &'a Member)> {
        intent.members.iter().filter_map(|member| {
            let (no, disk) = self.numbered().find(|(_, disk)| disk.id == member.disk)?;
            Some((no, disk, member))
        })
    }

    /// Finishes the renames of directories that a crash, a power cut or a dying disk has interrupted, before a name of
    /// these disks is shown. A mount that only reads leaves the disks as they are.
    pub fn replay_renames(&self) {
        if self.is_read_only() {
            return;
        }
        let Ok(_alone) = self.tree_alone() else {
            return log::error!("the tree is busy: renames of directories are not finished");
        };
        self.renames.unsettled.store(false, Ordering::Release);
        let held: Vec<Held> = self.disks().iter().map(|disk| self.read_renames(disk)).collect();
        let mut waiting = Vec::new();
        for mut intent in intents_of(&held) {
            if !self.may_have_begun(&intent, &held) {
                event!(Info, about(&intent), "the rename of a directory was never begun, or is long over");
                continue;
            }
            self.follow(&mut intent);
            if intent.members.iter().any(|member| !member.done) {
                event!(Warn, about(&intent), "the rename of a directory waits for a disk that has not followed");
                waiting.push(intent);
            }
        }
        self.renames.waiting.lock().clone_from(&waiting);
        for (disk, held) in self.disks().iter().zip(&held) {
            if !held.intents().is_empty() || !waiting.is_empty() {
                self.put_renames(disk, &waiting);
            }
        }
    }

    fn read_renames(&self, disk: &Disk) -> Held {
        let reason = match durable::read(disk.io.as_ref(), RENAMES, format::FILE_BYTES_MAX) {
            Ok(durable::Found::Absent) => return Held::Known(Vec::new()),
            Ok(durable::Found::Bytes(bytes)) => match format::decode(&bytes) {
                Some(intents) => return Held::Known(intents),
                None => "it is damaged".to_string(),
            },
            Ok(durable::Found::Unsound(reason)) => reason,
            Err(error) => {
                self.renames.unsettled.store(true, Ordering::Release);
                error.to_string()
            }
        };
        event!(Warn, disk.about(), "the record of renames cannot be used: {reason}");
        Held::Unknown
    }

    /// Whether a rename may have begun: every disk that is there holds it, or some disk has followed.
    fn may_have_begun(&self, intent: &Intent, held: &[Held]) -> bool {
        let lacks = |no: DiskNo| held.get(no.index()).is_some_and(|held| held.lacks(intent.id));
        intent.members.iter().any(|member| member.done)
            || self.members_of(intent).all(|(no, ..)| !lacks(no))
            || self
                .members_of(intent)
                .any(|(_, disk, member)| member.task == Task::Rename && is_copy(disk.io.stat(&intent.to), member))
    }

    /// Has every disk follow that is there and has not.
    fn follow(&self, intent: &mut Intent) {
        let due: Vec<(DiskNo, Member)> = self
            .members_of(intent)
            .filter(|(_, _, member)| !member.done)
            .map(|(no, _, member)| (no, *member))
            .collect();
        for (no, due) in due {
            match self.follow_on(no, &due, intent) {
                Ok(()) => {
                    let done = intent.members.iter_mut().filter(|member| member.disk == due.disk);
                    done.for_each(|member| member.done = true);
                }
                Err(error) => {
                    self.renames.unsettled.store(true, Ordering::Release);
                    let about = self.about(no).path(&intent.from).to(&intent.to).error(&error);
                    event!(Error, about, "a directory cannot be renamed yet");
                }
            }
        }
    }

    /// Renames one disk's copy, if it is there and is the one that was meant, and makes that durable.
    fn follow_on(&self, no: DiskNo, member: &Member, intent: &Intent) -> io::Result<()> {
        let Ok(disk) = self.disk(no) else {
            return Ok(());
        };
        let io = disk.io.as_ref();
        let goes = if member.task == Task::Rename { &intent.from } else { &intent.to };
        let moved = match io.stat(goes) {
            Ok(stat) if is_copy(Ok(stat), member) => match member.task {
                Task::Rename => self
                    .make_parents(no, &intent.to, &stat.attr)
                    .and_then(|()| io.rename(&intent.from, &intent.to, true)),
                Task::Clear => io.rmdir(&intent.to),
            },
            Ok(_) => Ok(()),
            Err(error) if is_gone(&error) => Ok(()),
            Err(error) => Err(error),
        };
        match moved {
            Err(error) if is_in_the_way(&error) => {
                event!(
                    Error,
                    disk.about().path(&intent.from).to(&intent.to).error(&error),
                    "a directory should have become what something else is; both stay: move what is to be kept from one \
                     to the other"
                );
            }
            moved => moved?,
        }
        sync_parents(io, intent)
    }

    /// Makes what is above a path on a disk, as it is on another one; what no disk has any more, like the directory itself.
    fn make_parents(&self, no: DiskNo, path: &[u8], like: &Attr) -> io::Result<()> {
        let io = &self.disk(no).map_err(io::Error::other)?.io;
        for (end, _) in path.iter().enumerate().filter(|(_, byte)| **byte == b'/') {
            let dir = path.get(..end).unwrap_or_default();
            if !io.stat(dir).is_err_and(|error| is(&error, Errno::NOENT)) {
                continue;
            }
            let of_others = self.disks().iter().filter_map(|disk| disk.io.stat(dir).ok());
            let other = of_others.into_iter().find(|stat| stat.kind == FoundKind::Dir);
            match self.make_dir(no, dir, &other.map_or(*like, |stat| stat.attr)) {
                Err(Error::Disk { error, .. }) => return Err(error),
                made => made.map(drop).map_err(io::Error::other)?,
            }
        }
        Ok(())
    }
}

/// What a message about a rename says of it.
fn about(intent: &Intent) -> About {
    About::default().path(&intent.from).to(&intent.to)
}

/// Every rename that some disk holds, in their order, with all that any disk says of who has followed.
fn intents_of(held: &[Held]) -> Vec<Intent> {
    let mut all: Vec<Intent> = Vec::new();
    for intent in held.iter().flat_map(|held| held.intents()) {
        match all.iter_mut().find(|known| known.id == intent.id) {
            None => all.push(intent.clone()),
            Some(known) => {
                for member in known.members.iter_mut() {
                    member.done |= intent.members.iter().any(|other| other.disk == member.disk && other.done);
                }
            }
        }
    }
    all.sort_by_key(|intent| (intent.time_ns, intent.id));
    all
}

/// Whether a disk's directory is the one that a rename means.
fn is_copy(found: io::Result<FoundStat>, member: &Member) -> bool {
    found.is_ok_and(|found| found.kind == FoundKind::Dir && found.stamps().id == member.dir)
}

/// Whether a rename was refused because of what lies at its names, and would be refused again.
fn is_in_the_way(error: &io::Error) -> bool {
    let refusals = [
        Errno::NOTEMPTY,
        Errno::EXIST,
        Errno::NOTDIR,
        Errno::ISDIR,
        Errno::INVAL,
        Errno::LOOP,
        Errno::XDEV,
        Errno::NAMETOOLONG,
    ];
    refusals.into_iter().any(|errno| is(error, errno))
}

/// Makes both names of a rename durable.
fn sync_parents(io: &dyn DiskIo, intent: &Intent) -> io::Result<()> {
    let (from, to) = (dir_of(&intent.from), dir_of(&intent.to));
    for dir in [Some(from), Some(to).filter(|to| *to != from)].into_iter().flatten() {
        match durable::sync_dir(io, dir) {
            Err(error) if !is_gone(&error) => return Err(error),
            _ => {}
        }
    }
    Ok(())
}

fn dir_of(path: &[u8]) -> &[u8] {
    let slash = path.iter().rposition(|&byte| byte == b'/');
    slash.and_then(|slash| path.get(..slash)).unwrap_or_default()
}
