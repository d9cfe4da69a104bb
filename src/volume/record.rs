//! The sync record of one disk: what a power loss may have torn (DESIGN.md section 5).
//!
//! Called by `volume::power`. The rule is in [`rule`], the bytes in [`format`], the file in [`file`]; this room holds a
//! disk's state between them. Locks: `syncing` over a sync of the disk, then `writing` over the system calls of one
//! writer, so that records reach the disk in their order; a create takes `writing` once a mount, with its name locked.
//! Nothing is locked under them but `state` and the index, which are never held over a system call.
//!
//! Invariant: before a file is opened for writing, a record that says so is on its disk, durable.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};
use rustix::time::{ClockId, Timespec, clock_gettime};
use uuid::Uuid;

use super::disk::DiskIo;
use crate::messages::{About, event};
use file::Found;
pub use format::Figures;
use format::Record;
use rule::{Before, Clock, FileId, Ledger, Life, Removal, Stamps, Writer, take_over};

mod file;
mod format;
pub mod rule;

/// What a mount knows when it opens the records of its disks.
#[derive(Clone, Copy, Debug, Default)]
pub struct RecordSettings {
    /// The boot id; where it is not known every mount counts as one after a power loss.
    pub boot: Option<Uuid>,
    /// Time between two syncs; zero: none but the one at the end.
    pub sync_interval: Duration,
}

/// The record of one disk.
#[derive(Default)]
pub struct Keeper {
    /// Files may be opened for writing: the record on the disk says so, or none is kept.
    begun: AtomicBool,
    /// Files may have to go, or the record could not be read yet.
    guarded: AtomicBool,
    state: Mutex<State>,
    writing: Mutex<()>,
    syncing: Mutex<()>,
    about: About,
}

/// How far the record is known.
#[derive(Default)]
enum State {
    /// The disk has no place for one, or nobody has opened it.
    #[default]
    Off,
    /// The disk did not say what is in it.
    Unread(Mount),
    Kept(Kept),
}

/// This mount.
#[derive(Clone, Copy)]
struct Mount {
    settings: RecordSettings,
    start: Clock,
}

struct Kept {
    mount: Mount,
    life: Life,
    ledger: Ledger,
    removal: Arc<Removal>,
    /// The removal has not been applied to every name of the disk.
    scan_due: bool,
    /// Files that a failed sync may have torn are being removed.
    sweeping: bool,
    /// A file that has to go could not be unlinked.
    incomplete: bool,
    /// The record on the disk is one of an earlier mount that was not clean: a sync improves it.
    inherited: bool,
    /// What the earlier mount recorded, until the disk is scanned.
    figures: Figures,
}

/// A sync that has begun.
pub struct Syncing {
    began: Clock,
    /// The removal that is over when this sync has succeeded: its unlinks are durable then.
    settles: Option<Arc<Removal>>,
}

/// Both clocks now.
pub fn now() -> Clock {
    let ns = |time: Timespec| time.tv_sec.saturating_mul(1_000_000_000).saturating_add(time.tv_nsec);
    let boot_ns = ns(clock_gettime(ClockId::Boottime));
    Clock { wall_ns: ns(clock_gettime(ClockId::Realtime)), boot_ns }
}

impl Keeper {
    /// That of a disk, which messages are about.
    pub fn of(disk: About) -> Keeper {
        Keeper { about: disk, ..Keeper::default() }
    }

    /// Reads the record that an earlier mount left, and starts this one.
    ///
    /// Returns what has to go, and the figures of the earlier mount if there was one.
    ///
    /// # Errors
    /// What the disk said. Until it can be asked again its unknown files are misses and it takes no new ones.
    pub fn open(&self, io: &dyn DiskIo, settings: RecordSettings) -> io::Result<(Arc<Removal>, Option<Figures>)> {
        self.open_at(io, Mount { settings, start: now() })
    }

    fn open_at(&self, io: &dyn DiskIo, mount: Mount) -> io::Result<(Arc<Removal>, Option<Figures>)> {
        self.begun.store(false, Ordering::Release);
        self.guarded.store(true, Ordering::Release);
        *self.state.lock() = State::Unread(mount);
        if !file::has_place(io)? {
            *self.state.lock() = State::Off;
            self.guarded.store(false, Ordering::Release);
            self.begun.store(true, Ordering::Release);
            return Ok((Arc::default(), None));
        }
        let life = Life { boot: mount.settings.boot, mount: io.mount_instance()? };
        let before = match file::read(io)? {
            Found::Record(record) => Some(record),
            Found::Absent => None,
            Found::Unsound(reason) => {
                event!(
                    Warn,
                    self.about,
                    "the sync record cannot be used ({reason}): what the disk holds is taken as it is"
                );
                None
            }
        };
        let (ledger, removal) = take_over(before.as_ref().map(|record| &record.state), &life, mount.start);
        let removal = Arc::new(removal);
        let inherited = before.as_ref().is_some_and(|record| !record.state.clean) || !removal.is_empty();
        let figures = before.map(|record| record.figures);
        self.guarded.store(!removal.is_empty(), Ordering::Release);
        *self.state.lock() = State::Kept(Kept {
            mount,
            life,
            ledger,
            removal: Arc::clone(&removal),
            scan_due: !removal.is_empty(),
            sweeping: false,
            incomplete: false,
            inherited,
            figures: figures.unwrap_or_default(),
        });
        Ok((removal, figures))
    }

    /// Whether files may be opened for writing. The hot path asks nothing else.
    pub fn has_begun(&self) -> bool {
        self.begun.load(Ordering::Acquire)
    }

    /// Sees to it that a record without clean mark is on the disk before the first file is opened for writing.
    ///
    /// # Errors
    /// What the disk said: nothing may be written on it then.
    pub fn begin(&self, io: &dyn DiskIo, figures: impl FnOnce() -> Option<Figures>) -> io::Result<()> {
        let _writing = self.writing.lock();
        if self.has_begun() {
            return Ok(());
        }
        self.read_if_unread(io)?;
        self.write(io, figures(), false)?;
        self.begun.store(true, Ordering::Release);
        Ok(())
    }

    /// Replaces the record on the disk. `figures` are given once the disk is scanned.
    ///
    /// # Errors
    /// What the disk said; the record of before is older, and so removes more.
    pub fn update(&self, io: &dyn DiskIo, figures: Option<Figures>) -> io::Result<()> {
        let _writing = self.writing.lock();
        self.write(io, figures, false)?;
        self.begun.store(true, Ordering::Release);
        Ok(())
    }

    /// From now on no file may be opened for writing without another record. Returns whether one may be open.
    pub fn pause(&self) -> bool {
        matches!(&*self.state.lock(), State::Kept(_)) && self.begun.swap(false, Ordering::AcqRel)
    }

    /// Writes the clean mark after a last sync, if nothing was opened for writing since [`pause`](Self::pause).
    ///
    /// # Errors
    /// What the disk said; the record is then not clean.
    pub fn finish(&self, io: &dyn DiskIo, figures: Option<Figures>) -> io::Result<()> {
        let _writing = self.writing.lock();
        if self.has_begun() { Ok(()) } else { self.write(io, figures, true) }
    }

    fn write(&self, io: &dyn DiskIo, figures: Option<Figures>, clean: bool) -> io::Result<()> {
        let record = match &mut *self.state.lock() {
            State::Off => return Ok(()),
            State::Unread(_) => return Err(io::Error::other("the record of before was not read yet")),
            State::Kept(kept) => kept.record(figures, clean),
        };
        file::write(io, &record)?;
        self.with(|kept| kept.inherited = false);
        Ok(())
    }

    fn read_if_unread(&self, io: &dyn DiskIo) -> io::Result<()> {
        let mount = match &*self.state.lock() {
            State::Unread(mount) => *mount,
            _ => return Ok(()),
        };
        self.open_at(io, mount).map(drop)
    }

    /// Whether a file has to go.
    ///
    /// # Errors
    /// What the disk said about its record: whether the file is whole is not known.
    pub fn takes(&self, io: &dyn DiskIo, file: &Stamps) -> io::Result<bool> {
        if !self.guarded.load(Ordering::Acquire) {
            return Ok(false);
        }
        if matches!(&*self.state.lock(), State::Unread(_)) {
            let _writing = self.writing.lock();
            self.read_if_unread(io)?;
        }
        Ok(self.with(|kept| kept.removal.takes(file)).unwrap_or(false))
    }

    /// Whether every byte of a file is on the disk for good, as far as this mount knows.
    pub fn is_durable(&self, file: &Stamps) -> bool {
        self.with(|kept| {
            let newest_ns = file.id.birth_ns.max(file.mtime_ns).max(file.ctime_ns);
            newest_ns < kept.ledger.safe_ns && kept.ledger.listed.binary_search(&file.id).is_err()
        })
        .unwrap_or(false)
    }

    /// Notes that a file which has to go is still there.
    pub fn note_incomplete(&self) {
        self.with(|kept| kept.incomplete = true);
    }

    /// Notes the end of a scan that has looked at every name of the disk, if it was `complete`. Returns whether a sync
    /// should follow, after which the removal is over.
    pub fn scanned(&self, complete: bool) -> bool {
        self.with(|kept| {
            if complete && !std::mem::take(&mut kept.incomplete) {
                kept.scan_due = false;
            }
            !kept.scan_due && !kept.removal.is_empty()
        })
        .unwrap_or(false)
    }

    /// Looks at the clock. Returns whether it was stepped back so far that the record must be written at once.
    pub fn look_at_clock(&self, now: Clock) -> bool {
        let lowered = self.with(|kept| kept.ledger.look(now)).unwrap_or(false);
        lowered && self.has_begun()
    }

    /// Whether a sync would make a difference.
    pub fn wants_sync(&self) -> bool {
        self.with(|kept| kept.inherited).is_some_and(|inherited| inherited || self.has_begun())
    }

    /// One sync at a time: the lists of two that overlap would not fit together.
    pub fn alone(&self) -> MutexGuard<'_, ()> {
        self.syncing.lock()
    }

    /// Begins a sync: a file that is open for writing now, or will be, is not made durable by it.
    pub fn sync_begins(&self, began: Clock) -> Option<Syncing> {
        self.with(|kept| {
            let settled = !kept.scan_due && !kept.sweeping && !kept.incomplete && !kept.removal.is_empty();
            Syncing { began, settles: settled.then(|| Arc::clone(&kept.removal)) }
        })
    }

    /// Whether a file that has been open for writing since `opened` is listed from now on.
    pub fn lists(&self, sync: &Syncing, opened: Clock) -> bool {
        let interval = self.with(|kept| kept.mount.settings.sync_interval).unwrap_or_default();
        let long = i64::try_from(interval.as_nanos()).unwrap_or(i64::MAX).saturating_mul(2);
        long > 0 && sync.began.boot_ns.saturating_sub(opened.boot_ns) > long
    }

    /// The sync has succeeded.
    pub fn synced(&self, sync: &Syncing, ended: Clock, writers: &[Writer]) {
        self.with(|kept| {
            kept.ledger.synced(sync.began, ended, writers);
            if sync.settles.as_ref().is_some_and(|settled| Arc::ptr_eq(settled, &kept.removal)) {
                kept.removal = Arc::default();
                self.guarded.store(false, Ordering::Release);
            }
        });
    }

    /// The sync has failed: what was not durable has to go. Returns all that has, and what was listed.
    pub fn sync_failed(&self, ended: Clock, writing: &[FileId]) -> Option<(Arc<Removal>, Vec<FileId>)> {
        self.with(|kept| {
            let listed = kept.ledger.listed.clone();
            let mut removal = Removal::clone(&kept.removal);
            kept.ledger.failed(ended, writing, &mut removal);
            kept.removal = Arc::new(removal);
            kept.sweeping = true;
            self.guarded.store(true, Ordering::Release);
            (Arc::clone(&kept.removal), listed)
        })
    }

    /// What a failed sync may have torn has been removed, but for what was noted.
    pub fn swept(&self) {
        self.with(|kept| kept.sweeping = false);
    }

    fn with<T>(&self, call: impl FnOnce(&mut Kept) -> T) -> Option<T> {
        match &mut *self.state.lock() {
            State::Kept(kept) => Some(call(kept)),
            _ => None,
        }
    }
}

impl Kept {
    fn record(&mut self, figures: Option<Figures>, clean: bool) -> Record {
        self.figures = figures.unwrap_or(self.figures);
        let state =
            Before { life: self.life, clean, ledger: self.ledger.clone(), removal: Removal::clone(&self.removal) };
        Record { state, start_ns: self.mount.start.wall_ns, figures: self.figures }
    }
}
