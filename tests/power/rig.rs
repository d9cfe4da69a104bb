//! A disk that can lose its power, and a kvspan over it.
//!
//! The disk is a file system on a loop device. A cut shuts the file system down, so that nothing more reaches its
//! image, kills the daemon and mounts the image again. All of it is taken away when the rig is dropped, also by a panic.

use std::fs;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use serde_json::Value;
use tempfile::TempDir;

pub const KVSPAN: &str = env!("CARGO_BIN_EXE_kvspan");
/// Objects are made of these, each with its own first bytes.
const BLOCK: usize = 64 * 1024;
/// Nothing here takes longer.
const PATIENCE: Duration = Duration::from_secs(60);

/// Why the suite cannot run here; `None` where it can.
pub fn missing() -> Option<String> {
    if !rustix::process::geteuid().is_root() {
        return Some("not root".to_string());
    }
    let programs = ["mkfs.ext4", "mkfs.xfs", "xfs_io", "strace"];
    let here =
        |name: &&str| ["/usr/sbin", "/usr/bin", "/sbin", "/bin"].iter().any(|dir| Path::new(dir).join(name).exists());
    match programs.iter().find(|name| !here(name)) {
        Some(name) => Some(format!("no {name} (packages e2fsprogs, xfsprogs, strace)")),
        None => (!Path::new("/dev/fuse").exists()).then(|| "no /dev/fuse".to_string()),
    }
}

/// What the file system still writes when it goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cut {
    /// Nothing: a power cut.
    Bare,
    /// Its log, so that names are there without their bytes.
    Log,
}

pub struct Rig {
    temp: TempDir,
    daemon: Option<OwnedFd>,
    tracer: Option<Child>,
}

impl Rig {
    /// A labelled disk on a file system of this type.
    pub fn new(fs_type: &str, size: &str) -> Rig {
        let temp = tempfile::Builder::new().prefix("kvspan-power-").tempdir().expect("a temporary directory");
        let rig = Rig { temp, daemon: None, tracer: None };
        run(Command::new("truncate").args(["-s", size]).arg(rig.at("image")));
        run(Command::new(format!("mkfs.{fs_type}")).arg("-q").arg(rig.at("image")));
        fs::create_dir(rig.disk()).and_then(|()| fs::create_dir(rig.at("mnt"))).expect("directories");
        rig.mount_disk();
        run(Command::new(KVSPAN).arg("init").arg(rig.disk()));
        // The label is not what is to be lost.
        run(Command::new("sync").arg("-f").arg(rig.disk()));
        rig
    }

    fn at(&self, name: &str) -> PathBuf {
        self.temp.path().join(name)
    }

    pub fn disk(&self) -> PathBuf {
        self.at("disk")
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.at("mnt").join(name)
    }

    pub fn log(&self) -> String {
        fs::read_to_string(self.at("log")).unwrap_or_default()
    }

    fn mount_disk(&self) {
        run(Command::new("mount").args(["-o", "loop"]).arg(self.at("image")).arg(self.disk()));
    }

    fn mount_command(&self, options: &str) -> Command {
        let mut command = Command::new(KVSPAN);
        let log = self.at("log");
        command.arg("mount").arg(self.disk()).arg(self.at("mnt"));
        command.arg("-o").arg(format!("log={},{options}", log.display()));
        command
    }

    /// Mounts; the scan may still be running.
    pub fn mount(&mut self, options: &str) {
        run(&mut self.mount_command(options));
        self.take_daemon();
    }

    /// Mounts under strace, which changes what the daemon's system calls do.
    pub fn mount_traced(&mut self, options: &str, inject: &str) {
        let traced = self.mount_command(options);
        let mut command = Command::new("strace");
        command.args(["-f", "-qq", "-o", "/dev/null", "-e", inject, "--"]).arg(KVSPAN);
        command.args(traced.get_args()).arg("-f").stdout(Stdio::null()).stderr(Stdio::null());
        self.tracer = Some(command.spawn().expect("strace"));
        wait_until("the volume is mounted", || self.status().is_some());
        self.take_daemon();
    }

    /// Changes what system calls of the daemon do from now on.
    pub fn trace(&mut self, inject: &str) {
        let pid = self.pid();
        let mut command = Command::new("strace");
        command.args(["-f", "-qq", "-o", "/dev/null", "-e", inject, "-p", &pid.to_string()]);
        self.tracer = Some(command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("strace"));
        let traced = format!("/proc/{pid}/status");
        wait_until("strace is there", || {
            fs::read_to_string(&traced).is_ok_and(|status| !status.contains("TracerPid:\t0"))
        });
    }

    pub fn stop_tracing(&mut self) {
        if let Some(mut tracer) = self.tracer.take() {
            let pid = Pid::from_child(&tracer);
            let _ = rustix::process::kill_process(pid, Signal::INT);
            let _ = tracer.wait();
        }
    }

    fn pid(&self) -> u64 {
        self.status().expect("a status")["pid"].as_u64().expect("a pid")
    }

    fn take_daemon(&mut self) {
        let pid = Pid::from_raw(i32::try_from(self.pid()).expect("a pid")).expect("a pid");
        self.daemon = Some(pidfd_open(pid, PidfdFlags::empty()).expect("the daemon"));
    }

    pub fn status(&self) -> Option<Value> {
        let output = Command::new(KVSPAN).args(["status", "--json"]).arg(self.at("mnt")).output().expect("kvspan");
        serde_json::from_slice(&output.stdout).ok()
    }

    /// Waits for the end of the scan; the files that recovery has removed.
    pub fn wait_until_ready(&self) -> u64 {
        wait_until("the volume is ready", || self.status().is_some_and(|status| status["state"] == "ready"));
        self.status().expect("a status")["recovery"]["removed_files"].as_u64().expect("a number")
    }

    /// `kill -9` of the daemon.
    pub fn kill(&mut self) {
        let daemon = self.daemon.take().expect("a daemon");
        pidfd_send_signal(&daemon, Signal::KILL).expect("a signal");
        wait_for_end(&daemon);
        self.stop_tracing();
    }

    /// An orderly end.
    pub fn umount(&mut self) {
        run(Command::new(KVSPAN).arg("umount").arg(self.at("mnt")));
        wait_for_end(&self.daemon.take().expect("a daemon"));
    }

    /// The power goes, and comes back.
    pub fn cut(&mut self, how: Cut) {
        let command = if how == Cut::Log { "shutdown -f" } else { "shutdown" };
        run(Command::new("xfs_io").args(["-x", "-c", command]).arg(self.disk()));
        if self.daemon.is_some() {
            self.kill();
        }
        run(Command::new("umount").arg("-l").arg(self.at("mnt")));
        // A client's own thread may hold the disk for a moment.
        wait_until("the disk is unmounted", || {
            Command::new("umount").arg(self.disk()).output().is_ok_and(|output| output.status.success())
        });
        self.mount_disk();
    }

    /// The record on the disk.
    pub fn record(&self) -> Value {
        let text = fs::read_to_string(self.disk().join(".kvspan/record")).unwrap_or_default();
        text.lines().next().and_then(|line| serde_json::from_str(line).ok()).unwrap_or_default()
    }

    /// Waits until a sync has made durable what was stored until now.
    pub fn wait_until_synced(&self) {
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).expect("a time").as_nanos();
        wait_until("a sync", || self.record()["safe_ns"].as_i64().is_some_and(|safe| safe as u128 > now));
    }

    /// Stores as LMCache does.
    pub fn store(&self, key: &str, length: usize) -> std::io::Result<()> {
        let temp = self.path(&format!("{key}.tmp"));
        fs::write(&temp, object(key, length))?;
        fs::rename(&temp, self.path(&format!("{key}.data")))
    }

    pub fn store_many(&self, prefix: &str, count: usize) {
        for n in 0..count {
            self.store(&format!("{prefix}-{n}"), length_of(n)).expect("a store");
        }
    }

    pub fn exists(&self, key: &str) -> bool {
        self.path(&format!("{key}.data")).exists()
    }

    /// How many of `prefix-0`, `prefix-1`, ... are there.
    pub fn count(&self, prefix: &str, of: usize) -> usize {
        (0..of).filter(|n| self.exists(&format!("{prefix}-{n}"))).count()
    }

    /// Checks that every name is whole; `lengths` gives what was stored under a key. Returns how many there are.
    pub fn check_whole(&self, lengths: impl Fn(&str) -> usize) -> usize {
        let torn = torn_in(&self.at("mnt"), &lengths);
        assert!(torn.is_empty(), "torn: {torn:?}\n{}", self.log());
        names_in(&self.at("mnt")).len()
    }

    /// The names that are torn on the disk itself: what would be served without a rule.
    pub fn torn_on_disk(&self, lengths: impl Fn(&str) -> usize) -> Vec<String> {
        torn_in(&self.disk(), &lengths)
    }
}

impl Drop for Rig {
    fn drop(&mut self) {
        self.stop_tracing();
        if let Some(daemon) = self.daemon.take() {
            let _ = pidfd_send_signal(&daemon, Signal::KILL);
        }
        for path in [self.at("mnt"), self.disk()] {
            let _ = Command::new("umount").arg("-l").arg(&path).output();
        }
    }
}

/// The length of the n-th small object.
pub fn length_of(n: usize) -> usize {
    BLOCK + n * 37_000 % 900_000
}

/// The bytes of an object: every block says whose it is and where.
pub fn object(key: &str, length: usize) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(length + BLOCK);
    (0..length.div_ceil(BLOCK)).for_each(|at| bytes.extend_from_slice(&block(key, at)));
    bytes.truncate(length);
    bytes
}

fn block(key: &str, at: usize) -> Vec<u8> {
    let head = format!("{key} {at} ");
    let mut block = vec![b'x'; BLOCK];
    block[..head.len()].copy_from_slice(head.as_bytes());
    block
}

fn is_whole(path: &Path, key: &str, length: usize) -> bool {
    let file = fs::File::open(path).expect("a file that is listed");
    if file.metadata().expect("its size").len() != length as u64 {
        return false;
    }
    let mut bytes = vec![0; BLOCK];
    (0..length.div_ceil(BLOCK)).all(|at| {
        let wanted = BLOCK.min(length - at * BLOCK);
        let read = file.read_exact_at(&mut bytes[..wanted], (at * BLOCK) as u64);
        read.is_ok() && bytes[..wanted] == block(key, at)[..wanted]
    })
}

fn names_in(dir: &Path) -> Vec<String> {
    let names = fs::read_dir(dir).expect("a directory").map(|entry| entry.expect("an entry").file_name());
    names.map(|name| name.to_string_lossy().into_owned()).filter(|name| name.ends_with(".data")).collect()
}

fn torn_in(dir: &Path, lengths: &impl Fn(&str) -> usize) -> Vec<String> {
    let torn = |name: &String| {
        let key = name.trim_end_matches(".data");
        !is_whole(&dir.join(name), key, lengths(key))
    };
    names_in(dir).into_iter().filter(torn).collect()
}

pub fn run(command: &mut Command) -> Output {
    let output = command.output().expect("a program");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {said}");
    output
}

pub fn wait_until(what: &str, mut done: impl FnMut() -> bool) {
    let began = Instant::now();
    while !done() {
        assert!(began.elapsed() < PATIENCE, "{what}: not within {PATIENCE:?}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn wait_for_end(daemon: &OwnedFd) {
    let mut fds = [rustix::event::PollFd::new(daemon, rustix::event::PollFlags::IN)];
    let limit = rustix::time::Timespec { tv_sec: 60, tv_nsec: 0 };
    assert_eq!(rustix::event::poll(&mut fds, Some(&limit)), Ok(1), "the daemon has ended");
}
