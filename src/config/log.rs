//! Where the daemon's messages go.
//!
//! `log=stderr` and `log=PATH` say it; without `log` they go to stderr while somebody is there to read it (in the
//! foreground, and under systemd, where stderr is the journal), otherwise to
//! `/var/log/kvspan/<escaped mount point>.log` if that can be made, and else nowhere.

use std::fs::{DirBuilder, File, OpenOptions};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::OFlags;

use super::escape;
use crate::error::SetupError;

const LOG_DIR: &str = "/var/log/kvspan";

/// The value of the option `log`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum LogTarget {
    /// Not given.
    #[default]
    Auto,
    /// `log=stderr`.
    Stderr,
    /// `log=PATH`, made absolute; messages are appended.
    File(PathBuf),
}

/// An opened log.
#[derive(Debug)]
pub enum LogSink {
    Stderr,
    /// Opened for appending.
    File(File),
    Nowhere,
}

impl LogTarget {
    /// Whether messages go to stderr.
    pub fn is_stderr(&self, stderr_stays: bool) -> bool {
        stderr_stays && matches!(self, LogTarget::Auto | LogTarget::Stderr)
    }

    /// Opens the log. `stderr_stays` is true in the foreground and under systemd.
    ///
    /// A path that was asked for and cannot be opened is an error; the default file is not, it is only left out.
    pub fn open(&self, mountpoint: &Path, stderr_stays: bool) -> Result<LogSink, SetupError> {
        match self {
            LogTarget::Auto if stderr_stays => Ok(LogSink::Stderr),
            LogTarget::Auto => Ok(match open_default(mountpoint) {
                Ok(file) => LogSink::File(file),
                Err(_) => LogSink::Nowhere,
            }),
            LogTarget::Stderr if stderr_stays => Ok(LogSink::Stderr),
            LogTarget::Stderr => Err(SetupError::Usage(
                "option 'log' cannot be 'stderr': a daemon in the background has none; use -f or log=PATH".to_string(),
            )),
            LogTarget::File(path) => {
                append(path).map(LogSink::File).map_err(|source| SetupError::io("open the log", path, source))
            }
        }
    }
}

/// The file that messages go to when nothing else is said.
pub fn default_path(mountpoint: &Path) -> PathBuf {
    let mut name = escape::file_name_of_path(mountpoint.as_os_str().as_bytes());
    // A file name has at most 255 bytes; an escaped path is ASCII, so any index is a boundary.
    name.truncate(250);
    Path::new(LOG_DIR).join(format!("{name}.log"))
}

fn open_default(mountpoint: &Path) -> io::Result<File> {
    // Modes are not left to a umask: who can write here could have the daemon write elsewhere.
    DirBuilder::new().recursive(true).mode(0o755).create(LOG_DIR)?;
    let nofollow = OFlags::NOFOLLOW.bits().cast_signed();
    OpenOptions::new().append(true).create(true).mode(0o644).custom_flags(nofollow).open(default_path(mountpoint))
}

fn append(path: &Path) -> io::Result<File> {
    // Not waiting for who would read a FIFO.
    let nonblock = OFlags::NONBLOCK.bits().cast_signed();
    OpenOptions::new().append(true).create(true).mode(0o644).custom_flags(nonblock).open(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_file_is_named_after_the_mount_point() {
        let path = default_path(Path::new("/mnt/kv-1"));
        assert_eq!(path, Path::new(r"/var/log/kvspan/mnt-kv\x2d1.log"));
        let long = default_path(Path::new(&format!("/{}", "é".repeat(300))));
        assert!(long.file_name().is_some_and(|name| name.len() <= 255));
    }

    #[test]
    fn stderr_needs_a_reader() {
        let open = |stays| LogTarget::Stderr.open(Path::new("/m"), stays);
        assert!(matches!(open(true), Ok(LogSink::Stderr)));
        assert_eq!(open(false).map_err(|e| e.exit_code()).err(), Some(2));
    }
}
