//! One daemon a disk: an exclusive `flock` on `.kvspan/lock`.
//!
//! The file holds the daemon's pid and start time (`/proc/PID/stat`, clock ticks since boot) for the sentence that
//! a second daemon prints. What it says is never trusted; the lock is the kernel's.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use rustix::fs::{
    AtFlags, FileType, FlockOperation, Mode, OFlags, ResolveFlags, flock, fstat, ftruncate, openat2, statat,
};
use rustix::io::Errno;

use super::label::open_kvspan_dir;
use super::{KVSPAN_DIR, LOCK_FILE};
use crate::error::SetupError;
use crate::procfs;

/// How long a daemon that is ending may take to let go.
const ENDING_PATIENCE: Duration = Duration::from_secs(3);

/// Locks the labelled disk whose directory is `dir`, until the returned descriptor is closed.
///
/// On a disk that cannot be written the lock file is opened as it is; if there is none, `.kvspan` itself is locked.
pub fn lock_disk(dir: BorrowedFd<'_>, disk: &Path) -> Result<OwnedFd, SetupError> {
    let path = disk.join(KVSPAN_DIR).join(LOCK_FILE);
    let fail = |errno: Errno| SetupError::io("lock", &path, errno);
    let kvspan = open_kvspan_dir(dir, disk)?.ok_or_else(|| fail(Errno::NOENT))?;
    let patience = Instant::now() + ENDING_PATIENCE;
    loop {
        let (fd, writable) = match open_lock(kvspan.as_fd()) {
            Ok(fd) => (fd, true),
            Err(Errno::ROFS | Errno::ACCESS | Errno::PERM) => match open_existing(kvspan.as_fd()) {
                Ok(fd) => (fd, false),
                Err(Errno::NOENT) => return lock_directory(kvspan, disk).map_err(fail_or(&path)),
                Err(errno) => return Err(fail(errno)),
            },
            Err(errno) => return Err(fail(errno)),
        };
        let stat = fstat(&fd).map_err(fail)?;
        if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
            return Err(SetupError::Failed(format!("'{}' is not a regular file; take it away", path.display())));
        }
        match flock(&fd, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(Errno::WOULDBLOCK) => {
                let pid = holder(fd);
                // A daemon that was killed keeps its locks until its last thread has ended.
                if Instant::now() < patience && pid.is_none_or(procfs::is_ending) {
                    thread::sleep(Duration::from_millis(20));
                    continue;
                }
                return Err(in_use(disk, pid));
            }
            Err(errno) => return Err(fail(errno)),
        }
        // Another file may have been renamed to this name between the open and the lock.
        let named = statat(&kvspan, LOCK_FILE, AtFlags::SYMLINK_NOFOLLOW);
        if named.is_ok_and(|named| (named.st_dev, named.st_ino) == (stat.st_dev, stat.st_ino)) {
            if writable {
                sign(&fd).map_err(|error| SetupError::io("write", &path, error))?;
            }
            return Ok(fd);
        }
        if Instant::now() > patience {
            return Err(in_use(disk, None));
        }
    }
}

const INSIDE: ResolveFlags = ResolveFlags::BENEATH.union(ResolveFlags::NO_SYMLINKS);
const SAFE: OFlags = OFlags::NOFOLLOW.union(OFlags::CLOEXEC).union(OFlags::NONBLOCK).union(OFlags::NOCTTY);

fn open_lock(kvspan: BorrowedFd<'_>) -> Result<OwnedFd, Errno> {
    let flags = OFlags::RDWR | OFlags::CREATE | SAFE;
    openat2(kvspan, LOCK_FILE, flags, Mode::from_raw_mode(0o644), INSIDE)
}

fn open_existing(kvspan: BorrowedFd<'_>) -> Result<OwnedFd, Errno> {
    openat2(kvspan, LOCK_FILE, OFlags::RDONLY | SAFE, Mode::empty(), INSIDE)
}

fn lock_directory(kvspan: OwnedFd, disk: &Path) -> Result<OwnedFd, Result<SetupError, Errno>> {
    match flock(&kvspan, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(kvspan),
        Err(Errno::WOULDBLOCK) => Err(Ok(in_use(disk, None))),
        Err(errno) => Err(Err(errno)),
    }
}

fn fail_or(path: &Path) -> impl Fn(Result<SetupError, Errno>) -> SetupError {
    move |result| result.unwrap_or_else(|errno| SetupError::io("lock", path, errno))
}

fn in_use(disk: &Path, pid: Option<u32>) -> SetupError {
    SetupError::InUse { path: disk.to_path_buf(), pid }
}

/// Writes who holds the lock.
fn sign(fd: &OwnedFd) -> std::io::Result<()> {
    let pid = std::process::id();
    let start = procfs::start_ticks(pid).unwrap_or(0);
    ftruncate(fd, 0)?;
    let mut file = File::from(fd.try_clone()?);
    file.write_all(format!("{pid} {start}\n").as_bytes())
}

/// The pid in a lock file that somebody else holds, if the file says one.
fn holder(fd: OwnedFd) -> Option<u32> {
    let mut text = String::new();
    File::from(fd).take(64).read_to_string(&mut text).ok()?;
    text.split_ascii_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn a_second_daemon_is_refused_and_told_the_pid() {
        let disk = tempfile::tempdir().unwrap();
        fs::create_dir(disk.path().join(KVSPAN_DIR)).unwrap();
        let dir = File::open(disk.path()).unwrap();
        let lock = lock_disk(dir.as_fd(), disk.path()).unwrap();
        let refused = lock_disk(dir.as_fd(), disk.path()).unwrap_err().to_string();
        let pid = std::process::id();
        assert!(refused.contains(&format!("the daemon with pid {pid}")), "{refused}");
        drop(lock);
        assert!(lock_disk(dir.as_fd(), disk.path()).is_ok());
        let text = fs::read_to_string(disk.path().join(".kvspan/lock")).unwrap();
        let start = procfs::start_ticks(pid).unwrap();
        assert_eq!(text, format!("{pid} {start}\n"));
    }

    #[test]
    fn a_planted_lock_file_is_not_followed() {
        let disk = tempfile::tempdir().unwrap();
        let kvspan = disk.path().join(KVSPAN_DIR);
        fs::create_dir(&kvspan).unwrap();
        let victim = disk.path().join("victim");
        fs::write(&victim, "precious").unwrap();
        std::os::unix::fs::symlink(&victim, kvspan.join(LOCK_FILE)).unwrap();
        let dir = File::open(disk.path()).unwrap();
        assert!(lock_disk(dir.as_fd(), disk.path()).is_err());
        assert_eq!(fs::read_to_string(&victim).unwrap(), "precious");
    }
}
