//! `kvspan umount`: the mount taken away, then the daemon's end waited for.
//!
//! The mount is looked up in mountinfo and never touched before it is known to answer: a daemon that hangs must not
//! make the command that gets rid of it hang too.

use std::ffi::OsStr;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use rustix::io::Errno;
use rustix::mount::{UnmountFlags, unmount};
use rustix::process::{Pid, PidfdFlags, geteuid, pidfd_open};

use super::{UmountArgs, holders, out, process, status};
use crate::config::Config;
use crate::error::{SetupError, shell_word};
use crate::procfs;
use crate::procfs::mountinfo::{self, FS_TYPE, Mount};

/// How long a daemon may take to answer before it counts as hung.
const ANSWER_BOUND: Duration = Duration::from_secs(5);
/// How long its end is waited for: well above every sensible `stop_timeout`.
const END_BOUND: Duration = Duration::from_secs(60);

/// What is known of the daemon before its mount is taken away.
enum Daemon {
    Alive {
        pid: u32,
        pidfd: OwnedFd,
    },
    /// It answers, and is already going or cannot be seen from here.
    OutOfSight {
        pid: u32,
    },
    Dead,
    Hung,
}

/// Carries out the command.
pub fn run(args: &UmountArgs) -> Result<(), SetupError> {
    let mount = find_mount(&where_mounted(&args.mountpoint)?)?;
    let daemon = look_at(&mount);
    let mountpoint = mount.mountpoint;
    match take_away(&mountpoint, false) {
        Ok(()) => wait(&mountpoint, &daemon),
        Err(error) if is_busy(&error) => {
            if !args.lazy {
                return Err(busy(&mountpoint, &daemon));
            }
            take_away(&mountpoint, true).map_err(|error| failed(&mountpoint, error))?;
            note_lazy(&mountpoint, &daemon);
            Ok(())
        }
        Err(error) => Err(failed(&mountpoint, error)),
    }
}

/// A TOML file stands for the mount point that it names.
fn where_mounted(given: &Path) -> Result<PathBuf, SetupError> {
    // The mount point itself may hang: what is no file by its name is not looked at.
    if given.extension() != Some(OsStr::new("toml")) || !given.is_file() {
        return Ok(given.to_path_buf());
    }
    Config::load(given.as_os_str(), None, &[]).map(|config| config.mountpoint)
}

/// The mount as mountinfo has it, if a volume of ours is what it shows.
pub(super) fn find_mount(given: &Path) -> Result<Mount, SetupError> {
    let table = |source| SetupError::io("read", Path::new("/proc/self/mountinfo"), source);
    let mounts = mountinfo::read().map_err(table)?;
    let path = mountinfo::resolve(given, &mounts).map_err(|source| SetupError::io("find", given, source))?;
    match mountinfo::topmost(&mounts, &path) {
        Some(mount) if mount.fs_type == FS_TYPE => Ok(mount.clone()),
        Some(mount) => Err(SetupError::NotKvspan {
            path,
            detail: format!("; a file system of type {} is mounted there", mount.fs_type),
        }),
        None => Err(SetupError::NotMounted { path }),
    }
}

fn look_at(mount: &Mount) -> Daemon {
    let seen = mount.connection().and_then(|connection| {
        let pid = procfs::fuse_server(connection)?;
        let pidfd = open_pidfd(pid)?;
        // Looked at again: the pid may have been used again before it was held.
        let same = procfs::is_fuse_server(pid, connection);
        same.then_some(Daemon::Alive { pid, pidfd })
    });
    seen.unwrap_or_else(|| ask(&mount.mountpoint))
}

/// Asks the daemon for its pid, where the kernel does not tell who it is.
fn ask(mountpoint: &Path) -> Daemon {
    if !answers(mountpoint) {
        return Daemon::Hung;
    }
    let now = procfs::now_ticks();
    let pid = match status::fetch(mountpoint) {
        Ok(status) => status.pid,
        Err(SetupError::DeadMount { .. }) => return Daemon::Dead,
        Err(_) => return Daemon::Hung,
    };
    let pidfd = open_pidfd(pid);
    // The pid may be one of another pid namespace, or used again since the answer.
    let same = procfs::comm(pid).is_ok_and(|comm| comm == "kvspan")
        && procfs::start_ticks(pid).is_ok_and(|start| start <= now);
    match pidfd {
        Some(pidfd) if same => Daemon::Alive { pid, pidfd },
        _ => Daemon::OutOfSight { pid },
    }
}

fn open_pidfd(pid: u32) -> Option<OwnedFd> {
    let pid = Pid::from_raw(i32::try_from(pid).ok()?)?;
    pidfd_open(pid, PidfdFlags::empty()).ok()
}

/// Lets another process ask first: one that is stuck in a hung mount may not be able to end.
fn answers(mountpoint: &Path) -> bool {
    let child = process::this_program()
        .args(["status", "--json", "--"])
        .arg(mountpoint)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn();
    let Ok(mut child) = child else {
        return false;
    };
    let ended = pidfd_open(Pid::from_child(&child), PidfdFlags::empty())
        .and_then(|pidfd| process::wait_for_end(&pidfd, ANSWER_BOUND));
    if ended == Ok(true) {
        let _ = child.wait();
        return true;
    }
    let _ = child.kill();
    false
}

fn take_away(mountpoint: &Path, lazy: bool) -> io::Result<()> {
    if geteuid().is_root() {
        let mut flags = UnmountFlags::NOFOLLOW;
        if lazy {
            flags |= UnmountFlags::DETACH;
        }
        match unmount(mountpoint, flags) {
            // Root of a user namespace that did not make the mount.
            Err(Errno::PERM) => {}
            result => return Ok(result?),
        }
    }
    let output = Command::new("fusermount3")
        .env("LC_ALL", "C")
        .arg(if lazy { "-uz" } else { "-u" })
        .arg("--")
        .arg(mountpoint)
        .stdin(Stdio::null())
        .output()?;
    if output.status.success() {
        return Ok(());
    }
    let text = String::from_utf8_lossy(&output.stderr);
    if text.to_lowercase().contains("busy") {
        return Err(Errno::BUSY.into());
    }
    Err(io::Error::other(text.trim().to_string()))
}

fn is_busy(error: &io::Error) -> bool {
    error.raw_os_error() == Some(Errno::BUSY.raw_os_error())
}

fn busy(mountpoint: &Path, daemon: &Daemon) -> SetupError {
    if matches!(daemon, Daemon::Hung) {
        return SetupError::Failed(format!(
            "'{}' is busy and its daemon does not answer; run `kvspan umount --lazy {}`",
            mountpoint.display(),
            shell_word(mountpoint)
        ));
    }
    let mounts = mountinfo::read().unwrap_or_default();
    let found = holders::find(mountpoint);
    SetupError::Busy { path: mountpoint.to_path_buf(), holders: holders::report(mountpoint, &found, &mounts) }
}

fn failed(mountpoint: &Path, error: io::Error) -> SetupError {
    SetupError::io("unmount", mountpoint, error)
}

/// After a plain unmount: returns when the daemon has gone.
fn wait(mountpoint: &Path, daemon: &Daemon) -> Result<(), SetupError> {
    let shown = mountpoint.display();
    match daemon {
        Daemon::Alive { pid, pidfd } => match process::wait_for_end(pidfd, END_BOUND) {
            Ok(true) => Ok(()),
            Ok(false) => Err(SetupError::Failed(format!(
                "'{shown}' is unmounted, but its daemon with pid {pid} has not ended within {} s; look into its log",
                END_BOUND.as_secs()
            ))),
            Err(errno) => Err(SetupError::io("wait for the daemon of", mountpoint, errno)),
        },
        Daemon::OutOfSight { pid } => {
            out::note(&format!(
                "'{shown}' is unmounted; its daemon (pid {pid} where it runs) cannot be waited for from here"
            ));
            Ok(())
        }
        Daemon::Dead => {
            out::note(&format!("the daemon of '{shown}' had died; its mount has been taken away"));
            Ok(())
        }
        Daemon::Hung => Err(SetupError::Failed(format!(
            "'{shown}' is unmounted, but its daemon did not answer within {} s, so its end could not be waited for; look for a process named kvspan",
            ANSWER_BOUND.as_secs()
        ))),
    }
}

/// After a lazy unmount of a busy mount: nobody waits.
fn note_lazy(mountpoint: &Path, daemon: &Daemon) {
    let who = match daemon {
        Daemon::Alive { pid, .. } | Daemon::OutOfSight { pid } => {
            format!("the daemon with pid {pid} lives")
        }
        Daemon::Hung => "its daemon, which does not answer, lives".to_string(),
        Daemon::Dead => "its daemon had died; the mount lives".to_string(),
    };
    out::note(&format!("'{}' is busy and has been detached; {who} until the last user is gone", mountpoint.display()));
}
