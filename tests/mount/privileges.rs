//! What a daemon of root may still do, and what it cannot do for others.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::process::Command;

use rustix::fs::{FallocateFlags, OFlags, copy_file_range, fallocate, ftruncate, statvfs};
use rustix::io::Errno;

use crate::bytes::{opened, pattern, write_all};
use crate::loops::LoopDisk;
use crate::rig::{Io, KVSPAN, Rig, in_both_io_modes, on_a_mount};
use crate::run::{run, shell, shell_as, wait_until};

on_a_mount! {
    a_daemon_of_root_keeps_six_capabilities_and_no_thread_has_more,
    what_clients_stored_goes_into_no_core_dump,
    what_is_closed_to_others_is_found_served_and_evicted,
}

in_both_io_modes! {
    writes_end_where_the_blocks_begin_that_a_file_system_keeps_for_root,
    a_write_by_root_leaves_setuid_and_setgid_as_on_ext4,
}

/// CAP_CHOWN, CAP_DAC_OVERRIDE, CAP_FOWNER, CAP_FSETID, CAP_SETUID, CAP_SYS_ADMIN.
const NEEDED: u64 = 1 | 1 << 1 | 1 << 3 | 1 << 4 | 1 << 7 | 1 << 21;

/// A field of a /proc/PID/status.
fn field(status: &str, name: &str) -> String {
    let line = status.lines().find(|line| line.split(':').next() == Some(name));
    let value = line.and_then(|line| line.split_once(':')).unwrap_or_else(|| panic!("{name} in {status}"));
    value.1.trim().to_string()
}

fn set(status: &str, name: &str) -> u64 {
    u64::from_str_radix(&field(status, name), 16).expect("a set of capabilities")
}

fn a_daemon_of_root_keeps_six_capabilities_and_no_thread_has_more() {
    let mut rig = Rig::new(2);
    rig.mount("sync_interval=100ms,atime_interval=100ms");
    fs::write(rig.path("f"), pattern(1, 1 << 20)).expect("a file");
    run(Command::new(KVSPAN).arg("rescan").arg(rig.mountpoint())).ok();
    run(Command::new(KVSPAN).arg("evict").arg(rig.mountpoint()).arg("1M")).ok();
    let ours = fs::read_to_string("/proc/self/status").expect("our own status");
    let mut names = Vec::new();
    for task in fs::read_dir(format!("/proc/{}/task", rig.pid())).expect("tasks").flatten() {
        // A thread of the rescan may end here.
        let Ok(status) = fs::read_to_string(task.path().join("status")) else { continue };
        let sets = ["CapPrm", "CapEff", "CapInh", "CapAmb"].map(|name| set(&status, name));
        let kept = set(&ours, "CapPrm") & NEEDED;
        assert_eq!(sets, [kept, kept, 0, 0], "{status}");
        assert_eq!(set(&status, "CapBnd"), set(&ours, "CapBnd") & NEEDED, "{status}");
        assert_eq!(field(&status, "NoNewPrivs"), "1", "{status}");
        names.push(field(&status, "Name"));
    }
    for thread in ["kvspan", "signals", "fuser-0", "evict-1", "sync-1", "upkeep", "control"] {
        assert!(names.iter().any(|name| name == thread), "{thread} in {names:?}");
    }
    assert_eq!(rig.status()["io_mode"], "passthrough");
    rig.umount();
}

fn what_clients_stored_goes_into_no_core_dump() {
    let rig = Rig::mounted(1, Io::Passthrough);
    fs::write(rig.path("f"), "bytes").expect("a file");
    let of_daemon = |name: &str| fs::read_to_string(format!("/proc/{}/{name}", rig.pid())).expect("of the daemon");
    let limits = of_daemon("limits");
    let core = limits.lines().find(|line| line.starts_with("Max core file size")).expect("a limit");
    assert_eq!(core.split_whitespace().skip(4).collect::<Vec<_>>(), ["0", "0", "bytes"]);
    // For the handlers that cores are piped to, which are not bound by the limit.
    assert_eq!(of_daemon("coredump_filter").trim(), "00000000");
    // What cannot be dumped cannot be looked into either, but by who may look into everything.
    let look = format!("readlink /proc/$$/cwd; readlink /proc/{}/cwd", rig.pid());
    let said = run(Command::new("setpriv").args(["--bounding-set=-sys_ptrace", "sh", "-c"]).arg(look));
    assert_eq!((said.code, said.out.lines().count()), (Some(1), 1), "{said:?}");
}

fn what_is_closed_to_others_is_found_served_and_evicted() {
    const ALICE: u32 = 4242;
    let mut rig = Rig::new(2);
    rig.mount("allow_other");
    let make =
        "umask 077; mkdir d; for n in $(seq 20); do echo $n >d/f$n.tmp; chmod 0 d/f$n.tmp; mv d/f$n.tmp d/f$n; done
        chmod 0 d";
    fs::set_permissions(rig.mountpoint(), PermissionsExt::from_mode(0o777)).expect("chmod");
    shell_as(ALICE, ALICE, &rig.mountpoint(), make).ok();
    rig.umount();
    rig.mount("allow_other");
    assert_eq!(rig.status()["files"], 20);
    let read = "chmod 700 d; for n in $(seq 20); do chmod 400 d/f$n; cat d/f$n; touch -d @5 d/f$n; done; chmod 0 d";
    let wanted: String = (1..=20).map(|n| format!("{n}\n")).collect();
    assert_eq!(shell_as(ALICE, ALICE, &rig.mountpoint(), read).ok(), wanted);
    run(Command::new(KVSPAN).arg("evict").arg(rig.mountpoint()).arg("1G")).ok();
    wait_until("all files are evicted", || rig.status()["files"] == 0);
    let left = |disk: &Path| fs::read_dir(disk.join("d")).map_or(0, Iterator::count);
    assert_eq!(rig.disks.iter().map(|disk| left(disk)).sum::<usize>(), 0);
}

/// Bytes that are free for everybody, and bytes that are free for root alone.
fn free(disk: &LoopDisk) -> (u64, u64) {
    let room = statvfs(disk.path()).expect("statvfs");
    (room.f_bavail * room.f_frsize, (room.f_bfree - room.f_bavail) * room.f_frsize)
}

fn writes_end_where_the_blocks_begin_that_a_file_system_keeps_for_root(io: Io) {
    const MIB: u64 = 1 << 20;
    let disk = LoopDisk::ext4("128M", &["-m", "40"]);
    let mut rig = Rig::bare();
    rig.use_disks(&[disk.path()]);
    rig.mount(&format!("limit=100%,reserve=0,{}", io.option()));
    assert_eq!(rig.status()["io_mode"], io.word());
    let (room, kept) = free(&disk);
    assert!(kept > 40 * MIB && room > 40 * MIB, "{kept} {room}");
    // A file that is open for writing is no victim, so nothing makes room.
    let file = opened(&rig.path("f"), OFlags::RDWR | OFlags::CREATE);
    let too_much = fallocate(&file, FallocateFlags::empty(), 0, room + 20 * MIB);
    assert_eq!((too_much, free(&disk).1), (Err(Errno::NOSPC), kept), "fallocate");
    ftruncate(&file, 0).expect("a truncation");
    let chunk = pattern(1, 1 << 20);
    let written = (0..).find(|_| write_all(&file, &chunk) == Err(Errno::NOSPC)).expect("the end of the room");
    assert!(written * MIB > room - 4 * MIB, "{written} MiB");
    let (left, still_kept) = free(&disk);
    assert!(left < MIB && still_kept == kept, "write: {left} {still_kept} of {kept}");
    let (mut from, mut to) = (0, (written + 1) * MIB);
    let mut copy = || copy_file_range(&file, Some(&mut from), &file, Some(&mut to), 1 << 20);
    let ended = (0..20).find_map(|_| copy().err());
    assert_eq!((ended, free(&disk).1), (Some(Errno::NOSPC), kept), "copy_file_range");
}

fn a_write_by_root_leaves_setuid_and_setgid_as_on_ext4(io: Io) {
    let rig = Rig::mounted(1, io);
    shell(&rig.mountpoint(), "echo x >f; chmod 6777 f; echo y >>f").ok();
    for path in [rig.path("f"), rig.backing("f")] {
        assert_eq!(fs::metadata(&path).expect("stat").mode() & 0o7777, 0o6777, "{}", path.display());
    }
}
