//! A whole volume in process: a `CacheFs` over temporary directories, without a mount.
//!
//! Used by the suites that need no kernel. Every rig checks the volume's invariants when it is dropped.
#![allow(dead_code, reason = "each suite uses its own part of the rig")]

pub mod faulty;
pub mod gate;
pub mod invariants;
pub mod loops;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use kvspan::config::{Amount, EvictionPolicy, PlacementPolicy, StatfsMode};
use kvspan::error::{Error, Result};
use kvspan::fs::monitor::Monitor;
use kvspan::fs::{CacheFs, OpenIntent, OpenedFile};
use kvspan::volume::attr::{DiskNo, Ino};
use kvspan::volume::disk::real::RealDisk;
use kvspan::volume::disk::{Disk, DiskIo, DiskLimits};
use kvspan::volume::files::RenameMode;
use kvspan::volume::index::Entry;
use kvspan::volume::{NewOwner, Volume, VolumeSettings, recovery};
use uuid::Uuid;

pub const READ: OpenIntent = OpenIntent { read: true, write: false, exclusive: false, truncate: false };
pub const WRITE: OpenIntent = OpenIntent { read: false, write: true, exclusive: false, truncate: false };

/// Disk `n` of every rig has this id.
pub fn disk_id(n: usize) -> Uuid {
    Uuid::from_u128(0x1000_0000_0000_4000_8000_0000_0000_0000 + n as u128)
}

/// Where files cost no disk, if the host has such a place.
pub fn memory_dir() -> PathBuf {
    let memory = PathBuf::from("/dev/shm");
    if memory.is_dir() { memory } else { std::env::temp_dir() }
}

/// The caller that the tests run as.
pub fn me() -> NewOwner {
    let (uid, gid) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
    NewOwner { uid, gid, mode: 0o644 }
}

/// Directories that serve as disks, and a file system over them.
pub struct Rig {
    pub dirs: Vec<PathBuf>,
    pub fs: Arc<CacheFs>,
    temp_ttl: Duration,
    unchecked: bool,
    _temp: Option<tempfile::TempDir>,
}

impl Rig {
    /// A scanned volume over `disks` empty directories.
    pub fn new(disks: usize) -> Rig {
        let rig = Rig::unscanned(disks);
        rig.scan();
        rig
    }

    /// A volume whose scan has not begun.
    pub fn unscanned(disks: usize) -> Rig {
        let temp = tempfile::tempdir().expect("a temporary directory");
        let dirs: Vec<PathBuf> = (0..disks).map(|n| temp.path().join(format!("disk{n}"))).collect();
        for dir in &dirs {
            std::fs::create_dir(dir).expect("a disk's directory");
        }
        let mut rig = Rig::over(dirs);
        rig._temp = Some(temp);
        rig
    }

    /// A volume over directories that may hold files already.
    pub fn over(dirs: Vec<PathBuf>) -> Rig {
        Rig::with_io(dirs, |_, real| Box::new(real))
    }

    /// A volume whose disks are wrapped, for faults.
    pub fn with_io(dirs: Vec<PathBuf>, wrap: impl Fn(usize, RealDisk) -> Box<dyn DiskIo>) -> Rig {
        Rig::build(dirs, Amount::Percent(95.0), wrap)
    }

    /// A scanned volume over empty directories, each of which may hold so many bytes.
    pub fn limited(disks: usize, limit_bytes: u64) -> Rig {
        Rig::limited_by(disks, limit_bytes, EvictionPolicy::Lru)
    }

    /// The same under a policy of eviction.
    pub fn limited_by(disks: usize, limit_bytes: u64, eviction: EvictionPolicy) -> Rig {
        let mut made = Rig::unscanned(disks);
        let temp = made._temp.take();
        let mut rig = Rig::evicting(made.dirs.clone(), limit_bytes, eviction);
        rig._temp = temp;
        rig
    }

    /// A volume over directories on whose file systems so much must stay free.
    pub fn reserving(dirs: Vec<PathBuf>, reserve: Amount) -> Rig {
        let limits = DiskLimits { limit: Amount::Percent(95.0), reserve };
        Rig::with_limits(dirs, limits, |_, real| Box::new(real))
    }

    /// A volume over directories, with a limit for each and wrapped disks.
    pub fn build(dirs: Vec<PathBuf>, limit: Amount, wrap: impl Fn(usize, RealDisk) -> Box<dyn DiskIo>) -> Rig {
        Rig::with_limits(dirs, DiskLimits { limit, reserve: Amount::Percent(2.0) }, wrap)
    }

    /// A scanned volume over directories, each of which may hold so many bytes.
    pub fn evicting(dirs: Vec<PathBuf>, limit_bytes: u64, eviction: EvictionPolicy) -> Rig {
        let limits = DiskLimits { limit: Amount::Bytes(limit_bytes), reserve: Amount::Percent(2.0) };
        let rig = Rig::make(dirs, limits, (Duration::from_secs(3600), eviction), |_, real| Box::new(real));
        rig.scan();
        rig
    }

    /// A volume over directories with another placement policy.
    pub fn placing(dirs: Vec<PathBuf>, policy: PlacementPolicy) -> Rig {
        let limits = DiskLimits { limit: Amount::Percent(95.0), reserve: Amount::Percent(2.0) };
        let disks = real_disks(&dirs, limits, |_, real| Box::new(real));
        let settings = VolumeSettings { policy, ..settings() };
        Rig::assemble(dirs, disks, settings).expect("a volume")
    }

    fn with_limits(dirs: Vec<PathBuf>, limits: DiskLimits, wrap: impl Fn(usize, RealDisk) -> Box<dyn DiskIo>) -> Rig {
        Rig::make(dirs, limits, (Duration::from_secs(3600), EvictionPolicy::Lru), wrap)
    }

    /// A scanned volume over empty directories, whose temp files are orphans after so long.
    pub fn with_temp_ttl(disks: usize, temp_ttl: Duration) -> Rig {
        let mut made = Rig::unscanned(disks);
        let temp = made._temp.take();
        let limits = DiskLimits { limit: Amount::Percent(95.0), reserve: Amount::Percent(2.0) };
        let mut rig = Rig::make(made.dirs.clone(), limits, (temp_ttl, EvictionPolicy::Lru), |_, real| Box::new(real));
        rig._temp = temp;
        rig.scan();
        rig
    }

    fn make(
        dirs: Vec<PathBuf>,
        limits: DiskLimits,
        (temp_ttl, eviction): (Duration, EvictionPolicy),
        wrap: impl Fn(usize, RealDisk) -> Box<dyn DiskIo>,
    ) -> Rig {
        let disks = real_disks(&dirs, limits, wrap);
        Rig::assemble(dirs, disks, VolumeSettings { temp_ttl, eviction, ..settings() }).expect("a volume")
    }

    /// A volume over disks that somebody else has made; `dirs` are theirs, in the same order.
    pub fn of(dirs: Vec<PathBuf>, disks: Vec<Disk>, io_timeout: Duration) -> Result<Rig> {
        Rig::assemble(dirs, disks, VolumeSettings { io_timeout, ..settings() })
    }

    fn assemble(dirs: Vec<PathBuf>, disks: Vec<Disk>, settings: VolumeSettings) -> Result<Rig> {
        let temp_ttl = settings.temp_ttl;
        let volume = Volume::new(settings, disks, Box::new(|_| {}))?;
        let volume = Arc::new(volume);
        volume.replay_renames();
        for n in 0..dirs.len() {
            volume.refresh_room(DiskNo(n as u8));
        }
        let fs = CacheFs::new(volume, StatfsMode::Strict, Monitor::new(PathBuf::from("/nowhere"), Vec::new()));
        Ok(Rig { dirs, fs: Arc::new(fs), temp_ttl, unchecked: false, _temp: None })
    }

    /// The same disks, unmounted and mounted again, before the scan.
    pub fn unscanned_again(mut self) -> Rig {
        self.check();
        let temp = self._temp.take();
        let limits = DiskLimits { limit: Amount::Percent(95.0), reserve: Amount::Percent(2.0) };
        let mut rig =
            Rig::make(self.dirs.clone(), limits, (self.temp_ttl, EvictionPolicy::Lru), |_, real| Box::new(real));
        rig._temp = temp;
        rig
    }

    /// The same disks, unmounted and mounted again.
    pub fn remount(self) -> Rig {
        let rig = self.unscanned_again();
        rig.scan();
        rig
    }

    /// Ends without the check at the end, as a daemon that is killed.
    pub fn forget_checks(mut self) {
        self.unchecked = true;
    }

    /// Scans all disks to their end.
    pub fn scan(&self) {
        for n in 0..self.dirs.len() {
            recovery::scan_disk(self.fs.volume(), DiskNo(n as u8), &|| false).expect("a scan");
        }
        self.fs.monitor().set_recovered(self.fs.volume());
    }

    pub fn check(&self) {
        self.fs.volume().check_invariants().expect("the volume's invariants");
    }

    pub fn lookup(&self, path: &str) -> Result<Entry> {
        let mut at = self.fs.attributes(Ino::ROOT)?;
        for name in path.split('/') {
            at = self.fs.lookup(at.ino, name.as_bytes())?;
            self.fs.forget(at.ino, 1);
        }
        Ok(at)
    }

    pub fn dir_of<'a>(&self, path: &'a str) -> (Ino, &'a str) {
        match path.rsplit_once('/') {
            Some((dir, name)) => (self.lookup(dir).expect("the directory").ino, name),
            None => (Ino::ROOT, path),
        }
    }

    pub fn create(&self, path: &str) -> Result<OpenedFile> {
        let (dir, name) = self.dir_of(path);
        let opened = self.fs.create(dir, name.as_bytes(), me(), WRITE)?;
        self.fs.forget(opened.entry.ino, 1);
        Ok(opened)
    }

    /// Stores as LMCache does: a temp file, written, closed, renamed.
    pub fn store(&self, key: &str, bytes: &[u8]) -> Result<()> {
        let temp = format!("{key}.tmp");
        let opened = self.create(&temp)?;
        self.fs.write(opened.handle, bytes, 0)?;
        self.fs.close(opened.handle);
        self.rename(&temp, &format!("{key}.data"))
    }

    pub fn write(&self, path: &str, bytes: &[u8]) -> Result<()> {
        let opened = self.create(path)?;
        self.fs.write(opened.handle, bytes, 0)?;
        self.fs.close(opened.handle);
        Ok(())
    }

    pub fn load(&self, path: &str) -> Result<Vec<u8>> {
        let entry = self.lookup(path)?;
        let opened = self.fs.open(entry.ino, READ)?;
        let mut bytes = vec![0; opened.entry.attr.size_bytes as usize + 1];
        let length = self.fs.read(opened.handle, &mut bytes, 0);
        self.fs.close(opened.handle);
        bytes.truncate(length?);
        Ok(bytes)
    }

    pub fn rename(&self, from: &str, to: &str) -> Result<()> {
        let ((a, from), (b, to)) = (self.dir_of(from), self.dir_of(to));
        self.fs.rename((a, from.as_bytes()), (b, to.as_bytes()), RenameMode::Replace)
    }

    pub fn unlink(&self, path: &str) -> Result<()> {
        let (dir, name) = self.dir_of(path);
        self.fs.unlink(dir, name.as_bytes())
    }

    pub fn mkdir(&self, path: &str) -> Result<Entry> {
        let (dir, name) = self.dir_of(path);
        let owner = NewOwner { mode: 0o755, ..me() };
        self.fs.mkdir(dir, name.as_bytes(), owner).inspect(|entry| self.fs.forget(entry.ino, 1))
    }

    pub fn rmdir(&self, path: &str) -> Result<()> {
        let (dir, name) = self.dir_of(path);
        self.fs.rmdir(dir, name.as_bytes())
    }

    /// All names of a directory but the dots, `batch` entries a request.
    pub fn names(&self, dir: &str, batch: usize) -> Vec<String> {
        let ino = if dir.is_empty() { Ino::ROOT } else { self.lookup(dir).expect("the directory").ino };
        let handle = self.fs.open_dir(ino).expect("a listing");
        let (mut names, mut after) = (Vec::new(), 0);
        loop {
            let (mut taken, before) = (0, after);
            let listed = self.fs.list(handle, ino, after, &mut |entry| {
                if taken == batch {
                    return false;
                }
                taken += 1;
                after = entry.cookie;
                if entry.entry.is_some() {
                    names.push(String::from_utf8_lossy(entry.name).into_owned());
                }
                true
            });
            listed.expect("a listing");
            if after == before {
                break;
            }
        }
        self.fs.close_dir(handle);
        names
    }

    /// One pass of every disk's evictor; the number of files that went.
    pub fn evict(&self) -> u64 {
        (0..self.dirs.len()).map(|n| self.fs.volume().evict_pass(DiskNo(n as u8))).sum()
    }

    /// Bytes of a disk's files as `du` counts them, kvspan's own and directories left out.
    pub fn du(&self, disk: usize) -> u64 {
        fn below(dir: &Path) -> u64 {
            let entries = std::fs::read_dir(dir).expect("a directory").map(|e| e.expect("an entry"));
            let size = |e: std::fs::DirEntry| match e.metadata() {
                _ if e.file_name() == ".kvspan" => 0,
                Ok(meta) if meta.is_dir() => below(&e.path()),
                Ok(meta) => std::os::unix::fs::MetadataExt::blocks(&meta) * 512,
                Err(_) => 0,
            };
            entries.map(size).sum()
        }
        below(&self.dirs[disk])
    }

    /// The disks that have an object at a path.
    pub fn disks_with(&self, path: &str) -> Vec<usize> {
        (0..self.dirs.len()).filter(|n| self.on_disk(*n, path).symlink_metadata().is_ok()).collect()
    }

    pub fn on_disk(&self, disk: usize, path: &str) -> PathBuf {
        self.dirs[disk].join(path)
    }

    /// The disk that placement picks for a name.
    pub fn owner(&self, name: &str) -> usize {
        self.fs.volume().owner(name.as_bytes()).expect("an owner").index()
    }

    /// A name with this prefix that the disk owns.
    pub fn name_owned_by(&self, disk: usize, prefix: &str) -> String {
        (0..).map(|n| format!("{prefix}{n}")).find(|name| self.owner(name) == disk).expect("a name")
    }
}

fn settings() -> VolumeSettings {
    VolumeSettings {
        id: Uuid::nil(),
        policy: PlacementPolicy::Rendezvous,
        io_timeout: Duration::from_secs(5),
        temp_ttl: Duration::from_secs(3600),
        grace: Duration::from_secs(15),
        high_percent: 95.0,
        low_percent: 90.0,
        eviction: EvictionPolicy::Lru,
        kept_files: 8,
    }
}

fn real_disks(dirs: &[PathBuf], limits: DiskLimits, wrap: impl Fn(usize, RealDisk) -> Box<dyn DiskIo>) -> Vec<Disk> {
    let disk = |(n, dir): (usize, &PathBuf)| {
        let root = std::fs::File::open(dir).expect("a disk's directory");
        Disk::new(disk_id(n), dir.clone(), wrap(n, RealDisk::new(root.into())), limits)
    };
    dirs.iter().enumerate().map(disk).collect()
}

impl Drop for Rig {
    fn drop(&mut self) {
        if !std::thread::panicking() && !self.unchecked {
            self.check();
        }
    }
}

/// Lets the next birth or removal be later than the last one also for a file system or a clock that is coarse.
pub fn pause() {
    std::thread::sleep(Duration::from_millis(20));
}

/// Whether an operation failed with this error.
pub fn is<T>(result: &Result<T>, errno: rustix::io::Errno) -> bool {
    result.as_ref().is_err_and(|error: &Error| error.errno() == errno.raw_os_error())
}

/// A directory of the host, for asserting on disks.
pub fn names_in(dir: &Path) -> Vec<String> {
    let mut names: Vec<String> = std::fs::read_dir(dir)
        .expect("a directory")
        .map(|e| e.expect("an entry").file_name().to_string_lossy().into())
        .collect();
    names.sort();
    names
}
