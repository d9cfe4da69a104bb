//! Rescan: what was added, changed or removed on a disk behind our back, without losing recency.
//!
//! Called by the daemon for `kvspan rescan` and for `rescan_interval`, one thread a disk. Three steps: walk the disk and
//! mark what is there (a bit a slot); look again at the entries that were not marked, each under its name lock, and drop
//! what has gone; give the new files their places in the LRU. Nothing is dropped below a directory that could not be
//! read. Known files keep their places. No lock is held between two names, and the index lock only for a bounded number
//! of slots. Memory: two bits a slot of the index, and 16 bytes a new file.
//!
//! The kernel is told of each file that it knows and that went or changed, through a bounded queue; what the queue drops,
//! it finds out when `entry_ttl` is over. A miss that it was told before a file was found it believes for `negative_ttl`.

use super::attr::{Attr, DiskNo, Ino, Kind};
use super::disk::{FoundKind, FoundStat};
use super::files::{Place, is_gone};
use super::index::{Entry, Placing};
use super::name::{self, EntryName};
use super::readings::Reading;
use super::{Volume, now_ns};
use crate::error::{Error, Result};
use crate::messages::event;

/// Slots of the index that one hold of its lock looks at.
const SLOTS: u32 = 8_192;
/// Steps along the LRU in one hold of the lock.
const STEPS: usize = 4_096;
/// Directories that are dropped in one pass; the rest waits for the next.
const DIRS: usize = 65_536;

/// What a rescan of a disk came across.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RescanReport {
    /// Files that are on the disk.
    pub files: u64,
    /// Files that the index did not know.
    pub added: u64,
    /// Files that the index knew and that have gone.
    pub removed: u64,
    /// Files whose contents or attributes had changed.
    pub changed: u64,
    /// Temp files whose writers are gone.
    pub orphans_removed: u64,
    /// Objects that are neither file nor directory.
    pub foreign: u64,
    /// Directories and names that could not be read: nothing below them was dropped.
    pub unreadable: u64,
}

impl RescanReport {
    /// The sums of two disks.
    pub fn and(self, other: RescanReport) -> RescanReport {
        RescanReport {
            files: self.files + other.files,
            added: self.added + other.added,
            removed: self.removed + other.removed,
            changed: self.changed + other.changed,
            orphans_removed: self.orphans_removed + other.orphans_removed,
            foreign: self.foreign + other.foreign,
            unreadable: self.unreadable + other.unreadable,
        }
    }
}

/// A set of entries, a bit a slot. An entry that took over a slot meanwhile is new, and looking at it again does no
/// harm.
#[derive(Default)]
struct Marks(Vec<u64>);

impl Marks {
    fn place(ino: Ino) -> (usize, u64) {
        let slot = ino.0 as u32;
        (slot as usize / 64, 1 << (slot % 64))
    }

    fn set(&mut self, ino: Ino) {
        let (word, bit) = Marks::place(ino);
        if self.0.len() <= word {
            self.0.resize(word + 1, 0);
        }
        if let Some(word) = self.0.get_mut(word) {
            *word |= bit;
        }
    }

    fn has(&self, ino: Ino) -> bool {
        let (word, bit) = Marks::place(ino);
        self.0.get(word).is_some_and(|word| word & bit != 0)
    }
}

/// A rescan of one disk on its way.
struct Rescan<'a> {
    volume: &'a Volume,
    no: DiskNo,
    /// Told the files so far, between two batches; false stops.
    watch: &'a dyn Fn(u64) -> bool,
    report: RescanReport,
    /// Entries that the disk has, and directories that were listed to their end.
    seen: Marks,
    read: Marks,
    pending: Vec<Ino>,
}

/// Scans one disk again. `None` when `watch` stopped it: nothing was dropped then.
///
/// # Errors
/// What the disk said about its own directory.
pub fn rescan_disk(volume: &Volume, no: DiskNo, watch: &dyn Fn(u64) -> bool) -> Result<Option<RescanReport>> {
    let disk = volume.disk(no)?;
    let _alone = disk.begin_scan();
    volume.disk_returns(no);
    let mut rescan = Rescan {
        volume,
        no,
        watch,
        report: RescanReport::default(),
        seen: Marks::default(),
        read: Marks::default(),
        pending: vec![Ino::ROOT],
    };
    while let Some(dir) = rescan.pending.pop() {
        match rescan.walk(dir) {
            Ok(true) => {}
            Ok(false) => return Ok(None),
            Err(error) if dir == Ino::ROOT => return Err(error),
            Err(error) => {
                rescan.report.unreadable += 1;
                event!(Warn, volume.about_in(no, dir, b"").error(&error), "a directory could not be scanned again");
            }
        }
    }
    rescan.drop_missing();
    volume.place_found(no);
    disk.set_foreign(rescan.report.foreign);
    // Names that could not be read are still on the disk: one that was never scanned to its end is asked for them.
    if rescan.report.unreadable == 0 {
        disk.set_scanned();
    }
    volume.removal_applied(no, rescan.report.unreadable == 0);
    if rescan.report.unreadable == 0 {
        volume.removed_applied(no);
    }
    Ok(Some(rescan.report))
}

impl Rescan<'_> {
    /// Lists one directory; false when stopped.
    fn walk(&mut self, dir: Ino) -> Result<bool> {
        let Some(mut reader) = self.volume.open_listing(self.no, dir)? else {
            // It has gone since its name was listed; the root has not.
            return if dir == Ino::ROOT { Err(Error::NoDisk) } else { Ok(true) };
        };
        loop {
            if !(self.watch)(self.report.files) {
                return Ok(false);
            }
            let batch = reader.next_batch().map_err(|e| Error::disk(self.no, e))?;
            if batch.is_empty() {
                self.read.set(dir);
                return Ok(true);
            }
            for (bytes, kind) in batch {
                if let Err(error) = self.step(dir, &bytes, kind) {
                    self.report.unreadable += 1;
                    let about = self.volume.about_in(self.no, dir, &bytes).error(&error);
                    event!(Warn, about, "a name could not be scanned again");
                }
            }
        }
    }

    /// Takes one name that the disk has listed.
    fn step(&mut self, dir: Ino, bytes: &[u8], listed: FoundKind) -> Result<()> {
        if dir == Ino::ROOT && name::is_hidden(bytes) {
            return Ok(());
        }
        let name = match EntryName::new(bytes) {
            Ok(name) if listed != FoundKind::Foreign => name,
            _ => {
                self.report.foreign += 1;
                return Ok(());
            }
        };
        let known = self.volume.find(dir, name);
        match known {
            Some(entry) if entry.kind == Kind::Dir || entry.disk == self.no => self.check_known((dir, name)),
            _ => self.take_unknown((dir, name), listed, known.is_none()),
        }
    }

    /// A name that the index does not know, or knows on another disk.
    fn take_unknown(&mut self, place: Place<'_>, listed: FoundKind, is_new: bool) -> Result<()> {
        let (dir, name) = place;
        let disk = self.volume.disk(self.no)?;
        let (foreign, orphans) = (disk.foreign_objects(), self.volume.orphans_removed_on(self.no));
        match self.volume.scan_name(self.no, dir, name.as_bytes(), listed)? {
            Some((ino, Kind::File)) if self.volume.find(dir, name).is_some_and(|entry| entry.disk == self.no) => {
                self.seen.set(ino);
                self.report.files += 1;
                self.report.added += u64::from(is_new);
            }
            Some((ino, Kind::Dir)) => {
                self.seen.set(ino);
                self.pending.push(ino);
            }
            _ => self.report.orphans_removed += u64::from(self.volume.orphans_removed_on(self.no) > orphans),
        }
        self.report.foreign += u64::from(disk.foreign_objects() > foreign);
        Ok(())
    }

    /// A name that the index knows on this disk: what it is now.
    fn check_known(&mut self, place: Place<'_>) -> Result<()> {
        let (dir, name) = place;
        let volume = self.volume;
        let _tree = volume.tree_for(dir);
        let _name = volume.names.lock(dir, name.as_bytes())?;
        let Some(path) = volume.path_of(dir, name) else {
            return Ok(());
        };
        let Some(entry) = volume.find(dir, name) else {
            return Ok(());
        };
        let reading = volume.begin_reading(entry.ino);
        let stat = match volume.disk(self.no)?.io.stat(&path) {
            Ok(stat) => stat,
            Err(error) if is_gone(&error) => {
                self.report.removed += u64::from(volume.forget_if_at(self.no, &entry));
                return Ok(());
            }
            Err(error) => {
                // It was listed: that it cannot be looked at is no reason to drop it, or anything below it.
                self.seen.set(entry.ino);
                return Err(Error::disk(self.no, error));
            }
        };
        match (entry.kind, stat.kind) {
            (Kind::Dir, FoundKind::Dir) => {
                self.seen.set(entry.ino);
                volume.adopt_dir_copy(self.no, &entry, name, &stat);
                volume.refresh_dir(self.no, &entry, &stat);
                self.pending.push(entry.ino);
            }
            (Kind::File, FoundKind::File) if entry.disk == self.no => {
                self.seen.set(entry.ino);
                if volume.remove_known_orphan(&entry, name.as_bytes(), &path, &stat) {
                    self.report.orphans_removed += 1;
                    return Ok(());
                }
                self.report.files += 1;
                let changed = volume.refresh_file(&entry, &stat, reading);
                self.report.changed += u64::from(changed);
                if changed && entry.lookups > 0 {
                    (volume.on_evicted)(entry.ino);
                }
            }
            (Kind::Dir, FoundKind::File) => volume.conflict(self.no, place),
            // Something else took its place behind our back.
            _ => {
                self.report.removed += u64::from(volume.forget_if_at(self.no, &entry));
                self.report.foreign += u64::from(stat.kind == FoundKind::Foreign);
                if volume.adopt(self.no, dir, name, &stat)
                    && let Some(new) = volume.find(dir, name)
                {
                    self.seen.set(new.ino);
                    self.pending.extend((new.kind == Kind::Dir).then_some(new.ino));
                }
            }
        }
        Ok(())
    }

    /// Looks again at what the walk did not meet, and drops what has gone.
    fn drop_missing(&mut self) {
        let (mut next, mut dirs) = (Some(0), Vec::new());
        while let Some(from) = next {
            let mut missed = Vec::new();
            next = self.volume.shared.lock().index.sweep(self.no, from, SLOTS, &mut |ino, kind| {
                if !self.seen.has(ino) {
                    missed.push((ino, kind));
                }
            });
            for (ino, kind) in missed {
                if !self.was_left_out(ino) {
                    continue;
                }
                match (kind, self.volume.drop_if_gone(self.no, ino)) {
                    (Kind::Dir, _) if dirs.len() < DIRS => dirs.push(ino),
                    (Kind::File, Ok(true)) => self.report.removed += 1,
                    (Kind::File, Err(error)) if !matches!(error, Error::Stale | Error::Busy) => {
                        self.report.unreadable += 1;
                    }
                    _ => {}
                }
            }
        }
        // The deepest first: a directory goes when it is empty.
        dirs.sort_by_cached_key(|ino| std::cmp::Reverse(self.volume.path(*ino).map_or(0, |path| path.len())));
        for ino in dirs {
            if let Err(error) = self.volume.drop_dir_copy(self.no, ino) {
                let about = self.volume.about(self.no);
                event!(Debug, about.error(&error), "a directory that has gone stays in the index");
            }
        }
    }

    /// Whether the walk read a whole directory in which the entry, or a directory above it, was missing. One that was
    /// listed and could not be read says nothing.
    fn was_left_out(&self, ino: Ino) -> bool {
        let mut at = ino;
        while at != Ino::ROOT {
            at = self.volume.parent(at);
            if self.read.has(at) {
                return true;
            }
            if self.seen.has(at) {
                return false;
            }
        }
        false
    }
}

impl Volume {
    /// Drops an entry that lies on this disk, or is a directory; its disk no longer has it.
    fn forget_if_at(&self, no: DiskNo, entry: &Entry) -> bool {
        let is_here = entry.kind == Kind::File && entry.disk == no;
        if is_here {
            self.forget_entry(entry.ino);
            if entry.lookups > 0 {
                (self.on_evicted)(entry.ino);
            }
        }
        is_here
    }

    /// Drops a file that its disk no longer has. Looked at under its name lock: it may have come meanwhile.
    fn drop_if_gone(&self, no: DiskNo, ino: Ino) -> Result<bool> {
        let _tree = self.tree_if_nested(ino);
        let (entry, _, _guard) = self.lock_entry(ino)?;
        if entry.kind != Kind::File || entry.disk != no {
            return Ok(false);
        }
        let path = self.path(ino).ok_or(Error::Stale)?;
        match self.disk(no)?.io.stat(&path) {
            Ok(stat) if stat.kind == FoundKind::File => Ok(false),
            Ok(_) => Ok(self.forget_if_at(no, &entry)),
            Err(error) if is_gone(&error) => Ok(self.forget_if_at(no, &entry)),
            Err(error) => Err(Error::disk(no, error)),
        }
    }

    /// A disk no longer has its copy of a directory; without any copy and empty, the directory goes.
    fn drop_dir_copy(&self, no: DiskNo, ino: Ino) -> Result<()> {
        let _alone = self.tree_alone()?;
        let (entry, _, _guard) = self.lock_entry(ino)?;
        let path = self.path(ino).ok_or(Error::Stale)?;
        match self.disk(no)?.io.stat(&path) {
            Ok(stat) if stat.kind == FoundKind::Dir => return Ok(()),
            Ok(_) => {}
            Err(error) if is_gone(&error) => {}
            Err(error) => return Err(Error::disk(no, error)),
        }
        let mut shared = self.shared.lock();
        let left = shared.index.dir_disks(ino) & !(1 << no.0);
        if left == 0 {
            if shared.index.child_count(ino) == 0 {
                shared.index.unlink(ino);
                shared.changed_dir(entry.parent, now_ns());
            }
            return Ok(());
        }
        shared.set_copies(ino, left);
        Ok(())
    }

    /// Takes over what was changed on a file behind our back; its last use and its place stay. A file that is open for
    /// writing is always read live. The caller holds the name.
    pub(super) fn refresh_file(&self, entry: &Entry, stat: &FoundStat, reading: Reading<'_>) -> bool {
        let mut shared = self.shared.lock();
        if !reading.end_as_latest(&mut shared) || shared.writers_of(entry.ino) > 0 {
            return false;
        }
        let Some(now) = shared.index.get(entry.ino) else {
            return false;
        };
        // Our own durable last uses move ctime, so it alone is no change.
        let same = Attr { atime_ns: now.attr.atime_ns, ctime_ns: now.attr.ctime_ns, ..stat.attr };
        if same != now.attr || stat.attr.ctime_ns != now.attr.ctime_ns {
            shared.index.set_attr(entry.ino, Attr { atime_ns: now.attr.atime_ns, ..stat.attr });
        }
        same != now.attr
    }

    /// The same for the copy of a directory that its attributes come from.
    fn refresh_dir(&self, no: DiskNo, entry: &Entry, stat: &FoundStat) {
        let mut shared = self.shared.lock();
        if let Some(now) = shared.index.get(entry.ino).filter(|now| now.disk == no) {
            let Attr { mode, uid, gid, .. } = stat.attr;
            shared.index.set_attr(entry.ino, Attr { mode, uid, gid, ..now.attr });
        }
    }

    /// Gives the files that have no place in the order of a disk the one of their last use, in bounded steps.
    fn place_found(&self, no: DiskNo) {
        let (mut found, mut next) = (Vec::new(), Some(0));
        while let Some(from) = next {
            next = self.shared.lock().index.unplaced(no, from, SLOTS, &mut found);
        }
        found.sort_unstable();
        let mut placing = Placing::default();
        let files = self.shared.lock().index.files(no) as usize;
        // Use may move the place that it had reached; then it begins again, but not for ever.
        for _ in 0..(files / STEPS + 1).saturating_mul(4).saturating_add(found.len()) {
            if !self.shared.lock().index.place(no, &found, &mut placing, STEPS) {
                return;
            }
        }
        self.order_by_last_use(no);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_are_by_slot() {
        let mut marks = Marks::default();
        for slot in [1u64, 64, 65, 1_000] {
            let ino = Ino(7 << 32 | slot);
            assert!(!marks.has(ino));
            marks.set(ino);
            assert!(marks.has(ino));
        }
        assert!(!marks.has(Ino(2)) && !marks.has(Ino(1 << 20)));
    }
}
