//! The command line from outside: exit codes, sentences, streams. No mount is made.

use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};

use assert_cmd::Command;
use tempfile::TempDir;

struct Said {
    code: i32,
    out: String,
    err: String,
}

fn kvspan(args: &[&str]) -> Said {
    let output = Command::new(env!("CARGO_BIN_EXE_kvspan")).args(args).output().unwrap();
    said(&output)
}

fn said(output: &Output) -> Said {
    Said {
        code: output.status.code().unwrap(),
        out: String::from_utf8(output.stdout.clone()).unwrap(),
        err: String::from_utf8(output.stderr.clone()).unwrap(),
    }
}

/// Directories `names` below a new one, and their paths as text.
fn dirs(names: &[&str]) -> (TempDir, Vec<String>) {
    let root = tempfile::tempdir().unwrap();
    let make = |name: &&str| {
        let path = root.path().join(name);
        fs::create_dir_all(&path).unwrap();
        path.to_str().unwrap().to_string()
    };
    let paths = names.iter().map(make).collect();
    (root, paths)
}

fn label(disk: &str) -> PathBuf {
    Path::new(disk).join(".kvspan/label.json")
}

fn is_volume_id(text: &str) -> bool {
    text.len() == 36 && text.chars().all(|c| c.is_ascii_hexdigit() || c == '-')
}

#[test]
fn init_prints_the_volume_id_alone() {
    let (_root, paths) = dirs(&["a", "b"]);
    fs::write(Path::new(&paths[0]).join("K.data"), "kept").unwrap();
    let first = kvspan(&["init", &paths[0], &paths[1]]);
    assert_eq!(first.code, 0, "{}", first.err);
    assert!(is_volume_id(first.out.trim_end()), "{}", first.out);
    let text = fs::read_to_string(label(&paths[0])).unwrap();
    let json: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!(json["format"], 1);
    assert_eq!(json["volume_id"], first.out.trim_end());
    assert!(is_volume_id(json["disk_id"].as_str().unwrap()));
    assert!(humantime::parse_rfc3339(json["created"].as_str().unwrap()).is_ok());
    let kept = fs::read_to_string(Path::new(&paths[0]).join("K.data")).unwrap();
    assert_eq!(kept, "kept");

    let again = kvspan(&["init", "--volume", first.out.trim_end(), &paths[0]]);
    assert_eq!((again.code, &again.out), (0, &first.out));
    assert!(again.err.contains("is already disk"), "{}", again.err);
    assert_eq!(fs::read_to_string(label(&paths[0])).unwrap(), text);
}

#[test]
fn init_refuses_and_writes_nothing() {
    let (root, paths) = dirs(&["new", "a", "other", "a/in"]);
    let volume = kvspan(&["init", &paths[1]]).out;
    kvspan(&["init", &paths[2]]);
    let file = root.path().join("file");
    fs::write(&file, "").unwrap();
    let file = file.to_str().unwrap();
    let volume = volume.trim_end();
    let table: [(&[&str], &str); 5] = [
        (&["--volume", volume, &paths[0], &paths[2]], "not of volume"),
        (&[&paths[0], &paths[1], &paths[2]], "name disks of one volume only"),
        (&[&paths[0], &paths[3]], "lies inside the disk"),
        (&[&paths[0], file], "is not a directory"),
        (&[&paths[0], "/proc/sys"], "cannot be written"),
    ];
    for (args, part) in table {
        let refused = kvspan(&[&["init"], args].concat());
        assert_eq!(refused.code, 1, "{}", refused.err);
        assert!(refused.err.contains(part), "{}", refused.err);
        assert!(refused.err.starts_with("kvspan: ") && refused.out.is_empty());
        assert_eq!(refused.err.lines().count(), 1, "{}", refused.err);
        assert_eq!(fs::read_dir(&paths[0]).unwrap().count(), 0);
    }
    assert_eq!(kvspan(&["init"]).code, 2);
    assert_eq!(kvspan(&["init", "--volume", "x", &paths[0]]).code, 2);
}

#[test]
fn option_mistakes_are_named() {
    let (_root, paths) = dirs(&["a", "mnt"]);
    let table = [
        ("hihg=5", "kvspan: option 'hihg' is not known; did you mean 'high'?\n"),
        ("threads=x", "kvspan: option 'threads' cannot be 'x': write an integer from 2 to 1024\n"),
        ("low=99", "kvspan: option 'low' (99) must be below option 'high' (95)\n"),
        ("ro=yes", "kvspan: option 'ro' cannot be 'yes': it takes no value\n"),
    ];
    for (option, sentence) in table {
        for foreground in [&["-f"][..], &[]] {
            let args = [&["mount", &paths[0], &paths[1], "-o", option], foreground].concat();
            let refused = kvspan(&args);
            assert_eq!((refused.code, refused.err.as_str()), (2, sentence));
            assert_eq!(refused.out, "");
        }
    }
}

#[test]
fn toml_mistakes_name_the_line() {
    let root = tempfile::tempdir().unwrap();
    let file = root.path().join("kv.toml");
    let path = file.to_str().unwrap();
    let table = [
        ("mountpoint = \"/m\"\nhihg = 5\n", "line 2"),
        ("mountpoint = \"/m\"\n[[disk]]\npath = 5\n", "line 3"),
        ("mountpoint = \n", "line 1"),
        ("[[disk]]\npath = \"/a\"\n", "no mount point is given"),
        ("mountpoint = \"/m\"\n", "no disk is given"),
    ];
    for (text, part) in table {
        fs::write(&file, text).unwrap();
        let refused = kvspan(&["mount", path, "-f"]);
        assert_eq!(refused.code, 2, "{}", refused.err);
        assert!(refused.err.contains(part), "{}", refused.err);
    }
    let missing = kvspan(&["mount", "/nowhere/kv.toml", "/m"]);
    assert_eq!(missing.code, 2);
    assert!(missing.err.contains("there is no file"), "{}", missing.err);
}

#[test]
fn a_daemon_that_fails_says_why_through_its_starter() {
    let (_root, paths) = dirs(&["a", "mnt"]);
    for foreground in [&["-f"][..], &[]] {
        let refused = kvspan(&[&["mount", &paths[0], &paths[1]], foreground].concat());
        assert_eq!(refused.code, 32, "{}", refused.err);
        assert!(refused.err.starts_with("kvspan: ") && refused.out.is_empty());
        assert_eq!(refused.err.lines().count(), 1, "{}", refused.err);
    }
}

#[test]
fn commands_on_what_is_no_mount() {
    let (_root, paths) = dirs(&["plain"]);
    let plain = paths[0].as_str();
    let table: [(&[&str], &str); 8] = [
        (&["status", plain], "is not a kvspan mount point"),
        (&["status", plain, "--json"], "is not a kvspan mount point"),
        (&["status", "/nowhere"], "No such file or directory"),
        (&["where", plain, "K.data"], "is not a kvspan mount point"),
        (&["rescan", plain], "is not a kvspan mount point"),
        (&["umount", plain], "nothing is mounted on"),
        (&["umount", "--lazy", "/nowhere"], "No such file or directory"),
        (&["umount", "/proc"], "a file system of type proc is mounted there"),
    ];
    for (args, part) in table {
        let refused = kvspan(args);
        assert_eq!(refused.code, 1, "{args:?}: {}", refused.err);
        assert!(refused.err.contains(part), "{args:?}: {}", refused.err);
        assert!(!refused.err.contains("os error"), "{}", refused.err);
    }
}

#[test]
fn help_and_version() {
    let version = concat!("kvspan ", env!("CARGO_PKG_VERSION"), "\n");
    for args in [&["--version"][..], &["-V"], &["version"]] {
        let printed = kvspan(args);
        assert_eq!((printed.code, printed.out.as_str()), (0, version));
    }
    for command in ["init", "mount", "umount", "status", "where", "rescan", "evict", "version"] {
        let help = kvspan(&[command, "--help"]);
        assert_eq!(help.code, 0);
        assert!(help.out.contains(&format!("Usage: kvspan {command}")), "{}", help.out);
        assert!(!help.out.contains('\x1b'));
    }
    let mount = kvspan(&["mount", "--help"]).out;
    assert!(mount.contains("atime_interval=TIME") && !mount.contains("background-child"));
    assert_eq!(kvspan(&[]).code, 2);
    assert_eq!(kvspan(&["frobnicate"]).code, 2);
}

#[test]
fn a_closed_pipe_is_no_failure() {
    for args in [&["version"][..], &["mount", "--help"], &["--version"]] {
        let mut child = std::process::Command::new(env!("CARGO_BIN_EXE_kvspan"))
            .args(args)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        drop(child.stdout.take());
        let mut err = String::new();
        child.stderr.take().unwrap().read_to_string(&mut err).unwrap();
        assert!(child.wait().unwrap().success());
        assert_eq!(err, "");
    }
}

#[test]
fn the_example_configuration_is_a_configuration() {
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/systemd/kvcache.toml");
    let config = kvspan::config::Config::load(file.as_ref(), None, &[]).expect("a configuration");
    assert_eq!((config.disks.len(), config.mountpoint.as_path()), (3, std::path::Path::new("/mnt/kvcache")));
}
