//! From `kvspan init` to a mount that answers, and what refuses to start.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use crate::bytes::{key, load, pattern, store};
use crate::rig::{Io, KVSPAN, Rig, daemons, is_mounted, kvspan, on_a_mount};
use crate::run::{run, shell, wait_until};

on_a_mount! {
    mount_returns_only_when_the_volume_answers,
    a_second_mount_of_the_same_disks_is_refused_with_the_pid,
    a_mount_point_inside_a_disk_and_a_disk_inside_the_mount_point_are_refused,
    a_directory_without_a_label_is_refused_with_the_command_that_labels_it,
    require_decides_whether_a_volume_starts_without_a_disk,
    a_remount_finds_everything_that_was_stored,
    every_file_is_still_a_hit_after_a_disk_was_added,
    a_read_only_mount_reads_and_changes_nothing,
    an_option_that_is_not_known_is_named_with_exit_code_2,
    a_toml_file_says_it_all,
    where_shows_owner_location_and_rank_also_of_a_name_that_is_not_there,
    status_has_the_fields_of_its_documentation,
    an_existing_cache_directory_is_taken_in_and_given_back,
    a_mount_that_fails_leaves_nothing_behind,
}

fn mount_returns_only_when_the_volume_answers() {
    let mut rig = Rig::new(2);
    for round in 0..5 {
        run(&mut rig.mount_command("")).ok();
        // At once, without waiting for anything.
        assert!(is_mounted(&rig.mountpoint()));
        fs::write(rig.path("f"), format!("{round}")).expect("a file");
        rig.take_daemon();
        let table = fs::read_to_string("/proc/mounts").expect("the mount table");
        let line = format!("{} {} fuse.kvspan rw,", rig.source(), rig.mountpoint().display());
        assert!(table.contains(&line), "{line}");
        rig.umount();
    }
}

fn a_second_mount_of_the_same_disks_is_refused_with_the_pid() {
    let rig = Rig::mounted(2, Io::Passthrough);
    let other = rig.outside("other");
    fs::create_dir(&other).expect("a mount point");
    let mut second = Command::new(KVSPAN);
    let said = run(second.args(["mount", &rig.source()]).arg(&other));
    let text = said.failed(32);
    assert!(
        text.contains(&format!("pid {}", rig.pid())) && text.contains(rig.disks[0].to_str().expect("UTF-8")),
        "{text}"
    );
    assert!(!is_mounted(&other) && daemons(&other).is_empty());
    // The same mount point: not hidden under a second mount.
    let said = run(&mut rig.mount_command(""));
    assert!(said.failed(32).contains("pid"), "{}", said.err);
    fs::write(rig.path("f"), "x").expect("the first one works");
}

fn a_mount_point_inside_a_disk_and_a_disk_inside_the_mount_point_are_refused() {
    let rig = Rig::new(2);
    let inside = rig.disks[1].join("mnt");
    fs::create_dir(&inside).expect("a directory");
    let mount = |mountpoint: &Path| kvspan("mount", &[Path::new(&rig.source()), mountpoint]);
    for (mountpoint, disk) in
        [(inside.as_path(), &rig.disks[1]), (rig.disks[0].as_path(), &rig.disks[0]), (&rig.outside(""), &rig.disks[0])]
    {
        let said = mount(mountpoint);
        let text = said.failed(32);
        assert!(text.contains(disk.to_str().expect("UTF-8")), "{text}");
        assert!(text.contains(mountpoint.to_str().expect("UTF-8").trim_end_matches('/')), "{text}");
        assert!(!is_mounted(mountpoint) && daemons(mountpoint).is_empty());
    }
    fs::remove_dir(&inside).expect("nothing is mounted there");
}

fn a_directory_without_a_label_is_refused_with_the_command_that_labels_it() {
    let mut rig = Rig::new(2);
    let bare = rig.outside("bare");
    fs::create_dir(&bare).expect("a directory");
    rig.disks.push(bare.clone());
    let said = run(&mut rig.mount_command(""));
    let text = said.failed(32).to_string();
    assert!(text.contains("kvspan init --volume ") && text.contains(bare.to_str().expect("UTF-8")), "{text}");
    assert_eq!(fs::read_dir(&bare).expect("a listing").count(), 0, "nothing is written there");
    let command = text.split('`').nth(1).expect("a command in backticks").replacen("kvspan", KVSPAN, 1);
    shell(Path::new("/"), &command).ok();
    rig.mount("");
    assert_eq!(rig.status()["disks"].as_array().expect("disks").len(), 3);
}

fn require_decides_whether_a_volume_starts_without_a_disk() {
    let mut rig = Rig::new(3);
    rig.mount("require=all");
    for n in 0..30 {
        fs::write(rig.path(format!("{n}")), "x").expect("a file");
    }
    rig.umount();
    let (disk, hidden) = (rig.disks[1].clone(), rig.outside("hidden"));
    fs::rename(&disk, &hidden).expect("a rename");
    for require in ["require=all", "require=3"] {
        let said = run(&mut rig.mount_command(require));
        assert!(said.failed(32).contains(disk.to_str().expect("UTF-8")), "{}", said.err);
        assert!(!is_mounted(&rig.mountpoint()));
    }
    for require in ["", "require=any", "require=2"] {
        let said = run(&mut rig.mount_command(require));
        said.ok();
        assert!(said.err.contains("missing") && said.err.contains(disk.to_str().expect("UTF-8")), "{}", said.err);
        rig.take_daemon();
        wait_until("the volume is ready", || rig.status()["state"] == "ready");
        assert_eq!(rig.status()["disks"].as_array().expect("disks").len(), 3);
        let states = shell(&rig.mountpoint(), "getfattr -n user.kvspan.disks --only-values . | cut -f 3 | sort");
        assert_eq!(states.ok(), "missing\nonline\nonline\n");
        assert!(rig.log().contains("is missing"), "{}", rig.log());
        let hits = (0..30).filter(|n| rig.path(format!("{n}")).exists()).count();
        assert!(hits > 5 && hits < 30, "{hits} of 30 names are on the two others");
        fs::write(rig.path("new"), "x").expect("a store");
        rig.umount();
    }
    assert!(!disk.exists(), "nothing is made in its place");
    fs::rename(&hidden, &disk).expect("a rename");
    rig.mount("require=all");
    assert_eq!((0..30).filter(|n| rig.path(format!("{n}")).exists()).count(), 30);
}

fn a_remount_finds_everything_that_was_stored() {
    let mut rig = Rig::mounted(3, Io::Passthrough);
    for n in 0..100 {
        store(&rig.mountpoint(), &key(n), &pattern(n, 1000 * n as usize), false).expect("a store");
    }
    let list = |rig: &Rig| {
        shell(&rig.mountpoint(), "find . -type f -printf '%P %s %T@ %m %b\\n' -o -printf '%P %m\\n' | sort")
            .ok()
            .to_string()
    };
    shell(&rig.mountpoint(), "mkdir -p a/b; echo x > a/b/c; sync").ok();
    wait_until("all sizes are settled", || rig.status()["files"] == 101);
    let before = list(&rig);
    for io in [Io::Daemon, Io::Passthrough] {
        rig.umount();
        rig.mount_in(io);
        assert_eq!(list(&rig), before);
        for n in 0..100 {
            assert_eq!(load(&rig.mountpoint(), &key(n), 1 << 20, false), Ok(pattern(n, 1000 * n as usize)));
        }
        assert_eq!(rig.status()["recovery"]["files"], 101);
    }
}

fn every_file_is_still_a_hit_after_a_disk_was_added() {
    let mut rig = Rig::mounted(3, Io::Passthrough);
    for n in 0..200 {
        store(&rig.mountpoint(), &key(n), &pattern(n, 100), false).expect("a store");
    }
    rig.umount();
    let added = rig.add_disk();
    rig.mount("");
    let files = |rig: &Rig| -> Vec<(u64, u64)> {
        let number = |disk: &Value, field: &str| disk[field].as_u64().expect("a number");
        let status = rig.status();
        let disks = status["disks"].as_array().expect("disks");
        disks.iter().map(|disk| (number(disk, "files"), number(disk, "away_files"))).collect()
    };
    let away: u64 = files(&rig).iter().map(|(_, away)| away).sum();
    assert!((20..=90).contains(&away), "about a quarter has another owner: {away}");
    for n in 0..200 {
        assert_eq!(load(&rig.mountpoint(), &key(n), 200, false), Ok(pattern(n, 100)), "a hit");
    }
    for n in 0..200 {
        store(&rig.mountpoint(), &key(n), &pattern(n + 1, 100), false).expect("a store");
        assert_eq!(load(&rig.mountpoint(), &key(n), 200, false), Ok(pattern(n + 1, 100)));
        rig.backing(&format!("{}.data", key(n)));
    }
    assert!(files(&rig).iter().all(|(_, away)| *away == 0), "none is away that was stored since");
    assert_eq!(fs::read_dir(&added).expect("a listing").count() as u64 - 1, away);
}

fn a_read_only_mount_reads_and_changes_nothing() {
    let mut rig = Rig::mounted(2, Io::Passthrough);
    shell(&rig.mountpoint(), "echo x > f; mkdir d; echo y > d/g").ok();
    rig.umount();
    let snapshot = |rig: &Rig| {
        shell(&rig.outside(""), "find d1 d2 -not -path '*/.kvspan*' -printf '%p %T@ %C@ %s\\n'").ok().to_string()
    };
    let before = snapshot(&rig);
    rig.mount("ro");
    assert_eq!(shell(&rig.mountpoint(), "cat f d/g; ls").ok(), "x\ny\nd\nf\n");
    for change in [
        "echo > f",
        "echo > n",
        "rm f",
        "mkdir e",
        "rmdir d",
        "mv f n",
        "touch f",
        "chmod 777 f",
        "setfattr -n user.a -v b f",
    ] {
        let said = shell(&rig.mountpoint(), change);
        assert!(said.code != Some(0) && said.err.contains("Read-only file system"), "{change}: {said:?}");
    }
    assert!(
        fs::read_to_string("/proc/mounts")
            .expect("the mount table")
            .contains(&format!("{} fuse.kvspan ro,", rig.mountpoint().display()))
    );
    rig.umount();
    assert_eq!(snapshot(&rig), before);
}

fn an_option_that_is_not_known_is_named_with_exit_code_2() {
    let rig = Rig::new(1);
    let cases = [
        ("colour=red", "colour"),
        ("limt=5G", "limit"),
        ("limit=many", "many"),
        ("passthrough=maybe", "maybe"),
        ("require=4x", "4x"),
    ];
    for (options, named) in cases {
        let said = run(&mut rig.mount_command(options));
        assert!(said.failed(2).contains(named), "{}", said.err);
    }
    assert!(!is_mounted(&rig.mountpoint()));
    assert_eq!(kvspan("mount", &["--colour"]).code, Some(2));
    assert_eq!(kvspan("dance", &[""; 0]).code, Some(2));
    for command in ["init", "mount", "umount", "status", "where"] {
        assert!(kvspan(command, &["--help"]).ok().contains("Usage"), "{command}");
    }
    assert!(kvspan("--version", &[""; 0]).ok().starts_with("kvspan "));
}

fn a_toml_file_says_it_all() {
    let mut rig = Rig::new(2);
    let config = rig.outside("volume.toml");
    let text = format!(
        "mountpoint = {:?}\nlog = {:?}\npassthrough = \"off\"\nnegative_ttl = \"1s\"\n\
        [[disk]]\npath = {:?}\nlimit = \"64M\"\n[[disk]]\npath = {:?}\nreserve = \"1%\"\n",
        rig.mountpoint(),
        rig.outside("daemon.log"),
        rig.disks[0],
        rig.disks[1]
    );
    fs::write(&config, &text).expect("a file");
    let mut command = Command::new(KVSPAN);
    command.arg("mount").arg(&config);
    rig.mount_by(command);
    let status = rig.status();
    assert_eq!((&status["io_mode"], &status["disks"][0]["limit_bytes"]), (&"daemon".into(), &(64u64 << 20).into()));
    fs::write(rig.path("f"), "x").expect("a file");
    rig.umount();
    // The command line wins.
    let mut command = Command::new(KVSPAN);
    command.args(["mount", "-o", "passthrough=auto"]).arg(&config).arg(rig.mountpoint());
    rig.mount_by(command);
    assert_eq!(rig.status()["io_mode"], "passthrough");
    rig.umount();
    fs::write(&config, text.replace("negative_ttl", "negativ_ttl")).expect("a file");
    let said = kvspan("mount", &[&config]);
    assert!(said.failed(2).contains("negativ_ttl") && said.err.contains("line 4"), "{}", said.err);
}

fn where_shows_owner_location_and_rank_also_of_a_name_that_is_not_there() {
    let rig = Rig::mounted(3, Io::Passthrough);
    fs::create_dir(rig.path("d")).expect("a directory");
    for name in ["f", "d/g"] {
        fs::write(rig.path(name), "x").expect("a file");
    }
    let full = rig.path("f");
    let args = [rig.mountpoint(), "f".into(), "d/g".into(), "nobody".into(), full];
    let said = kvspan("where", &args);
    let rows: Vec<Vec<&str>> = said.ok().lines().map(|line| line.split('\t').collect()).collect();
    assert_eq!(rows.len(), 4);
    for (row, name) in rows.iter().zip(["f", "d/g", "nobody", "f"]) {
        assert_eq!(row.len(), 4 + 3, "{row:?}");
        let mut rank: Vec<PathBuf> = row[4..].iter().map(PathBuf::from).collect();
        assert_eq!(Path::new(row[2]), rank[0], "the owner ranks first");
        rank.sort();
        assert_eq!(rank, rig.disks);
        if name == "nobody" {
            assert_eq!(row[3], "-");
        } else {
            assert_eq!(Path::new(row[3]).join(name), rig.backing(name));
        }
    }
    assert_eq!(kvspan("where", &[rig.mountpoint(), "../f".into()]).code, Some(2));
    assert_eq!(kvspan("where", &[rig.outside(""), "f".into()]).code, Some(1));
}

fn status_has_the_fields_of_its_documentation() {
    let rig = Rig::mounted(2, Io::Passthrough);
    store(&rig.mountpoint(), "k", &pattern(1, 8192), false).expect("a store");
    load(&rig.mountpoint(), "k", 8192, false).expect("a load");
    wait_until("the size is settled", || rig.status()["used_bytes"] == 8192);
    let status = rig.status();
    for field in ["volume", "version", "mountpoint", "pid", "limit_bytes", "recovery", "evictions", "lookups"] {
        assert!(!status[field].is_null(), "{field}");
    }
    for (group, fields) in [
        ("recovery", &["files", "seconds", "removed_files"][..]),
        ("evictions", &["files", "bytes"]),
        ("lookups", &["hits", "misses"]),
    ] {
        assert!(fields.iter().all(|field| status[group][field].is_number()), "{group}: {status}");
    }
    let wanted = (&"ready".into(), &"passthrough".into(), &1.into(), &rig.pid().into());
    assert_eq!((&status["state"], &status["io_mode"], &status["files"], &status["pid"]), wanted);
    assert!(status["lookups"]["misses"].as_u64() >= Some(1));
    for disk in status["disks"].as_array().expect("disks") {
        assert!(disk["uuid"].is_string() && disk["state"] == "online", "{disk}");
        for field in ["size_bytes", "used_bytes", "limit_bytes", "files", "away_files"] {
            assert!(disk[field].is_u64(), "{field}");
        }
        assert!(disk["limit_bytes"].as_u64() <= disk["size_bytes"].as_u64());
    }
    let table = kvspan("status", &[rig.mountpoint()]);
    assert!(rig.disks.iter().all(|disk| table.ok().contains(disk.to_str().expect("UTF-8"))), "{}", table.out);
    assert!(!table.out.contains('\u{1b}'), "no colour in a pipe");
    for path in [rig.outside("none"), rig.outside("")] {
        assert!(kvspan("status", &[&path]).failed(1).contains(path.to_str().expect("UTF-8").trim_end_matches('/')));
    }
}

fn an_existing_cache_directory_is_taken_in_and_given_back() {
    let mut rig = Rig::bare();
    let (old, new) = (rig.outside("old"), rig.outside("new"));
    fs::create_dir(&old).expect("a directory");
    shell(&old, "for n in 1 2 3 4 5 6 7 8; do echo $n > k$n.data; done; mkdir d; echo x > d/f").ok();
    rig.use_disks(&[old.clone(), new]);
    rig.mount("");
    assert_eq!(shell(&rig.mountpoint(), "cat k?.data d/f").ok(), "1\n2\n3\n4\n5\n6\n7\n8\nx\n");
    rig.umount();
    assert_eq!(shell(&old, "cat k?.data d/f").ok(), "1\n2\n3\n4\n5\n6\n7\n8\nx\n");
}

fn a_mount_that_fails_leaves_nothing_behind() {
    let rig = Rig::new(1);
    let file = rig.outside("file");
    fs::write(&file, "x").expect("a file");
    for mountpoint in [rig.outside("none"), file] {
        let said = kvspan("mount", &[Path::new(&rig.source()), &mountpoint]);
        assert!(said.failed(32).contains(mountpoint.to_str().expect("UTF-8")), "{}", said.err);
        assert!(daemons(&mountpoint).is_empty());
    }
    let said = run(&mut rig.mount_command(&format!("log={}", rig.outside("none/daemon.log").display())));
    assert!(said.code != Some(0) && said.err.contains("none/daemon.log"), "{said:?}");
    assert!(daemons(&rig.mountpoint()).is_empty() && !is_mounted(&rig.mountpoint()));
}
