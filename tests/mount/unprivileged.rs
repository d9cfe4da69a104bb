//! A volume that an ordinary user mounts: through `fusermount3`, without passthrough, for himself alone.

use std::fs;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::Path;
use std::process::Stdio;
use std::sync::{Mutex, PoisonError};

use rustix::io::Errno;
use rustix::process::Signal;

use crate::bytes::pattern;
use crate::rig::{KVSPAN, Rig, daemons, is_mounted, on_a_mount};
use crate::run::{Said, end, has, shell_as, user_command, wait_until};

on_a_mount! {
    an_ordinary_user_mounts_stores_and_unmounts,
    an_ordinary_user_is_told_who_holds_a_busy_mount,
    a_signal_ends_the_mount_of_an_ordinary_user_idle_and_busy,
}

/// `nobody`: `fusermount3` mounts for users that have a name only.
const USER: u32 = 65_534;

/// `/dev/fuse` open to all, as udev leaves it; as it was when the last of these is dropped.
struct DeviceForAll;

/// How many there are, and the mode of the device before the first.
static DEVICE: Mutex<(usize, u32)> = Mutex::new((0, 0));

fn change_device(users: impl FnOnce(usize) -> usize) {
    let mut device = DEVICE.lock().unwrap_or_else(PoisonError::into_inner);
    let chmod = |mode| fs::set_permissions("/dev/fuse", fs::Permissions::from_mode(mode)).expect("chmod");
    let before = device.0;
    device.0 = users(before);
    if before == 0 {
        device.1 = fs::metadata("/dev/fuse").expect("stat").permissions().mode();
        chmod(0o666);
    } else if device.0 == 0 {
        chmod(device.1);
    }
}

impl DeviceForAll {
    fn new() -> DeviceForAll {
        change_device(|users| users + 1);
        DeviceForAll
    }
}

impl Drop for DeviceForAll {
    fn drop(&mut self) {
        change_device(|users| users - 1);
    }
}

/// Two disks and a mount point that belong to the user, and the program where he can run it.
fn his() -> Option<(Rig, DeviceForAll)> {
    if !has("fusermount3") || !has("setpriv") {
        eprintln!("skipped: no fusermount3 or no setpriv");
        return None;
    }
    let mut rig = Rig::bare();
    rig.disks = ["d1", "d2"].map(|name| rig.outside(name)).to_vec();
    let runtime = rig.outside("run");
    for dir in rig.disks.iter().chain([&runtime]) {
        fs::create_dir(dir).expect("a directory");
    }
    fs::set_permissions(&runtime, fs::Permissions::from_mode(0o700)).expect("permissions");
    let log = rig.outside("daemon.log");
    fs::write(&log, "").expect("a log");
    for path in [&rig.disks[0], &rig.disks[1], &rig.mountpoint(), &log, &runtime] {
        chown(path, Some(USER), Some(USER)).expect("chown");
    }
    if shell_as(USER, USER, Path::new("/"), &format!("test -x {}", rig.mountpoint().display())).code != Some(0) {
        eprintln!("skipped: other users cannot come to {}", rig.mountpoint().display());
        return None;
    }
    let program = rig.outside("kvspan");
    fs::copy(KVSPAN, &program).expect("a copy");
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).expect("permissions");
    as_user(&rig, "$kvspan init d1 d2").ok();
    Some((rig, DeviceForAll::new()))
}

/// A script of his; `$kvspan` is the program.
fn as_user(rig: &Rig, script: &str) -> Said {
    let script = script.replace("$kvspan", rig.outside("kvspan").to_str().expect("UTF-8"));
    shell_as(USER, USER, &rig.outside(""), &format!("export XDG_RUNTIME_DIR=$PWD/run; {script}"))
}

fn mount(rig: &mut Rig, options: &str) {
    as_user(rig, &format!("$kvspan mount {} mnt -o log=daemon.log{options}", rig.source())).ok();
    rig.take_daemon();
}

fn an_ordinary_user_mounts_stores_and_unmounts() {
    let Some((mut rig, _device)) = his() else { return };
    mount(&mut rig, "");
    let table = fs::read_to_string("/proc/mounts").expect("the mount table");
    let line = format!("{} {} fuse.kvspan rw,", rig.source(), rig.mountpoint().display());
    assert!(table.contains(&line), "{line} in {table}");
    let said = rig.log();
    assert_eq!(said.lines().filter(|line| line.contains("passthrough")).count(), 1, "one line says it: {said}");
    fs::write(rig.outside("data"), pattern(1, 3_000_000)).expect("a file");
    as_user(&rig, "cp data mnt/k.tmp; mv mnt/k.tmp mnt/k.data; cmp data mnt/k.data").ok();
    as_user(
        &rig,
        "mkdir -p mnt/a/b; for n in 1 2 3 4 5 6 7 8; do echo $n > mnt/a/b/$n; done; rm mnt/a/b/1; mv mnt/a/b/2 mnt/2",
    )
    .ok();
    let status = as_user(&rig, "$kvspan status --json mnt");
    let status: serde_json::Value = serde_json::from_str(status.ok()).expect("JSON");
    assert_eq!((&status["io_mode"], &status["pid"]), (&"daemon".into(), &rig.pid().into()));
    assert!(as_user(&rig, "$kvspan where mnt k.data").ok().contains("k.data"));
    as_user(&rig, "$kvspan rescan mnt").ok();
    assert_eq!(
        fs::read_dir(rig.mountpoint()).err().and_then(|error| error.raw_os_error()),
        Some(Errno::ACCESS.raw_os_error())
    );
    as_user(&rig, "$kvspan umount mnt").ok();
    rig.wait_for_end();
    assert!(!is_mounted(&rig.mountpoint()));
    mount(&mut rig, "");
    assert_eq!(as_user(&rig, "cmp data mnt/k.data; cat mnt/2 mnt/a/b/8; ls mnt/a/b | wc -l").ok(), "2\n8\n6\n");
    as_user(&rig, "$kvspan umount mnt").ok();
    rig.wait_for_end();
}

/// A process of his that holds a file of the mount open until its stdin ends.
fn holder(rig: &Rig) -> std::process::Child {
    let mut command = user_command(USER, USER, &[], &rig.outside(""), "exec 3> mnt/held; echo open; read line || :");
    let mut child =
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("setpriv");
    let mut word = [0; 5];
    std::io::Read::read_exact(child.stdout.as_mut().expect("a pipe"), &mut word).expect("the file is open");
    child
}

fn an_ordinary_user_is_told_who_holds_a_busy_mount() {
    let Some((mut rig, _device)) = his() else { return };
    mount(&mut rig, "");
    let mut child = holder(&rig);
    let said = as_user(&rig, "$kvspan umount mnt");
    assert!(said.failed(1).contains(&format!("{}", child.id())), "{}", said.err);
    drop(child.stdin.take());
    end(child, "the holder").ok();
    wait_until("the mount is not busy", || as_user(&rig, "$kvspan umount mnt").code == Some(0));
    rig.wait_for_end();
}

fn a_signal_ends_the_mount_of_an_ordinary_user_idle_and_busy() {
    let Some((mut rig, _device)) = his() else { return };
    for busy in [false, true] {
        mount(&mut rig, ",stop_timeout=2s");
        let child = busy.then(|| holder(&rig));
        rig.signal(Signal::TERM);
        rig.wait_for_end();
        assert!(!is_mounted(&rig.mountpoint()) && daemons(&rig.outside("")).is_empty(), "busy: {busy}");
        if let Some(mut child) = child {
            drop(child.stdin.take());
            end(child, "the holder");
        }
    }
}
