//! What the file system knows about its own mount, and the status that it answers with.
//!
//! Written by the daemon at start and by recovery; read by the xattrs. Holds one short lock, never over a system call.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use crate::status::{self, IoMode, Recovery, Status, VolumeState};
use crate::volume::Volume;

/// One mount's own facts.
pub struct Monitor {
    mountpoint: PathBuf,
    missing: Vec<status::Disk>,
    started: Instant,
    passthrough_refused: AtomicU64,
    state: Mutex<State>,
}

struct State {
    io_mode: IoMode,
    recovered: Option<Recovered>,
    control_socket: String,
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
        let state = State { io_mode: IoMode::Daemon, recovered: None, control_socket: String::new() };
        let passthrough_refused = AtomicU64::new(0);
        Monitor { mountpoint, missing, started: Instant::now(), passthrough_refused, state: Mutex::new(state) }
    }

    /// Counts a file that the kernel would not pass through to its disk, and says so once.
    pub fn note_refused_passthrough(&self, error: &io::Error) {
        if self.passthrough_refused.fetch_add(1, Ordering::Relaxed) == 0 {
            log::warn!("passthrough was refused for a file, which goes through the daemon: {error}");
        }
    }

    /// Notes how bytes travel.
    pub fn set_io_mode(&self, io_mode: IoMode) {
        self.state.lock().io_mode = io_mode;
    }

    /// Notes where the commands reach the daemon.
    pub fn set_control_socket(&self, path: &Path) {
        self.state.lock().control_socket = path.to_string_lossy().into_owned();
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
        let (io_mode, recovered, control_socket) = {
            let state = self.state.lock();
            (state.io_mode, state.recovered, state.control_socket.clone())
        };
        let (orphans_removed, outdated_removed) = (volume.orphans_removed(), volume.outdated_removed());
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
            passthrough_refused: self.passthrough_refused.load(Ordering::Relaxed),
            files,
            used_bytes,
            limit_bytes: volume.bound_bytes(),
            recovery: Recovery {
                files: recovered.map_or_else(|| volume.adopted_files(), |recovered| recovered.files),
                seconds: recovered.map_or_else(|| self.started.elapsed(), |recovered| recovered.took).as_secs_f64(),
                removed_files: orphans_removed.saturating_add(outdated_removed).saturating_add(volume.lost_removed()),
                orphans_removed,
                temp_files: volume.temp_files_kept(),
                outdated_removed,
            },
            evictions: volume.evictions(),
            unlinked_open: volume.unlinked_open(),
            shadows: status::Shadows {
                files: volume.shadows(),
                removed: volume.shadows_removed(),
                conflicts: volume.conflicts(),
            },
            control_socket,
            lookups: volume.lookups(),
            disks,
        }
    }
}
