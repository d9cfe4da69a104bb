//! Copies and archives into and out of the mount, with the attributes by which a volume shows what it does.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use crate::rig::{Io, Rig, on_a_mount};
use crate::run::{Said, has, shell};

on_a_mount! {
    what_was_stored_elsewhere_comes_in_with_its_attributes,
    what_leaves_the_mount_takes_the_attributes_of_kvspan_along_unless_told_otherwise,
    what_brings_attributes_of_kvspan_back_says_so_and_the_files_arrive,
    rsync_copies_attributes_if_told_to_leave_those_of_kvspan_alone,
    archivers_see_no_loop_and_no_hard_link_on_disks_made_alike,
}

/// A tree with attributes of its own, and what `list` must say of each copy of it.
const TREE: &str =
    "mkdir -p src/d/e; echo one > src/f; head -c 300000 /dev/zero | tr '\\0' x > src/d/big; : > src/d/e/empty
    chmod 640 src/f; chmod 750 src/d; setfattr -n user.note -v mine src/f; setfattr -n user.dir -v ours src/d
    touch -d @1000000000.5 src/f src/d/big src/d/e/empty src/d/e; touch -d @1000000001 src/d";

fn with_tree() -> Option<(Rig, std::path::PathBuf)> {
    if !has("setfattr") {
        eprintln!("skipped: no setfattr");
        return None;
    }
    let rig = Rig::mounted(3, Io::Passthrough);
    let top = rig.outside("");
    shell(&top, TREE).ok();
    Some((rig, top))
}

/// Bytes, times, modes, owners and the attributes of clients of all below a directory.
fn list(top: &Path, dir: &str) -> String {
    let script = "find d f -printf '%p %y %m %U %G %T@\\n' | sort; cat f d/big d/e/empty | md5sum
        getfattr -R -d -m '^user\\.[nd]' d f 2>&1 | sed '/^$/d'";
    shell(&top.join(dir), script).ok().to_string()
}

/// The attributes of kvspan's names that a copy outside of the mount has.
fn taken_along(top: &Path, dir: &str) -> usize {
    let said = shell(&top.join(dir), "getfattr -R -d -m '^user\\.kvspan' . 2>&1 | grep -c '^user.kvspan' || :");
    said.ok().trim().parse().expect("a number")
}

/// A tool that copies into the mount: which exit code, and that all has arrived nevertheless.
fn into(top: &Path, script: &str, code: i32, dir: &str) -> Said {
    let said = shell(top, script);
    assert_eq!(said.code, Some(code), "{script}: {}", said.err);
    assert_eq!(list(top, dir), list(top, "src"), "{script}");
    said
}

fn what_was_stored_elsewhere_comes_in_with_its_attributes() {
    let Some((_rig, top)) = with_tree() else { return };
    into(&top, "cp -a src mnt/cp", 0, "mnt/cp");
    into(&top, "mkdir mnt/tar; tar -C src --xattrs -cf - d f | tar -C mnt/tar --xattrs -xf -", 0, "mnt/tar");
    into(&top, "cp -a src moved; mv moved mnt/mv", 0, "mnt/mv");
}

fn what_leaves_the_mount_takes_the_attributes_of_kvspan_along_unless_told_otherwise() {
    let Some((_rig, top)) = with_tree() else { return };
    shell(&top, "cp -a src mnt/1").ok();
    into(&top, "cp -a mnt/1 cp", 0, "cp");
    into(&top, "tar -C mnt/1 --xattrs -cf t.tar d f; mkdir tar; tar -C tar --xattrs -xf t.tar", 0, "tar");
    for dir in ["cp", "tar"] {
        assert!(taken_along(&top, dir) > 0, "{dir}");
    }
    let without = "--xattrs --xattrs-exclude='user.kvspan.*'";
    into(&top, &format!("mkdir tar2; tar -C mnt/1 {without} -cf - d f | tar -C tar2 --xattrs -xf -"), 0, "tar2");
    assert_eq!(taken_along(&top, "tar2"), 0);
}

fn what_brings_attributes_of_kvspan_back_says_so_and_the_files_arrive() {
    let Some((_rig, top)) = with_tree() else { return };
    shell(&top, "cp -a src mnt/1; cp -a mnt/1 out; tar -C out --xattrs -cf t.tar d f").ok();
    let quiet = into(&top, "cp -a out mnt/2", 0, "mnt/2");
    assert_eq!(quiet.err, "");
    let denied =
        |said: Said| assert!(said.err.contains("user.kvspan.away") && said.err.contains("not permitted"), "{said:?}");
    denied(into(&top, "mkdir mnt/3; tar -C mnt/3 --xattrs -xf t.tar", 0, "mnt/3"));
    denied(into(&top, "cp -a out moved; mv moved mnt/4", 0, "mnt/4"));
    // Told to keep attributes or fail, cp fails, and leaves the directories' modes undone.
    let strict = shell(&top, "cp -r --preserve=all,xattr out mnt/5");
    assert_eq!((strict.code, shell(&top, "diff -r src mnt/5").ok()), (Some(1), ""));
    denied(strict);
    let told = into(&top, "mkdir mnt/6; tar -C mnt/6 --xattrs --xattrs-exclude='user.kvspan.*' -xf t.tar", 0, "mnt/6");
    assert_eq!(told.err, "");
}

fn rsync_copies_attributes_if_told_to_leave_those_of_kvspan_alone() {
    let Some((_rig, top)) = with_tree() else { return };
    if !has("rsync") {
        return eprintln!("skipped: no rsync");
    }
    // It tries to take away what the copy has and the source has not.
    let said = into(&top, "rsync -aX src/ mnt/1", 23, "mnt/1");
    assert!(said.err.contains("fremovexattr") && said.err.contains("user.kvspan.away"), "{}", said.err);
    let told = "rsync -aX --filter='-x user.kvspan.*'";
    for (from, to) in [("src/", "mnt/2"), ("mnt/2/", "out"), ("mnt/2/", "mnt/3"), ("out/", "mnt/4")] {
        assert_eq!(into(&top, &format!("{told} {from} {to}"), 0, to).err, "");
        let again = shell(&top, &format!("{told} -i {from} {to}"));
        assert_eq!((again.ok(), &*again.err), ("", ""), "nothing is left to copy from {from} to {to}");
    }
    assert_eq!(taken_along(&top, "out"), 0);
    into(&top, "rsync -aX mnt/2/ dirty", 0, "dirty");
    assert!(taken_along(&top, "dirty") > 0);
    assert_eq!(into(&top, &format!("{told} dirty/ mnt/5"), 0, "mnt/5").err, "");
}

/// Files on each of three disks made alike.
fn files_on_a_disk() -> usize {
    if std::env::var_os("KVSPAN_FULL").is_some() { 33_334 } else { 3_000 }
}

fn archivers_see_no_loop_and_no_hard_link_on_disks_made_alike() {
    let mut rig = Rig::bare();
    let disks: Vec<_> = (1..4).map(|n| rig.tmpfs(&format!("t{n}"), "512M")).collect();
    rig.use_disks(&disks);
    // Ten directories on each disk under the same names, so that disks have the same inode numbers too.
    for n in 0..files_on_a_disk() {
        for disk in &disks {
            let dir = disk.join(format!("d{}", n % 10));
            if n < 10 {
                fs::create_dir(&dir).expect("a directory");
            }
            let name = format!("{}-{n}", disk.file_name().expect("a name").to_string_lossy());
            fs::write(dir.join(name), "x").expect("a file");
        }
    }
    let same =
        |name: &str| disks.iter().map(|disk| fs::metadata(disk.join(name)).expect("stat").ino()).collect::<Vec<_>>();
    assert!(same("d5").windows(2).all(|pair| pair[0] == pair[1]), "the disks are alike: {:?}", same("d5"));
    rig.mount("");
    let (mnt, files) = (rig.mountpoint(), 3 * files_on_a_disk());
    let count = |script: &str| -> usize {
        let said = shell(&mnt, script);
        assert_eq!(said.err, "", "{script}");
        said.ok().trim().parse().expect("a number")
    };
    assert_eq!(count("find . -type f -links 1 -printf '%i\\n' | sort -u | wc -l"), files);
    assert_eq!(count("find . -mindepth 1 -printf '%i\\n' | sort -u | wc -l"), files + 10);
    assert_eq!(count("find -L . -follow -type f | wc -l"), files);
    assert_eq!(count("tar -cf ../t.tar . && tar -tvf ../t.tar | grep -c '^-'"), files);
    assert_eq!(count("tar -tvf ../t.tar | grep -c '^h\\|link to' || :"), 0);
    assert_eq!(count("ls -lR | grep -c '^-.* 1 root'"), files);
    if has("rsync") {
        assert_eq!(count("rsync -aH . ../copy && find ../copy -type f -links 1 | wc -l"), files);
        assert_eq!(count("find ../copy -type f -links +1 | wc -l"), 0);
    }
}
