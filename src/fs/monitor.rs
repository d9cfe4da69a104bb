//! What the file system knows about its own mount, and the status that it answers with.
//!
//! Written by the daemon at start and by recovery; read by the xattrs. Holds one short lock, never over a system call.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use crate::status::{self, IoMode, Recovery, Status, VolumeState};
use crate::volume::Volume;

/// One mount's own facts.
pub struct Monitor {
    mountpoint: PathBuf,
    missing: Vec<status::Disk>,
    started: Instant,
    state: Mutex<State>,
}

struct State {
    io_mode: IoMode,
    recovered: Option<Recovered>,
}

#[derive(Clone, Copy)]
struct Recovered {
    at: Instant,
    files: u64,
    took: Duration,
}

impl Monitor {
    /// A mount that starts now; `missing` are configured disks that are not there.
    pub fn new(mountpoint: PathBuf, missing: Vec<status::Disk>) -> Self {
        let state = State { io_mode: IoMode::Daemon, recovered: None };
        Monitor { mountpoint, missing, started: Instant::now(), state: Mutex::new(state) }
    }

    /// Notes how bytes travel.
    pub fn set_io_mode(&self, io_mode: IoMode) {
        self.state.lock().io_mode = io_mode;
    }

    /// Notes that every disk has been scanned.
    pub fn set_recovered(&self, volume: &Volume) {
        let recovered = Recovered { at: Instant::now(), files: volume.adopted_files(), took: self.started.elapsed() };
        self.state.lock().recovered = Some(recovered);
    }

    /// Time since all disks were scanned; `None` before.
    pub fn ready_for(&self) -> Option<Duration> {
        self.state.lock().recovered.map(|recovered| recovered.at.elapsed())
    }

    /// The status of the mount.
    pub fn status(&self, volume: &Volume) -> Status {
        let (io_mode, recovered) = {
            let state = self.state.lock();
            (state.io_mode, state.recovered)
        };
        let mut disks = volume.disk_reports();
        let sum = |of: fn(&status::Disk) -> u64| disks.iter().map(of).fold(0u64, u64::saturating_add);
        let (files, used_bytes) = (sum(|disk| disk.files), sum(|disk| disk.used_bytes));
        disks.extend(self.missing.iter().cloned());
        Status {
            volume: volume.id(),
            version: env!("CARGO_PKG_VERSION").to_string(),
            pid: std::process::id(),
            mountpoint: self.mountpoint.to_string_lossy().into_owned(),
            state: if recovered.is_some() { VolumeState::Ready } else { VolumeState::Recovering },
            io_mode,
            files,
            used_bytes,
            limit_bytes: volume.bound_bytes(),
            recovery: Recovery {
                files: recovered.map_or_else(|| volume.adopted_files(), |recovered| recovered.files),
                seconds: recovered.map_or_else(|| self.started.elapsed(), |recovered| recovered.took).as_secs_f64(),
                removed_files: volume.removed_files(),
            },
            evictions: volume.evictions(),
            lookups: volume.lookups(),
            disks,
        }
    }
}
