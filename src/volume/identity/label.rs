//! The label: read with distrust, written so that it is there whole or not at all.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::time::SystemTime;

use rustix::fs::{
    AtFlags, FileType, Mode, OFlags, RenameFlags, ResolveFlags, fstat, fsync, mkdirat, openat2, renameat,
    renameat_with, unlinkat,
};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::{KVSPAN_DIR, LABEL_FILE};
use crate::error::{LabelProblem, SetupError};

/// The format this kvspan writes, and the highest it reads.
pub const FORMAT: u64 = 1;
/// No label is longer.
pub const LABEL_BYTES_MAX: u64 = 64 * 1024;

const INSIDE: ResolveFlags = ResolveFlags::BENEATH.union(ResolveFlags::NO_SYMLINKS);

/// What makes a directory a disk of a volume.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Label {
    /// [`FORMAT`] or lower.
    pub format: u64,
    pub volume_id: Uuid,
    pub disk_id: Uuid,
    /// RFC 3339, UTC.
    pub created: String,
    /// Fields of a later kvspan, kept as they are.
    #[serde(flatten)]
    pub unknown: serde_json::Map<String, serde_json::Value>,
}

impl Label {
    /// A label for a disk that never had one.
    pub fn new(volume_id: Uuid) -> Label {
        Label {
            format: FORMAT,
            volume_id,
            disk_id: Uuid::new_v4(),
            created: humantime::format_rfc3339_seconds(SystemTime::now()).to_string(),
            unknown: serde_json::Map::new(),
        }
    }
}

/// Reads the label of the disk whose directory is `dir`. `disk` is its path, for messages only.
///
/// `Ok(None)` means that there is none; anything else that is not a sound label is a problem.
pub fn read_label(dir: BorrowedFd<'_>, disk: &Path) -> Result<Option<Label>, LabelProblem> {
    let Some(kvspan) = open_kvspan_dir(dir, disk)? else {
        return Ok(None);
    };
    let path = disk.join(KVSPAN_DIR).join(LABEL_FILE);
    let Some(file) = open_regular(kvspan.as_fd(), &path)? else {
        return Ok(None);
    };
    let mut bytes = Vec::new();
    file.take(LABEL_BYTES_MAX + 1)
        .read_to_end(&mut bytes)
        .map_err(|error| unreadable(&path, Errno::from_io_error(&error).unwrap_or(Errno::IO)))?;
    parse(&path, &bytes).map(Some)
}

/// Opens `.kvspan` of a disk, if it is there. It must be a directory, not a symlink to one.
pub(super) fn open_kvspan_dir(dir: BorrowedFd<'_>, disk: &Path) -> Result<Option<OwnedFd>, LabelProblem> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let path = || disk.join(KVSPAN_DIR);
    match openat2(dir, KVSPAN_DIR, flags, Mode::empty(), INSIDE) {
        Ok(fd) => Ok(Some(fd)),
        Err(Errno::NOENT) => Ok(None),
        Err(Errno::NOTDIR | Errno::LOOP) => Err(LabelProblem::NotADirectory { path: path() }),
        Err(errno) => Err(unreadable(&path(), errno)),
    }
}

/// Opens the label for reading. It is looked at before it is opened, so that no device or FIFO ever is.
fn open_regular(kvspan: BorrowedFd<'_>, path: &Path) -> Result<Option<File>, LabelProblem> {
    let open = |flags: OFlags| {
        let flags = flags | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        openat2(kvspan, LABEL_FILE, flags, Mode::empty(), INSIDE)
    };
    let not_regular = || LabelProblem::NotARegularFile { path: path.to_path_buf() };
    for flags in [OFlags::PATH, OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY] {
        let fd = match open(flags) {
            Ok(fd) => fd,
            Err(Errno::NOENT) => return Ok(None),
            Err(Errno::LOOP) => return Err(not_regular()),
            Err(errno) => return Err(unreadable(path, errno)),
        };
        let stat = fstat(&fd).map_err(|errno| unreadable(path, errno))?;
        if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
            return Err(not_regular());
        }
        let size_bytes = u64::try_from(stat.st_size).unwrap_or(u64::MAX);
        if size_bytes > LABEL_BYTES_MAX {
            return Err(LabelProblem::TooLarge { path: path.to_path_buf(), size_bytes });
        }
        if !flags.contains(OFlags::PATH) {
            return Ok(Some(File::from(fd)));
        }
    }
    Ok(None)
}

fn unreadable(path: &Path, errno: Errno) -> LabelProblem {
    LabelProblem::Unreadable { path: path.to_path_buf(), errno }
}

/// The format is looked at first: a later one may have other fields.
fn parse(path: &Path, bytes: &[u8]) -> Result<Label, LabelProblem> {
    let damaged = |reason: &str| LabelProblem::Damaged { path: path.to_path_buf(), reason: reason.to_string() };
    if bytes.is_empty() {
        return Err(damaged("it is empty"));
    }
    if bytes.iter().all(|byte| *byte == 0) {
        return Err(damaged("it holds only zeros"));
    }
    if bytes.len() as u64 > LABEL_BYTES_MAX {
        return Err(damaged("it grew while it was read"));
    }
    let value: serde_json::Value =
        serde_json::from_slice(bytes).map_err(|error| damaged(&format!("it is not JSON: {error}")))?;
    match value.get("format").and_then(serde_json::Value::as_u64) {
        Some(format) if format > FORMAT => {
            return Err(LabelProblem::NewerFormat { path: path.to_path_buf(), format, known: FORMAT });
        }
        Some(format) if format >= 1 => {}
        _ => return Err(damaged("it has no format number")),
    }
    let label: Label = serde_json::from_slice(bytes).map_err(|error| damaged(&error.to_string()))?;
    if label.volume_id.is_nil() || label.disk_id.is_nil() {
        return Err(damaged("one of its ids is zero"));
    }
    Ok(label)
}

/// What [`write_label`] has put on a disk, to be taken away again if a later disk fails.
#[derive(Debug)]
pub(super) struct Written<'a> {
    dir: BorrowedFd<'a>,
    made_kvspan_dir: bool,
    made_label: bool,
}

/// Writes a label where none is, whole or not at all. On failure nothing of it stays behind.
pub(super) fn write_label<'a>(dir: BorrowedFd<'a>, disk: &Path, label: &Label) -> Result<Written<'a>, SetupError> {
    let mut written = Written { dir, made_kvspan_dir: false, made_label: false };
    match written.write(disk, label) {
        Ok(()) => Ok(written),
        Err(error) => {
            written.undo();
            Err(error)
        }
    }
}

impl Written<'_> {
    fn write(&mut self, disk: &Path, label: &Label) -> Result<(), SetupError> {
        let path = disk.join(KVSPAN_DIR).join(LABEL_FILE);
        let fail = |errno: Errno| SetupError::io("write the label", &path, errno);
        match mkdirat(self.dir, KVSPAN_DIR, Mode::from_raw_mode(0o755)) {
            Ok(()) => self.made_kvspan_dir = true,
            Err(Errno::EXIST) => {}
            Err(errno) => return Err(fail(errno)),
        }
        let kvspan = open_kvspan_dir(self.dir, disk)?.ok_or_else(|| fail(Errno::NOENT))?;
        let temp = temp_name();
        let moved = write_temp(kvspan.as_fd(), &temp, label, &path)
            .and_then(|()| rename_new(kvspan.as_fd(), &temp).map_err(fail));
        if let Err(error) = moved {
            let _ = unlinkat(&kvspan, &*temp, AtFlags::empty());
            return Err(error);
        }
        self.made_label = true;
        fsync(&kvspan).map_err(fail)?;
        sync_directory(self.dir).map_err(fail)
    }

    /// Takes away what was written; an error on the way is left, for there is a first one to report.
    pub(super) fn undo(&self) {
        if self.made_label {
            let path = Path::new(KVSPAN_DIR).join(LABEL_FILE);
            let _ = unlinkat(self.dir, path, AtFlags::empty());
        }
        if self.made_kvspan_dir {
            let _ = unlinkat(self.dir, KVSPAN_DIR, AtFlags::REMOVEDIR);
        }
    }
}

fn temp_name() -> String {
    format!("{LABEL_FILE}.tmp.{}", Uuid::new_v4().simple())
}

fn write_temp(kvspan: BorrowedFd<'_>, temp: &str, label: &Label, path: &Path) -> Result<(), SetupError> {
    let fail = |error: std::io::Error| SetupError::io("write the label", path, error);
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let fd = openat2(kvspan, temp, flags, Mode::from_raw_mode(0o644), INSIDE).map_err(|errno| fail(errno.into()))?;
    let mut text = serde_json::to_vec(label).map_err(|error| fail(error.into()))?;
    text.push(b'\n');
    let mut file = File::from(fd);
    file.write_all(&text).map_err(fail)?;
    file.sync_all().map_err(fail)
}

/// Renames the temp file to the label, never over another one where the file system can promise that.
fn rename_new(kvspan: BorrowedFd<'_>, temp: &str) -> Result<(), Errno> {
    match renameat_with(kvspan, temp, kvspan, LABEL_FILE, RenameFlags::NOREPLACE) {
        Err(Errno::INVAL | Errno::NOSYS) => renameat(kvspan, temp, kvspan, LABEL_FILE),
        result => result,
    }
}

/// The disk's own directory, in which `.kvspan` is a new name.
fn sync_directory(dir: BorrowedFd<'_>) -> Result<(), Errno> {
    match fsync(dir) {
        // Some file systems cannot sync a directory; the label itself has been synced.
        Err(Errno::INVAL) => Ok(()),
        result => result,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::fs;
    use std::os::unix::fs::symlink;

    const GOOD: &str = r#"{"format":1,"volume_id":"6f1c1c64-0f43-4b6e-9a54-0c9a0f1d2e3f","disk_id":"0b0e1c64-0f43-4b6e-9a54-0c9a0f1d2e3f","created":"2026-11-30T00:00:00Z","weight":2}"#;

    fn read(disk: &Path) -> Result<Option<Label>, String> {
        let dir = File::open(disk).unwrap();
        read_label(dir.as_fd(), disk).map_err(|problem| {
            let disk = disk.display().to_string();
            problem.to_string().replace(&disk, "DISK")
        })
    }

    fn disk_with(content: &[u8]) -> tempfile::TempDir {
        let disk = tempfile::tempdir().unwrap();
        fs::create_dir(disk.path().join(KVSPAN_DIR)).unwrap();
        fs::write(disk.path().join(".kvspan/label.json"), content).unwrap();
        disk
    }

    #[test]
    fn unknown_fields_are_kept() {
        let disk = disk_with(GOOD.as_bytes());
        let label = read(disk.path()).unwrap().unwrap();
        assert_eq!(serde_json::to_string(&label).unwrap(), GOOD);
    }

    #[test]
    fn damaged_labels_are_problems() {
        let long = vec![b' '; 65 * 1024];
        let nil = GOOD.replace("6f1c1c64-0f43-4b6e-9a54-0c9a0f1d2e3f", &Uuid::nil().to_string());
        let newer = r#"{"format":2,"volume":"elsewhere"}"#;
        let table: [(&[u8], &str); 9] = [
            (b"", "it is empty"),
            (&[0; 300], "only zeros"),
            (&GOOD.as_bytes()[..80], "not JSON"),
            (b"[]", "no format number"),
            (br#"{"format":0}"#, "no format number"),
            (br#"{"format":1}"#, "missing field"),
            (nil.as_bytes(), "ids is zero"),
            (&long, "66560 bytes"),
            (newer.as_bytes(), "has format 2, and this kvspan knows only format 1"),
        ];
        for (content, part) in table {
            let disk = disk_with(content);
            let problem = read(disk.path()).unwrap_err();
            assert!(problem.contains(part), "{problem}");
            assert!(problem.contains("DISK/.kvspan/label.json"), "{problem}");
        }
    }

    #[test]
    fn only_a_regular_file_in_a_real_directory_is_read() {
        let good = disk_with(GOOD.as_bytes());
        let disk = tempfile::tempdir().unwrap();
        let kvspan = disk.path().join(KVSPAN_DIR);
        assert_eq!(read(disk.path()), Ok(None));

        symlink(good.path().join(KVSPAN_DIR), &kvspan).unwrap();
        assert!(read(disk.path()).unwrap_err().contains("DISK/.kvspan' is not a directory"));
        fs::remove_file(&kvspan).unwrap();
        fs::write(&kvspan, "").unwrap();
        assert!(read(disk.path()).unwrap_err().contains("is not a directory"));
        fs::remove_file(&kvspan).unwrap();
        fs::create_dir(&kvspan).unwrap();
        assert_eq!(read(disk.path()), Ok(None));

        let label = kvspan.join(LABEL_FILE);
        symlink(good.path().join(".kvspan/label.json"), &label).unwrap();
        assert!(read(disk.path()).unwrap_err().contains("is not a regular file"));
        fs::remove_file(&label).unwrap();
        fs::create_dir(&label).unwrap();
        assert!(read(disk.path()).unwrap_err().contains("is not a regular file"));
        fs::remove_dir(&label).unwrap();
        rustix::fs::mknodat(rustix::fs::CWD, &label, FileType::Fifo, Mode::RWXU, 0).unwrap();
        assert!(read(disk.path()).unwrap_err().contains("is not a regular file"));
    }

    #[test]
    fn a_label_is_written_once_and_taken_away_whole() {
        let disk = tempfile::tempdir().unwrap();
        let dir = File::open(disk.path()).unwrap();
        let label = Label::new(Uuid::new_v4());
        let written = write_label(dir.as_fd(), disk.path(), &label).unwrap();
        assert_eq!(read(disk.path()), Ok(Some(label.clone())));
        assert!(write_label(dir.as_fd(), disk.path(), &Label::new(Uuid::new_v4())).is_err());
        assert_eq!(read(disk.path()), Ok(Some(label)));
        let names = fs::read_dir(disk.path().join(KVSPAN_DIR)).unwrap().count();
        assert_eq!(names, 1);
        written.undo();
        assert_eq!(fs::read_dir(disk.path()).unwrap().count(), 0);
    }

    proptest! {
        #[test]
        fn parsing_never_panics(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            let _ = parse(Path::new("x"), &bytes);
        }

        #[test]
        fn a_damaged_label_never_panics(at in 0..GOOD.len(), byte in any::<u8>()) {
            let mut bytes = GOOD.as_bytes().to_vec();
            bytes[at] = byte;
            let _ = parse(Path::new("x"), &bytes);
        }
    }
}
