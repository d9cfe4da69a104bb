//! A volume over temporary directories, mounted by the real binary.
//!
//! A [`Rig`] owns all that it starts: when it is dropped, also by a test that panics, the mount is taken away, the daemon
//! is seen to end, and a test that left either behind fails. A rig's life is bounded, so a system call that hangs in a
//! mount gets an error and the test fails.

use std::ffi::OsStr;
use std::fs;
use std::os::fd::OwnedFd;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use rustix::mount::{UnmountFlags, unmount};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use serde_json::Value;
use tempfile::TempDir;

use super::run::{Said, ends_within, run, wait_until};

/// The program under test.
pub const KVSPAN: &str = env!("CARGO_BIN_EXE_kvspan");
/// No mount of the suite lives longer.
const LIFE_LIMIT: Duration = Duration::from_secs(150);
/// How long a daemon may take to end after its mount has gone.
const END_LIMIT: Duration = Duration::from_secs(20);

/// How the bytes of open files are to travel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Io {
    /// Between the kernel and the disk.
    Passthrough,
    /// Through the daemon.
    Daemon,
}

impl Io {
    /// The mount option that asks for it.
    pub fn option(self) -> &'static str {
        match self {
            Io::Passthrough => "passthrough=auto",
            Io::Daemon => "passthrough=off",
        }
    }

    /// The word in `status` and `user.kvspan.io_mode`.
    pub fn word(self) -> &'static str {
        match self {
            Io::Passthrough => "passthrough",
            Io::Daemon => "daemon",
        }
    }
}

/// Why no test can mount here; `None` where they can.
pub fn cannot_mount() -> Option<&'static str> {
    if !rustix::process::geteuid().is_root() {
        return Some("not root");
    }
    (!Path::new("/dev/fuse").exists()).then_some("no /dev/fuse")
}

/// Disks, a mount point and, while it is mounted, the daemon.
pub struct Rig {
    temp: TempDir,
    pub disks: Vec<PathBuf>,
    tmpfs: Vec<PathBuf>,
    daemon: Option<Daemon>,
}

struct Daemon {
    pid: u32,
    pidfd: Arc<OwnedFd>,
    _life: mpsc::Sender<()>,
}

impl Rig {
    /// Labelled disks, not mounted.
    pub fn new(disks: usize) -> Rig {
        let mut rig = Rig::bare();
        for _ in 0..disks {
            rig.add_disk();
        }
        rig
    }

    /// No disk yet.
    pub fn bare() -> Rig {
        let temp = tempfile::Builder::new().prefix("kvspan-mount-").tempdir().expect("a temporary directory");
        // Other users come here too.
        fs::set_permissions(temp.path(), fs::Permissions::from_mode(0o755)).expect("permissions");
        fs::create_dir(temp.path().join("mnt")).expect("a mount point");
        Rig { temp, disks: Vec::new(), tmpfs: Vec::new(), daemon: None }
    }

    /// Labelled disks, mounted in an I/O mode.
    pub fn mounted(disks: usize, io: Io) -> Rig {
        let mut rig = Rig::new(disks);
        rig.mount(io.option());
        assert_eq!(rig.status()["io_mode"], io.word());
        rig
    }

    /// Mounts again in the same mode.
    pub fn mount_in(&mut self, io: Io) {
        self.mount(io.option());
    }

    /// One more labelled disk.
    pub fn add_disk(&mut self) -> PathBuf {
        let disk = self.temp.path().join(format!("d{}", self.disks.len() + 1));
        fs::create_dir_all(&disk).expect("a disk's directory");
        let mut all: Vec<&Path> = self.disks.iter().map(PathBuf::as_path).collect();
        all.push(&disk);
        kvspan("init", &all).ok();
        self.disks.push(disk.clone());
        disk
    }

    /// A small file system of its own, taken away with the rig.
    pub fn tmpfs(&mut self, name: &str, size: &str) -> PathBuf {
        let dir = self.temp.path().join(name);
        fs::create_dir(&dir).expect("a directory");
        let options = format!("size={size},mode=755");
        run(Command::new("mount").args(["-t", "tmpfs", "-o", &options, "kvspan-test"]).arg(&dir)).ok();
        self.tmpfs.push(dir.clone());
        dir
    }

    /// Labels directories that lie elsewhere as the disks of this rig.
    pub fn use_disks(&mut self, dirs: &[PathBuf]) {
        for dir in dirs {
            fs::create_dir_all(dir).expect("a disk's directory");
        }
        kvspan("init", &dirs.iter().map(PathBuf::as_path).collect::<Vec<_>>()).ok();
        self.disks.extend_from_slice(dirs);
    }

    /// SOURCE of all disks.
    pub fn source(&self) -> String {
        let paths: Vec<&str> = self.disks.iter().map(|disk| disk.to_str().expect("UTF-8")).collect();
        paths.join(":")
    }

    /// The mount point.
    pub fn mountpoint(&self) -> PathBuf {
        self.temp.path().join("mnt")
    }

    /// A path below the mount point.
    pub fn path(&self, name: impl AsRef<Path>) -> PathBuf {
        self.mountpoint().join(name)
    }

    /// A path outside of the mount and the disks.
    pub fn outside(&self, name: &str) -> PathBuf {
        self.temp.path().join(name)
    }

    /// The daemon's log.
    pub fn log(&self) -> String {
        String::from_utf8_lossy(&fs::read(self.outside("daemon.log")).unwrap_or_default()).into_owned()
    }

    /// `kvspan mount` of these disks on this mount point, as a command.
    pub fn mount_command(&self, options: &str) -> Command {
        let mut command = Command::new(KVSPAN);
        command.args(["mount", &self.source()]).arg(self.mountpoint());
        command.arg("-o").arg(format!("log={}", self.outside("daemon.log").display()));
        if !options.is_empty() {
            command.args(["-o", options]);
        }
        command
    }

    /// Mounts with options and waits until all disks have been scanned.
    pub fn mount(&mut self, options: &str) {
        let command = self.mount_command(options);
        self.mount_by(command);
    }

    /// Mounts by a command.
    pub fn mount_by(&mut self, mut command: Command) {
        run(&mut command).ok();
        self.take_daemon();
        self.wait_until_ready();
    }

    /// Mounts by a command that stays in the foreground.
    pub fn mount_in_foreground(&mut self, options: &str) -> Child {
        let mut command = self.mount_command(options);
        command.arg("-f").stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let mut child = command.spawn().expect("kvspan");
        wait_until("the volume is mounted", || {
            assert_eq!(child.try_wait().expect("a child"), None, "{}", self.log());
            is_mounted(&self.mountpoint())
        });
        self.take_daemon();
        self.wait_until_ready();
        child
    }

    /// Takes charge of the daemon that serves the mount point.
    pub fn take_daemon(&mut self) {
        let pids = daemons(self.temp.path());
        assert_eq!(pids.len(), 1, "one daemon serves the mount");
        let pid = pids[0];
        let raw = Pid::from_raw(pid as i32).expect("a pid");
        let pidfd = Arc::new(pidfd_open(raw, PidfdFlags::empty()).expect("a pidfd"));
        let (life, ended) = mpsc::channel::<()>();
        let victim = Arc::clone(&pidfd);
        thread::spawn(move || {
            if ended.recv_timeout(LIFE_LIMIT) == Err(mpsc::RecvTimeoutError::Timeout) {
                eprintln!("a mount has lived for {LIFE_LIMIT:?}: its daemon is killed");
                let _ = pidfd_send_signal(&*victim, Signal::KILL);
            }
        });
        self.daemon = Some(Daemon { pid, pidfd, _life: life });
    }

    fn wait_until_ready(&self) {
        wait_until("all disks have been scanned", || self.status()["state"] == "ready");
    }

    /// `kvspan status --json`.
    #[track_caller]
    pub fn status(&self) -> Value {
        let said = run(Command::new(KVSPAN).args(["status", "--json"]).arg(self.mountpoint()));
        serde_json::from_str(said.ok()).expect("JSON")
    }

    /// The daemon's pid.
    pub fn pid(&self) -> u32 {
        self.daemon.as_ref().expect("a mounted volume").pid
    }

    /// Files that the daemon has open.
    pub fn open_fds(&self) -> usize {
        fs::read_dir(format!("/proc/{}/fd", self.pid())).expect("the daemon's files").count()
    }

    /// Sends the daemon a signal.
    pub fn signal(&self, signal: Signal) {
        let daemon = self.daemon.as_ref().expect("a mounted volume");
        pidfd_send_signal(&*daemon.pidfd, signal).expect("a signal");
    }

    /// Waits for the daemon's end.
    #[track_caller]
    pub fn wait_for_end(&mut self) {
        let daemon = self.daemon.take().expect("a mounted volume");
        assert!(ends_within(&daemon.pidfd, END_LIMIT), "the daemon has not ended within {END_LIMIT:?}");
    }

    /// Unmounts, and sees the daemon end.
    #[track_caller]
    pub fn umount(&mut self) {
        // A child that another test is starting holds our files for a moment.
        wait_until("the volume can be unmounted", || {
            let said = run(Command::new(KVSPAN).arg("umount").arg(self.mountpoint()));
            assert!(said.code == Some(0) || said.err.contains("is busy"), "{said:?}");
            said.code == Some(0)
        });
        self.wait_for_end();
        assert!(!is_mounted(&self.mountpoint()));
    }

    /// The disks that hold a path.
    pub fn disks_with(&self, name: &str) -> Vec<PathBuf> {
        self.disks.iter().map(|disk| disk.join(name)).filter(|path| path.symlink_metadata().is_ok()).collect()
    }

    /// The one path on the disks behind a name.
    #[track_caller]
    pub fn backing(&self, name: &str) -> PathBuf {
        let found = self.disks_with(name);
        assert_eq!(found.len(), 1, "{name} lies on one disk: {found:?}");
        found[0].clone()
    }

    /// The disk that owns a name, as `kvspan where` says.
    pub fn owner(&self, name: &str) -> PathBuf {
        let said = run(Command::new(KVSPAN).arg("where").arg(self.mountpoint()).arg(name));
        let fields: Vec<&str> = said.ok().trim_end().split('\t').collect();
        PathBuf::from(fields[2])
    }

    fn clean_up(&mut self) -> Result<(), String> {
        let mountpoint = self.mountpoint();
        let mut trouble = Vec::new();
        if is_mounted(&mountpoint) && !unmounts(&mountpoint) {
            trouble.push("the mount was still in use");
            let _ = unmount(&mountpoint, UnmountFlags::DETACH);
        }
        for pid in daemons(self.temp.path()) {
            let Ok(pidfd) = pidfd_open(Pid::from_raw(pid as i32).expect("a pid"), PidfdFlags::empty()) else {
                continue;
            };
            if !ends_within(&pidfd, END_LIMIT) {
                trouble.push("the daemon had to be killed");
                let _ = pidfd_send_signal(&pidfd, Signal::KILL);
                ends_within(&pidfd, END_LIMIT);
            }
        }
        for dir in self.tmpfs.drain(..) {
            if unmount(&dir, UnmountFlags::DETACH).is_err() {
                trouble.push("a tmpfs could not be unmounted");
            }
        }
        if is_mounted(&mountpoint) || !daemons(self.temp.path()).is_empty() {
            trouble.push("a mount or a daemon is left");
        }
        if trouble.is_empty() { Ok(()) } else { Err(trouble.join("; ")) }
    }
}

impl Drop for Rig {
    fn drop(&mut self) {
        let cleaned = self.clean_up();
        if thread::panicking() {
            eprintln!("the daemon's log:\n{}", self.log());
            return;
        }
        let log = self.log();
        assert!(!log.contains("panicked"), "{log}");
        if let Err(trouble) = cleaned {
            panic!("{trouble}");
        }
    }
}

/// A plain unmount, tried again while children that another test is starting hold our files.
fn unmounts(mountpoint: &Path) -> bool {
    for _ in 0..500 {
        if unmount(mountpoint, UnmountFlags::NOFOLLOW).is_ok() || !is_mounted(mountpoint) {
            return true;
        }
        thread::sleep(Duration::from_millis(2));
    }
    false
}

/// `kvspan COMMAND ARG...`.
pub fn kvspan<A: AsRef<OsStr>>(command: &str, args: &[A]) -> Said {
    run(Command::new(KVSPAN).arg(command).args(args))
}

/// Whether something is mounted on a path.
pub fn is_mounted(path: &Path) -> bool {
    let table = fs::read_to_string("/proc/self/mountinfo").expect("the mount table");
    table.lines().any(|line| line.split(' ').nth(4) == path.to_str())
}

/// The pids of the daemons under test, by the program or by a copy of it in `path`, with that path among their arguments.
pub fn daemons(path: &Path) -> Vec<u32> {
    let programs = [fs::canonicalize(KVSPAN).expect("the program"), path.join("kvspan")];
    let path = path.as_os_str().as_encoded_bytes();
    let serves = |pid: &u32| {
        let argv = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let argv: Vec<&[u8]> = argv.split(|byte| *byte == 0).collect();
        let is_daemon = argv.get(1) == Some(&&b"mount"[..])
            && argv.iter().any(|arg| *arg == b"-f" || *arg == b"--background-child")
            && argv.iter().any(|arg| arg.windows(path.len()).any(|part| part == path));
        is_daemon && fs::read_link(format!("/proc/{pid}/exe")).is_ok_and(|exe| programs.contains(&exe))
    };
    let entries = fs::read_dir("/proc").expect("/proc").flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).filter(serves).collect()
}

/// Declares tests that need a mount, each a function of the same name above or below.
macro_rules! on_a_mount {
    ($($name:ident,)*) => { mod mounted { $(
        #[test]
        fn $name() {
            match $crate::rig::cannot_mount() {
                Some(reason) => eprintln!("skipped {}: {reason}", stringify!($name)),
                None => super::$name(),
            }
        }
    )* } };
}

/// Declares tests that run with passthrough and without, each a function of the same name that takes the [`Io`] mode.
macro_rules! in_both_io_modes {
    (@mode $module:ident $mode:ident $($name:ident,)*) => { mod $module { $(
        #[test]
        fn $name() {
            match $crate::rig::cannot_mount() {
                Some(reason) => eprintln!("skipped {}: {reason}", stringify!($name)),
                None => super::$name($crate::rig::Io::$mode),
            }
        }
    )* } };
    ($($name:ident,)*) => {
        $crate::rig::in_both_io_modes!(@mode passthrough Passthrough $($name,)*);
        $crate::rig::in_both_io_modes!(@mode daemon Daemon $($name,)*);
    };
}

pub(crate) use in_both_io_modes;
pub(crate) use on_a_mount;
