//! What a store and a load cost: requests that reach the daemon, and system calls that it makes on the disks. Both are
//! counted from outside, so a change that adds one fails here and not in a benchmark.

#[path = "mount/bytes.rs"]
#[expect(dead_code, reason = "the mount suite uses the rest")]
mod bytes;
#[path = "mount/rig.rs"]
#[expect(dead_code, unused_macros, unused_imports, reason = "the mount suite uses the rest")]
mod rig;
#[path = "mount/run.rs"]
#[expect(dead_code, reason = "the mount suite uses the rest")]
mod run;

use std::collections::BTreeMap;
use std::fs;
use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rustix::fs::OFlags;
use rustix::io::Errno;
use rustix::process::{Pid, Signal, kill_process};

use bytes::{load, open, opened, pattern, store, write_all};
use rig::{Rig, on_a_mount};
use run::{exit_code, has, wait_until};

on_a_mount! {
    a_store_costs_six_requests_and_two_checks_of_permission_however_many_its_writes,
    a_load_of_a_known_name_costs_two_requests,
    a_miss_that_is_known_costs_no_request,
    a_store_costs_four_calls_on_the_disk_and_a_load_two,
    a_store_of_another_user_costs_one_call_more,
    a_look_up_costs_no_call_on_any_disk,
    a_long_listing_costs_a_request_for_many_files_and_no_call_on_any_disk,
}

const STORES: u64 = 20;

/// A mount that writes a line for each request.
fn logging(options: &str) -> Rig {
    let mut rig = Rig::new(8);
    let mut command = rig.mount_command(&format!("entry_ttl=1h,{options}"));
    command.env("RUST_LOG", "info,fuser=debug");
    rig.mount_by(command);
    rig
}

/// The requests in a part of the log, by name.
fn requests(log: &str) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    for line in log.lines() {
        // `[... DEBUG fuser::request] FUSE(  6) ino 0x0000000000000001 LOOKUP name "x" thread=fuser-0`
        let words = line.split_once(" FUSE(").and_then(|(_, rest)| rest.split_once(" ino "));
        // One that fuser does not know, STATX, has no name; it comes once a mount. STATFS is `catch_up`'s.
        let known = |name: &&str| !name.starts_with("thread=") && *name != "STATFS";
        if let Some(name) = words.and_then(|(_, rest)| rest.split_whitespace().nth(1)).filter(known) {
            *counts.entry(name.to_string()).or_insert(0) += 1;
        }
    }
    counts
}

/// Waits until the log shows what was asked so far, since it is written behind the requests. `statfs` is always asked, and
/// nothing else here asks it but the daemon at its start, whose line may be the first to be seen.
fn catch_up(rig: &Rig) {
    let asked = || rig.log().matches(" STATFS").count();
    for _ in 0..2 {
        let before = asked();
        rustix::fs::statvfs(rig.mountpoint()).expect("statfs");
        wait_until("the log shows the request", || asked() > before);
    }
}

/// The requests that some work causes, once `last` of a kind have come.
fn count(rig: &Rig, last: (&str, usize), work: impl FnOnce()) -> BTreeMap<String, usize> {
    catch_up(rig);
    let before = rig.log().len();
    work();
    let found = || requests(&rig.log()[before..]);
    wait_until("the last request has come", || found().get(last.0).copied().unwrap_or(0) >= last.1);
    found()
}

fn counted(pairs: &[(&str, u64)]) -> BTreeMap<String, usize> {
    pairs.iter().map(|(name, count)| (name.to_string(), *count as usize)).collect()
}

/// What stores of 0, 10, 20... write calls cost.
fn stores(rig: &Rig) -> BTreeMap<String, usize> {
    let mut found = count(rig, ("RELEASE", STORES as usize), || {
        for n in 0..STORES {
            let fd = opened(&rig.path(format!("k{n}.tmp")), OFlags::WRONLY | OFlags::CREATE | OFlags::TRUNC);
            (0..n * 10).for_each(|_| write_all(&fd, b"some bytes").expect("a write"));
            drop(fd);
            fs::rename(rig.path(format!("k{n}.tmp")), rig.path(format!("k{n}.data"))).expect("a rename");
        }
    });
    let flushes = found.remove("FLUSH").unwrap_or(0);
    assert!(flushes <= 1, "FLUSH only until the answer says that there is none: {flushes}");
    found
}

fn a_store_costs_six_requests_and_two_checks_of_permission_however_many_its_writes() {
    for options in ["", "allow_other"] {
        let mut found = stores(&logging(options));
        // Every new name makes the kernel forget the directory's mode, which `default_permissions` then asks for.
        let checks = found.remove("GETATTR").unwrap_or(0);
        assert!(checks <= 2 * STORES as usize, "{checks} questions for the mode of the directory");
        // The first store has no write, and GETXATTR comes before the first write.
        let asked = ("GETXATTR", STORES - 1);
        let wanted = [("LOOKUP", 2 * STORES), ("CREATE", STORES), asked, ("RENAME", STORES), ("RELEASE", STORES)];
        assert_eq!(found, counted(&wanted), "{options}");
    }
}

fn a_load_of_a_known_name_costs_two_requests() {
    let rig = logging("");
    count(&rig, ("RELEASE", STORES as usize), || {
        (0..STORES)
            .for_each(|n| store(&rig.mountpoint(), &format!("k{n}"), &pattern(n, 300_000), false).expect("a store"));
    });
    // The last store has made the kernel forget the directory's mode.
    assert_eq!(rustix::fs::stat(rig.path("nobody.data")).err(), Some(Errno::NOENT));
    for direct in [false, true] {
        let found = count(&rig, ("RELEASE", STORES as usize), || {
            for n in 0..STORES {
                assert_eq!(load(&rig.mountpoint(), &format!("k{n}"), 300_000, direct), Ok(pattern(n, 300_000)));
            }
        });
        assert_eq!(found, counted(&[("OPEN", STORES), ("RELEASE", STORES)]), "direct {direct}");
    }
    // The stat that LMCache's look-up makes after a load: the load has made the access time stale, once.
    let found = count(&rig, ("GETATTR", 1), || {
        (0..3).for_each(|_| assert_eq!(fs::metadata(rig.path("k0.data")).expect("stat").len(), 300_000));
    });
    assert_eq!(found, counted(&[("GETATTR", 1)]));
}

fn a_miss_that_is_known_costs_no_request() {
    let rig = logging("negative_ttl=200ms");
    let miss = || assert_eq!(rustix::fs::stat(rig.path("nobody.data")).err(), Some(Errno::NOENT));
    // A miss is not to be remembered until the scan has been over for that long.
    wait_until("a miss is remembered", || {
        catch_up(&rig);
        let before = rig.log().len();
        (0..10).for_each(|_| miss());
        catch_up(&rig);
        requests(&rig.log()[before..]).get("LOOKUP").copied().unwrap_or(0) <= 1
    });
    store(&rig.mountpoint(), "nobody", b"now", false).expect("a store");
    assert_eq!(fs::read(rig.path("nobody.data")).expect("a hit at once"), b"now");
}

/// strace on the daemon; its report when it is ended.
struct Trace {
    child: Child,
    file: std::path::PathBuf,
}

impl Trace {
    fn of(rig: &Rig) -> Trace {
        let file = rig.outside("trace");
        let _ = fs::remove_file(&file);
        let mut command = Command::new("strace");
        command.args(["-f", "-y", "-e", "trace=%file,%desc", "-o"]).arg(&file).args(["-p", &rig.pid().to_string()]);
        let child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().expect("strace");
        let traced = || {
            let tasks = fs::read_dir(format!("/proc/{}/task", rig.pid())).expect("tasks").flatten();
            tasks.into_iter().all(|task| {
                let status = fs::read_to_string(task.path().join("status")).unwrap_or_default();
                status.lines().any(|line| line.starts_with("TracerPid:") && !line.ends_with("\t0"))
            })
        };
        wait_until("every thread is traced", traced);
        Trace { child, file }
    }

    /// The calls on the disks, by name: neither those on /dev/fuse nor those of the threads that look after the mount.
    fn calls(mut self, rig: &Rig) -> BTreeMap<String, usize> {
        kill_process(Pid::from_child(&self.child), Signal::INT).expect("a signal");
        if exit_code(&mut self.child, Duration::from_secs(20)).is_none() {
            let _ = self.child.kill();
        }
        let mut said = String::new();
        if let Some(stderr) = self.child.stderr.as_mut() {
            let _ = stderr.read_to_string(&mut said);
        }
        let servers: Vec<String> = fs::read_dir(format!("/proc/{}/task", rig.pid()))
            .expect("tasks")
            .flatten()
            .filter(|task| fs::read_to_string(task.path().join("comm")).is_ok_and(|comm| comm.starts_with("fuser")))
            .map(|task| task.file_name().to_string_lossy().into_owned())
            .collect();
        assert!(!servers.is_empty(), "{said}");
        let mut calls = BTreeMap::new();
        for line in fs::read_to_string(&self.file).expect("the trace").lines() {
            let Some((pid, call)) = line.split_once(' ') else { continue };
            let name = call.trim_start().split('(').next().unwrap_or_default();
            // A debug build's standard library asks whether a descriptor is open before it closes it.
            let is_end = call.contains(" resumed>") || call.starts_with(['+', '-']) || call.contains("F_GETFD");
            if servers.iter().any(|server| server == pid) && !is_end && !call.contains("/dev/fuse") {
                *calls.entry(name.to_string()).or_insert(0) += 1;
            }
        }
        calls
    }
}

/// Whether strace works here; it may not in a container.
fn cannot_trace() -> bool {
    let works = has("strace") && run::run(Command::new("strace").args(["-o", "/dev/null", "true"])).code == Some(0);
    if !works {
        eprintln!("skipped: strace is not there or may not trace");
    }
    !works
}

/// A mount whose disks have all had their first create, which writes the disk's record.
fn warm(options: &str) -> Rig {
    let mut rig = Rig::new(8);
    rig.mount(&format!("entry_ttl=1h,negative_ttl=1h,{options}"));
    for n in 0..1000 {
        if rig.disks.iter().all(|disk| fs::read_dir(disk).expect("a disk").count() > 1) {
            break;
        }
        fs::write(rig.path(format!("warm{n}")), "x").expect("a file");
    }
    run::shell(&rig.mountpoint(), "rm warm*").ok();
    rig
}

fn a_store_costs_four_calls_on_the_disk_and_a_load_two() {
    if cannot_trace() {
        return;
    }
    let rig = warm("");
    let quiet = rig.open_fds();
    let released = || rig.status()["files"] == STORES && rig.open_fds() <= quiet;
    let trace = Trace::of(&rig);
    for n in 0..STORES {
        store(&rig.mountpoint(), &format!("k{n}"), &pattern(n, 100_000), false).expect("a store");
    }
    wait_until("all files are closed", released);
    let calls = trace.calls(&rig);
    assert_eq!(calls, counted(&[("openat2", STORES), ("statx", STORES), ("renameat2", STORES), ("close", STORES)]));
    let trace = Trace::of(&rig);
    for n in 0..STORES {
        assert_eq!(load(&rig.mountpoint(), &format!("k{n}"), 100_000, false), Ok(pattern(n, 100_000)));
    }
    // A look at the file: it may have been changed on its disk. What was read stays open.
    assert_eq!(trace.calls(&rig), counted(&[("openat2", STORES), ("statx", STORES)]));
    for _ in 0..2 {
        let trace = Trace::of(&rig);
        for n in 0..STORES {
            assert_eq!(load(&rig.mountpoint(), &format!("k{n}"), 100_000, false), Ok(pattern(n, 100_000)));
        }
        assert_eq!(trace.calls(&rig), counted(&[("statx", STORES)]), "a look at the name");
    }
    (0..STORES).for_each(|n| fs::remove_file(rig.path(format!("k{n}.data"))).expect("an unlink"));
    wait_until("what has no name is closed", || rig.open_fds() <= quiet);
}

const STORE_AS_A_CLIENT: &str = r#"
import os, sys
for n in range(int(sys.argv[1])):
    fd = os.open(f"k{n}.tmp", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
    os.write(fd, b"bytes")
    os.close(fd)
    os.rename(f"k{n}.tmp", f"k{n}.data")
"#;

fn a_store_of_another_user_costs_one_call_more() {
    if cannot_trace() {
        return;
    }
    let rig = warm("allow_other");
    fs::set_permissions(rig.mountpoint(), PermissionsExt::from_mode(0o1777)).expect("chmod");
    let quiet = rig.open_fds();
    let trace = Trace::of(&rig);
    let script = format!("python3 -c '{STORE_AS_A_CLIENT}' {STORES}");
    run::shell_as(4242, 4242, &rig.mountpoint(), &script).ok();
    wait_until("all files are closed", || rig.status()["files"] == STORES && rig.open_fds() <= quiet);
    let mut calls = trace.calls(&rig);
    let owned = calls.remove("fchown").unwrap_or(0);
    assert_eq!(owned, STORES as usize, "the file is given to the user");
    assert_eq!(calls, counted(&[("openat2", STORES), ("statx", STORES), ("renameat2", STORES), ("close", STORES)]));
}

fn a_look_up_costs_no_call_on_any_disk() {
    if cannot_trace() {
        return;
    }
    let mut rig = Rig::new(8);
    (0..100).for_each(|n| fs::write(rig.disks[n % 8].join(format!("k{n}.data")), "x").expect("a file"));
    rig.mount("entry_ttl=0,negative_ttl=0");
    let trace = Trace::of(&rig);
    for n in 0..100 {
        assert_eq!(rustix::fs::stat(rig.path(format!("none{n}.data"))).err(), Some(Errno::NOENT));
        assert_eq!(open(&rig.path(format!("none{n}.data")), OFlags::RDONLY).err(), Some(Errno::NOENT));
        assert_eq!(fs::metadata(rig.path(format!("k{n}.data"))).expect("a hit").len(), 1);
    }
    assert_eq!(fs::read_dir(rig.mountpoint()).expect("a listing").count(), 100);
    assert_eq!(trace.calls(&rig), BTreeMap::new());
}

fn a_long_listing_costs_a_request_for_many_files_and_no_call_on_any_disk() {
    const FILES: usize = 1000;
    let fill = |rig: &Rig| (0..FILES).for_each(|n| fs::write(rig.path(format!("{n:06}.data")), "x").expect("a file"));
    let list = |rig: &Rig, script: &str| {
        let said = run::shell(&rig.mountpoint(), &format!("{script} | wc -l"));
        let lines: usize = said.ok().trim().parse().expect("a number");
        assert!(lines.abs_diff(FILES) <= 1, "{script}: {lines}");
    };
    let rig = logging("");
    fill(&rig);
    for script in ["ls -l", "find . -type f -size -9 -links 1"] {
        let mut found = count(&rig, ("RELEASEDIR", 1), || list(&rig, script));
        // Asked by `ls` itself for each file, one for its ACL and one for its label: the kernel keeps neither.
        let asked = found.remove("GETXATTR").unwrap_or(0);
        assert!(asked <= if script == "ls -l" { 2 * FILES } else { 0 }, "{script}: {asked} attributes");
        assert!(found.values().sum::<usize>() <= FILES / 50, "{script}: {found:?}");
    }
    if cannot_trace() {
        return;
    }
    let mut rig = Rig::new(8);
    rig.mount("");
    fill(&rig);
    let trace = Trace::of(&rig);
    list(&rig, "ls -l");
    assert_eq!(trace.calls(&rig), BTreeMap::new());
}
