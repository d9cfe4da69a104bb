//! Extended attributes: the clients' own, and those by which a volume shows what it does.

use std::fs;
use std::path::{Path, PathBuf};

use rustix::fs::XattrFlags;
use rustix::io::Errno;
use serde_json::Value;

use crate::rig::{Io, KVSPAN, Rig, kvspan, on_a_mount};
use crate::run::{has, shell, shell_as};

on_a_mount! {
    attributes_of_clients_pass_to_the_backing_file,
    the_root_has_attributes_of_clients_too,
    kvspan_attributes_are_listed_and_tell_where_a_file_is,
    kvspan_attributes_cannot_be_changed,
    sizes_and_errors_are_those_of_xattr_7,
    a_planted_attribute_of_a_kvspan_name_is_hidden,
    the_root_tells_disks_status_and_version,
    a_directory_tells_the_disks_that_hold_a_copy,
    getfattr_shows_all_of_them_to_any_user,
}

fn get(path: &Path, name: &str) -> Result<String, Errno> {
    let mut buffer = vec![0; 65_536];
    let length = rustix::fs::getxattr(path, name, &mut buffer)?;
    Ok(String::from_utf8(buffer[..length].to_vec()).expect("UTF-8"))
}

fn list(path: &Path) -> Vec<String> {
    let mut buffer = vec![0; 65_536];
    let length = rustix::fs::listxattr(path, &mut buffer).expect("listxattr");
    let text = String::from_utf8(buffer[..length].to_vec()).expect("UTF-8");
    assert!(text.is_empty() || text.ends_with('\0'), "each name of a list is ended by a NUL");
    text.split_terminator('\0').map(str::to_string).collect()
}

fn with_file(disks: usize) -> (Rig, PathBuf) {
    let rig = Rig::mounted(disks, Io::Passthrough);
    fs::write(rig.path("f"), "x").expect("a file");
    let path = rig.path("f");
    (rig, path)
}

fn attributes_of_clients_pass_to_the_backing_file() {
    let (rig, file) = with_file(2);
    fs::create_dir(rig.path("d")).expect("a directory");
    for (path, name) in [(file, "f"), (rig.path("d"), "d")] {
        rustix::fs::setxattr(&path, "user.note", b"one", XattrFlags::CREATE).expect("setxattr");
        assert_eq!(rustix::fs::setxattr(&path, "user.note", b"x", XattrFlags::CREATE), Err(Errno::EXIST));
        rustix::fs::setxattr(&path, "user.note", b"two", XattrFlags::REPLACE).expect("setxattr");
        assert_eq!(rustix::fs::setxattr(&path, "user.no", b"x", XattrFlags::REPLACE), Err(Errno::NODATA));
        rustix::fs::setxattr(&path, "user.empty", b"", XattrFlags::empty()).expect("setxattr");
        assert_eq!((get(&path, "user.note"), get(&path, "user.empty")), (Ok("two".into()), Ok("".into())));
        assert!(list(&path).contains(&"user.note".to_string()));
        let backing = rig.backing(name);
        assert_eq!(get(&backing, "user.note"), Ok("two".into()));
        rustix::fs::setxattr(&backing, "user.below", b"y", XattrFlags::empty()).expect("setxattr");
        assert_eq!(get(&path, "user.below"), Ok("y".into()));
        rustix::fs::removexattr(&path, "user.note").expect("removexattr");
        assert_eq!(get(&path, "user.note"), Err(Errno::NODATA));
        assert_eq!(rustix::fs::removexattr(&path, "user.note"), Err(Errno::NODATA));
        assert_eq!(get(&backing, "user.note"), Err(Errno::NODATA));
    }
}

fn the_root_has_attributes_of_clients_too() {
    let (rig, _) = with_file(3);
    let root = rig.mountpoint();
    let names = ["disk_uuids", "disks", "status", "version"].map(|name| format!("user.kvspan.{name}"));
    assert_eq!(list(&root), names);
    assert_eq!(get(&root, "user.note"), Err(Errno::NODATA));
    rustix::fs::setxattr(&root, "user.note", b"kept", XattrFlags::empty()).expect("setxattr");
    assert_eq!(get(&root, "user.note"), Ok("kept".into()));
    assert!(list(&root).contains(&"user.note".to_string()));
    rustix::fs::removexattr(&root, "user.note").expect("removexattr");
}

fn kvspan_attributes_are_listed_and_tell_where_a_file_is() {
    let (rig, _) = with_file(3);
    let status = rig.status();
    let owner = rig.owner("f");
    let elsewhere = (0..).map(|n| format!("e{n}")).find(|name| rig.owner(name) != owner).expect("a name");
    for (name, away) in [("f".to_string(), "no"), (elsewhere, "yes")] {
        if away == "yes" {
            fs::rename(rig.path("f"), rig.path(&name)).expect("a rename");
        }
        let path = rig.path(&name);
        let disk = status["disks"]
            .as_array()
            .expect("disks")
            .iter()
            .find(|disk| disk["path"] == owner.to_str().expect("UTF-8"));
        let uuid = disk.expect("the disk")["uuid"].as_str().expect("a UUID");
        let of = |name: &str| get(&path, &format!("user.kvspan.{name}")).expect(name);
        assert_eq!((of("disk_uuid").as_str(), of("disk_path")), (uuid, owner.display().to_string()));
        assert_eq!(PathBuf::from(of("backing_path")), owner.join(&name));
        assert_eq!(fs::read(of("backing_path")).expect("the backing file"), b"x");
        assert_eq!((of("away").as_str(), of("owner_uuid") == uuid), (away, away == "no"));
        assert_eq!(of("io_mode"), "passthrough");
        let last_access = of("last_access");
        assert!(last_access.contains('T') && last_access.ends_with('Z'), "{last_access}");
        let mut ours = list(&path);
        ours.retain(|name| name.starts_with("user.kvspan."));
        ours.sort();
        let names = ["away", "backing_path", "disk_path", "disk_uuid", "io_mode", "last_access", "owner_uuid"];
        assert_eq!(ours, names.map(|name| format!("user.kvspan.{name}")));
    }
}

fn kvspan_attributes_cannot_be_changed() {
    let (rig, file) = with_file(2);
    for path in [file, rig.mountpoint()] {
        for name in ["disk_uuid", "disk_uuids", "status", "anything"] {
            let name = format!("user.kvspan.{name}");
            assert_eq!(rustix::fs::setxattr(&path, &*name, b"x", XattrFlags::empty()), Err(Errno::PERM), "{name}");
            assert_eq!(rustix::fs::removexattr(&path, &*name), Err(Errno::PERM), "{name}");
        }
    }
}

fn sizes_and_errors_are_those_of_xattr_7() {
    let (rig, file) = with_file(2);
    rustix::fs::setxattr(&file, "user.note", b"four", XattrFlags::empty()).expect("setxattr");
    for name in ["user.note", "user.kvspan.disk_path", "user.kvspan.away"] {
        let value = get(&file, name).expect(name);
        assert!(!value.ends_with('\0') && !value.is_empty());
        assert_eq!(rustix::fs::getxattr_query(&file, name), Ok(value.len()), "size 0 asks for the length");
        assert_eq!(rustix::fs::getxattr(&file, name, &mut vec![0u8; value.len() - 1]), Err(Errno::RANGE));
        assert_eq!(rustix::fs::getxattr(&file, name, &mut vec![0u8; value.len()]), Ok(value.len()));
    }
    let length = rustix::fs::listxattr_query(&file).expect("listxattr");
    assert_eq!(rustix::fs::listxattr(&file, &mut vec![0u8; length - 1]), Err(Errno::RANGE));
    assert_eq!(rustix::fs::listxattr(&file, &mut vec![0u8; length]), Ok(length));
    for name in ["user.none", "user.kvspan.none", "user.kvspan.", "user.kvspan.disk_uuids", "security.capability"] {
        assert_eq!(get(&file, name), Err(Errno::NODATA), "{name}");
    }
    assert_eq!(get(&rig.mountpoint(), "user.kvspan.disk_path"), Err(Errno::NODATA));
    assert_eq!(get(&rig.path("missing"), "user.note"), Err(Errno::NOENT));
    let set = rustix::fs::setxattr(&file, "trusted.x", b"x", XattrFlags::empty());
    assert_eq!(set, Err(Errno::OPNOTSUPP), "only user.* is kept");
}

fn a_planted_attribute_of_a_kvspan_name_is_hidden() {
    let (rig, file) = with_file(2);
    let backing = rig.backing("f");
    for name in ["user.kvspan.disk_uuid", "user.kvspan.planted"] {
        rustix::fs::setxattr(&backing, name, b"forged", XattrFlags::empty()).expect("setxattr");
    }
    assert_ne!(get(&file, "user.kvspan.disk_uuid").expect("the true one"), "forged");
    assert_eq!(get(&file, "user.kvspan.planted"), Err(Errno::NODATA));
    let names = list(&file);
    assert!(!names.contains(&"user.kvspan.planted".to_string()));
    assert_eq!(names.iter().filter(|name| *name == "user.kvspan.disk_uuid").count(), 1);
}

fn the_root_tells_disks_status_and_version() {
    let (rig, _) = with_file(3);
    let of = |name: &str| get(&rig.mountpoint(), &format!("user.kvspan.{name}")).expect(name);
    let status: Value = serde_json::from_str(&of("status")).expect("JSON");
    assert_eq!(status["pid"], rig.pid());
    assert_eq!(status["mountpoint"], rig.mountpoint().to_str().expect("UTF-8"));
    assert_eq!(status["files"], 1);
    let version = kvspan("version", &[""; 0]);
    assert_eq!(version.ok().trim_end(), format!("kvspan {}", of("version")));
    let disks = of("disks");
    let lines: Vec<Vec<&str>> = disks.lines().map(|line| line.split('\t').collect()).collect();
    assert_eq!(lines.len(), 3);
    for (line, path) in lines.iter().zip(&rig.disks) {
        assert_eq!((line.len(), line[1], line[2]), (6, path.to_str().expect("UTF-8"), "online"));
        assert!(line[3..].iter().all(|field| field.parse::<u64>().is_ok()), "{line:?}");
    }
    let uuids: Vec<&str> = lines.iter().map(|line| line[0]).collect();
    let all = of("disk_uuids");
    assert_eq!(all.split(',').collect::<Vec<_>>(), uuids);
    let script = format!("getfattr -n user.kvspan.disk_uuids --only-values {}", rig.mountpoint().display());
    if has("getfattr") {
        assert_eq!(shell(Path::new("/"), &script).ok(), all);
    }
    assert!(Path::new(KVSPAN).exists());
}

fn a_directory_tells_the_disks_that_hold_a_copy() {
    let (rig, _) = with_file(3);
    fs::create_dir(rig.path("d")).expect("a directory");
    let uuids = |dir: &str| get(&rig.path(dir), "user.kvspan.disk_uuids").expect("disk_uuids").split(',').count();
    assert_eq!((uuids("d"), rig.disks_with("d").len()), (1, 1));
    for n in 0..30 {
        fs::write(rig.path(format!("d/{n}")), "x").expect("a file");
    }
    assert_eq!((uuids("d"), rig.disks_with("d").len()), (3, 3));
}

fn getfattr_shows_all_of_them_to_any_user() {
    if !has("getfattr") {
        return eprintln!("skipped: no getfattr");
    }
    let mut rig = Rig::new(2);
    rig.mount("allow_other");
    shell(&rig.mountpoint(), "echo x > f; chmod 644 f; setfattr -n user.note -v hello f").ok();
    let said = shell_as(12_345, 12_345, &rig.mountpoint(), "getfattr -d -m - f; getfattr -d -m - .");
    for wanted in ["user.note=\"hello\"", "user.kvspan.backing_path=", "user.kvspan.status=", "user.kvspan.disks="] {
        assert!(said.ok().contains(wanted), "{wanted} in {}", said.out);
    }
}
