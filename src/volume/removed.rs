//! `.kvspan/removed`: the names that were taken away while a disk of the volume was not there (DESIGN.md section 4).
//!
//! Every disk that is there keeps a list. A disk knows what its own list says; what the others know beyond that happened
//! without it, and is applied when it is back: a file of it that was born before its name was taken away is removed when
//! it is come across, before it is shown. When its scan has ended it knows as much as the others, and when no disk is
//! missing the lists go. So the lists need no clock of their own, no order and no list of members.
//!
//! Requests only queue a record. The daemon's thread writes and syncs ([`Volume::flush_removed`] does both); its lock
//! (rank 0: one writer) is held over that. At [`LIST_BYTES_MAX`] the older half of a list is dropped: those names may
//! come back with the disk as they were. Nothing is deleted on suspicion. A disk that is there and cannot be read counts
//! as missing until a rescan has read it to its end.

mod format;

use std::collections::HashMap;
use std::io;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

use super::attr::DiskNo;
use super::disk::{Access, Disk, FoundKind, FoundStat};
use super::files::{Place, is_gone};
use super::index::Entry;
use super::{Volume, durable, name, now_ns};
use crate::messages::event;

/// A disk's list is not longer: about 90,000 names of LMCache.
const LIST_BYTES_MAX: usize = 16 << 20;
/// What waits to be written is not longer.
const QUEUE_BYTES_MAX: usize = 4 << 20;

const LIST: &[u8] = b".kvspan/removed";

const READ_WRITE: Access = Access { read: true, write: true };

/// Names and when they were taken away.
type Names = HashMap<Box<[u8]>, i64>;

/// What is known of names that were taken away without a disk.
pub(super) struct Removed {
    /// Some disk cannot be read: what is taken away is recorded.
    recording: AtomicBool,
    /// Some configured disk is not there.
    missing: AtomicBool,
    /// Nothing may be written to the disks.
    read_only: AtomicBool,
    /// A file that was born later is younger than all that a missing disk holds.
    since_ns: AtomicI64,
    queue: Mutex<Queue>,
    queued: Condvar,
    /// Rank 0: one writer at a time, held over its system calls.
    writer: Mutex<Vec<Written>>,
    /// For each disk what happened without it, and whether it is so now: it is there and cannot be read.
    without: Vec<Mutex<Names>>,
    unreadable: Vec<AtomicBool>,
    /// Some disk has not been told what happened without it.
    waiting: AtomicBool,
    outdated: AtomicU64,
}

#[derive(Default)]
struct Queue {
    records: Vec<u8>,
    dropped: u64,
}

/// How far a disk's list is written.
#[derive(Clone, Copy, Default)]
struct Written {
    /// Where the next record goes; 0 when that is not known.
    end_bytes: u64,
    synced: bool,
}

impl Removed {
    pub(super) fn new(disks: usize) -> Self {
        Removed {
            recording: AtomicBool::new(false),
            missing: AtomicBool::new(false),
            read_only: AtomicBool::new(false),
            since_ns: AtomicI64::new(i64::MIN),
            queue: Mutex::default(),
            queued: Condvar::new(),
            writer: Mutex::new(vec![Written::default(); disks]),
            without: (0..disks).map(|_| Mutex::default()).collect(),
            unreadable: (0..disks).map(|_| AtomicBool::new(false)).collect(),
            waiting: AtomicBool::new(false),
            outdated: AtomicU64::new(0),
        }
    }

    fn is_readable(&self, no: usize) -> bool {
        !self.unreadable.get(no).is_some_and(|unreadable| unreadable.load(Ordering::Acquire))
    }

    /// Begins or ends recording, after a disk went or came.
    fn decide(&self) {
        let unreadable = self.unreadable.iter().any(|unreadable| unreadable.load(Ordering::Acquire));
        let record = self.missing.load(Ordering::Acquire) || unreadable;
        if record && !self.recording.load(Ordering::Acquire) {
            self.since_ns.store(now_ns(), Ordering::Relaxed);
        }
        self.recording.store(record && !self.read_only.load(Ordering::Acquire), Ordering::Release);
    }
}

impl Volume {
    /// Whether the disks are to be left as they are.
    pub(super) fn is_read_only(&self) -> bool {
        self.removed.read_only.load(Ordering::Acquire)
    }

    /// Reads the lists of all disks, before anything is shown. `missing`: some configured disk is not there, so what
    /// is taken away from now on is recorded. `read_only`: the disks are left as they are.
    pub fn load_removed(&self, missing: bool, read_only: bool) {
        self.removed.read_only.store(read_only, Ordering::Release);
        self.removed.missing.store(missing, Ordering::Release);
        self.removed.decide();
        let own: Vec<Names> = self.disks().iter().map(|disk| names_of(&read_list(disk))).collect();
        for (no, mine) in (0u8..).map(DiskNo).zip(&own) {
            self.tell_disk(no, mine, &own);
        }
        self.clear_lists_if_done();
    }

    /// What the lists of the others say and the disk's own does not happened without it.
    fn tell_disk(&self, no: DiskNo, mine: &Names, all: &[Names]) {
        let Some(without) = self.removed.without.get(no.index()) else {
            return;
        };
        let mut names = Names::new();
        for (path, time_ns) in all.iter().flatten() {
            if mine.get(path).is_none_or(|known| known < time_ns) {
                let latest = names.entry(path.clone()).or_insert(*time_ns);
                *latest = (*latest).max(*time_ns);
            }
        }
        if !names.is_empty() {
            self.removed.waiting.store(true, Ordering::Release);
        }
        *without.lock() = names;
    }

    /// A disk is there and cannot be read: what is taken away from now on happens without it.
    pub fn disk_is_unreadable(&self, no: DiskNo) {
        if let Some(unreadable) = self.removed.unreadable.get(no.index()) {
            unreadable.store(true, Ordering::Release);
            self.removed.decide();
        }
    }

    /// A disk that could not be read is about to be scanned again: it is told what happened without it.
    pub(super) fn disk_returns(&self, no: DiskNo) {
        if self.removed.is_readable(no.index()) {
            return;
        }
        self.replay_renames();
        self.write_removed();
        let lists: Vec<Names> = self.disks().iter().map(|disk| names_of(&read_list(disk))).collect();
        if let Some(mine) = lists.get(no.index()) {
            self.tell_disk(no, mine, &lists);
        }
    }

    /// Whether some disk of the volume is not there or cannot be read.
    pub fn misses_a_disk(&self) -> bool {
        self.removed.recording.load(Ordering::Acquire)
    }

    /// Whether a disk that is back has not been told of all names that were taken away without it. They are known by
    /// their paths, which must stay what they are until then.
    pub fn awaits_removed_names(&self) -> bool {
        self.removed.waiting.load(Ordering::Acquire)
    }

    /// Files that were removed because their names had been taken away while their disk was not there.
    pub fn outdated_removed(&self) -> u64 {
        self.removed.outdated.load(Ordering::Relaxed)
    }

    /// Records that a name was taken away. The caller holds the name.
    fn note_removed(&self, place: Place<'_>) {
        if !self.misses_a_disk() {
            return;
        }
        let Some(path) = self.path_of(place.0, place.1) else {
            return;
        };
        let mut queue = self.removed.queue.lock();
        if queue.records.len() < QUEUE_BYTES_MAX {
            format::write(&path, now_ns(), &mut queue.records);
        } else {
            queue.dropped += 1;
        }
        drop(queue);
        self.removed.queued.notify_one();
    }

    /// A file was given a name. What a missing disk holds under it is older than a file that was born meanwhile, and
    /// loses anyway; an older file's new name is recorded. The caller holds the name.
    fn note_published(&self, no: DiskNo, place: Place<'_>) {
        if !self.misses_a_disk() {
            return;
        }
        let since_ns = self.removed.since_ns.load(Ordering::Relaxed);
        let stat = self.path_of(place.0, place.1).map(|path| self.disk(no).map(|disk| disk.io.stat(&path)));
        match stat {
            Some(Ok(Ok(stat))) if stat.birth_ns > since_ns => {}
            _ => self.note_removed(place),
        }
    }

    /// Whether a file that was come across lost its name while its disk was not there; it is then removed. The caller
    /// holds the name.
    pub(super) fn is_outdated(&self, no: DiskNo, place: Place<'_>, stat: &FoundStat) -> bool {
        if !self.awaits_removed_names() {
            return false;
        }
        let Some((path, without)) = self.path_of(place.0, place.1).zip(self.removed.without.get(no.index())) else {
            return false;
        };
        // Where a file system keeps no birth time, the last change stands for it.
        let born_ns = if stat.birth_ns == i64::MIN { stat.attr.mtime_ns } else { stat.birth_ns };
        if without.lock().get(&path[..]).is_none_or(|time_ns| *time_ns <= born_ns) {
            return false;
        }
        if self.is_read_only() {
            return true;
        }
        match self.disk(no).map(|disk| disk.io.unlink(&path)) {
            Ok(Err(error)) if !is_gone(&error) => {
                event!(Warn, self.about(no).path(&path).error(&error), "an outdated file is not shown, and stays");
            }
            _ => {
                self.removed.outdated.fetch_add(1, Ordering::Relaxed);
                event!(Info, self.about(no).path(&path), "what was taken away while the disk was missing goes");
            }
        }
        true
    }

    /// A disk was scanned to its end, so that nothing outdated is left on it: it knows now what the others know.
    pub(super) fn removed_applied(&self, no: DiskNo) {
        let (Some(without), Some(unreadable)) =
            (self.removed.without.get(no.index()), self.removed.unreadable.get(no.index()))
        else {
            return;
        };
        let was_unreadable = unreadable.load(Ordering::Acquire);
        if self.is_read_only() || !(was_unreadable || self.awaits_removed_names()) {
            return;
        }
        let mut records = Vec::new();
        for (path, time_ns) in without.lock().iter() {
            format::write(path, *time_ns, &mut records);
        }
        if !records.is_empty() {
            let mut writer = self.removed.writer.lock();
            if let (Ok(disk), Some(written)) = (self.disk(no), writer.get_mut(no.index()))
                && let Err(error) = append(disk, written, &records)
            {
                event!(Warn, disk.about().error(&error), "the list of removed names cannot be kept");
                return;
            }
        }
        *without.lock() = Names::new();
        unreadable.store(false, Ordering::Release);
        self.removed.decide();
        self.clear_lists_if_done();
    }

    /// When every disk is there and knows all, the lists have served.
    fn clear_lists_if_done(&self) {
        let waiting = self.removed.without.iter().any(|names| !names.lock().is_empty());
        self.removed.waiting.store(waiting, Ordering::Release);
        let missing = self.removed.missing.load(Ordering::Acquire) || self.misses_a_disk();
        if waiting || missing || self.is_read_only() {
            return;
        }
        let mut writer = self.removed.writer.lock();
        writer.fill(Written { end_bytes: 0, synced: true });
        for disk in self.disks() {
            match disk.io.unlink(LIST) {
                Err(error) if !is_gone(&error) => {
                    event!(Warn, disk.about().error(&error), "the list of removed names stays");
                }
                _ => {}
            }
        }
    }

    /// Waits until something is to be written, at most for `timeout`.
    pub fn wait_for_removed(&self, timeout: Duration) {
        let mut queue = self.removed.queue.lock();
        if queue.records.is_empty() {
            self.removed.queued.wait_until(&mut queue, Instant::now() + timeout);
        }
    }

    /// Writes what was recorded to every disk that is there.
    pub fn write_removed(&self) {
        if !self.misses_a_disk() {
            return;
        }
        let mut writer = self.removed.writer.lock();
        let Queue { records, dropped } = std::mem::take(&mut *self.removed.queue.lock());
        if dropped > 0 {
            log::warn!("{dropped} removed names came too fast to be recorded; a missing disk may bring them back");
        }
        if records.is_empty() {
            return;
        }
        for ((no, disk), written) in self.disks().iter().enumerate().zip(writer.iter_mut()) {
            if !self.removed.is_readable(no) {
                continue;
            }
            if let Err(error) = append(disk, written, &records) {
                *written = Written::default();
                event!(Warn, disk.about().error(&error), "the list of removed names cannot be written");
            }
        }
    }

    /// Makes what was written durable.
    pub fn sync_removed(&self) {
        if !self.misses_a_disk() {
            return;
        }
        let mut writer = self.removed.writer.lock();
        for (disk, written) in self.disks().iter().zip(writer.iter_mut()).filter(|(_, written)| !written.synced) {
            written.synced = true;
            let synced = disk.io.open(LIST, READ_WRITE).and_then(|fd| disk.io.fsync(fd.as_fd(), true));
            match synced {
                Err(error) if !is_gone(&error) => {
                    event!(Warn, disk.about().error(&error), "the list of removed names cannot be synced");
                }
                _ => {}
            }
        }
    }

    /// Writes and syncs: for a clean unmount.
    pub fn flush_removed(&self) {
        self.write_removed();
        self.sync_removed();
    }

    /// A name was unlinked. The caller holds it.
    pub(super) fn name_removed(&self, place: Place<'_>) {
        self.drop_shadows(place, None);
        self.note_removed(place);
    }

    /// A file was evicted. What a missing disk holds under its name can only be older if the file came meanwhile; the
    /// others need no record. The caller holds the name.
    pub(super) fn name_evicted(&self, place: Place<'_>, file: &Entry) {
        self.drop_shadows(place, None);
        if file.attr.ctime_ns >= self.removed.since_ns.load(Ordering::Relaxed) {
            self.note_removed(place);
        }
    }

    /// A file on disk `no` was renamed. The caller holds both names.
    pub(super) fn name_published(&self, from: Place<'_>, to: Place<'_>, no: DiskNo) {
        self.drop_shadows(from, None);
        self.drop_shadows(to, Some(no));
        // What a missing disk holds under a temp name is an orphan anyway.
        if !name::is_unpublished_name(from.1.as_bytes()) {
            self.note_removed(from);
        }
        self.note_published(no, to);
    }

    /// Two files of disk `no` swapped names. The caller holds both.
    pub(super) fn names_exchanged(&self, a: Place<'_>, b: Place<'_>, no: DiskNo) {
        for place in [a, b] {
            self.drop_shadows(place, Some(no));
            self.note_published(no, place);
        }
    }
}

fn names_of(list: &[u8]) -> Names {
    let mut names = Names::new();
    for record in format::parse(list).0 {
        let latest = names.entry(record.path.into()).or_insert(record.time_ns);
        *latest = (*latest).max(record.time_ns);
    }
    names
}

/// The list of a disk; empty if it has none or none that can be read.
fn read_list(disk: &Disk) -> Vec<u8> {
    let read = || -> io::Result<Vec<u8>> {
        let fd = disk.io.open(LIST, Access { read: true, write: false })?;
        let stat = disk.io.stat_fd(fd.as_fd())?;
        if stat.kind != FoundKind::File {
            return Err(io::Error::other("it is not a regular file"));
        }
        // A list has a bound; what lies behind it was not written by us.
        let size = usize::try_from(stat.attr.size_bytes).unwrap_or(usize::MAX);
        let mut list = vec![0; size.min(LIST_BYTES_MAX + QUEUE_BYTES_MAX + (64 << 10))];
        let length = disk.io.read(fd.as_fd(), &mut list, 0)?;
        list.truncate(length);
        Ok(list)
    };
    match read() {
        Ok(list) => list,
        Err(error) if is_gone(&error) => Vec::new(),
        Err(error) => {
            event!(Warn, disk.about().error(&error), "the list of removed names cannot be read");
            Vec::new()
        }
    }
}

/// Puts records behind those that a disk has. A damaged end is cut off, and a full list loses its older half.
fn append(disk: &Disk, written: &mut Written, records: &[u8]) -> io::Result<()> {
    if written.end_bytes == 0 {
        written.end_bytes = format::parse(&read_list(disk)).1 as u64;
    }
    let after = written.end_bytes + records.len() as u64;
    if written.end_bytes > 0 && after <= LIST_BYTES_MAX as u64 {
        let fd = disk.io.open(LIST, READ_WRITE)?;
        disk.io.write(fd.as_fd(), records, written.end_bytes)?;
        *written = Written { end_bytes: after, synced: false };
        return Ok(());
    }
    let list = read_list(disk);
    let (known, sound) = format::parse(&list);
    let mut new = format::HEAD.to_vec();
    if sound > 0 && known.len() > 1 {
        event!(
            Warn,
            disk.about(),
            "the list of removed names is full; its older half is dropped, and a missing disk may bring those names back"
        );
        for record in known.iter().skip(known.len() / 2) {
            format::write(record.path, record.time_ns, &mut new);
        }
    }
    new.extend_from_slice(records);
    durable::replace(disk.io.as_ref(), LIST, &new, 0o600)?;
    *written = Written { end_bytes: new.len() as u64, synced: true };
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Amount;
    use crate::volume::disk::DiskLimits;
    use crate::volume::disk::real::RealDisk;

    #[test]
    fn a_full_list_loses_its_older_half_and_stays_below_its_bound() {
        let temp = tempfile::tempdir().unwrap();
        let root = std::fs::File::open(temp.path()).unwrap();
        let limits = DiskLimits { limit: Amount::Percent(95.0), reserve: Amount::Percent(2.0) };
        let io = Box::new(RealDisk::new(root.into()));
        let disk = Disk::new(uuid::Uuid::nil(), temp.path().to_path_buf(), io, limits);
        let mut written = Written::default();
        let mut time_ns = 0;
        for _ in 0..40 {
            let mut records = Vec::new();
            while records.len() < 1 << 20 {
                format::write(&[b'x'; 4000], time_ns, &mut records);
                time_ns += 1;
            }
            append(&disk, &mut written, &records).unwrap();
            let length = std::fs::metadata(temp.path().join(".kvspan/removed")).unwrap().len();
            assert_eq!(length, written.end_bytes);
            assert!(length <= LIST_BYTES_MAX as u64 + (1 << 20));
        }
        let list = read_list(&disk);
        let times: Vec<i64> = format::parse(&list).0.iter().map(|record| record.time_ns).collect();
        assert_eq!(times.last(), Some(&(time_ns - 1)));
        assert!(times.windows(2).all(|pair| pair[0] + 1 == pair[1]), "the youngest, without a gap");
        assert!(times.len() > 1000);
        assert!(!temp.path().join(".kvspan/removed.tmp").exists());
    }
}
