//! Disks on file systems that are themselves stacked, or have no device: what is stored comes back, and the volume says how.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::fs::OFlags;
use rustix::mount::{UnmountFlags, unmount};

use crate::bytes::{assert_same, key, load, opened, pattern, store};
use crate::rig::{Io, Rig, in_both_io_modes};
use crate::run::{run, shell};

in_both_io_modes! {
    disks_on_tmpfs_work,
    disks_on_overlayfs_work,
    disks_on_an_overlay_of_an_overlay_work_through_the_daemon,
    disks_on_another_fuse_mount_work,
}

/// A mounted overlay, taken away when it is dropped.
struct Overlay(PathBuf);

impl Overlay {
    /// Over `lower`, with its own changes and the mount point in `dir`, which lies on another file system.
    fn new(dir: &Path, lower: &Path) -> Overlay {
        let [upper, work, merged] = ["upper", "work", "merged"].map(|name| dir.join(name));
        for path in [&upper, &work, &merged] {
            fs::create_dir_all(path).expect("a directory");
        }
        let options = format!("lowerdir={},upperdir={},workdir={}", lower.display(), upper.display(), work.display());
        run(Command::new("mount").args(["-t", "overlay", "-o", &options, "kvspan-test"]).arg(&merged)).ok();
        Overlay(merged)
    }
}

impl Drop for Overlay {
    fn drop(&mut self) {
        let _ = unmount(&self.0, UnmountFlags::DETACH);
    }
}

/// Mounts in a mode, stores, loads and lists, twice; each file says that its bytes travel as `files`.
fn check(rig: &mut Rig, io: Io, files: Io) {
    for round in 0..2u64 {
        rig.mount_in(io);
        assert_eq!(rig.status()["io_mode"], io.word(), "what the kernel grants");
        for n in 0..12 {
            if round == 0 {
                store(&rig.mountpoint(), &key(n), &pattern(n, 100_000 * n as usize), n % 2 == 0).expect("a store");
            }
            let found = load(&rig.mountpoint(), &key(n), 2 << 20, n % 3 == 0).expect("a load");
            assert_same(&found, &pattern(n, 100_000 * n as usize), "what was stored");
            let name = format!("{}.data", key(n));
            assert_eq!(rig.backing(&name).parent(), Some(rig.owner(&name).as_path()));
            let _open = opened(&rig.path(&name), OFlags::RDONLY);
            let mode = shell(&rig.mountpoint(), &format!("getfattr -n user.kvspan.io_mode --only-values {name}"));
            assert_eq!(mode.ok(), files.word());
        }
        let script = format!("mkdir d{round}; echo x > d{round}/f; mv d{round} e{round}; cat e{round}/f; ls | wc -l");
        assert_eq!(shell(&rig.mountpoint(), &script).ok(), format!("x\n{}\n", 13 + round));
        let refused = rig.log().lines().filter(|line| line.contains("passthrough was refused")).count();
        assert_eq!(refused as u64, if io == files { 0 } else { round + 1 }, "one line a mount: {}", rig.log());
        assert_eq!(rig.status()["passthrough_refused"].as_u64().expect("a number") > 0, io != files);
        rig.umount();
    }
}

/// Two disks in each of some directories.
fn over(rig: &mut Rig, dirs: &[&Path]) {
    let disks: Vec<_> = dirs.iter().flat_map(|dir| ["a", "b"].map(|name| dir.join(name))).collect();
    rig.use_disks(&disks);
}

fn disks_on_tmpfs_work(io: Io) {
    let mut rig = Rig::bare();
    let dirs = ["t1", "t2"].map(|name| rig.tmpfs(name, "64M"));
    over(&mut rig, &[&dirs[0], &dirs[1]]);
    check(&mut rig, io, io);
}

fn disks_on_overlayfs_work(io: Io) {
    let mut rig = Rig::bare();
    let (lower, upper) = (rig.outside("lower"), rig.tmpfs("t", "64M"));
    fs::create_dir(&lower).expect("a directory");
    let overlay = Overlay::new(&upper, &lower);
    over(&mut rig, &[&overlay.0]);
    check(&mut rig, io, io);
    // A file of the lower layer is copied up by its first write.
    drop(overlay);
    fs::create_dir_all(rig.outside("lower/a")).expect("a directory");
    fs::write(rig.outside("lower/a/old"), "lower\n").expect("a file");
    fs::remove_dir_all(upper.join("work")).expect("the work directory");
    // The directory was made above nothing: its layer below is hidden until this mark goes.
    shell(&upper.join("upper/a"), "setfattr -x trusted.overlay.opaque . || :").ok();
    let _overlay = Overlay::new(&upper, &lower);
    rig.mount_in(io);
    assert_eq!(shell(&rig.mountpoint(), "cat old; echo upper >> old; cat old").ok(), "lower\nlower\nupper\n");
    assert_eq!(fs::read(rig.outside("lower/a/old")).expect("the lower file"), b"lower\n");
    rig.umount();
}

fn disks_on_an_overlay_of_an_overlay_work_through_the_daemon(io: Io) {
    let mut rig = Rig::bare();
    let (lower, uppers) = (rig.outside("lower"), ["t1", "t2"].map(|name| rig.tmpfs(name, "64M")));
    fs::create_dir(&lower).expect("a directory");
    let first = Overlay::new(&uppers[0], &lower);
    let second = Overlay::new(&uppers[1], &first.0);
    over(&mut rig, &[&second.0]);
    // The kernel stacks two file systems and no third one: it refuses each file.
    check(&mut rig, io, Io::Daemon);
    drop(second);
    drop(first);
}

fn disks_on_another_fuse_mount_work(io: Io) {
    let below = Rig::mounted(2, io);
    let mut rig = Rig::bare();
    over(&mut rig, &[&below.mountpoint()]);
    check(&mut rig, io, io);
}
