//! The ends of a mount: asked for, refused, by signal, and by death.

use std::fs;
use std::os::fd::OwnedFd;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rustix::fs::OFlags;
use rustix::io::Errno;
use rustix::process::Signal;

use crate::bytes::{open, opened, read_at_most, write_all};
use crate::rig::{Io, KVSPAN, Rig, daemons, in_both_io_modes, is_mounted, kvspan, on_a_mount};
use crate::run::{exit_code, python, run, wait_until};

in_both_io_modes! {
    a_signal_with_an_idle_mount_unmounts_and_exits_0,
    a_signal_with_a_busy_mount_unmounts_and_exits_within_stop_timeout,
    a_lazy_umount_of_a_busy_mount_lets_its_users_finish,
}

on_a_mount! {
    umount_returns_when_the_daemon_has_gone,
    umount_of_a_busy_mount_fails_and_names_the_holder,
    a_mount_after_kill_9_needs_no_umount_and_has_every_file,
    umount_takes_away_the_mount_of_a_killed_daemon,
    umount_of_what_is_no_volume_says_so,
    the_daemon_lets_go_of_its_caller,
    a_thousand_mounts_worth_of_opens_leave_no_descriptor,
}

/// A process whose working directory is in the mount; ended when dropped.
struct Holder(Child);

impl Holder {
    fn of(rig: &Rig) -> Holder {
        let child = Command::new("sleep").arg("1000").current_dir(rig.mountpoint()).stdin(Stdio::null()).spawn();
        Holder(child.expect("sleep"))
    }
}

impl Drop for Holder {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn umount_returns_when_the_daemon_has_gone() {
    let mut rig = Rig::mounted(2, Io::Passthrough);
    fs::write(rig.path("f"), "x").expect("a file");
    wait_until("umount succeeds", || kvspan("umount", &[rig.mountpoint()]).code == Some(0));
    // At once, without waiting for anything.
    assert!(daemons(&rig.mountpoint()).is_empty() && !is_mounted(&rig.mountpoint()));
    rig.wait_for_end();
    rig.mount("");
    assert_eq!(fs::read(rig.path("f")).expect("a file"), b"x");
    assert!(rig.log().contains("unmounted"), "{}", rig.log());
}

fn umount_of_a_busy_mount_fails_and_names_the_holder() {
    let mut rig = Rig::mounted(2, Io::Passthrough);
    let holder = Holder::of(&rig);
    let said = kvspan("umount", &[rig.mountpoint()]);
    let text = said.failed(1);
    for wanted in [format!("{} sleep", holder.0.id()), "busy".to_string(), "kvspan umount --lazy".to_string()] {
        assert!(text.contains(&wanted), "{wanted} in {text}");
    }
    assert!(is_mounted(&rig.mountpoint()));
    fs::write(rig.path("f"), "x").expect("it still works");
    drop(holder);
    rig.umount();
}

fn a_lazy_umount_of_a_busy_mount_lets_its_users_finish(io: Io) {
    let mut rig = Rig::mounted(2, io);
    let fd = opened(&rig.path("f"), OFlags::RDWR | OFlags::CREATE);
    write_all(&fd, b"before").expect("a write");
    let said = kvspan("umount", &["--lazy".into(), rig.mountpoint()]);
    said.ok();
    assert!(!is_mounted(&rig.mountpoint()) && !rig.path("f").exists());
    write_all(&fd, b" after").expect("a write");
    assert_eq!(read_at_most(&fd, 100).expect("a read"), b"before after");
    assert_eq!(daemons(&rig.mountpoint()).len(), 1, "it lives while it is used");
    drop(fd);
    rig.wait_for_end();
    assert_eq!(fs::read(rig.backing("f")).expect("a file"), b"before after");
}

fn a_signal_with_an_idle_mount_unmounts_and_exits_0(io: Io) {
    for signal in [Signal::TERM, Signal::INT] {
        let mut rig = Rig::new(2);
        let mut child = rig.mount_in_foreground(if io == Io::Daemon { "passthrough=off" } else { "" });
        fs::write(rig.path("f"), "x").expect("a file");
        rig.signal(signal);
        assert_eq!(exit_code(&mut child, Duration::from_secs(10)), Some(Some(0)), "{signal:?}");
        assert!(!is_mounted(&rig.mountpoint()));
        rig.wait_for_end();
        assert_eq!(fs::read(rig.backing("f")).expect("a file"), b"x");
    }
}

fn a_signal_with_a_busy_mount_unmounts_and_exits_within_stop_timeout(io: Io) {
    for signal in [Signal::TERM, Signal::INT] {
        let mut rig = Rig::new(2);
        let mode = if io == Io::Daemon { "passthrough=off" } else { "passthrough=auto" };
        let mut child = rig.mount_in_foreground(&format!("stop_timeout=1s,{mode}"));
        let holder = Holder::of(&rig);
        let fd: OwnedFd = opened(&rig.path("f"), OFlags::RDWR | OFlags::CREATE);
        write_all(&fd, b"stored").expect("a write");
        rig.signal(signal);
        wait_until("the mount table is clean", || !is_mounted(&rig.mountpoint()));
        assert_eq!(exit_code(&mut child, Duration::from_secs(10)), Some(Some(0)), "{signal:?}");
        rig.wait_for_end();
        drop((holder, fd));
        assert_eq!(fs::read(rig.backing("f")).expect("a file"), b"stored");
        rig.mount("");
        assert_eq!(fs::read(rig.path("f")).expect("a file"), b"stored");
    }
}

fn a_mount_after_kill_9_needs_no_umount_and_has_every_file() {
    let mut rig = Rig::mounted(3, Io::Passthrough);
    for round in 0..3 {
        for n in 0..30 {
            fs::write(rig.path(format!("{round}-{n}")), "x").expect("a file");
        }
        let writer = opened(&rig.path(format!("open-{round}")), OFlags::RDWR | OFlags::CREATE);
        write_all(&writer, b"kept").expect("a write");
        rig.signal(Signal::KILL);
        rig.wait_for_end();
        assert_eq!(open(&rig.path("f"), OFlags::RDONLY).err(), Some(Errno::NOTCONN));
        assert!(is_mounted(&rig.mountpoint()), "the dead mount stays");
        if round == 1 {
            drop(writer);
        }
        rig.mount("");
        let found = fs::read_dir(rig.mountpoint()).expect("a listing").count();
        assert_eq!(found, (round + 1) * 31);
        assert_eq!(fs::read(rig.path(format!("open-{round}"))).expect("a file"), b"kept");
        let table = fs::read_to_string("/proc/self/mountinfo").expect("the mount table");
        let mounts = table.lines().filter(|line| line.split(' ').nth(4) == rig.mountpoint().to_str()).count();
        assert_eq!(mounts, 1, "the dead mount is not left below");
    }
}

fn umount_takes_away_the_mount_of_a_killed_daemon() {
    let mut rig = Rig::mounted(2, Io::Passthrough);
    rig.signal(Signal::KILL);
    rig.wait_for_end();
    let said = kvspan("status", &[rig.mountpoint()]);
    assert!(said.failed(1).contains("kvspan umount"), "{}", said.err);
    kvspan("umount", &[rig.mountpoint()]).ok();
    assert!(!is_mounted(&rig.mountpoint()));
}

fn umount_of_what_is_no_volume_says_so() {
    let mut rig = Rig::new(1);
    assert!(kvspan("umount", &[rig.mountpoint()]).failed(1).contains("nothing is mounted"));
    let tmpfs = rig.tmpfs("t", "1M");
    assert!(kvspan("umount", &[&tmpfs]).failed(1).contains("tmpfs"));
    assert!(is_mounted(&tmpfs));
    kvspan("umount", &[rig.outside("none")]).failed(1);
}

fn the_daemon_lets_go_of_its_caller() {
    let rig = Rig::mounted(2, Io::Passthrough);
    let link = |name: &str| fs::read_link(format!("/proc/{}/{name}", rig.pid())).expect("a link");
    for fd in ["fd/0", "fd/1", "fd/2"] {
        assert_eq!(link(fd).to_str(), Some("/dev/null"), "{fd}");
    }
    assert_eq!(link("cwd").to_str(), Some("/"));
    let session = fs::read_to_string(format!("/proc/{}/stat", rig.pid())).expect("stat");
    let fields: Vec<&str> = session.rsplit(')').next().expect("fields").split_whitespace().collect();
    assert_eq!(fields[3], rig.pid().to_string(), "a session of its own");
    assert_eq!(fs::read_to_string(format!("/proc/{}/comm", rig.pid())).expect("comm"), "kvspan\n");
    assert!(run(Command::new(KVSPAN).arg("status").arg(rig.mountpoint())).ok().contains("ready"));
}

const OPEN_MANY: &str = r#"
import os, sys
for n in range(2000):
    fd = os.open(f'{sys.argv[1]}/f{n % 50}', os.O_RDWR | os.O_CREAT | (os.O_TRUNC if n % 3 else 0), 0o644)
    os.write(fd, b'x' * 10)
    os.fsync(fd)
    if n % 5 == 0:
        os.unlink(f'{sys.argv[1]}/f{n % 50}')
    os.fstat(fd)
    os.listdir(sys.argv[1])
    os.close(fd)
"#;

fn a_thousand_mounts_worth_of_opens_leave_no_descriptor() {
    let rig = Rig::mounted(3, Io::Passthrough);
    python(OPEN_MANY, &[&rig.mountpoint()]);
    let before = rig.open_fds();
    for _ in 0..3 {
        python(OPEN_MANY, &[&rig.mountpoint()]);
    }
    wait_until("every descriptor is given back", || rig.open_fds() <= before);
}
