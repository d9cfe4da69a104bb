//! `kvspan rescan` and the control socket on a real mount. Needs /dev/fuse.

use std::fs;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

/// Two labelled disks, mounted; taken away when dropped.
struct Mount {
    _temp: tempfile::TempDir,
    disks: Vec<PathBuf>,
    mountpoint: PathBuf,
    control: PathBuf,
    daemon: Child,
}

fn kvspan(control: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_kvspan"));
    command.env("KVSPAN_CONTROL_DIR", control);
    command
}

fn start(disks: &[PathBuf], mountpoint: &Path, control: &Path, options: &str) -> Child {
    let mut command = kvspan(control);
    command.args(["mount", "-f", "-o", options]).arg(format!("{}:{}", disks[0].display(), disks[1].display()));
    command.arg(mountpoint).stderr(Stdio::null()).spawn().expect("a daemon")
}

impl Mount {
    fn new(options: &str) -> Mount {
        let temp = tempfile::tempdir().expect("a directory");
        let path = |name: &str| temp.path().join(name);
        let disks = vec![path("a"), path("b")];
        let (mountpoint, control) = (path("mnt"), path("run"));
        for dir in disks.iter().chain([&mountpoint]) {
            fs::create_dir(dir).expect("a directory");
        }
        let labelled = kvspan(&control).arg("init").args(&disks).output().expect("init");
        assert!(labelled.status.success(), "{labelled:?}");
        let daemon = start(&disks, &mountpoint, &control, options);
        let mount = Mount { disks, mountpoint, control, daemon, _temp: temp };
        mount.wait_until_ready();
        mount
    }

    /// Kills the daemon as it is and mounts again.
    fn kill_and_mount(&mut self, options: &str) {
        self.daemon.kill().and_then(|()| self.daemon.wait()).expect("killed");
        self.daemon = start(&self.disks, &self.mountpoint, &self.control, options);
        self.wait_until_ready();
    }

    fn wait_until_ready(&self) {
        let pid = format!(r#""pid":{},"#, self.daemon.id());
        self.wait_until("it is mounted and ready", || {
            let status = self.status();
            status.contains(r#""state":"ready""#) && status.contains(&pid)
        });
    }

    fn run(&self, args: &[&str]) -> Output {
        kvspan(&self.control).args(args).arg(&self.mountpoint).output().expect("a command")
    }

    fn status(&self) -> String {
        String::from_utf8(self.run(&["status", "--json"]).stdout).expect("text")
    }

    fn wait_until(&self, what: &str, is: impl Fn() -> bool) {
        let began = Instant::now();
        while !is() {
            assert!(began.elapsed() < Duration::from_secs(30), "{what}: {}", self.status());
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    fn sockets(&self) -> Vec<PathBuf> {
        fs::read_dir(&self.control).into_iter().flatten().map(|e| e.expect("an entry").path()).collect()
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        let _ = self.run(&["umount", "--lazy"]);
        let _ = self.daemon.kill();
        let _ = self.daemon.wait();
    }
}

fn line(text: &str, what: &str) -> u64 {
    let line = text.lines().find_map(|line| line.strip_prefix(what)).expect("a line");
    line.trim().parse().expect("a number")
}

#[test]
fn rescan_says_what_was_added_and_removed_and_the_mount_shows_it() {
    let mut mount = Mount::new("negative_ttl=0,entry_ttl=0");
    fs::write(mount.mountpoint.join("mine"), b"mine").expect("a file");
    fs::write(mount.disks[0].join("theirs"), b"theirs").expect("a file");
    let disk = mount.disks.iter().find(|disk| disk.join("mine").exists()).expect("a disk").clone();
    fs::remove_file(disk.join("mine")).expect("removed");
    assert!(fs::read(mount.mountpoint.join("theirs")).is_err(), "nobody has looked yet");
    let said = mount.run(&["rescan"]);
    let text = String::from_utf8(said.stdout).expect("text");
    assert!(said.status.success() && said.stderr.is_empty(), "{text} {:?}", String::from_utf8_lossy(&said.stderr));
    assert_eq!((line(&text, "files"), line(&text, "added"), line(&text, "removed")), (1, 1, 1), "{text}");
    assert_eq!(fs::read(mount.mountpoint.join("theirs")).expect("a load"), b"theirs");
    assert!(!mount.mountpoint.join("mine").exists());
    let socket = mount.sockets().pop().expect("a socket");
    assert!(fs::metadata(&socket).expect("a file").file_type().is_socket());
    assert!(mount.status().contains(&format!(r#""control_socket":"{}""#, socket.display())));
    assert!(mount.run(&["umount"]).status.success());
    assert!(mount.daemon.wait().expect("an end").success());
    assert!(mount.sockets().is_empty(), "the socket goes with the daemon");
    let refused = mount.run(&["rescan"]);
    assert_eq!(refused.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&refused.stderr).contains("is not a kvspan mount point"));
}

#[test]
fn with_rescan_interval_files_are_found_and_shadows_removed_without_a_command() {
    let mount = Mount::new("rescan_interval=1s,negative_ttl=0");
    fs::write(mount.disks[0].join("k"), b"old").expect("a file");
    std::thread::sleep(Duration::from_millis(50));
    fs::write(mount.disks[1].join("k"), b"new").expect("a file");
    mount.wait_until("the younger is shown", || fs::read(mount.mountpoint.join("k")).is_ok_and(|b| b == b"new"));
    mount.wait_until("the older has gone", || !mount.disks[0].join("k").exists());
    assert_eq!(fs::read(mount.mountpoint.join("k")).expect("a load"), b"new");
}

#[test]
fn a_name_unlinked_while_a_disk_is_missing_stays_gone_when_the_daemon_was_killed() {
    let mut mount = Mount::new("temp_ttl=1h");
    for n in 0..20 {
        fs::write(mount.mountpoint.join(format!("k{n}")), format!("old {n}")).expect("a file");
    }
    let away = mount.disks[1].with_extension("away");
    let names: Vec<PathBuf> = fs::read_dir(&mount.disks[1])
        .expect("a disk")
        .map(|e| e.expect("an entry").file_name().into())
        .filter(|name: &PathBuf| name.to_string_lossy().starts_with('k'))
        .collect();
    assert!(names.len() > 2, "both disks own some of twenty names");
    fs::rename(&mount.disks[1], &away).expect("unplugged");
    mount.kill_and_mount("temp_ttl=1h");
    assert!(mount.status().contains(r#""state":"missing""#));
    for name in &names[1..] {
        let path = mount.mountpoint.join(name);
        assert!(fs::read(&path).is_err(), "a miss");
        fs::write(&path, "new").and_then(|()| fs::remove_file(&path)).expect("stored and unlinked");
    }
    // Names are written at once by a thread of their own.
    std::thread::sleep(Duration::from_millis(300));
    mount.daemon.kill().and_then(|()| mount.daemon.wait()).expect("killed");
    fs::rename(&away, &mount.disks[1]).expect("plugged in again");
    mount.kill_and_mount("temp_ttl=1h");
    assert!(fs::read_to_string(mount.mountpoint.join(&names[0])).expect("it was not touched").starts_with("old"));
    for name in &names[1..] {
        assert!(fs::read(mount.mountpoint.join(name)).is_err(), "{name:?}");
        assert!(!mount.disks[1].join(name).exists());
    }
    let has_list = |disk: &PathBuf| disk.join(".kvspan/removed").exists();
    mount.wait_until("all disks know all", || !mount.disks.iter().any(has_list));
}

#[test]
fn evict_frees_what_was_used_longest_ago_and_the_kernel_forgets_it_at_once() {
    let mount = Mount::new("");
    for n in 0..40 {
        fs::write(mount.mountpoint.join(format!("k{n}.data")), vec![1; 64 << 10]).expect("a store");
    }
    fs::read(mount.mountpoint.join("k0.data")).expect("a load");
    let mut command = kvspan(&mount.control);
    let said = command.arg("evict").arg(&mount.mountpoint).arg("1M").output().expect("evict");
    assert!(said.status.success(), "{said:?}");
    let text = String::from_utf8(said.stdout).expect("text");
    let files: u64 = text.split(' ').next().and_then(|n| n.parse().ok()).expect("a count");
    assert!((16..=18).contains(&files), "{text}");
    let left = fs::read_dir(&mount.mountpoint).expect("a listing").count() as u64;
    assert_eq!(left, 40 - files);
    assert!(fs::metadata(mount.mountpoint.join("k0.data")).is_ok(), "the one that was used last");
    // The kernel was told, though it believed these names for entry_ttl; it may take the notifier a moment.
    mount.wait_until("evicted names are misses", || {
        (0..40).filter(|n| fs::metadata(mount.mountpoint.join(format!("k{n}.data"))).is_ok()).count() as u64 == left
    });
}
