//! File systems of their own on loop devices, taken away with the test, also when it fails.

use std::path::{Path, PathBuf};
use std::process::Command;

/// A mounted file system over a sparse image.
pub struct LoopDisk {
    dir: tempfile::TempDir,
}

impl LoopDisk {
    /// Makes one with `mkfs.TYPE ARGS`. Needs root.
    pub fn new(size: &str, mkfs: &[&str]) -> LoopDisk {
        let dir = tempfile::Builder::new().prefix("kvspan-loop-").tempdir().expect("a temporary directory");
        let disk = LoopDisk { dir };
        run(Command::new("truncate").args(["-s", size]).arg(disk.image()));
        let (program, args) = mkfs.split_first().expect("a mkfs program");
        run(Command::new(program).args(args).arg(disk.image()));
        std::fs::create_dir(disk.path()).expect("a mount point");
        run(Command::new("mount").args(["-o", "loop"]).arg(disk.image()).arg(disk.path()));
        disk
    }

    pub fn ext4(size: &str, more: &[&str]) -> LoopDisk {
        LoopDisk::new(size, &[&["mkfs.ext4", "-q", "-F"], more].concat())
    }

    /// The root of the file system.
    pub fn path(&self) -> PathBuf {
        self.dir.path().join("disk")
    }

    /// The power goes: nothing more reaches the image, its log neither.
    pub fn cut(&self) {
        run(Command::new("xfs_io").args(["-x", "-c", "shutdown"]).arg(self.path()));
    }

    /// The power comes back. Nobody may have a file open.
    pub fn mount_again(&self) {
        run(Command::new("umount").arg(self.path()));
        run(Command::new("mount").args(["-o", "loop"]).arg(self.image()).arg(self.path()));
    }

    fn image(&self) -> PathBuf {
        self.dir.path().join("image")
    }
}

impl Drop for LoopDisk {
    fn drop(&mut self) {
        let umount = |option: &[&str]| Command::new("umount").args(option).arg(self.path()).status();
        if !umount(&[]).is_ok_and(|status| status.success()) {
            let _ = umount(&["-l"]);
        }
    }
}

/// A directory in the root of the file system, for a disk that is not the whole of it.
pub fn subdir(root: &Path, name: &str) -> PathBuf {
    let dir = root.join(name);
    std::fs::create_dir_all(&dir).expect("a directory");
    dir
}

fn run(command: &mut Command) {
    let output = command.output().expect("the program can be run");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {said} (these tests need root)");
}
