//! Shadows: second copies of a name (DESIGN.md section 4). Never served, counted, and removed in the background.
//!
//! Called by recovery and by rescans, which come across them, by the requests that take a name away, and by the
//! daemon, which calls [`Volume::remove_shadows`]. The list of what is to be removed is bounded; what did not fit is
//! found again by a rescan. A directory against a file is a conflict: counted, reported, never touched. The list's own
//! lock is held for a few instructions only; a shadow is removed under its name lock.

use std::collections::{HashMap, HashSet};
use std::io;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use parking_lot::Mutex;

use super::attr::{Attr, DiskNo, Ino, Kind};
use super::disk::{Access, FoundKind, FoundStat};
use super::files::{Place, is_gone};
use super::index::Entry;
use super::name::EntryName;
use super::{Volume, now_ns};
use crate::error::{Error, Result};
use crate::messages::event;

/// Shadows that are remembered one by one: some 6 MiB of names.
const LISTED_MAX: usize = 32_768;
/// Conflicts that are told apart.
const CONFLICTS_MAX: usize = 1_024;

/// A name's copy on one disk. The directory is an inode, so that its rename changes nothing.
type Copy = (DiskNo, Ino, Box<[u8]>);

/// What tells an object from another one that took its place: birth and last change of the contents.
type Identity = (i64, i64);

/// What is known of a shadow.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Known {
    identity: Identity,
    /// Its name was taken away, and it could not be removed at once: it is not taken for the name's file again.
    doomed: bool,
}

/// The shadows of a volume.
pub(super) struct Shadows {
    list: Mutex<List>,
    /// Length of the list, so that the requests that take names away need no lock while it is empty.
    listed: AtomicUsize,
    removed: AtomicU64,
}

#[derive(Default)]
struct List {
    copies: HashMap<Copy, Known>,
    /// Came across when the list was full.
    beyond: u64,
    conflicts: HashSet<Copy>,
}

/// What became of the shadows that were listed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ShadowReport {
    /// Unlinked.
    pub removed: u64,
    /// Kept for a later try: a disk did not answer, or the name's file is being written.
    pub kept: u64,
    /// Not listed because the list was full: only a rescan finds them again.
    pub beyond: u64,
}

impl Shadows {
    pub(super) fn new() -> Self {
        Shadows { list: Mutex::default(), listed: AtomicUsize::new(0), removed: AtomicU64::new(0) }
    }

    fn add(&self, copy: Copy, identity: Identity) {
        let mut list = self.list.lock();
        if list.copies.len() < LISTED_MAX || list.copies.contains_key(&copy) {
            list.copies.insert(copy, Known { identity, doomed: false });
        } else {
            list.beyond += 1;
        }
        self.listed.store(list.copies.len(), Ordering::Release);
    }

    fn forget(&self, copy: &Copy) {
        let mut list = self.list.lock();
        list.copies.remove(copy);
        self.listed.store(list.copies.len(), Ordering::Release);
    }

    fn is_empty(&self) -> bool {
        self.listed.load(Ordering::Acquire) == 0
    }

    /// Whether this very object is the shadow of a name that was taken away.
    pub(super) fn is_doomed(&self, no: DiskNo, place: Place<'_>, stat: &FoundStat) -> bool {
        !self.is_empty() && {
            let copy = (no, place.0, place.1.as_bytes().into());
            self.list.lock().copies.get(&copy) == Some(&Known { identity: identity(stat), doomed: true })
        }
    }

    /// A directory on one disk and a file on another have one name; whether that was not known.
    fn conflict(&self, no: DiskNo, place: Place<'_>) -> bool {
        let mut list = self.list.lock();
        list.conflicts.len() < CONFLICTS_MAX && list.conflicts.insert((no, place.0, place.1.as_bytes().into()))
    }
}

fn identity(stat: &FoundStat) -> Identity {
    (stat.birth_ns, stat.attr.mtime_ns)
}

/// What became of one shadow.
enum Outcome {
    Removed,
    /// Gone, replaced, or the name's own file by now.
    Forgotten,
    Kept,
}

impl Volume {
    /// A directory on one disk and a file on another have one name.
    pub(super) fn conflict(&self, no: DiskNo, place: Place<'_>) {
        if self.shadows.conflict(no, place) {
            let about = self.about_in(no, place.0, place.1.as_bytes());
            event!(Warn, about, "what is a file here and a directory elsewhere is left alone");
        }
    }

    /// Second copies of a name that are known: they are never served.
    pub fn shadows(&self) -> u64 {
        let list = self.shadows.list.lock();
        (list.copies.len() as u64).saturating_add(list.beyond)
    }

    /// Shadows that have been removed since the volume was opened.
    pub fn shadows_removed(&self) -> u64 {
        self.shadows.removed.load(Ordering::Relaxed)
    }

    /// Names that are a file on one disk and a directory on another.
    pub fn conflicts(&self) -> u64 {
        self.shadows.list.lock().conflicts.len() as u64
    }

    /// Forgets what a rescan of all disks is going to tell anew.
    pub fn begin_rescan(&self) {
        let mut list = self.shadows.list.lock();
        list.beyond = 0;
        list.conflicts.clear();
    }

    /// Two copies of a name: the later birth wins, then the later change, then the owner's; a file that is open stays.
    /// The caller holds the name. Returns whether the index now shows the newcomer.
    pub(super) fn adopt_second_copy(
        &self,
        no: DiskNo,
        name: EntryName<'_>,
        known: &Entry,
        stat: &FoundStat,
        away: bool,
    ) -> bool {
        let copy = |disk| (disk, known.parent, name.as_bytes().into());
        let Some(path) = self.path(known.ino) else {
            return false;
        };
        let other = match self.disk(known.disk).map(|disk| disk.io.stat(&path)) {
            Ok(Ok(other)) if other.kind == FoundKind::File => other,
            Ok(Ok(_)) => return self.relocate(known, no, stat, away),
            Ok(Err(error)) if is_gone(&error) => return self.relocate(known, no, stat, away),
            // Whose copy is the younger is looked at again before either is removed.
            _ => {
                self.shadows.add(copy(no), identity(stat));
                return false;
            }
        };
        if known.pinned || known.writing || !Self::wins(known, &other, stat, away) {
            self.shadows.add(copy(no), identity(stat));
            return false;
        }
        self.relocate(known, no, stat, away);
        self.shadows.forget(&copy(no));
        self.shadows.add(copy(known.disk), identity(&other));
        true
    }

    /// Whether a second copy is to be shown instead of the one that the index shows.
    fn wins(known: &Entry, shown: &FoundStat, second: &FoundStat, away: bool) -> bool {
        let rank = |stat: &FoundStat, away: bool| (stat.birth_ns, stat.attr.mtime_ns, !away);
        rank(second, away) > rank(shown, known.away)
    }

    /// The index shows the name's file on another disk now. The name keeps its last use.
    fn relocate(&self, known: &Entry, no: DiskNo, stat: &FoundStat, away: bool) -> bool {
        let _kept;
        let mut shared = self.shared.lock();
        _kept = shared.take_kept(known.ino);
        let atime_ns = known.attr.atime_ns.max(stat.attr.atime_ns.min(now_ns()));
        shared.index.set_attr(known.ino, Attr { atime_ns, ..stat.attr });
        shared.index.set_disk(known.ino, no);
        shared.index.set_away(known.ino, away);
        true
    }

    /// Removes the listed shadows whose winners are synced. Does nothing before every disk has been scanned.
    pub fn remove_shadows(&self, stop: &dyn Fn() -> bool) -> ShadowReport {
        let mut report = ShadowReport::default();
        if self.is_recovering() || self.shadows.is_empty() {
            report.beyond = self.shadows.list.lock().beyond;
            return report;
        }
        let copies: Vec<(Copy, Known)> =
            self.shadows.list.lock().copies.iter().map(|(copy, known)| (copy.clone(), *known)).collect();
        for (copy, known) in copies {
            if stop() {
                break;
            }
            match self.remove_shadow(&copy, known) {
                Ok(Outcome::Removed) => {
                    self.shadows.removed.fetch_add(1, Ordering::Relaxed);
                    self.shadows.forget(&copy);
                    report.removed += 1;
                }
                Ok(Outcome::Forgotten) => self.shadows.forget(&copy),
                Ok(Outcome::Kept) => report.kept += 1,
                Err(error) => {
                    event!(Debug, self.about(copy.0).path(&copy.2).error(&error), "a shadow stays for now");
                    report.kept += 1;
                }
            }
        }
        report.beyond = self.shadows.list.lock().beyond;
        report
    }

    /// Looks at both copies again and removes the loser, once the winner can be lost no more.
    fn remove_shadow(&self, copy: &Copy, known: Known) -> Result<Outcome> {
        let (no, parent, ref bytes) = *copy;
        let Ok(name) = EntryName::new(bytes) else {
            return Ok(Outcome::Forgotten);
        };
        let _tree = self.tree_for(parent);
        let _name = self.names.lock(parent, bytes)?;
        let Some(path) = self.path_of(parent, name) else {
            return Ok(Outcome::Forgotten);
        };
        let loser = match self.disk(no)?.io.stat(&path) {
            Ok(stat) if stat.kind == FoundKind::File && identity(&stat) == known.identity => stat,
            Ok(_) => return Ok(Outcome::Forgotten),
            Err(error) if is_gone(&error) => return Ok(Outcome::Forgotten),
            Err(error) => return Err(Error::disk(no, error)),
        };
        match self.find(parent, name) {
            Some(winner) if winner.kind == Kind::Dir || winner.disk == no => return Ok(Outcome::Forgotten),
            Some(winner) if !self.outlasts(&winner, &path, no, name, &loser)? => {
                let is_shown = self.find(parent, name).is_some_and(|entry| entry.disk == no);
                return Ok(if is_shown { Outcome::Forgotten } else { Outcome::Kept });
            }
            Some(_) => {}
            None if known.doomed => {}
            // The winner was removed behind our back: this one is the name's file now.
            None => {
                self.adopt(no, parent, name, &loser);
                return Ok(Outcome::Forgotten);
            }
        }
        self.disk(no)?.io.unlink(&path).map_err(|e| Error::disk(no, e))?;
        event!(Info, self.about(no).path(&path), "a shadow is removed");
        Ok(Outcome::Removed)
    }

    /// Whether the copy that the index shows is the right one, whole and durable.
    fn outlasts(
        &self,
        winner: &Entry,
        path: &[u8],
        no: DiskNo,
        name: EntryName<'_>,
        loser: &FoundStat,
    ) -> Result<bool> {
        if winner.writing || self.shared.lock().open.get(&winner.ino).is_some_and(|open| open.writers > 0) {
            return Ok(false);
        }
        let io = &self.disk(winner.disk)?.io;
        let away = self.is_away(name.as_bytes(), no);
        let shown = match io.stat(path) {
            Ok(stat) if stat.kind == FoundKind::File => stat,
            Ok(_) => return Ok(false),
            Err(error) if is_gone(&error) => {
                self.relocate(winner, no, loser, away);
                return Ok(false);
            }
            Err(error) => return Err(Error::disk(winner.disk, error)),
        };
        if Self::wins(winner, &shown, loser, away) {
            // An open handle keeps the older one in its place until it is closed.
            if !winner.pinned {
                self.relocate(winner, no, loser, away);
                self.shadows.add((winner.disk, winner.parent, name.as_bytes().into()), identity(&shown));
            }
            return Ok(false);
        }
        let sync = || -> io::Result<()> {
            io.fsync(io.open(path, Access { read: true, write: false })?.as_fd(), false)?;
            let dir = path.iter().rposition(|&b| b == b'/').and_then(|slash| path.get(..slash));
            io.fsync(io.open_dir(dir.unwrap_or_default())?.as_fd(), false)
        };
        sync().map_err(|e| Error::disk(winner.disk, e))?;
        Ok(true)
    }

    /// A name was taken away or given to another file: its shadows go with it, but for what now lies on disk `keep`.
    /// The caller holds the name.
    pub(super) fn drop_shadows(&self, place: Place<'_>, keep: Option<DiskNo>) {
        if self.shadows.is_empty() {
            return;
        }
        let (parent, name) = place;
        for (no, disk) in self.numbered() {
            let copy = (no, parent, name.as_bytes().into());
            let Some(known) = self.shadows.list.lock().copies.get(&copy).copied() else { continue };
            if keep != Some(no)
                && let Some(path) = self.path_of(parent, name)
                && disk.io.stat(&path).is_ok_and(|stat| identity(&stat) == known.identity)
            {
                if let Err(error) = disk.io.unlink(&path) {
                    event!(Warn, disk.about().path(&path).error(&error), "a shadow stays");
                    self.shadows.list.lock().copies.insert(copy, Known { doomed: true, ..known });
                    continue;
                }
                self.shadows.removed.fetch_add(1, Ordering::Relaxed);
            }
            self.shadows.forget(&copy);
        }
    }
}
