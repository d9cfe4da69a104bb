//! What can stop a command or a start: one sentence for each case, and the exit code that goes with it.
//!
//! Every room above may return a [`SetupError`]; only `cli` prints one. Each sentence names the thing and,
//! where there is one, the way out. No locks, no I/O.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use rustix::io::Errno;
use uuid::Uuid;

/// Exit code of a command that failed.
pub const EXIT_FAILED: u8 = 1;
/// Exit code of a command line or a configuration that cannot be meant.
pub const EXIT_USAGE: u8 = 2;
/// Exit code of a mount that failed, as mount(8) has it.
pub const EXIT_MOUNT: u8 = 32;

/// Where an option was read: it goes into the sentence after the option's name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Origin {
    /// A `-o` argument.
    CommandLine,
    /// A line of a TOML file, counted from 1.
    File { path: PathBuf, line: usize },
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Origin::CommandLine => Ok(()),
            Origin::File { path, line } => write!(f, " in '{}', line {line},", path.display()),
        }
    }
}

/// A label that is there and cannot be used. Each case holds the path of what is wrong.
#[derive(Debug, thiserror::Error)]
pub enum LabelProblem {
    /// `.kvspan` is a file, a symlink or something else.
    #[error("'{}' is not a directory; move it away and label the disk again with `kvspan init`", .path.display())]
    NotADirectory { path: PathBuf },
    /// `label.json` is a directory, a symlink, a FIFO or a device.
    #[error("'{}' is not a regular file; move it away and label the disk again with `kvspan init`", .path.display())]
    NotARegularFile { path: PathBuf },
    /// More bytes than any label has.
    #[error("label '{}' has {size_bytes} bytes, more than a label can have; restore it from a copy, or move it away and label the disk again with `kvspan init`", .path.display())]
    TooLarge { path: PathBuf, size_bytes: u64 },
    /// Empty, zeroed, cut off or not a label at all.
    #[error("label '{}' is damaged ({reason}); restore it from a copy, or move it away and label the disk again with `kvspan init`", .path.display())]
    Damaged { path: PathBuf, reason: String },
    /// Written by a later kvspan.
    #[error("label '{}' has format {format}, and this kvspan knows only format {known}; use the kvspan that wrote it or a later one", .path.display())]
    NewerFormat { path: PathBuf, format: u64, known: u64 },
    /// The system refused to open or read it.
    #[error("cannot read label '{}': {}", .path.display(), errno_text(*.errno))]
    Unreadable { path: PathBuf, errno: Errno },
}

/// Why a command cannot do what was asked.
#[derive(Debug, thiserror::Error)]
pub enum SetupError {
    // ---- usage: exit 2
    /// No option has that name. `hint` is empty or begins with `;`.
    #[error("option '{name}'{origin} is not known{hint}")]
    UnknownOption { name: String, origin: Origin, hint: String },
    /// An option cannot have that value. `reason` says what can be written.
    #[error("option '{name}'{origin} cannot be '{value}': {reason}")]
    BadValue { name: String, value: String, origin: Origin, reason: String },
    /// Something else in the arguments or the configuration; the sentence is complete.
    #[error("{0}")]
    Usage(String),
    /// The TOML file is not TOML, or not one of kvspan's.
    #[error("'{}', line {line}: {reason}", .path.display())]
    ConfigFile { path: PathBuf, line: usize, reason: String },

    // ---- disks: exit 1, or 32 in a mount
    #[error(transparent)]
    Label(#[from] LabelProblem),
    #[error("'{}' is not a directory; a disk of a volume is a directory", .path.display())]
    NotADirectory { path: PathBuf },
    #[error("'{}' cannot be written ({reason}); make it writable for this user first", .path.display())]
    NotWritable { path: PathBuf, reason: String },
    #[error("'{}' and '{}' are the same directory; name it once", .first.display(), .second.display())]
    SameDirectory { first: PathBuf, second: PathBuf },
    #[error("'{}' lies inside the disk '{}'; disks must not contain each other", .inner.display(), .outer.display())]
    Nested { inner: PathBuf, outer: PathBuf },
    #[error("disk '{}' lies inside the mount point '{}'; mount the volume elsewhere", .disk.display(), .mountpoint.display())]
    DiskInsideMount { disk: PathBuf, mountpoint: PathBuf },
    #[error("mount point '{}' lies inside the disk '{}'; mount the volume elsewhere", .mountpoint.display(), .disk.display())]
    MountInsideDisk { disk: PathBuf, mountpoint: PathBuf },
    #[error("'{}' is a disk of volume {found}, not of volume {wanted}; leave it out, or name its own volume", .path.display())]
    OtherVolume { path: PathBuf, found: Uuid, wanted: Uuid },
    #[error("'{}' is a disk of volume {first_volume} and '{}' one of volume {second_volume}; name disks of one volume only", .first.display(), .second.display())]
    TwoVolumes { first: PathBuf, first_volume: Uuid, second: PathBuf, second_volume: Uuid },
    #[error("'{}' and '{}' have the same disk id {disk_id}, so one is a copy of the other; leave one out", .first.display(), .second.display())]
    SameDiskId { first: PathBuf, second: PathBuf, disk_id: Uuid },
    #[error("'{}' has no label, so it may be a disk that is not mounted; if it is to be a disk of this volume, run `{}`", .path.display(), init_command(.path, *.volume))]
    NoLabel {
        path: PathBuf,
        /// The volume of the other disks, if one of them is labelled.
        volume: Option<Uuid>,
    },
    #[error("disk '{}' is in use by {}; unmount that volume first", .path.display(), process_text(*.pid))]
    InUse { path: PathBuf, pid: Option<u32> },
    #[error(
        "only {present} of {configured} disks are there and require={require} asks for more; bring them back or lower 'require' ({missing})"
    )]
    NotEnoughDisks {
        present: usize,
        configured: usize,
        require: String,
        /// `'/a': reason; '/b': reason`.
        missing: String,
    },

    // ---- mounts
    /// The mount itself failed; the sentence is complete.
    #[error("{0}")]
    Mount(String),
    #[error("nothing is mounted on '{}'", .path.display())]
    NotMounted { path: PathBuf },
    #[error("'{}' is not a kvspan mount point{detail}", .path.display())]
    NotKvspan { path: PathBuf, detail: String },
    #[error("the daemon of '{}' has died; take the mount away with `kvspan umount {}`", .path.display(), shell_word(.path))]
    DeadMount { path: PathBuf },
    /// The holders are in `holders`, a line each, each line begun with a line feed.
    #[error("'{}' is busy; end what uses it or run `kvspan umount --lazy {}`{holders}", .path.display(), shell_word(.path))]
    Busy { path: PathBuf, holders: String },

    // ---- the rest
    #[error("cannot {what} '{}': {}", .path.display(), io_text(.source))]
    Io { what: &'static str, path: PathBuf, source: io::Error },
    /// A command failed in a way of its own; the sentence is complete.
    #[error("{0}")]
    Failed(String),
    /// The parent's share of a background mount: the daemon said why, and with which exit code.
    #[error("{message}")]
    Daemon { message: String, code: u8 },
    /// Everything has been said elsewhere.
    #[error("it has been said elsewhere")]
    Quiet { code: u8 },
    /// Nobody reads our standard output any more: said to nobody, exit 0.
    #[error("nobody reads the output")]
    PipeClosed,
}

impl SetupError {
    /// The exit code of a command that ends with this error: 1 failed, 2 usage, 32 mount failed.
    pub fn exit_code(&self) -> u8 {
        match self {
            SetupError::UnknownOption { .. }
            | SetupError::BadValue { .. }
            | SetupError::Usage(_)
            | SetupError::ConfigFile { .. } => EXIT_USAGE,
            SetupError::Mount(_) => EXIT_MOUNT,
            SetupError::Daemon { code, .. } | SetupError::Quiet { code } => *code,
            SetupError::PipeClosed => 0,
            _ => EXIT_FAILED,
        }
    }

    /// The exit code of `kvspan mount`: whatever keeps a mount from being made, usage apart, is 32.
    pub fn mount_exit_code(&self) -> u8 {
        match self.exit_code() {
            EXIT_FAILED => EXIT_MOUNT,
            code => code,
        }
    }

    /// Shorthand for [`SetupError::Io`]; `what` completes "cannot ... 'path'".
    pub fn io(what: &'static str, path: &Path, source: impl Into<io::Error>) -> SetupError {
        SetupError::Io { what, path: path.to_path_buf(), source: source.into() }
    }
}

/// The system's text for an error without Rust's "(os error N)".
pub fn io_text(error: &io::Error) -> String {
    let text = error.to_string();
    match text.rfind(" (os error ") {
        Some(end) => text[..end].to_string(),
        None => text,
    }
}

/// [`io_text`] for a bare errno.
pub fn errno_text(errno: Errno) -> String {
    io_text(&io::Error::from(errno))
}

/// A path as one word of a shell command, for the commands that sentences propose.
pub fn shell_word(path: &Path) -> String {
    let text = path.display().to_string();
    let plain = |c: char| c.is_alphanumeric() || "/._-+:@%,=".contains(c);
    if !text.is_empty() && !text.starts_with('-') && text.chars().all(plain) {
        return text;
    }
    format!("'{}'", text.replace('\'', r"'\''"))
}

fn init_command(path: &Path, volume: Option<Uuid>) -> String {
    match volume {
        Some(volume) => format!("kvspan init --volume {volume} {}", shell_word(path)),
        None => format!("kvspan init {}", shell_word(path)),
    }
}

fn process_text(pid: Option<u32>) -> String {
    match pid {
        Some(pid) => format!("the daemon with pid {pid}"),
        None => "another daemon".to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exit_codes_follow_mount8() {
        let usage = SetupError::Usage("x".into());
        let no_label = SetupError::NoLabel { path: "/a b".into(), volume: None };
        assert_eq!((usage.exit_code(), usage.mount_exit_code()), (2, 2));
        assert_eq!((no_label.exit_code(), no_label.mount_exit_code()), (1, 32));
        assert!(no_label.to_string().contains("`kvspan init '/a b'`"));
    }

    #[test]
    fn system_texts_have_no_number() {
        assert_eq!(errno_text(Errno::NOENT), "No such file or directory");
    }
}
