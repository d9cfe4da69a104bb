//! Power loss: the volume's side of the sync record (DESIGN.md section 5).
//!
//! Called by the daemon (records opened at the start, a sync of each disk in every interval, a look at the clock each
//! second, records closed at the end), by creates, and by scans and probes, which ask whether a file that they found has
//! to go. Takes name locks like every other change of disk and index; the record's own lock last.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::attr::{DiskNo, Ino, Kind};
use super::disk::{Disk, FoundKind, FoundStat};
use super::files::Place;
use super::index::Entry;
use super::record::rule::{Clock, FileId, LISTED_MAX, Removal, Stamps, Writer};
use super::record::{Figures, RecordSettings, Syncing, now};
use super::room::ObjectSizes;
use super::{Volume, now_ns};
use crate::error::{Error, Result};
use crate::messages::event;

/// Slots of the index that are looked at in one hold of its lock.
const SLOTS_PER_HOLD: u32 = 8_192;

/// A file that is open for writing.
struct OpenWriter {
    ino: Ino,
    opened: Clock,
    fd: Arc<OwnedFd>,
}

impl FoundStat {
    /// What the removal rule looks at.
    pub fn stamps(&self) -> Stamps {
        let id = FileId { ino: self.ino, birth_ns: self.birth_ns };
        Stamps { id, mtime_ns: self.attr.mtime_ns, ctime_ns: self.attr.ctime_ns }
    }
}

impl Volume {
    /// Reads the record of every disk and starts this mount's. Without it no disk keeps one, and every file is taken as
    /// it is.
    pub fn open_records(&self, settings: RecordSettings) {
        for (no, _) in self.numbered() {
            self.open_record(no, settings);
        }
    }

    /// Reads the record of one disk, at the start or when it is back.
    pub fn open_record(&self, no: DiskNo, settings: RecordSettings) {
        let Ok(disk) = self.disk(no) else {
            return;
        };
        match disk.record.open(disk.io.as_ref(), settings) {
            Ok((removal, figures)) => {
                if let Some(figures) = figures {
                    disk.set_foreign_bytes(figures.foreign_bytes);
                    self.recall_object_sizes(ObjectSizes {
                        largest_bytes: figures.largest_object_bytes,
                        published: figures.published_objects,
                    });
                }
                if !removal.is_empty() {
                    event!(
                        Warn,
                        disk.about(),
                        "a power loss, or a file system that went away: files that were not durable go ({})",
                        in_words(&removal)
                    );
                }
            }
            Err(error) => event!(Error, disk.about().error(&error), "the sync record cannot be read"),
        }
    }

    /// Nothing is opened for writing on a disk before its record says so. At the cost of one load but for the first.
    pub(super) fn ready_to_write(&self, no: DiskNo) -> Result<()> {
        let disk = self.disk(no)?;
        if disk.record.has_begun() {
            return Ok(());
        }
        disk.record.begin(disk.io.as_ref(), || self.figures(no)).map_err(|error| {
            let about = disk.about().error(&error);
            event!(Warn, about, "the disk takes no new files, since its sync record cannot be written");
            Error::disk(no, rustix::io::Errno::IO.into())
        })
    }

    /// Whether a file that was found must not be served: bytes of it may be lost. It is then unlinked. The caller holds
    /// the name.
    pub(super) fn is_lost(&self, no: DiskNo, place: Place<'_>, stat: &FoundStat) -> bool {
        let Ok(disk) = self.disk(no) else {
            return false;
        };
        if stat.kind != FoundKind::File {
            return false;
        }
        match disk.record.takes(disk.io.as_ref(), &stat.stamps()) {
            Ok(false) => return false,
            Ok(true) => {}
            Err(error) => {
                event!(Debug, disk.about().error(&error), "the sync record cannot be read");
                return true;
            }
        }
        if let Some(path) = self.path_of(place.0, place.1) {
            self.unlink_lost(disk, &path);
        }
        true
    }

    fn unlink_lost(&self, disk: &Disk, path: &[u8]) {
        if self.is_read_only() {
            // It is not shown, and the next mount that writes removes it.
            return disk.record.note_incomplete();
        }
        match disk.io.unlink(path) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                disk.record.note_incomplete();
                let about = disk.about().path(path).error(&error);
                event!(Warn, about, "a file may be torn and cannot be removed");
            }
            _ => {
                self.counters.lost_removed.fetch_add(1, Ordering::Relaxed);
                event!(Debug, disk.about().path(path), "a file may be torn and is removed");
            }
        }
    }

    /// Files that recovery has removed since the volume was opened.
    pub fn lost_removed(&self) -> u64 {
        self.counters.lost_removed.load(Ordering::Relaxed)
    }

    /// Whether every byte of a file is on its disk for good, as far as the record knows.
    pub fn is_durable(&self, no: DiskNo, stat: &FoundStat) -> bool {
        self.disk(no).is_ok_and(|disk| disk.record.is_durable(&stat.stamps()))
    }

    /// Notes that a scan has looked at every name of a disk, all of them if it was `complete`. What it has removed is
    /// made durable, and only then forgotten.
    pub(super) fn removal_applied(&self, no: DiskNo, complete: bool) {
        if self.disk(no).is_ok_and(|disk| disk.record.scanned(complete)) && !self.is_read_only() {
            self.sync_disk(no);
        }
    }

    /// Whether the next interval should sync a disk: something was written through this mount, or left by another.
    pub fn wants_sync(&self, no: DiskNo) -> bool {
        self.disk(no).is_ok_and(|disk| disk.record.wants_sync())
    }

    /// Makes all that a disk holds durable and writes its record. Takes as long as the disk takes.
    ///
    /// Returns whether it succeeded; when the disk fails, what was not durable is removed.
    pub fn sync_disk(&self, no: DiskNo) -> bool {
        let Ok(disk) = self.disk(no) else {
            return false;
        };
        let _alone = disk.record.alone();
        let durable = self.make_durable(no);
        if durable {
            self.write_record(no);
        }
        durable
    }

    fn make_durable(&self, no: DiskNo) -> bool {
        let Ok(disk) = self.disk(no) else {
            return false;
        };
        let Some(sync) = disk.record.sync_begins(now()) else {
            return false;
        };
        let open = self.open_writers(no);
        let writers = self.writers(disk, &sync, &open);
        if let Err(error) = disk.io.sync_fs() {
            event!(Error, disk.about().error(&error), "the disk could not be synced");
            self.sync_failed(no, disk, &open);
            return false;
        }
        disk.record.synced(&sync, now(), &writers);
        self.settle_sizes(no);
        true
    }

    /// Writes the record as it is now. A failure leaves an older one, which removes more.
    pub fn write_record(&self, no: DiskNo) {
        if let Ok(disk) = self.disk(no)
            && let Err(error) = disk.record.update(disk.io.as_ref(), self.figures(no))
        {
            event!(Warn, disk.about().error(&error), "the sync record cannot be written");
        }
    }

    /// Looks at the clock for every disk. Returns the disks whose record must be written now, because files get older
    /// times than they would have got.
    pub fn look_at_clock(&self) -> Vec<DiskNo> {
        let now = now();
        self.numbered().filter(|(_, disk)| disk.record.look_at_clock(now)).map(|(no, _)| no).collect()
    }

    /// The last sync of a disk, and the clean mark if no file is open for writing.
    pub fn close_record(&self, no: DiskNo) {
        let Ok(disk) = self.disk(no) else {
            return;
        };
        if !disk.record.pause() && !disk.record.wants_sync() {
            return;
        }
        let _alone = disk.record.alone();
        let is_quiet = || self.open_writers(no).is_empty();
        let was_quiet = is_quiet();
        if !self.make_durable(no) {
            return;
        }
        if !was_quiet || !is_quiet() {
            self.write_record(no);
        } else if let Err(error) = disk.record.finish(disk.io.as_ref(), self.figures(no)) {
            event!(Warn, disk.about().error(&error), "the sync record cannot be written");
        }
    }

    /// The files of a disk that are open for writing and have a name, the longest open first.
    fn open_writers(&self, no: DiskNo) -> Vec<OpenWriter> {
        let mut writers: Vec<OpenWriter> = {
            let shared = self.shared.lock();
            let linked = |ino: Ino| shared.index.get(ino).is_some_and(|entry| entry.linked);
            let open = shared.writing_on(no).filter(|(ino, _)| linked(*ino));
            open.map(|(ino, open)| OpenWriter { ino, opened: open.written_since, fd: Arc::clone(&open.fd) }).collect()
        };
        writers.sort_unstable_by_key(|writer| writer.opened.boot_ns);
        writers
    }

    /// What the rule needs to know of them. One whose inode the disk does not tell holds the safe time back.
    fn writers(&self, disk: &Disk, sync: &Syncing, open: &[OpenWriter]) -> Vec<Writer> {
        let known = |(at, writer): (usize, &OpenWriter)| {
            let long = at < LISTED_MAX && disk.record.lists(sync, writer.opened);
            let listed = if long { file_id(disk, &writer.fd) } else { None };
            Writer { opened: writer.opened, listed }
        };
        open.iter().enumerate().map(known).collect()
    }

    /// What is not durable may never become so: it is a miss from now on, and at every later mount. The record says so
    /// first, so that a kill changes nothing.
    fn sync_failed(&self, no: DiskNo, disk: &Disk, open: &[OpenWriter]) {
        let writing: Vec<FileId> = open.iter().filter_map(|writer| file_id(disk, &writer.fd)).collect();
        let Some((removal, listed)) = disk.record.sync_failed(now(), &writing) else {
            return;
        };
        self.write_record(no);
        let before = self.lost_removed();
        for writer in open {
            self.drop_if_lost(no, writer.ino, &removal, true);
        }
        self.drop_changed_since(no, removal.oldest_ns().unwrap_or(i64::MAX), &removal);
        if listed.iter().any(|file| !writing.contains(file)) {
            // Files that another mount had open: only their inode numbers are known.
            self.drop_changed_since(no, i64::MIN, &removal);
        }
        disk.record.swept();
        let gone = self.lost_removed().saturating_sub(before);
        event!(Error, disk.about(), "{gone} files that were not durable were removed");
    }

    fn drop_changed_since(&self, no: DiskNo, since_ns: i64, removal: &Removal) {
        let (mut files, mut next) = (Vec::new(), Some(0));
        while let Some(from) = next {
            next = self.shared.lock().index.changed_since((no, since_ns), from, SLOTS_PER_HOLD, &mut files);
            for ino in files.drain(..) {
                self.drop_if_lost(no, ino, removal, since_ns != i64::MIN);
            }
        }
    }

    /// Removes a file of the index if it has to go. If the disk does not tell, a `suspect` is a miss from now on, and
    /// nothing is removed.
    fn drop_if_lost(&self, no: DiskNo, ino: Ino, removal: &Removal, suspect: bool) {
        let (Ok(disk), _tree) = (self.disk(no), self.tree_if_nested(ino)) else {
            return;
        };
        let locked = self.lock_entry(ino);
        let (entry, path) = match (&locked, self.path(ino)) {
            (Ok((entry, ..)), Some(path)) if entry.kind == Kind::File && entry.disk == no => (entry, path),
            // A request is stuck with the name; whatever it does, nobody finds the file any more.
            (Err(Error::Busy), _) if suspect => {
                disk.record.note_incomplete();
                let _kept = self.shared.lock().unlink(ino);
                return;
            }
            _ => return,
        };
        match disk.io.stat(&path) {
            Ok(stat) if removal.takes(&stat.stamps()) => {
                self.hide(entry);
                self.unlink_lost(disk, &path);
            }
            Ok(_) => {}
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => self.hide(entry),
            Err(_) => {
                disk.record.note_incomplete();
                if suspect {
                    self.hide(entry);
                }
            }
        }
    }

    /// Takes a name out of the index, and out of what the kernel remembers.
    pub(super) fn hide(&self, entry: &Entry) {
        let _kept = {
            let mut shared = self.shared.lock();
            shared.changed_dir(entry.parent, now_ns());
            shared.unlink(entry.ino)
        };
        if entry.lookups > 0 {
            (self.on_evicted)(entry.ino);
        }
    }

    /// Bytes and objects for the record, once the disk is scanned.
    fn figures(&self, no: DiskNo) -> Option<Figures> {
        let disk = self.disk(no).ok()?;
        if !disk.is_scanned() {
            return None;
        }
        let (used_bytes, sizes) = {
            let shared = self.shared.lock();
            (shared.index.used_bytes(no), shared.sizes)
        };
        let foreign_bytes = disk.space().used_bytes.saturating_sub(used_bytes);
        disk.set_foreign_bytes(foreign_bytes);
        Some(Figures {
            used_bytes,
            foreign_bytes,
            largest_object_bytes: sizes.largest_bytes,
            published_objects: sizes.published,
        })
    }
}

fn file_id(disk: &Disk, fd: &OwnedFd) -> Option<FileId> {
    disk.io.stat_fd(fd.as_fd()).ok().map(|stat| stat.stamps().id)
}

/// A removal as an operator reads it.
fn in_words(removal: &Removal) -> String {
    let time = |ns: i64| {
        let since = std::time::Duration::from_nanos(u64::try_from(ns).unwrap_or(0));
        let time = std::time::SystemTime::UNIX_EPOCH.checked_add(since);
        time.map_or_else(|| ns.to_string(), |time| humantime::format_rfc3339_millis(time).to_string())
    };
    let windows = removal
        .windows
        .iter()
        .map(|window| format!("born or changed from {} to {}", time(window.from_ns), time(window.until_ns)));
    let files = (!removal.files.is_empty()).then(|| format!("{} that were open for writing", removal.files.len()));
    windows.chain(files).collect::<Vec<_>>().join(", ")
}
