//! Directories by identity, and whether one lies inside another.
//!
//! Compared are device and inode of each directory on the way up, so a symlink in a path hides nothing.

use std::fs;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, fstat, open, openat, statat};
use rustix::io::Errno;

use super::{KVSPAN_DIR, LABEL_FILE};
use crate::error::SetupError;

/// No path is deeper; a loop on the way up ends here.
const DEPTH_MAX: usize = 4096;
/// How many entries of a new disk are looked at for disks inside it.
const ENTRIES_MAX: usize = 65_536;

/// Which directory it is, whatever its path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct DirId {
    dev: u64,
    ino: u64,
}

/// An opened directory with its path as given.
#[derive(Debug)]
pub(super) struct Directory {
    pub path: PathBuf,
    pub fd: OwnedFd,
    pub id: DirId,
}

impl Directory {
    /// Opens the directory at `path`. Symlinks on the way are followed: the user chose the path.
    pub fn open(path: &Path) -> Result<Directory, Errno> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let fd = open(path, flags, Mode::empty())?;
        let id = id_of(fd.as_fd())?;
        Ok(Directory { path: path.to_path_buf(), fd, id })
    }
}

fn id_of(fd: BorrowedFd<'_>) -> Result<DirId, Errno> {
    let stat = fstat(fd)?;
    Ok(DirId { dev: stat.st_dev, ino: stat.st_ino })
}

/// Refuses two names of one directory, a directory inside another of them, and one inside any labelled disk.
pub(super) fn check_apart(directories: &[&Directory]) -> Result<(), SetupError> {
    for (at, directory) in directories.iter().enumerate() {
        if let Some(first) = directories.iter().take(at).find(|other| other.id == directory.id) {
            return Err(SetupError::SameDirectory { first: first.path.clone(), second: directory.path.clone() });
        }
    }
    for directory in directories {
        check_ancestors(directory, directories)?;
    }
    Ok(())
}

fn check_ancestors(directory: &Directory, others: &[&Directory]) -> Result<(), SetupError> {
    let fail = |errno: Errno| SetupError::io("look above", &directory.path, errno);
    let nested = |outer: PathBuf| SetupError::Nested { inner: directory.path.clone(), outer };
    let mut child = directory.id;
    let mut below = directory.fd.try_clone().map_err(|error| SetupError::io("look above", &directory.path, error))?;
    for height in 1..DEPTH_MAX {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let parent = match openat(&below, "..", flags, Mode::empty()) {
            Ok(parent) => parent,
            // Above a directory that this user may not search nothing can be seen.
            Err(Errno::ACCESS) => return Ok(()),
            Err(errno) => return Err(fail(errno)),
        };
        let id = id_of(parent.as_fd()).map_err(fail)?;
        if id == child {
            return Ok(());
        }
        if let Some(outer) = others.iter().find(|other| other.id == id) {
            return Err(nested(outer.path.clone()));
        }
        if has_label(parent.as_fd()) {
            return Err(nested(path_above(&directory.path, height)));
        }
        (child, below) = (id, parent);
    }
    Ok(())
}

fn has_label(dir: BorrowedFd<'_>) -> bool {
    let label = Path::new(KVSPAN_DIR).join(LABEL_FILE);
    statat(dir, label, AtFlags::SYMLINK_NOFOLLOW).is_ok()
}

/// The path `height` directories up, for a message.
fn path_above(path: &Path, height: usize) -> PathBuf {
    let real = fs::canonicalize(path).unwrap_or_else(|_| path.to_path_buf());
    let above = real.ancestors().nth(height);
    above.unwrap_or(Path::new("/")).to_path_buf()
}

/// Refuses a directory that has a labelled disk right below it. Looks at the first 65,536 entries, no deeper.
pub(super) fn check_below(directory: &Directory) -> Result<(), SetupError> {
    let fail = |errno: Errno| SetupError::io("list", &directory.path, errno);
    let entries = Dir::read_from(&directory.fd).map_err(fail)?;
    for entry in entries.take(ENTRIES_MAX) {
        let entry = entry.map_err(fail)?;
        let name = entry.file_name();
        let kind = entry.file_type();
        let skipped = [c".", c".."].contains(&name) || name.to_bytes() == KVSPAN_DIR.as_bytes();
        if skipped || !matches!(kind, FileType::Directory | FileType::Unknown) {
            continue;
        }
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let Ok(child) = openat(&directory.fd, name, flags, Mode::empty()) else {
            continue;
        };
        if has_label(child.as_fd()) {
            let name = name.to_string_lossy().into_owned();
            return Err(SetupError::Nested { inner: directory.path.join(name), outer: directory.path.clone() });
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn directory(path: &Path) -> Directory {
        fs::create_dir_all(path).unwrap();
        Directory::open(path).unwrap()
    }

    fn label(path: &Path) {
        fs::create_dir_all(path.join(KVSPAN_DIR)).unwrap();
        fs::write(path.join(".kvspan/label.json"), "{}").unwrap();
    }

    #[test]
    fn a_symlink_hides_nothing() {
        let root = tempfile::tempdir().unwrap();
        let (a, b) = (root.path().join("a"), root.path().join("b"));
        let outer = directory(&a);
        directory(&a.join("x/y"));
        std::os::unix::fs::symlink(a.join("x/y"), &b).unwrap();
        let apart = check_apart(&[&outer, &directory(&b)]);
        assert!(matches!(apart, Err(SetupError::Nested { inner, outer }) if inner == b && outer == a));

        std::os::unix::fs::symlink(&a, root.path().join("c")).unwrap();
        let same = check_apart(&[&directory(&a), &directory(&root.path().join("c"))]);
        assert!(matches!(same, Err(SetupError::SameDirectory { .. })));
    }

    #[test]
    fn labels_above_and_right_below_are_seen() {
        let root = tempfile::tempdir().unwrap();
        let root = root.path().canonicalize().unwrap();
        let inner = directory(&root.join("a/b/c"));
        assert!(check_apart(&[&inner]).is_ok());
        label(&root.join("a"));
        let inner = directory(&root.join("a/b/c"));
        let apart = check_apart(&[&inner]);
        assert!(matches!(apart, Err(SetupError::Nested { outer, .. }) if outer == root.join("a")));
        let below = check_below(&directory(&root));
        assert!(matches!(below, Err(SetupError::Nested { inner, .. }) if inner == root.join("a")));
        assert!(check_below(&directory(&root.join("a"))).is_ok());
    }
}
