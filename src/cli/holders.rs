//! Who keeps a mount busy, as far as /proc shows it.
//!
//! Only links and text of /proc are read, never the mount. Processes of other users are seen by root alone, and
//! those of another mount namespace only if they see the mount under the same path.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use super::out;
use crate::procfs;
use crate::procfs::mountinfo::{self, Mount};

/// Lines of a report; more than that helps nobody.
const LINES_MAX: usize = 20;

/// A process with the first path below the mount that it holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Holder {
    pub pid: u32,
    pub comm: String,
    pub path: PathBuf,
}

/// The processes, this one excepted, that hold something at or below `mountpoint`.
pub fn find(mountpoint: &Path) -> Vec<Holder> {
    let holder = |pid: u32| {
        Some(Holder {
            pid,
            path: held_path(pid, mountpoint)?,
            comm: procfs::comm(pid).unwrap_or_else(|_| "?".to_string()),
        })
    };
    let others = procfs::pids().into_iter().filter(|pid| *pid != std::process::id());
    others.filter_map(holder).collect()
}

/// What is in the way, each line begun with a line feed: `pid comm path`, and mounts below the mount.
pub fn report(mountpoint: &Path, holders: &[Holder], mounts: &[Mount]) -> String {
    let mut lines: Vec<String> = holders
        .iter()
        .map(|holder| {
            let path = out::printable(&holder.path.display().to_string());
            format!("\n  {} {} {path}", holder.pid, out::printable(&holder.comm))
        })
        .collect();
    lines.extend(mountinfo::below(mounts, mountpoint).map(|mount| {
        let path = out::printable(&mount.mountpoint.display().to_string());
        format!("\n  a {} mount on {path}", out::printable(&mount.fs_type))
    }));
    if lines.is_empty() {
        return " (nobody who can be seen from here: look as root, and in other containers)".to_string();
    }
    let more = lines.len().saturating_sub(LINES_MAX);
    lines.truncate(LINES_MAX);
    if more > 0 {
        lines.push(format!("\n  and {more} more"));
    }
    lines.concat()
}

fn held_path(pid: u32, mountpoint: &Path) -> Option<PathBuf> {
    let process = PathBuf::from(format!("/proc/{pid}"));
    let links = ["cwd", "root", "exe"].map(|name| process.join(name));
    let fds = fs::read_dir(process.join("fd")).into_iter().flatten();
    let fds = fds.flatten().map(|entry| entry.path());
    links
        .into_iter()
        .chain(fds)
        .filter_map(|link| fs::read_link(link).ok())
        .find(|target| target.starts_with(mountpoint))
        .or_else(|| mapped_path(&fs::read(process.join("maps")).ok()?, mountpoint))
}

/// The first file below the mount in a /proc/PID/maps.
fn mapped_path(maps: &[u8], mountpoint: &Path) -> Option<PathBuf> {
    maps.split(|byte| *byte == b'\n').find_map(|line| {
        // Address, permissions, offset, device and inode hold no slash.
        let start = line.iter().position(|byte| *byte == b'/')?;
        let path = Path::new(OsStr::from_bytes(line.get(start..)?));
        path.starts_with(mountpoint).then(|| path.to_path_buf())
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    #[test]
    fn a_working_directory_holds() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().canonicalize().unwrap();
        assert_eq!(find(&path), []);
        let mut child = Command::new("sleep").arg("60").current_dir(&path).spawn().unwrap();
        let holders = find(&path);
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(holders.len(), 1);
        assert_eq!((holders[0].pid, &holders[0].path), (child.id(), &path));
        let report = report(&path, &holders, &[]);
        assert_eq!(report, format!("\n  {} sleep {}", child.id(), path.display()));
    }

    #[test]
    fn a_mapped_file_holds() {
        let maps = b"7f00-7f01 r-xp 00000000 00:2d 12    /usr/lib/a\n7f02-7f03 rw-p 0 0 0\n\
            7f04-7f05 r--s 00000000 00:2d 13       /mnt/kv/a b\n";
        assert_eq!(mapped_path(maps, Path::new("/mnt/kv")), Some("/mnt/kv/a b".into()));
        assert_eq!(mapped_path(maps, Path::new("/mnt/k")), None);
    }

    #[test]
    fn a_long_report_is_cut() {
        let holder = Holder { pid: 1, comm: "x".to_string(), path: "/m".into() };
        let report = report(Path::new("/m"), &vec![holder; 50], &[]);
        assert!(report.ends_with("\n  and 30 more"));
    }
}
