//! A daemon that is killed at any moment: nothing wrong is loaded after it, and the limit holds. Needs root and /dev/fuse.
//! Names are sentences of docs/SEMANTICS.md.

#[path = "mount/bytes.rs"]
#[allow(dead_code, reason = "the mount suite uses all of it")]
mod bytes;
#[path = "common/loops.rs"]
#[allow(dead_code, reason = "other suites use all of it")]
mod loops;
#[path = "mount/rig.rs"]
#[allow(dead_code, unused_imports, unused_macros, reason = "the mount suite uses all of it")]
mod rig;
#[path = "mount/run.rs"]
#[allow(dead_code, reason = "the mount suite uses all of it")]
mod run;

use std::collections::BTreeSet;
use std::fs;
use std::io::Write;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use bytes::pattern;
use rig::Rig;
use rustix::process::Signal;

const LIMIT: u64 = 16 << 20;
const NAMES: u64 = 400;
const WRITERS: u64 = 4;
const OPTIONS: &str = "limit=16M,atime_interval=100ms,sync_interval=200ms,entry_ttl=1s";

/// The bytes of an object follow from its number.
fn object(number: u64) -> Vec<u8> {
    pattern(number, (number * 7919 % 200_000) as usize)
}

/// Stores, loads and deletes until told to stop; a daemon that is not there is no failure, a wrong byte is.
fn use_mount(mountpoint: &Path, next: &AtomicU64, stop: &AtomicBool) {
    while !stop.load(Ordering::Relaxed) {
        let number = next.fetch_add(1, Ordering::Relaxed) * 31 % NAMES;
        let (temp, name) = (mountpoint.join(format!("k{number}.tmp")), mountpoint.join(format!("k{number}.data")));
        let stored = fs::File::create(&temp).and_then(|mut file| file.write_all(&object(number)));
        let _ = stored.and_then(|()| fs::rename(&temp, &name));
        let other = (number * 17 + 5) % NAMES;
        let name = mountpoint.join(format!("k{other}.data"));
        if let Ok(loaded) = fs::read(&name) {
            assert!(loaded == object(other), "{} bytes of object {other} are wrong", loaded.len());
        }
        if number.is_multiple_of(13) {
            let _ = fs::remove_file(&name);
        }
    }
}

fn names_below(dir: &Path) -> Vec<(String, PathBuf)> {
    let entries = fs::read_dir(dir).expect("a directory").map(|entry| entry.expect("an entry"));
    let named = entries.map(|entry| (entry.file_name().to_string_lossy().into_owned(), entry.path()));
    named.filter(|(name, _)| name != ".kvspan").collect()
}

fn shown(rig: &Rig) -> BTreeSet<String> {
    names_below(&rig.mountpoint()).into_iter().map(|(name, _)| name).collect()
}

/// The files of all disks, in name order; a name on two disks is there twice.
fn stored(rig: &Rig) -> Vec<String> {
    let mut names: Vec<String> = rig.disks.iter().flat_map(|disk| names_below(disk)).map(|(name, _)| name).collect();
    names.sort();
    names
}

fn held_bytes(disk: &Path) -> u64 {
    names_below(disk).iter().filter_map(|(_, path)| fs::metadata(path).ok()).map(|file| file.blocks() * 512).sum()
}

/// What must hold after every restart, once the evictors have nothing left to do.
fn check(rig: &Rig, round: u32) {
    run::wait_until("the mount shows what the disks hold, once each", || {
        shown(rig).into_iter().collect::<Vec<String>>() == stored(rig)
    });
    for disk in &rig.disks {
        run::wait_until("status counts what du counts", || {
            let status = rig.status();
            let reports = status["disks"].as_array().expect("disks");
            let report = reports.iter().find(|report| report["path"] == disk.to_str().expect("UTF-8"));
            report.expect("the disk")["used_bytes"] == held_bytes(disk)
        });
        let (held, in_flight) = (held_bytes(disk), WRITERS * 200_000);
        assert!(held <= LIMIT + in_flight, "round {round}: {} holds {held}", disk.display());
    }
    for name in shown(rig).iter().filter_map(|name| name.strip_suffix(".data")) {
        let number: u64 = name.strip_prefix('k').and_then(|number| number.parse().ok()).expect("an object's number");
        match fs::read(rig.path(format!("{name}.data"))) {
            Ok(loaded) => assert!(loaded == object(number), "round {round}: object {number}: {} bytes", loaded.len()),
            Err(error) => assert_eq!(error.kind(), std::io::ErrorKind::NotFound, "evicted meanwhile, at most"),
        }
    }
}

fn killed_at_any_moment_nothing_wrong_is_loaded_and_the_limit_holds() {
    let rounds = if std::env::var_os("KVSPAN_FULL").is_some() { 200 } else { 40 };
    let mut rig = Rig::new(2);
    let next = AtomicU64::new(1);
    for round in 0..rounds {
        // The mount of the daemon that was killed is still there: it must not be in the way.
        let mut command = rig.mount_command(OPTIONS);
        run::run(&mut command).ok();
        rig.take_daemon();
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            for _ in 0..WRITERS {
                scope.spawn(|| use_mount(&rig.mountpoint(), &next, &stop));
            }
            // Some rounds end in the recovery scan, some in the middle of stores and evictions.
            let moment = Duration::from_millis(u64::from(round * 37 % 10) * 40);
            let until = Instant::now() + moment;
            while Instant::now() < until {
                std::thread::yield_now();
            }
            rig.signal(Signal::KILL);
            stop.store(true, Ordering::Relaxed);
        });
        rig.wait_for_end();
        if round % 4 == 3 {
            rig.mount(OPTIONS);
            check(&rig, round);
            rig.signal(Signal::KILL);
            rig.wait_for_end();
        }
    }
    rig.mount(OPTIONS);
    check(&rig, rounds);
    rig.umount();
}

fn the_hot_set_of_before_a_kill_survives_the_eviction_after_it() {
    let mut rig = Rig::new(1);
    rig.mount(OPTIONS);
    let store = |rig: &Rig, name: &str| {
        fs::write(rig.path(format!("{name}.tmp")), vec![1; 256 << 10]).expect("a temp file");
        fs::rename(rig.path(format!("{name}.tmp")), rig.path(format!("{name}.data"))).expect("a publish");
    };
    for n in 0..40 {
        store(&rig, &format!("k{n}"));
    }
    // The publishes are long ago: then a use is written to the disk within an interval.
    let long_ago = std::time::SystemTime::now() - Duration::from_secs(3600);
    rig.umount();
    for n in 0..40 {
        let times = fs::FileTimes::new().set_accessed(long_ago + Duration::from_secs(n)).set_modified(long_ago);
        let path = rig.disks[0].join(format!("k{n}.data"));
        fs::File::options().write(true).open(path).and_then(|file| file.set_times(times)).expect("times");
    }
    rig.mount(OPTIONS);
    let hot: Vec<String> = (0..8).map(|n| format!("k{n}.data")).collect();
    for name in &hot {
        fs::read(rig.path(name)).expect("a load");
    }
    rig.umount();
    rig.mount(OPTIONS);
    rig.signal(Signal::KILL);
    rig.wait_for_end();
    rig.mount(OPTIONS);
    for n in 0..34 {
        store(&rig, &format!("new{n}"));
    }
    let lost: Vec<&String> = hot.iter().filter(|name| fs::metadata(rig.path(name)).is_err()).collect();
    assert!(lost.is_empty(), "the hot set went: {lost:?}");
    assert!(fs::metadata(rig.path("k20.data")).is_err(), "nothing was evicted");
    rig.umount();
}

/// With a short `atime_interval` a use is on the disk soon after, also of a file that was stored a moment ago.
fn the_hot_set_of_a_moment_ago_survives_a_kill() {
    let mut rig = Rig::new(1);
    rig.mount("limit=16M,atime_interval=200ms");
    let store = |rig: &Rig, name: String| {
        fs::write(rig.path(format!("{name}.tmp")), vec![1; 256 << 10]).expect("a temp file");
        fs::rename(rig.path(format!("{name}.tmp")), rig.path(format!("{name}.data"))).expect("a publish");
    };
    (0..40).for_each(|n| store(&rig, format!("k{n}")));
    let atime = |rig: &Rig, n: u32| {
        let meta = fs::metadata(rig.disks[0].join(format!("k{n}.data"))).expect("a file");
        (meta.atime(), meta.atime_nsec())
    };
    let newest = atime(&rig, 39);
    run::wait_until("the clock has gone on", || {
        fs::read(rig.path("k0.data")).is_ok() && {
            std::thread::sleep(Duration::from_millis(20));
            atime(&rig, 0) > newest
        }
    });
    for n in 0..8 {
        fs::read(rig.path(format!("k{n}.data"))).expect("a load");
    }
    run::wait_until("the uses are on the disk", || (0..8).all(|n| atime(&rig, n) > newest));
    rig.signal(Signal::KILL);
    rig.wait_for_end();
    rig.mount("limit=16M");
    (0..34).for_each(|n| store(&rig, format!("new{n}")));
    let lost: Vec<u32> = (0..8).filter(|n| fs::metadata(rig.path(format!("k{n}.data"))).is_err()).collect();
    assert!(lost.is_empty(), "the hot set went: {lost:?}");
    assert!(fs::metadata(rig.path("k20.data")).is_err(), "nothing was evicted");
    rig.umount();
}

/// The kernel believes a name for `entry_ttl`; what is evicted meanwhile is a miss for whoever asks or opens.
fn a_name_that_the_kernel_believes_is_a_miss_once_it_is_evicted() {
    let mut rig = Rig::new(2);
    rig.mount("limit=16M,entry_ttl=1h,negative_ttl=1h");
    let stored = |n: u32| rig.path(format!("k{n}.data"));
    for n in 0..200 {
        fs::write(stored(n), vec![1; 256 << 10]).expect("a store");
        fs::metadata(stored(n)).expect("a name that the kernel believes from now on");
    }
    run::wait_until("the evictors are done", || {
        rig.status()["used_bytes"].as_u64().is_some_and(|used| used <= 2 * LIMIT)
    });
    run::wait_until("what the kernel finds is what there is", || {
        let listed: BTreeSet<String> = names_below(&rig.mountpoint()).into_iter().map(|(name, _)| name).collect();
        (0..200).all(|n| fs::metadata(stored(n)).is_ok() == listed.contains(&format!("k{n}.data")))
    });
    let evicted = (0..200).find(|n| fs::metadata(stored(*n)).is_err()).expect("something was evicted");
    assert!(fs::read(stored(evicted)).is_err_and(|error| error.kind() == std::io::ErrorKind::NotFound));
    let exclusive = fs::File::options().write(true).create_new(true).open(stored(evicted));
    exclusive.expect("a name that was evicted can be made anew");
    rig.umount();
}

/// A thread of the killed daemon is stuck in a frozen disk, so its connection lives and every stat of the mount hangs.
fn a_mount_point_that_hangs_does_not_stop_the_next_mount() {
    let frozen = loops::LoopDisk::ext4("64M", &[]);
    let mut rig = Rig::bare();
    rig.use_disks(&[frozen.path()]);
    rig.mount("");
    fs::write(rig.path("before.data"), b"x").expect("a store");
    run::run(Command::new("fsfreeze").arg("-f").arg(frozen.path())).ok();
    let thaw = Thaw(frozen.path());
    let stuck = rig.path("stuck.tmp");
    let writer = std::thread::spawn(move || drop(fs::write(stuck, b"x")));
    let pid = rig.pid();
    let is_stuck = |pid: u32| {
        let tasks = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
        tasks.into_iter().any(|task| {
            let stat = fs::read_to_string(task.path().join("stat")).unwrap_or_default();
            stat.rsplit(')').next().is_some_and(|rest| rest.trim_start().starts_with('D'))
        })
    };
    run::wait_until("a thread of the daemon is inside the frozen disk", || is_stuck(pid));
    rig.signal(Signal::KILL);
    // Another volume on the same mount point: the disks of the first are locked until its last thread has ended.
    let healthy = rig.outside("healthy");
    rig.disks.clear();
    rig.use_disks(&[healthy]);
    let mut command = rig.mount_command("");
    run::run(&mut command).ok();
    fs::write(rig.path("after.data"), b"y").expect("the next mount answers");
    drop(thaw);
    writer.join().expect("the writer has its answer");
    rig.take_daemon();
    rig.umount();
}

/// Thaws a file system, also when the test fails.
struct Thaw(PathBuf);

impl Drop for Thaw {
    fn drop(&mut self) {
        let _ = Command::new("fsfreeze").arg("-u").arg(&self.0).status();
    }
}

/// `init` is killed at the n-th of each call that changes a directory; what is there then is no label, or a whole one.
fn an_init_that_is_killed_in_the_middle_leaves_no_half_label() {
    for call in ["mkdirat", "mkdir", "openat,openat2", "write", "fsync", "renameat,renameat2,rename"] {
        for at in 1..=4 {
            let dir = tempfile::tempdir().expect("a directory");
            let disk = dir.path().join("disk");
            fs::create_dir(&disk).expect("a directory");
            fs::write(disk.join("kept.data"), b"x").expect("a file");
            let inject = format!("inject={call}:signal=SIGKILL:when={at}");
            let mut killed = Command::new("strace");
            killed.args(["-f", "-qq", "-o", "/dev/null", "-e", &format!("trace={call}"), "-e", &inject]);
            run::run(killed.arg(rig::KVSPAN).arg("init").arg(&disk));
            let label = fs::read_to_string(disk.join(".kvspan/label.json"));
            if let Ok(label) = label {
                let label: serde_json::Value = serde_json::from_str(&label).expect("a whole label");
                assert_eq!(label["format"], 1, "{call} {at}");
            }
            rig::kvspan("init", &[&disk]).ok();
            assert_eq!(fs::read(disk.join("kept.data")).expect("it stays"), b"x");
        }
    }
}

/// A killed daemon keeps its locks until its last thread has ended; the next mount waits for that.
fn a_mount_right_after_a_kill_succeeds() {
    let mut rig = Rig::new(2);
    for n in 0..200 {
        fs::write(rig.disks[n % 2].join(format!("k{n}.data")), b"x").expect("a file");
    }
    for _ in 0..20 {
        run::run(&mut rig.mount_command("")).ok();
        rig.take_daemon();
        rig.signal(Signal::KILL);
    }
    rig.mount("");
    assert_eq!(names_below(&rig.mountpoint()).len(), 200);
    rig.umount();
}

fn signals_that_mean_nothing_to_a_daemon_do_not_end_it() {
    let mut rig = Rig::new(1);
    rig.mount("");
    for signal in [Signal::HUP, Signal::USR1, Signal::USR2, Signal::ALARM] {
        rig.signal(signal);
        fs::write(rig.path("still.data"), b"here").expect("the mount answers");
    }
    rig.signal(Signal::QUIT);
    rig.wait_for_end();
    assert!(!rig::is_mounted(&rig.mountpoint()));
}

fn a_daemon_holds_nothing_that_its_caller_had_open() {
    let mut rig = Rig::new(1);
    let command = rig.mount_command("");
    let args: Vec<String> = command.get_args().map(|arg| format!("'{}'", arg.to_str().expect("UTF-8"))).collect();
    // `cat` ends when the last holder of the pipe has closed it.
    let line = format!("{{ '{}' {} 3>&1 >/dev/null 2>&1; }} | cat", rig::KVSPAN, args.join(" "));
    run::run(Command::new("sh").arg("-c").arg(line)).ok();
    rig.take_daemon();
    rig.umount();
}

/// Forgets, look-ups and creates race, and the file system below hands inode numbers out again.
fn names_made_and_removed_while_caches_are_dropped_never_show_another_files_bytes() {
    let disk = loops::LoopDisk::new("512M", &["mkfs.xfs", "-q", "-f"]);
    let mut rig = Rig::bare();
    rig.use_disks(&[disk.path()]);
    rig.mount("");
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                fs::write("/proc/sys/vm/drop_caches", "2").expect("caches are dropped");
            }
        });
        let workers: Vec<_> = (0..16usize)
            .map(|thread| {
                let rig = &rig;
                scope.spawn(move || {
                    for round in 0..150 {
                        let name = format!("n{}", (thread + round) % 5);
                        let path = rig.path(&name);
                        let _ = fs::metadata(&path);
                        match round % 3 {
                            0 => drop(fs::remove_file(&path)),
                            1 => drop(fs::write(&path, &name)),
                            _ => {
                                let read = fs::read(&path).unwrap_or_default();
                                assert!(name.as_bytes().starts_with(&read), "{name} read {read:?}");
                            }
                        }
                    }
                })
            })
            .collect();
        for worker in workers {
            worker.join().expect("no wrong bytes");
        }
        stop.store(true, Ordering::Relaxed);
    });
    rig.umount();
}

fn an_idle_daemon_sleeps() {
    let mut rig = Rig::new(2);
    for n in 0..20_000 {
        fs::write(rig.disks[n % 2].join(format!("old{n}.data")), b"").expect("a file");
    }
    rig.mount("limit=16M");
    for n in 0..200 {
        fs::write(rig.path(format!("k{n}.data")), vec![1; 256 << 10]).expect("a store");
    }
    let cpu_ticks = |rig: &Rig| -> u64 {
        let stat = fs::read_to_string(format!("/proc/{}/stat", rig.pid())).expect("the daemon");
        let fields: Vec<&str> = stat.rsplit(')').next().expect("fields").split_whitespace().collect();
        fields[11].parse::<u64>().expect("utime") + fields[12].parse::<u64>().expect("stime")
    };
    run::run(Command::new("sleep").arg("2")).ok();
    let before = cpu_ticks(&rig);
    run::run(Command::new("sleep").arg("5")).ok();
    // A tick is 10 ms of CPU time, measured by the kernel: not a clock that a busy machine could stretch.
    let spent = cpu_ticks(&rig) - before;
    assert!(spent <= 5, "an idle daemon used {spent}0 ms of CPU in 5 s");
    rig.umount();
}

const IN_DIRECTORY: u64 = 24;

/// A directory with files on every disk, durable.
fn make_directory(rig: &mut Rig) {
    rig.mount("");
    fs::create_dir_all(rig.path("a/s")).expect("directories");
    for n in 0..IN_DIRECTORY {
        fs::write(rig.path(in_directory("a", n)), object(n)).expect("a file");
    }
    rig.umount();
}

fn in_directory(dir: &str, n: u64) -> String {
    if n.is_multiple_of(2) { format!("{dir}/k{n}.data") } else { format!("{dir}/s/k{n}.data") }
}

/// Renames the directory to and fro until it fails for good, and begins with the name that it has.
fn rename_to_and_fro(mountpoint: &Path, moves: &AtomicU64, stop: &AtomicBool) {
    while !stop.load(Ordering::Relaxed) {
        for (from, to) in [("a", "b"), ("b", "a")] {
            if fs::rename(mountpoint.join(from), mountpoint.join(to)).is_ok() {
                moves.fetch_add(1, Ordering::Relaxed);
            }
        }
    }
}

/// Lets the directory be renamed until `end` strikes, in the middle of a rename or between two.
fn strike_while_renaming(rig: &Rig, round: u64, end: impl FnOnce()) {
    let (moves, stop) = (AtomicU64::new(0), AtomicBool::new(false));
    std::thread::scope(|scope| {
        let renaming = scope.spawn(|| rename_to_and_fro(&rig.mountpoint(), &moves, &stop));
        run::wait_until("the directory is renamed", || moves.load(Ordering::Relaxed) > round % 4);
        let until = Instant::now() + Duration::from_micros(round * 2_741 % 9_000);
        while Instant::now() < until && !renaming.is_finished() {
            std::thread::yield_now();
        }
        end();
        stop.store(true, Ordering::Relaxed);
    });
}

fn assert_whole_under_one_name(rig: &Rig, context: &str) {
    let names: Vec<String> = shown(rig).into_iter().collect();
    assert!(names == ["a"] || names == ["b"], "{context}: {names:?}\n{}", rig.log());
    for n in 0..IN_DIRECTORY {
        let loaded = fs::read(rig.path(in_directory(&names[0], n)));
        assert!(loaded.is_ok_and(|loaded| loaded == object(n)), "{context}: object {n} below {names:?}\n{}", rig.log());
    }
    let lists = rig.disks.iter().filter(|disk| disk.join(".kvspan/renames").exists()).count();
    assert_eq!(lists, 0, "{context}");
}

fn a_directory_is_whole_under_one_name_whenever_its_rename_is_killed() {
    let rounds = if std::env::var_os("KVSPAN_FULL").is_some() { 200 } else { 24 };
    let mut rig = Rig::new(3);
    make_directory(&mut rig);
    let mut halves = 0;
    for round in 0..rounds {
        rig.mount("");
        strike_while_renaming(&rig, round, || rig.signal(Signal::KILL));
        rig.wait_for_end();
        halves += u32::from(["a", "b"].iter().all(|name| !rig.disks_with(name).is_empty()));
        rig.mount("");
        assert_whole_under_one_name(&rig, &format!("round {round}"));
        rig.umount();
    }
    eprintln!("{halves} of {rounds} kills left the directory under both names");
}

/// The daemon is killed at the n-th of each call that changes a directory or makes it durable.
fn a_directory_is_whole_under_one_name_at_whichever_call_its_rename_is_killed() {
    let mut rig = Rig::new(3);
    make_directory(&mut rig);
    for call in ["renameat,renameat2,rename", "fsync,fdatasync", "unlinkat,unlink", "openat,openat2"] {
        let mut halves = 0;
        let mut at = 1;
        loop {
            rig.mount("");
            let name = if rig.path("a").exists() { "a" } else { "b" };
            let inject = format!("inject={call}:signal=SIGKILL:when={at}");
            let mut tracer = Command::new("strace");
            tracer.args(["-f", "-qq", "-o", "/dev/null", "-e", &format!("trace={call}"), "-e", &inject]);
            let mut tracer = tracer.args(["-p", &rig.pid().to_string()]).spawn().expect("strace");
            let traced = format!("/proc/{}/status", rig.pid());
            run::wait_until("strace is there", || {
                fs::read_to_string(&traced).is_ok_and(|status| !status.contains("TracerPid:\t0"))
            });
            let done = fs::rename(rig.path(name), rig.path(if name == "a" { "b" } else { "a" }));
            if done.is_ok() {
                rig.signal(Signal::KILL);
            }
            rig.wait_for_end();
            tracer.wait().expect("strace ends with the daemon");
            if ["a", "b"].iter().all(|name| !rig.disks_with(name).is_empty()) {
                halves += 1;
                // A mount that only reads shows what is there.
                rig.mount("ro");
                assert!(shown(&rig).iter().eq(["a", "b"]));
                rig.umount();
            }
            rig.mount("");
            assert_whole_under_one_name(&rig, &format!("{call} {at}"));
            rig.umount();
            at += 1;
            if done.is_ok() {
                break;
            }
        }
        assert!(at > 6, "{call}: the rename makes three of them at least");
        assert!(halves > 0 || !call.starts_with("rename"), "no kill came in the middle");
    }
}

fn a_directory_is_whole_under_one_name_whenever_the_power_goes_in_its_rename() {
    let disks: Vec<loops::LoopDisk> = (0..3).map(|_| loops::LoopDisk::ext4("64M", &[])).collect();
    let mut rig = Rig::bare();
    rig.use_disks(&disks.iter().map(loops::LoopDisk::path).collect::<Vec<_>>());
    make_directory(&mut rig);
    let mut halves = 0;
    for round in 0..8 {
        rig.mount("");
        strike_while_renaming(&rig, round, || {
            // One disk after the other, and in every order.
            (0..3).for_each(|n| disks[(n + round as usize) % 3].cut());
            rig.signal(Signal::KILL);
        });
        rig.wait_for_end();
        run::run(Command::new("umount").arg("-l").arg(rig.mountpoint())).ok();
        disks.iter().for_each(loops::LoopDisk::mount_again);
        halves += u32::from(["a", "b"].iter().all(|name| !rig.disks_with(name).is_empty()));
        rig.mount("");
        assert_whole_under_one_name(&rig, &format!("round {round}"));
        rig.umount();
    }
    eprintln!("{halves} of 8 cuts left the directory under both names");
}

rig::on_a_mount![
    a_directory_is_whole_under_one_name_at_whichever_call_its_rename_is_killed,
    a_directory_is_whole_under_one_name_whenever_its_rename_is_killed,
    a_directory_is_whole_under_one_name_whenever_the_power_goes_in_its_rename,
    killed_at_any_moment_nothing_wrong_is_loaded_and_the_limit_holds,
    the_hot_set_of_before_a_kill_survives_the_eviction_after_it,
    the_hot_set_of_a_moment_ago_survives_a_kill,
    a_name_that_the_kernel_believes_is_a_miss_once_it_is_evicted,
    a_mount_point_that_hangs_does_not_stop_the_next_mount,
    an_init_that_is_killed_in_the_middle_leaves_no_half_label,
    a_mount_right_after_a_kill_succeeds,
    signals_that_mean_nothing_to_a_daemon_do_not_end_it,
    a_daemon_holds_nothing_that_its_caller_had_open,
    names_made_and_removed_while_caches_are_dropped_never_show_another_files_bytes,
    an_idle_daemon_sleeps,
];
