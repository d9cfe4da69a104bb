//! The disks of a volume at the start of a mount: opened, checked against each other, locked.
//!
//! What is not there is reported as missing; what is there and cannot be right stops the mount.

use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::io::Errno;
use uuid::Uuid;

use super::init::check_pair;
use super::label::{Label, read_label};
use super::lock::lock_disk;
use super::nesting::{Directory, check_apart};
use crate::config::Require;
use crate::error::{LabelProblem, SetupError, errno_text, io_text};
use crate::procfs::mountinfo;

/// A configured disk when the mount begins.
#[derive(Debug)]
pub enum DiskAtStart {
    Present(OpenDisk),
    Missing(MissingDisk),
}

/// A disk that is there, checked and locked.
#[derive(Debug)]
pub struct OpenDisk {
    /// As configured.
    pub path: PathBuf,
    pub disk_id: Uuid,
    pub volume_id: Uuid,
    pub label: Label,
    /// The disk's directory, opened for reading (not `O_PATH`), so that it can be listed and synced.
    pub dir: OwnedFd,
    /// Holds the lock while it is open.
    pub lock: OwnedFd,
}

/// A disk that is not there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MissingDisk {
    /// As configured.
    pub path: PathBuf,
    /// The system's text.
    pub reason: String,
}

/// A configured disk on the way: its directory and its label, or why it is missing.
type Candidate = Result<(Directory, Option<Label>), MissingDisk>;

/// Opens the disks of one volume, which is to be mounted on `mountpoint`. The result has the order of `paths`.
///
/// The mount point itself is not touched if something is mounted there already.
pub fn open_disks(paths: &[PathBuf], mountpoint: &Path) -> Result<Vec<DiskAtStart>, SetupError> {
    let candidates = paths.iter().map(|path| approach(path)).collect::<Result<Vec<Candidate>, _>>()?;
    let there: Vec<&(Directory, Option<Label>)> = candidates.iter().flatten().collect();
    let directories: Vec<&Directory> = there.iter().map(|(directory, _)| directory).collect();
    check_apart(&directories)?;
    check_mountpoint(&directories, mountpoint)?;
    check_labels(&there)?;
    candidates.into_iter().map(take).collect()
}

/// Fails unless the disks that are there satisfy `require`.
pub fn check_require(disks: &[DiskAtStart], require: Require) -> Result<(), SetupError> {
    let missing: Vec<String> = disks
        .iter()
        .filter_map(|disk| match disk {
            DiskAtStart::Present(_) => None,
            DiskAtStart::Missing(disk) => Some(format!("'{}': {}", disk.path.display(), disk.reason)),
        })
        .collect();
    let present = disks.len() - missing.len();
    if require.is_met(present, disks.len()) {
        return Ok(());
    }
    Err(SetupError::NotEnoughDisks {
        present,
        configured: disks.len(),
        require: require.to_string(),
        missing: missing.join("; "),
    })
}

/// Opens the directory and reads the label.
fn approach(path: &Path) -> Result<Candidate, SetupError> {
    let missing = |errno| Ok(Err(MissingDisk { path: path.to_path_buf(), reason: errno_text(errno) }));
    let directory = match Directory::open(path) {
        Ok(directory) => directory,
        Err(errno) if errno == Errno::NOENT || is_absent(errno) => return missing(errno),
        Err(Errno::NOTDIR) => {
            return Err(SetupError::NotADirectory { path: path.to_path_buf() });
        }
        Err(errno) => return Err(SetupError::io("open the disk", path, errno)),
    };
    match read_label(directory.fd.as_fd(), path) {
        Ok(label) => Ok(Ok((directory, label))),
        Err(LabelProblem::Unreadable { errno, .. }) if is_absent(errno) => missing(errno),
        Err(problem) => Err(problem.into()),
    }
}

/// What a dead, unplugged or shut-down disk answers.
fn is_absent(errno: Errno) -> bool {
    matches!(
        errno,
        Errno::IO
            | Errno::NXIO
            | Errno::NODEV
            | Errno::UCLEAN
            | Errno::STALE
            | Errno::SHUTDOWN
            | Errno::NOMEDIUM
            | Errno::NOTCONN
            | Errno::TIMEDOUT
    )
}

/// All labelled, all of one volume, no disk id twice.
fn check_labels(disks: &[&(Directory, Option<Label>)]) -> Result<(), SetupError> {
    let volume = disks.iter().find_map(|(_, label)| Some(label.as_ref()?.volume_id));
    let mut labelled: Vec<(&Path, &Label)> = Vec::new();
    for (directory, label) in disks {
        let path = directory.path.as_path();
        let Some(label) = label else {
            return Err(SetupError::NoLabel { path: path.to_path_buf(), volume });
        };
        for (first, first_label) in &labelled {
            check_pair(first, first_label, path, label)?;
        }
        labelled.push((path, label));
    }
    Ok(())
}

/// The mount must not hide a disk, and no disk may hold the mount.
fn check_mountpoint(disks: &[&Directory], mountpoint: &Path) -> Result<(), SetupError> {
    let mounts = mountinfo::read().unwrap_or_default();
    // A mount point that is not there has nothing in it; that it is not there is for the mount to say.
    let Ok(real_mountpoint) = mountinfo::resolve(mountpoint, &mounts) else {
        return Ok(());
    };
    for disk in disks {
        let real_disk = disk.path.canonicalize().map_err(|source| SetupError::io("resolve", &disk.path, source))?;
        if real_disk.starts_with(&real_mountpoint) {
            return Err(SetupError::DiskInsideMount { disk: disk.path.clone(), mountpoint: mountpoint.to_path_buf() });
        }
        if real_mountpoint.starts_with(&real_disk) {
            return Err(SetupError::MountInsideDisk { disk: disk.path.clone(), mountpoint: mountpoint.to_path_buf() });
        }
    }
    Ok(())
}

/// Locks a disk that has passed all checks.
fn take(candidate: Candidate) -> Result<DiskAtStart, SetupError> {
    let (directory, label) = match candidate {
        Ok((directory, Some(label))) => (directory, label),
        Ok((directory, None)) => {
            return Err(SetupError::NoLabel { path: directory.path, volume: None });
        }
        Err(missing) => return Ok(DiskAtStart::Missing(missing)),
    };
    match lock_disk(directory.fd.as_fd(), &directory.path) {
        Ok(lock) => Ok(DiskAtStart::Present(OpenDisk {
            path: directory.path,
            disk_id: label.disk_id,
            volume_id: label.volume_id,
            label,
            dir: directory.fd,
            lock,
        })),
        Err(SetupError::Io { source, .. }) if Errno::from_io_error(&source).is_some_and(is_absent) => {
            Ok(DiskAtStart::Missing(MissingDisk { path: directory.path, reason: io_text(&source) }))
        }
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::volume::identity::init;
    use std::fs;

    struct Lab {
        root: tempfile::TempDir,
        volume: Uuid,
    }

    impl Lab {
        fn new(disks: &[&str]) -> Lab {
            let root = tempfile::tempdir().unwrap();
            let mut lab = Lab { root, volume: Uuid::nil() };
            fs::create_dir(lab.path("mnt")).unwrap();
            let paths: Vec<PathBuf> = disks.iter().map(|name| lab.make(name)).collect();
            lab.volume = init(&paths, None).unwrap().volume_id;
            lab
        }

        fn path(&self, name: &str) -> PathBuf {
            self.root.path().join(name)
        }

        fn make(&self, name: &str) -> PathBuf {
            fs::create_dir_all(self.path(name)).unwrap();
            self.path(name)
        }

        fn open(&self, disks: &[&str], mountpoint: &str) -> Result<Vec<DiskAtStart>, String> {
            let paths: Vec<PathBuf> = disks.iter().map(|name| self.path(name)).collect();
            let root = self.root.path().display().to_string();
            open_disks(&paths, &self.path(mountpoint)).map_err(|error| error.to_string().replace(&root, ""))
        }
    }

    #[test]
    fn disks_come_in_order_and_locked() {
        let lab = Lab::new(&["a", "b"]);
        let disks = lab.open(&["b", "gone", "a"], "mnt").unwrap();
        let words: Vec<String> = disks
            .iter()
            .map(|disk| match disk {
                DiskAtStart::Present(disk) => disk.path.display().to_string(),
                DiskAtStart::Missing(disk) => disk.reason.clone(),
            })
            .collect();
        let path = |name: &str| lab.path(name).display().to_string();
        assert_eq!(words, [path("b"), "No such file or directory".to_string(), path("a")]);
        let refused = lab.open(&["a"], "mnt").unwrap_err();
        let pid = std::process::id();
        assert_eq!(refused, format!("disk '/a' is in use by the daemon with pid {pid}; unmount that volume first"));
        assert!(check_require(&disks, Require::Any).is_ok());
        let short = check_require(&disks, Require::All).unwrap_err().to_string();
        assert!(short.starts_with("only 2 of 3 disks are there and require=all"), "{short}");
        drop(disks);
        assert!(lab.open(&["a"], "mnt").is_ok());
    }

    #[test]
    fn a_directory_without_a_label_is_refused_with_the_command() {
        let lab = Lab::new(&["a"]);
        lab.make("new");
        let refused = lab.open(&["a", "new"], "mnt").unwrap_err();
        let command = format!("`kvspan init --volume {} /new`", lab.volume);
        assert!(refused.contains(&command), "{refused}");
    }

    #[test]
    fn what_cannot_be_right_is_refused() {
        let lab = Lab::new(&["a", "b"]);
        init(&[lab.make("other")], None).unwrap();
        fs::write(lab.path("file"), "").unwrap();
        lab.make("a/sub");
        lab.make("copy/.kvspan");
        fs::copy(lab.path("a/.kvspan/label.json"), lab.path("copy/.kvspan/label.json")).unwrap();
        lab.make("a/sub/.kvspan");
        fs::copy(lab.path("b/.kvspan/label.json"), lab.path("a/sub/.kvspan/label.json")).unwrap();
        std::os::unix::fs::symlink(lab.path("a"), lab.path("link")).unwrap();
        let table: [(&[&str], &str, &str); 9] = [
            (&["a", "other"], "mnt", "is a disk of volume"),
            (&["a", "copy"], "mnt", "have the same disk id"),
            (&["a", "link"], "mnt", "'/a' and '/link' are the same directory"),
            (&["a", "a/sub"], "mnt", "'/a/sub' lies inside the disk '/a'"),
            (&["a/sub"], "mnt", "/a'; disks must not contain each other"),
            (&["file"], "mnt", "'/file' is not a directory"),
            (&["a"], "a/sub", "mount point '/a/sub' lies inside the disk '/a'"),
            (&["a"], "", "disk '/a' lies inside the mount point"),
            (&["a"], "link", "lies inside"),
        ];
        for (disks, mountpoint, part) in table {
            let refused = lab.open(disks, mountpoint).err().unwrap_or_default();
            assert!(refused.contains(part), "{disks:?} on {mountpoint}: {refused}");
        }
        assert!(lab.open(&["a", "b"], "mnt").is_ok(), "no lock may be left");
    }
}
