//! The threads that keep the sync records: one a disk that syncs it in every interval, and one that looks at the clock.
//!
//! Called by the daemon's wiring. A disk that hangs in its sync holds up no other, and the end of the daemon only for
//! `stop_timeout`. Takes no lock.

use std::sync::Arc;
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use super::spawn;
use crate::error::SetupError;
use crate::messages::event;
use crate::volume::Volume;
use crate::volume::attr::DiskNo;

/// Between two looks at the clock: DESIGN.md section 5 has at least one each second.
const LOOK_INTERVAL: Duration = Duration::from_millis(500);

fn disks(volume: &Volume) -> impl Iterator<Item = DiskNo> {
    (0u8..).map(DiskNo).zip(volume.disks()).map(|(no, _)| no)
}

/// Starts the threads; an interval of 0 switches the syncs off.
pub fn keep(volume: &Arc<Volume>, sync_interval: Duration) -> Result<(), SetupError> {
    for no in disks(volume).filter(|_| !sync_interval.is_zero()) {
        let volume = Arc::clone(volume);
        spawn(&format!("sync-{}", no.0), move || {
            loop {
                thread::sleep(sync_interval);
                if volume.wants_sync(no) {
                    volume.sync_disk(no);
                }
            }
        })?;
    }
    let volume = Arc::clone(volume);
    spawn("clock", move || {
        loop {
            thread::sleep(LOOK_INTERVAL);
            for no in volume.look_at_clock() {
                event!(Warn, volume.about(no), "the clock was set back; the sync record follows");
                // A thread of its own, for a disk may hang: setting the clock back is rare.
                let volume = Arc::clone(&volume);
                if let Err(error) = spawn("record", move || volume.write_record(no)) {
                    log::error!("a sync record is not written: {error}");
                }
            }
        }
    })
}

/// The last sync of all disks at once, and their clean marks, for as long as `at_most`.
pub fn close(volume: &Arc<Volume>, at_most: Duration) {
    let until = Instant::now() + at_most;
    let (closed, inbox) = mpsc::channel();
    for no in disks(volume) {
        let (volume, closed) = (Arc::clone(volume), closed.clone());
        let thread = spawn("close", move || {
            volume.close_record(no);
            let _ = closed.send(());
        });
        if let Err(error) = thread {
            log::error!("a sync record is not closed: {error}");
        }
    }
    drop(closed);
    for _ in disks(volume) {
        if inbox.recv_timeout(until.saturating_duration_since(Instant::now())).is_err() {
            log::warn!("a disk was not synced within {at_most:?}; the next mount counts it as not clean");
            return;
        }
    }
}
