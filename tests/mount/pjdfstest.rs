//! The crate pjdfstest, which checks what POSIX asks of a file system, on a volume and beside it on a bare ext4 directory.
//!
//! `scripts/setup tests` installs it. What is expected to fail on a volume is in `pjdfstest.toml`.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde::Deserialize;
use toml::toml;

use crate::loops::LoopDisk;
use crate::rig::{Io, Rig, in_both_io_modes};
use crate::run::run;

in_both_io_modes! {
    pjdfstest_finds_what_ext4_does_except_what_is_listed_with_a_reason,
}

/// What is known to differ on a volume.
#[derive(Default, Deserialize)]
struct Known {
    fails: Vec<Group>,
    skipped: Vec<Group>,
}

#[derive(Deserialize)]
struct Group {
    reason: String,
    tests: Vec<String>,
}

fn names(groups: &[Group]) -> BTreeSet<String> {
    assert!(groups.iter().all(|group| !group.reason.is_empty()), "a group without a reason");
    groups.iter().flat_map(|group| group.tests.clone()).collect()
}

/// Where `scripts/setup` puts what it builds.
fn program() -> PathBuf {
    let var = |name: &str| std::env::var_os(name).map(PathBuf::from);
    let cache = var("KVSPAN_CACHE").or_else(|| Some(var("XDG_CACHE_HOME")?.join("kvspan")));
    let cache = cache.or_else(|| Some(var("HOME")?.join(".cache/kvspan"))).expect("a home directory");
    let program = cache.join("bin/pjdfstest");
    assert!(program.exists(), "{} is not there: `scripts/setup tests` installs it", program.display());
    program
}

/// Runs it in a directory, and checks that exactly what is known fails and is skipped.
#[track_caller]
fn check(rig: &Rig, dir: &Path, elsewhere: &Path, known: &Known) {
    let (fails, skipped) = (names(&known.fails), names(&known.skipped));
    // The first run leaves files open, so nothing could be remounted in it.
    for (remounts, only) in [(false, ""), (true, "erofs")] {
        let config = rig.outside("pjdfstest.toml");
        let mut settings = toml! {
            [features]
            posix_fallocate = {}
            rename_ctime = {}
            utime_now = {}
            utimensat = {}
            [settings]
            // Longer than the tick that ext4 stamps its files with.
            naptime = 0.02
            [dummy_auth]
            entries = [["daemon", "daemon"], ["bin", "bin"]]
        };
        let table = settings["settings"].as_table_mut().expect("a table");
        table.insert("allow_remount".to_string(), remounts.into());
        table.insert("expected_failures".to_string(), fails.iter().cloned().collect::<Vec<_>>().into());
        fs::write(&config, settings.to_string()).expect("a file");
        let mut command = Command::new(program());
        command.arg("-c").arg(&config).arg("-p").arg(dir).arg("-s").arg(elsewhere).arg(only);
        let said = run(command.env("PATH", path_with_plain_mount(rig)).current_dir("/"));
        let out = said.ok();
        let found = |word: &str| -> BTreeSet<String> {
            let lines = out.lines().filter_map(|line| line.trim_end().strip_suffix(word));
            lines.map(|name| name.trim_end().to_string()).collect()
        };
        if remounts {
            assert_eq!((found(" ok").len(), found("skipped")), (13, BTreeSet::new()), "{out}");
        } else {
            assert_eq!(found("failed as expected"), fails, "every listed name is a test\n{out}");
            let (remounting, rest): (BTreeSet<_>, BTreeSet<_>) =
                found("skipped").into_iter().partition(|name| name.contains("erofs"));
            assert_eq!((remounting.len(), rest), (13, skipped.clone()), "{out}");
        }
    }
}

/// A `PATH` on which `mount` calls no helper of a file system type: the remounts are the kernel's own.
fn path_with_plain_mount(rig: &Rig) -> std::ffi::OsString {
    let dir = rig.outside("bin");
    let mount = dir.join("mount");
    fs::create_dir_all(&dir).expect("a directory");
    // Busy as long as a RELEASE of the test before is on its way.
    let script =
        "#!/bin/sh\nPATH=${PATH#*:}\nfor n in $(seq 100); do mount -i \"$@\" && exit; sleep 0.05; done\nexit 1\n";
    fs::write(&mount, script).expect("a file");
    fs::set_permissions(&mount, fs::Permissions::from_mode(0o755)).expect("permissions");
    let mut path = dir.into_os_string();
    path.push(":");
    path.push(std::env::var_os("PATH").expect("PATH"));
    path
}

fn pjdfstest_finds_what_ext4_does_except_what_is_listed_with_a_reason(io: Io) {
    let known: Known = toml::from_str(include_str!("pjdfstest.toml")).expect("TOML");
    let disks: Vec<LoopDisk> = (0..4).map(|_| LoopDisk::ext4("256M", &[])).collect();
    let (mut rig, bare) = (Rig::bare(), disks[3].path());
    rig.use_disks(&disks[..3].iter().map(LoopDisk::path).collect::<Vec<_>>());
    rig.mount(&format!("allow_other,{}", io.option()));
    check(&rig, &bare, &rig.mountpoint(), &Known::default());
    check(&rig, &rig.mountpoint(), &bare, &known);
}
