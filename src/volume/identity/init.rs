//! `init`: directories become disks of a volume.
//!
//! Everything is checked before anything is written, and what was written is taken away again if a later
//! directory fails.

use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

use rustix::fs::{Access, AtFlags, StatVfsMountFlags, accessat, fstatvfs};
use rustix::io::Errno;
use uuid::Uuid;

use super::label::{Label, Written, open_kvspan_dir, read_label, write_label};
use super::nesting::{Directory, check_apart, check_below};
use crate::config::MAX_DISKS;
use crate::error::{SetupError, errno_text};

/// What [`init`] did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InitReport {
    pub volume_id: Uuid,
    /// In the order given.
    pub disks: Vec<InitDisk>,
}

/// One directory that is now a disk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InitDisk {
    pub path: PathBuf,
    pub disk_id: Uuid,
    /// It was a disk of this volume before; nothing was changed.
    pub was_labelled: bool,
}

/// Labels `dirs` as disks of `volume`; of the volume that some of them are labelled with if none is given; of a
/// new one if none of them is labelled. Files already in them stay. On an error nothing has been changed.
pub fn init(dirs: &[PathBuf], volume: Option<Uuid>) -> Result<InitReport, SetupError> {
    if volume.is_some_and(|volume| volume.is_nil()) {
        return Err(SetupError::Usage("the volume id cannot be zero; leave --volume out for a new volume".to_string()));
    }
    if dirs.len() > MAX_DISKS {
        return Err(SetupError::Usage(format!(
            "{} directories are given, and a volume has at most {MAX_DISKS} disks",
            dirs.len()
        )));
    }
    let directories = dirs.iter().map(|path| open(path)).collect::<Result<Vec<_>, _>>()?;
    check_apart(&directories.iter().collect::<Vec<_>>())?;
    let labels = directories
        .iter()
        .map(|directory| read_label(directory.fd.as_fd(), &directory.path))
        .collect::<Result<Vec<_>, _>>()?;
    let volume_id = choose_volume(&directories, &labels, volume)?;
    for (directory, label) in directories.iter().zip(&labels) {
        check_below(directory)?;
        if label.is_none() {
            check_writable(directory)?;
        }
    }
    let new: Vec<Option<Label>> = labels.iter().map(|label| label.is_none().then(|| Label::new(volume_id))).collect();
    write_all(&directories, &new)?;
    let ids = labels.into_iter().zip(new).zip(&directories);
    let disks = ids.filter_map(|((old, new), directory)| {
        Some(InitDisk { path: directory.path.clone(), was_labelled: old.is_some(), disk_id: old.or(new)?.disk_id })
    });
    Ok(InitReport { volume_id, disks: disks.collect() })
}

fn open(path: &Path) -> Result<Directory, SetupError> {
    match Directory::open(path) {
        Ok(directory) => Ok(directory),
        Err(Errno::NOTDIR) => Err(SetupError::NotADirectory { path: path.to_path_buf() }),
        Err(errno) => Err(SetupError::io("open the directory", path, errno)),
    }
}

/// The one volume of all labels, or the one asked for, or a new one.
fn choose_volume(
    directories: &[Directory],
    labels: &[Option<Label>],
    volume: Option<Uuid>,
) -> Result<Uuid, SetupError> {
    let labelled: Vec<(&Path, &Label)> = directories
        .iter()
        .zip(labels)
        .filter_map(|(directory, label)| Some((directory.path.as_path(), label.as_ref()?)))
        .collect();
    for (at, (path, label)) in labelled.iter().enumerate() {
        if let Some(wanted) = volume.filter(|wanted| *wanted != label.volume_id) {
            return Err(SetupError::OtherVolume { path: path.to_path_buf(), found: label.volume_id, wanted });
        }
        for (first, first_label) in labelled.iter().take(at) {
            check_pair(first, first_label, path, label)?;
        }
    }
    let found = labelled.first().map(|(_, label)| label.volume_id);
    Ok(volume.or(found).unwrap_or_else(Uuid::new_v4))
}

/// Two labels must be of one volume and of two disks.
pub(super) fn check_pair(
    first: &Path,
    first_label: &Label,
    second: &Path,
    second_label: &Label,
) -> Result<(), SetupError> {
    if first_label.volume_id != second_label.volume_id {
        return Err(SetupError::TwoVolumes {
            first: first.to_path_buf(),
            first_volume: first_label.volume_id,
            second: second.to_path_buf(),
            second_volume: second_label.volume_id,
        });
    }
    if first_label.disk_id == second_label.disk_id {
        return Err(SetupError::SameDiskId {
            first: first.to_path_buf(),
            second: second.to_path_buf(),
            disk_id: first_label.disk_id,
        });
    }
    Ok(())
}

/// Asks the kernel whether a label could be written, without writing.
fn check_writable(directory: &Directory) -> Result<(), SetupError> {
    let refuse = |reason: String| SetupError::NotWritable { path: directory.path.clone(), reason };
    let kvspan = open_kvspan_dir(directory.fd.as_fd(), &directory.path)?;
    for fd in [Some(directory.fd.as_fd()), kvspan.as_ref().map(AsFd::as_fd)] {
        let Some(fd) = fd else { continue };
        let flags = fstatvfs(fd).map_err(|errno| refuse(errno_text(errno)))?;
        if flags.f_flag.contains(StatVfsMountFlags::RDONLY) {
            return Err(refuse(errno_text(Errno::ROFS)));
        }
        accessat(fd, ".", Access::WRITE_OK | Access::EXEC_OK, AtFlags::EACCESS)
            .map_err(|errno| refuse(errno_text(errno)))?;
    }
    Ok(())
}

fn write_all(directories: &[Directory], new: &[Option<Label>]) -> Result<(), SetupError> {
    let mut written: Vec<Written<'_>> = Vec::new();
    for (directory, label) in directories.iter().zip(new) {
        let Some(label) = label else { continue };
        match write_label(directory.fd.as_fd(), &directory.path, label) {
            Ok(done) => written.push(done),
            Err(error) => {
                written.iter().for_each(Written::undo);
                return Err(error);
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn dirs(root: &Path, names: &[&str]) -> Vec<PathBuf> {
        let path = |name: &&str| {
            let path = root.join(name);
            fs::create_dir_all(&path).unwrap();
            path
        };
        names.iter().map(path).collect()
    }

    fn entries(path: &Path) -> usize {
        fs::read_dir(path).unwrap().count()
    }

    #[test]
    fn new_disks_join_the_labelled_ones() {
        let root = tempfile::tempdir().unwrap();
        let first = init(&dirs(root.path(), &["a", "b"]), None).unwrap();
        assert_eq!(first.disks.iter().filter(|d| d.was_labelled).count(), 0);
        let again = init(&dirs(root.path(), &["c", "a"]), None).unwrap();
        assert_eq!(again.volume_id, first.volume_id);
        assert!(!again.disks[0].was_labelled && again.disks[1].was_labelled);
        assert_eq!(again.disks[1].disk_id, first.disks[0].disk_id);
        let named = init(&dirs(root.path(), &["d"]), Some(first.volume_id)).unwrap();
        assert_eq!(named.volume_id, first.volume_id);
    }

    #[test]
    fn whatever_is_wrong_nothing_is_written() {
        let root = tempfile::tempdir().unwrap();
        let one = init(&dirs(root.path(), &["one"]), None).unwrap();
        init(&dirs(root.path(), &["two"]), None).unwrap();
        fs::write(root.path().join("file"), "").unwrap();
        let new = dirs(root.path(), &["new"]).remove(0);
        let case = |names: &[&str], volume| {
            let mut list = vec![new.clone()];
            list.extend(names.iter().map(|name| root.path().join(name)));
            let error = init(&list, volume).unwrap_err().to_string();
            assert_eq!(entries(&new), 0, "{error}");
            error
        };
        assert!(case(&["file"], None).contains("is not a directory"));
        assert!(case(&["nowhere"], None).contains("No such file"));
        assert!(case(&["one", "two"], None).contains("one of volume"));
        assert!(case(&["two"], Some(one.volume_id)).contains("not of volume"));
        assert!(case(&["new"], None).contains("same directory"));
        dirs(root.path(), &["new2/in", "one/in"]);
        assert!(case(&["new2", "new2/in"], None).contains("lies inside the disk"));
        assert!(case(&["one/in"], None).contains("lies inside the disk"));
        assert!(case(&["."], None).contains("lies inside the disk"));
    }

    #[test]
    fn a_half_way_failure_takes_all_back() {
        let root = tempfile::tempdir().unwrap();
        let paths = dirs(root.path(), &["a", "b"]);
        let directories: Vec<Directory> = paths.iter().map(|p| open(p).unwrap()).collect();
        let volume = Uuid::new_v4();
        fs::remove_dir(&paths[1]).unwrap();
        let new = [Some(Label::new(volume)), Some(Label::new(volume))];
        assert!(write_all(&directories, &new).is_err());
        assert_eq!(entries(&paths[0]), 0);
    }
}
