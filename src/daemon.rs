//! The daemon's wiring, in order: open disks, give up privileges, mount, recover, wait, unmount.
//!
//! Called by `cli::mount` with a validated configuration. Starts the background threads (recovery and evictor of each
//! disk, recency, notifier, session) and owns the only way out: every end of the session, a signal and a panic in a thread
//! arrive as one [`Event`]. Holds no lock.

use std::io;
use std::os::fd::OwnedFd;
use std::panic;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread;
use std::time::{Duration, Instant};

use rustix::io::Errno;
use signal_hook::consts::{SIGALRM, SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2};
use signal_hook::iterator::Signals;
use uuid::Uuid;

use crate::config::{Config, LogSink, Options, Passthrough};
use crate::error::{SetupError, io_text};
use crate::fs::CacheFs;
use crate::fs::monitor::Monitor;
use crate::fuse::GlueSettings;
use crate::fuse::notifier;
use crate::fuse::session::{self, MountSettings, MountedSession};
use crate::messages::{self, About, Form, event};
use crate::procfs;
use crate::ready::{Ready, stderr_is_journal};
use crate::status::{self, DiskState, IoMode};
use crate::sys;
use crate::volume::attr::DiskNo;
use crate::volume::disk::real::RealDisk;
use crate::volume::disk::{Disk, DiskLimits};
use crate::volume::identity::{self, DiskAtStart};
use crate::volume::recency::FRESH;
use crate::volume::record::RecordSettings;
use crate::volume::{OnEvicted, Volume, VolumeSettings, recovery};
use upkeep::Operator;

mod privileges;
mod records;
mod supervisor;
mod upkeep;

/// Files that stay open between two loads, at most: with its inodes in the kernel each costs about 3 KiB.
const MAX_KEPT_FILES: usize = 16_384;

/// What ends a daemon.
enum Event {
    /// The kernel has unmounted the file system, or the session broke.
    SessionEnded(io::Result<()>),
    /// SIGTERM or SIGINT.
    Signal,
    /// A thread panicked: its state cannot be trusted.
    Panic,
}

/// Mounts a volume and serves it until it is unmounted.
///
/// # Errors
/// What kept the volume from being mounted, or ended it other than an unmount or a signal.
pub fn run(config: Config, ready: Ready) -> Result<(), SetupError> {
    // Modes arrive with the client's umask applied.
    rustix::process::umask(rustix::fs::Mode::empty());
    raise_open_files_limit();
    start_log(&config, &ready)?;
    let (on_evicted, evicted) = notifier::queue();
    let (volume, missing, locks) = open_volume(&config, &ready, on_evicted)?;
    session::clear_stale_mount(&config.mountpoint).map_err(|error| mount_error(&config, &error))?;
    privileges::confine()?;
    spawn("log", messages::write_out)?;
    let (events, inbox) = mpsc::channel();
    watch_for_trouble(&events, ready.is_foreground())?;
    let volume = Arc::new(volume);
    let monitor = Monitor::new(config.mountpoint.clone(), missing);
    let fs = Arc::new(CacheFs::new(Arc::clone(&volume), config.options.statfs, monitor));
    let mounted = mount(&config, &fs)?;
    fs.monitor().set_io_mode(if mounted.passthrough() { IoMode::Passthrough } else { IoMode::Daemon });
    spawn("notifier", mounted.notifier(evicted).map_err(|error| mount_error(&config, &error))?)?;
    let ended = events.clone();
    spawn("session", move || drop(ended.send(Event::SessionEnded(mounted.run()))))?;
    spawn_recovery(&fs)?;
    spawn_evictors(&volume, config.options.read_only)?;
    spawn_deferred(&volume)?;
    if !config.options.read_only {
        spawn_recency(&volume, config.options.atime_interval)?;
        records::keep(&volume, config.options.sync_interval)?;
    }
    upkeep::spawn_removed(&volume, config.options.read_only)?;
    let operator = Operator::new(&fs, config.options.read_only);
    upkeep::spawn_upkeep(&operator, config.options.rescan_interval)?;
    let socket = upkeep::spawn_control(&config, &operator)?;
    wait_until_it_answers(&config)?;
    log::info!("mounted {} at {}", config.source, config.mountpoint.display());
    ready.ok()?;
    supervisor::tell_ready(&config.mountpoint);
    supervisor::spawn_watchdog(&config.mountpoint)?;
    let end = serve(&config, &inbox);
    supervisor::tell_stopping(config.options.stop_timeout);
    if !config.options.read_only && !config.options.atime_interval.is_zero() {
        volume.flush_recency(Duration::ZERO, Some(Instant::now() + config.options.stop_timeout));
    }
    volume.flush_removed();
    if end.is_ok() && !config.options.read_only {
        records::close(&volume, deadline(config.options.stop_timeout));
    }
    if let Some(socket) = socket {
        socket.remove();
    }
    log::info!("unmounted {}", config.mountpoint.display());
    drop(locks);
    end
}

/// Each file that a client has open or mapped is one of ours: as many as the system lets us have.
fn raise_open_files_limit() {
    use rustix::process::{Resource, getrlimit, setrlimit};
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    if let Err(error) = setrlimit(Resource::Nofile, limit) {
        log::warn!("the limit on open files cannot be raised: {error}");
    }
}

/// How many files may stay open after their last handle: what clients hold open comes first.
fn kept_files() -> usize {
    let most = rustix::process::getrlimit(rustix::process::Resource::Nofile).current.unwrap_or(u64::MAX);
    usize::try_from(most / 4).unwrap_or(usize::MAX).min(MAX_KEPT_FILES)
}

/// Sends messages where `log` says. `RUST_LOG` overrides the level; fuser's own debug level shows every request.
fn start_log(config: &Config, ready: &Ready) -> Result<(), SetupError> {
    let default = env_logger::Env::default().default_filter_or("info,fuser=warn");
    let filter = env_logger::Builder::from_env(default).build();
    match config.options.log.open(&config.mountpoint, ready.stderr_stays())? {
        LogSink::Stderr => {
            let form = if stderr_is_journal() { Form::Journal } else { Form::Dated };
            messages::start(filter, form, Box::new(io::stderr()));
        }
        LogSink::File(file) => messages::start(filter, Form::Dated, Box::new(file)),
        LogSink::Nowhere => {}
    }
    Ok(())
}

/// Opens and checks the disks that are there.
fn open_volume(
    config: &Config,
    ready: &Ready,
    on_evicted: OnEvicted,
) -> Result<(Volume, Vec<status::Disk>, Vec<OwnedFd>), SetupError> {
    let paths: Vec<PathBuf> = config.disks.iter().map(|disk| disk.path.clone()).collect();
    let found = identity::open_disks(&paths, &config.mountpoint)?;
    identity::check_require(&found, config.options.require)?;
    let (mut disks, mut missing, mut locks, mut volume_id) = (Vec::new(), Vec::new(), Vec::new(), Uuid::nil());
    for disk in found {
        match disk {
            DiskAtStart::Present(disk) => {
                let limits = limits_of(config, &disk.path);
                disks.push(Disk::new(disk.disk_id, disk.path, Box::new(RealDisk::new(disk.dir)), limits));
                locks.push(disk.lock);
                volume_id = disk.volume_id;
            }
            DiskAtStart::Missing(disk) => {
                // Said in three places: on stderr, in the log, and in status.
                if !config.options.log.is_stderr(ready.stderr_stays()) {
                    eprintln!("kvspan: disk '{}' is missing: {}", disk.path.display(), disk.reason);
                }
                event!(Warn, About::disk_at(&disk.path), "the disk is missing: {}", disk.reason);
                let path = disk.path.to_string_lossy().into_owned();
                missing.push(status::Disk { path, state: DiskState::Missing, ..status::Disk::default() });
            }
        }
    }
    let settings = VolumeSettings {
        id: volume_id,
        policy: config.options.placement,
        io_timeout: deadline(config.options.io_timeout),
        // A mount that only reads removes nothing, orphans neither.
        temp_ttl: if config.options.read_only { Duration::ZERO } else { config.options.temp_ttl },
        grace: config.options.entry_ttl.saturating_add(config.options.grace),
        high_percent: config.options.high,
        low_percent: config.options.low,
        eviction: config.options.eviction,
        kept_files: kept_files(),
    };
    let volume = Volume::new(settings, disks, on_evicted)
        .map_err(|error| SetupError::Failed(format!("the volume cannot be opened: {error}")))?;
    volume.load_removed(!missing.is_empty(), config.options.read_only);
    volume.replay_renames();
    volume.open_records(RecordSettings { boot: procfs::boot_id(), sync_interval: config.options.sync_interval });
    for (no, _) in (0u8..).map(DiskNo).zip(volume.disks()) {
        volume.refresh_room(no);
    }
    Ok((volume, missing, locks))
}

fn limits_of(config: &Config, path: &Path) -> DiskLimits {
    let disk = config.disks.iter().find(|disk| disk.path == path);
    DiskLimits {
        limit: disk.map_or(config.options.limit, |disk| disk.limit_or(&config.options)),
        reserve: disk.map_or(config.options.reserve, |disk| disk.reserve_or(&config.options)),
    }
}

/// A timeout of 0 is switched off: a request then waits as long as it takes.
fn deadline(timeout: Duration) -> Duration {
    const FOR_EVER: Duration = Duration::from_secs(365 * 86_400);
    if timeout.is_zero() { FOR_EVER } else { timeout }
}

fn mount(config: &Config, fs: &Arc<CacheFs>) -> Result<MountedSession, SetupError> {
    let Options { allow_other, read_only, noexec, threads, entry_ttl, negative_ttl, passthrough, .. } = config.options;
    let settings = MountSettings {
        source: &config.source,
        mountpoint: &config.mountpoint,
        allow_other,
        read_only,
        noexec,
        threads,
    };
    let glue = GlueSettings {
        entry_ttl,
        negative_ttl,
        passthrough: passthrough == Passthrough::Auto,
        stacked_disks: fs.volume().disks().iter().any(|disk| session::is_stacked(&disk.path)),
    };
    MountedSession::new(Arc::clone(fs), &settings, glue).map_err(|error| mount_error(config, &error))
}

fn mount_error(config: &Config, error: &io::Error) -> SetupError {
    SetupError::Mount(format!("cannot mount on '{}': {}", config.mountpoint.display(), io_text(error)))
}

/// Signals and panics become events. A panic in a thread ends the daemon in order: what the thread held is unknown.
fn watch_for_trouble(events: &Sender<Event>, foreground: bool) -> Result<(), SetupError> {
    let caught = [SIGTERM, SIGINT, SIGQUIT, SIGHUP, SIGUSR1, SIGUSR2, SIGALRM];
    let mut signals = Signals::new(caught).map_err(|e| thread_error(&e))?;
    let to = events.clone();
    spawn("signals", move || {
        for signal in signals.forever() {
            // A terminal that closes ends what runs in it. Otherwise these mean nothing to us, and must not kill a mount.
            let ends = matches!(signal, SIGTERM | SIGINT | SIGQUIT) || (signal == SIGHUP && foreground);
            if ends && to.send(Event::Signal).is_err() {
                break;
            }
        }
    })?;
    let to = events.clone();
    panic::set_hook(Box::new(move |info| {
        log::error!("a thread of the daemon panicked, which is a bug in kvspan: {info}");
        let _ = to.send(Event::Panic);
    }));
    Ok(())
}

fn thread_error(error: &io::Error) -> SetupError {
    SetupError::Failed(format!("the daemon's threads cannot be started: {}", io_text(error)))
}

fn spawn(name: &str, work: impl FnOnce() + Send + 'static) -> Result<(), SetupError> {
    thread::Builder::new().name(name.to_string()).spawn(work).map(drop).map_err(|e| thread_error(&e))
}

/// A thread a disk; the last one to finish makes the volume ready.
fn spawn_recovery(fs: &Arc<CacheFs>) -> Result<(), SetupError> {
    for (no, _) in fs.volume().numbered() {
        let fs = Arc::clone(fs);
        spawn(&format!("scan-{}", no.0), move || {
            let began = Instant::now();
            match recovery::scan_disk(fs.volume(), no, &|| false) {
                Ok(report) => event!(
                    Info,
                    fs.volume().about(no),
                    "{} files scanned in {:.1?}, {} objects could not be read",
                    report.files,
                    began.elapsed(),
                    report.unreadable
                ),
                Err(error) => {
                    event!(Error, fs.volume().about(no).error(&error), "the disk cannot be scanned");
                    fs.volume().disk_is_unreadable(no);
                }
            }
            fs.volume().wake_evictor(no);
            if !fs.volume().is_recovering() {
                fs.monitor().set_recovered(fs.volume());
            }
        })?;
    }
    Ok(())
}

/// A thread a disk, so that a slow disk holds up the eviction of no other. A mount that only reads just looks how much room
/// there is.
fn spawn_evictors(volume: &Arc<Volume>, read_only: bool) -> Result<(), SetupError> {
    for (no, _) in volume.numbered() {
        let volume = Arc::clone(volume);
        spawn(&format!("evict-{}", no.0), move || {
            loop {
                volume.wait_for_work(no);
                if read_only {
                    volume.refresh_room(no);
                } else {
                    volume.evict_pass(no);
                }
            }
        })?;
    }
    Ok(())
}

/// A thread a disk that frees the blocks of removed files, so that a slow disk holds up no other.
fn spawn_deferred(volume: &Arc<Volume>) -> Result<(), SetupError> {
    for (no, _) in volume.numbered() {
        let volume = Arc::clone(volume);
        spawn(&format!("free-{}", no.0), move || {
            loop {
                volume.drop_deferred(no, Duration::from_secs(3600));
            }
        })?;
    }
    Ok(())
}

/// Makes the last use of files durable, once in every interval.
fn spawn_recency(volume: &Arc<Volume>, interval: Duration) -> Result<(), SetupError> {
    if interval.is_zero() {
        return Ok(());
    }
    let volume = Arc::clone(volume);
    spawn("recency", move || {
        loop {
            thread::sleep(interval);
            volume.flush_recency(FRESH.min(interval), None);
        }
    })
}

/// The command that started us returns when the mount answers, so ask it something.
fn wait_until_it_answers(config: &Config) -> Result<(), SetupError> {
    rustix::fs::statvfs(&config.mountpoint).map(drop).map_err(|errno| mount_error(config, &errno.into()))
}

/// Waits for the end of the session. A signal unmounts, lazily if the mount is in use; what is then not over within
/// `stop_timeout` is cut off, since a thread inside a dead disk can never be joined.
fn serve(config: &Config, inbox: &Receiver<Event>) -> Result<(), SetupError> {
    let mut panicked = false;
    let mut event = inbox.recv().unwrap_or(Event::Signal);
    loop {
        match event {
            Event::SessionEnded(_) if panicked => {
                return Err(SetupError::Failed("the daemon stopped because of a bug in it".to_string()));
            }
            Event::SessionEnded(Ok(())) => return Ok(()),
            Event::SessionEnded(Err(error)) if error.raw_os_error() == Some(Errno::NODEV.raw_os_error()) => {
                return Ok(());
            }
            Event::SessionEnded(Err(error)) => {
                return Err(SetupError::Failed(format!("the FUSE session broke: {}", io_text(&error))));
            }
            Event::Signal | Event::Panic => panicked |= matches!(event, Event::Panic),
        }
        supervisor::tell_stopping(config.options.stop_timeout);
        unmount_or_detach(&config.mountpoint);
        event = match inbox.recv_timeout(deadline(config.options.stop_timeout)) {
            Ok(event) => event,
            Err(_) => {
                log::warn!("the mount is still in use after {:?}; its users are cut off", config.options.stop_timeout);
                messages::flush();
                sys::exit_now(i32::from(panicked));
            }
        };
    }
}

fn unmount_or_detach(mountpoint: &Path) {
    let Err(error) = session::unmount(mountpoint, false) else {
        return;
    };
    log::info!("'{}' cannot be unmounted at once ({}); it is detached", mountpoint.display(), io_text(&error));
    if let Err(error) = session::unmount(mountpoint, true) {
        log::warn!("'{}' cannot be detached: {}", mountpoint.display(), io_text(&error));
    }
}
