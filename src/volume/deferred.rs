//! Deferred drops: the last reference to a removed file is dropped in the background.
//!
//! Freeing a file's blocks takes as long as it has extents, and an unlink is answered under the directory's lock, behind
//! which every store waits. A thread for each disk (the daemon's) drops what its requests leave here. What waits is
//! bounded; beyond that, and where no thread serves a disk, files are dropped at once.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::Mutex;

use super::Volume;
use super::attr::DiskNo;
use super::index::Entry;
use super::open_files::OpenFile;
use crate::sync::Bell;

/// Freeing a smaller file costs less than keeping it open for it.
const WORTH_DEFERRING_BYTES: u64 = 64 << 10;
/// Bytes of one disk that may wait: they are neither the volume's any more nor free yet.
const MAX_WAITING_BYTES: u64 = 256 << 20;

/// Something whose drop closes a file, maybe for the last time.
pub(super) struct LastReference {
    disk: Option<DiskNo>,
    bytes: u64,
    _file: OpenFile,
}

/// What waits on one disk.
#[derive(Default)]
pub(super) struct Deferred {
    waiting: Mutex<Waiting>,
    bell: Bell,
    served: AtomicBool,
}

#[derive(Default)]
struct Waiting {
    files: Vec<LastReference>,
    bytes: u64,
}

impl LastReference {
    /// `entry` as it was when the file still had its place in the index; none for a file that stays on its disk.
    pub(super) fn of(file: OpenFile, entry: Option<Entry>) -> LastReference {
        let bytes = entry.map_or(0, |entry| entry.attr.bytes_on_disk());
        LastReference { disk: entry.map(|entry| entry.disk), bytes, _file: file }
    }
}

impl Volume {
    /// Whether the blocks of a file are better freed in the background.
    pub(super) fn is_worth_deferring(&self, entry: &Entry) -> bool {
        let served = self.disk(entry.disk).is_ok_and(|disk| disk.deferred.served.load(Ordering::Relaxed));
        served && entry.attr.bytes_on_disk() >= WORTH_DEFERRING_BYTES
    }

    /// Drops a reference in the background, if a thread does that for its disk and not too much waits for it.
    pub(super) fn drop_later(&self, last: Option<LastReference>) {
        let Some(last) = last else { return };
        let Some(Ok(disk)) = last.disk.map(|no| self.disk(no)) else { return };
        let deferred = &disk.deferred;
        if last.bytes >= WORTH_DEFERRING_BYTES && deferred.served.load(Ordering::Relaxed) {
            let mut waiting = deferred.waiting.lock();
            if waiting.bytes == 0 || waiting.bytes.saturating_add(last.bytes) <= MAX_WAITING_BYTES {
                waiting.bytes = waiting.bytes.saturating_add(last.bytes);
                waiting.files.push(last);
                drop(waiting);
                deferred.bell.ring();
            }
        }
    }

    /// Waits for references to files of a disk, at most for `timeout`, and drops them. Once called, it is to be called
    /// again and again.
    pub fn drop_deferred(&self, no: DiskNo, timeout: Duration) {
        let Ok(disk) = self.disk(no) else { return };
        let deferred = &disk.deferred;
        deferred.served.store(true, Ordering::Relaxed);
        deferred.bell.wait(timeout);
        let files = std::mem::take(&mut deferred.waiting.lock().files);
        for file in files {
            let bytes = file.bytes;
            drop(file);
            let mut waiting = deferred.waiting.lock();
            waiting.bytes = waiting.bytes.saturating_sub(bytes);
        }
    }
}
