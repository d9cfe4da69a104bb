//! Work of a mounted volume that no client waits for: shadows, rescans, the lists of removed names, the control socket.
//!
//! Called by `daemon`. Its threads live as long as the process. One rescan of the volume runs at a time; its lock (rank
//! 0) is held from its beginning to its end.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use super::spawn;
use crate::config::Config;
use crate::control::server::{Server, SocketFile};
use crate::control::{self, Evicted, Handler, Rescanned};
use crate::error::{Error, SetupError, io_text};
use crate::fs::CacheFs;
use crate::messages::event;
use crate::volume::Volume;
use crate::volume::attr::DiskNo;
use crate::volume::rescan::{self, RescanReport};
use crate::volume::shadows::ShadowReport;

/// How often is looked whether there is something to do.
const TICK: Duration = Duration::from_secs(1);
/// How long shadows that could not be removed are left alone.
const SHADOW_INTERVAL: Duration = Duration::from_secs(30);
/// How often a rescan that is waited for says how far it is.
const PROGRESS_TICK: Duration = Duration::from_millis(100);

/// Carries out what the commands ask for.
pub struct Operator {
    fs: Arc<CacheFs>,
    read_only: bool,
    rescan: Mutex<()>,
}

impl Operator {
    /// `read_only`: nothing is removed.
    pub fn new(fs: &Arc<CacheFs>, read_only: bool) -> Arc<Operator> {
        Arc::new(Operator { fs: Arc::clone(fs), read_only, rescan: Mutex::new(()) })
    }

    /// Evicts from every disk its share of `bytes`, by what it holds.
    fn evict_shares(&self, bytes: u64, progress: &mut dyn FnMut(u64)) -> Evicted {
        let volume = self.fs.volume();
        let before = volume.evictions();
        let held: Vec<u64> = volume.numbered().map(|(no, _)| volume.used_bytes(no)).collect();
        let all = held.iter().fold(0u64, |sum, held| sum.saturating_add(*held)).max(1);
        let mut files = 0;
        for ((no, _), held) in volume.numbered().zip(held) {
            let share = u128::from(bytes.min(all)) * u128::from(held);
            files += volume.evict_bytes(no, u64::try_from(share.div_ceil(u128::from(all))).unwrap_or(u64::MAX));
            progress(files);
        }
        let after = volume.evictions();
        Evicted { files, bytes: after.bytes.saturating_sub(before.bytes) }
    }

    fn remove_shadows(&self) -> ShadowReport {
        if self.read_only { ShadowReport::default() } else { self.fs.volume().remove_shadows(&|| false) }
    }

    /// Scans every disk again, all at the same time, and removes the shadows that were found.
    fn rescan_all(&self, progress: &mut dyn FnMut(u64)) -> Result<Rescanned, String> {
        let _one = loop {
            match self.rescan.try_lock_for(PROGRESS_TICK) {
                Some(one) => break one,
                None => progress(0),
            }
        };
        let volume = self.fs.volume();
        volume.begin_rescan();
        let removed_before = volume.shadows_removed();
        let (report, failed) = rescan_disks(volume, progress);
        self.remove_shadows();
        if !volume.is_recovering() && self.fs.monitor().ready_for().is_none() {
            self.fs.monitor().set_recovered(volume);
        }
        let found = Rescanned {
            files: report.files,
            added: report.added,
            removed: report.removed,
            changed: report.changed,
            orphans_removed: report.orphans_removed,
            shadows: volume.shadows(),
            shadows_removed: volume.shadows_removed().saturating_sub(removed_before),
            conflicts: volume.conflicts(),
            foreign: report.foreign,
            unreadable: report.unreadable,
        };
        log::info!(
            "rescanned: {} files, {} added, {} removed, {} changed, {} orphans and {} shadows removed, {} unreadable",
            found.files,
            found.added,
            found.removed,
            found.changed,
            found.orphans_removed,
            found.shadows_removed,
            found.unreadable
        );
        if failed.is_empty() { Ok(found) } else { Err(failed.join("; ")) }
    }
}

impl Handler for Operator {
    fn rescan(&self, progress: &mut dyn FnMut(u64)) -> Result<Rescanned, String> {
        self.rescan_all(progress)
    }

    fn evict(&self, bytes: u64, progress: &mut dyn FnMut(u64)) -> Result<Evicted, String> {
        if self.read_only {
            return Err("the volume is mounted read-only".to_string());
        }
        Ok(self.evict_shares(bytes, progress))
    }
}

/// A thread a disk; the sum of what they found, and a sentence for each disk that could not be scanned.
fn rescan_disks(volume: &Arc<Volume>, progress: &mut dyn FnMut(u64)) -> (RescanReport, Vec<String>) {
    let (files, running) = (AtomicU64::new(0), AtomicUsize::new(0));
    let sum = Mutex::new((RescanReport::default(), Vec::new()));
    let one = |no: DiskNo| {
        let counted = AtomicU64::new(0);
        let watch = |so_far: u64| {
            let before = counted.swap(so_far, Ordering::Relaxed);
            files.fetch_add(so_far.saturating_sub(before), Ordering::Relaxed);
            true
        };
        let found = rescan::rescan_disk(volume, no, &watch);
        let mut sum = sum.lock();
        match found {
            Ok(found) => sum.0 = sum.0.and(found.unwrap_or_default()),
            Err(error) => sum.1.push(cannot(volume, no, &error)),
        }
    };
    thread::scope(|scope| {
        for (no, _) in (0u8..).map(DiskNo).zip(volume.disks()) {
            running.fetch_add(1, Ordering::AcqRel);
            let (one, running) = (&one, &running);
            let work = move || {
                one(no);
                running.fetch_sub(1, Ordering::AcqRel);
            };
            if let Err(error) = thread::Builder::new().name(format!("rescan-{}", no.0)).spawn_scoped(scope, work) {
                running.fetch_sub(1, Ordering::AcqRel);
                sum.lock().1.push(format!("a thread cannot be started: {}", io_text(&error)));
            }
        }
        while running.load(Ordering::Acquire) > 0 {
            thread::sleep(PROGRESS_TICK);
            progress(files.load(Ordering::Relaxed));
        }
    });
    sum.into_inner()
}

fn cannot(volume: &Volume, no: DiskNo, error: &Error) -> String {
    event!(Error, volume.about(no).error(error), "the disk cannot be scanned again");
    let path = volume.disk(no).map(|disk| disk.path.display().to_string()).unwrap_or_default();
    format!("disk '{path}' cannot be scanned: {error}")
}

/// Opens the control socket and answers on it. A mount without one still serves; the commands say what is missing.
pub fn spawn_control(config: &Config, operator: &Arc<Operator>) -> Result<Option<SocketFile>, SetupError> {
    let fs = &operator.fs;
    let bound = match control::directory() {
        Some(dir) => Server::bind(&dir, &fs.volume().id().to_string()),
        None => Err(io::Error::other("there is no directory for it: XDG_RUNTIME_DIR is not set")),
    };
    let server = match bound {
        Ok(server) => server,
        Err(error) => {
            log::warn!("'{}' has no control socket: {}", config.mountpoint.display(), io_text(&error));
            return Ok(None);
        }
    };
    let file = server.file().clone();
    fs.monitor().set_control_socket(file.path());
    let handler: Arc<dyn Handler> = Arc::<Operator>::clone(operator);
    spawn("control", move || server.run(handler))?;
    Ok(Some(file))
}

/// Removes shadows once all disks are scanned, and scans again every `rescan_interval`, if that is not zero.
pub fn spawn_upkeep(operator: &Arc<Operator>, rescan_interval: Duration) -> Result<(), SetupError> {
    let operator = Arc::clone(operator);
    spawn("upkeep", move || {
        let mut rescanned = Instant::now();
        let mut tried = None;
        loop {
            thread::sleep(TICK);
            let volume = operator.fs.volume();
            if volume.is_recovering() {
                rescanned = Instant::now();
                continue;
            }
            let rested = tried.is_none_or(|tried: Instant| tried.elapsed() >= SHADOW_INTERVAL);
            if volume.shadows() > 0 && rested {
                remove_all_shadows(&operator);
                tried = Some(Instant::now());
            }
            if !rescan_interval.is_zero() && rescanned.elapsed() >= rescan_interval {
                if let Err(sentence) = operator.rescan_all(&mut |_| {}) {
                    log::error!("the rescan is not complete: {sentence}");
                }
                rescanned = Instant::now();
            }
        }
    })
}

/// More than the list holds: only a rescan finds the others again.
fn remove_all_shadows(operator: &Operator) {
    loop {
        let report = operator.remove_shadows();
        if report.removed > 0 {
            log::info!("{} second copies of names were removed", report.removed);
        }
        if report.beyond == 0 || report.removed == 0 || operator.rescan_all(&mut |_| {}).is_err() {
            return;
        }
    }
}

/// While a disk cannot be read, keeps the lists of removed names: written at once, synced every second.
pub fn spawn_removed(volume: &Arc<Volume>, read_only: bool) -> Result<(), SetupError> {
    if read_only {
        return Ok(());
    }
    let volume = Arc::clone(volume);
    spawn("removed", move || {
        let mut synced = Instant::now();
        loop {
            volume.wait_for_removed(TICK);
            volume.write_removed();
            if synced.elapsed() >= TICK {
                volume.sync_removed();
                synced = Instant::now();
            }
        }
    })
}
