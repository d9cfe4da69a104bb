//! What the volume says about itself: bounds, usage and counts for `statfs`, xattrs and status.
//!
//! Called by `crate::fs` and the daemon. Reads the index under its lock and the last figures of each disk; makes no
//! system call except in [`Volume::refresh_space`].

use std::sync::atomic::Ordering;

use super::Volume;
use super::attr::{DiskNo, Ino};
use super::capacity::Totals;
use super::index::Entry;
use crate::config::StatfsMode;
use crate::status::{self, DiskState, Evictions, Lookups, UnlinkedOpen};

impl Volume {
    /// Size and room of the volume, from the last figures.
    pub fn statfs(&self, mode: StatfsMode) -> Totals {
        self.capacity().totals(mode)
    }

    /// What the evictors have unlinked since the volume was opened.
    pub fn evictions(&self) -> Evictions {
        Evictions {
            files: self.counters.evicted_files.load(Ordering::Relaxed),
            bytes: self.counters.evicted_bytes.load(Ordering::Relaxed),
        }
    }

    /// Files that somebody still has open although they were unlinked or evicted.
    pub fn unlinked_open(&self) -> UnlinkedOpen {
        let shared = self.shared.lock();
        let entries = shared.open.keys().filter_map(|ino| shared.index.get(*ino)).filter(|entry| !entry.linked);
        entries.fold(UnlinkedOpen::default(), |sum, entry| UnlinkedOpen {
            files: sum.files.saturating_add(1),
            bytes: sum.bytes.saturating_add(entry.attr.bytes_on_disk()),
        })
    }

    pub(super) fn count_evicted(&self, entry: &Entry) {
        self.counters.evicted_files.fetch_add(1, Ordering::Relaxed);
        self.counters.evicted_bytes.fetch_add(entry.attr.bytes_on_disk(), Ordering::Relaxed);
    }

    /// Look-ups that reached the volume.
    pub fn lookups(&self) -> Lookups {
        Lookups {
            hits: self.counters.hits.load(Ordering::Relaxed),
            misses: self.counters.misses.load(Ordering::Relaxed),
        }
    }

    /// Files that scans and probes have taken into the index since the volume was opened.
    pub fn adopted_files(&self) -> u64 {
        self.counters.adopted.load(Ordering::Relaxed)
    }

    /// The disks as status shows them, in configured order.
    pub fn disk_reports(&self) -> Vec<status::Disk> {
        let capacity = self.capacity();
        let shared = self.shared.lock();
        let report = |(no, disk): (DiskNo, &super::disk::Disk)| status::Disk {
            uuid: Some(disk.id),
            path: disk.path.to_string_lossy().into_owned(),
            state: DiskState::Online,
            size_bytes: disk.space().size_bytes,
            used_bytes: super::room::used_of(disk, shared.index.used_bytes(no)),
            limit_bytes: capacity.disk(no).map_or(0, |bound| bound.bound_bytes),
            files: shared.index.files(no),
            away_files: shared.index.away_files(no),
            scanned: disk.is_scanned(),
            foreign_objects: disk.foreign_objects(),
            undeletable_victims: disk.undeletable_victims(),
        };
        self.numbered().map(report).collect()
    }

    /// Bytes that the volume may hold, file systems that disks share counted once.
    pub fn bound_bytes(&self) -> u64 {
        self.capacity().file_systems().iter().fold(0u64, |sum, fs| sum.saturating_add(fs.bound_bytes))
    }

    /// The names of a disk's files from the coldest to the warmest; for tests.
    pub fn names_from_cold(&self, no: DiskNo) -> Vec<Vec<u8>> {
        let shared = self.shared.lock();
        let name = |ino| {
            let mut name = Vec::new();
            shared.index.name(ino, &mut name);
            name
        };
        shared.index.coldest(no).map(name).collect()
    }

    /// Checks that disks and index agree; for tests, with no request in flight.
    ///
    /// # Errors
    /// The first disagreement, in words.
    pub fn check_invariants(&self) -> Result<(), String> {
        let shared = self.shared.lock();
        shared.index.check_invariants()?;
        for (ino, open) in &shared.open {
            let entry = shared.index.get(*ino).ok_or(format!("open inode {} is not in the index", ino.0))?;
            // A replaced file without handles is kept for those who have just found it.
            let kept = open.handles == 0 && !entry.pinned && !entry.linked && entry.lookups > 0;
            let used = open.handles > 0 && entry.pinned && open.writers <= open.handles;
            if !kept && !used {
                return Err(format!("inode {}: {} handles, pinned {}", ino.0, open.handles, entry.pinned));
            }
        }
        let goes =
            |ino: &Ino| shared.index.get(*ino).is_none_or(|entry| !entry.linked) || shared.open.contains_key(ino);
        if let Some(ino) = shared.kept.inodes().find(goes) {
            return Err(format!("inode {} is kept open for nobody", ino.0));
        }
        Ok(())
    }
}
