//! What must be true between two operations, seen from outside: the index against the disks, and the open files
//! against the handles.

use std::collections::HashMap;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use kvspan::volume::Volume;
use kvspan::volume::attr::{DiskNo, Ino, Kind};
use kvspan::volume::index::Entry;

/// An object that lies on a disk.
#[derive(Clone, Debug)]
pub struct Found {
    /// The disk's place in the list of directories.
    pub disk: usize,
    pub path: String,
    pub is_dir: bool,
    pub inode: u64,
    pub size_bytes: u64,
    pub bytes_on_disk: u64,
}

/// Handles open on an inode, and those of them that can write.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Handles {
    pub all: u32,
    pub writers: u32,
}

/// What a suite knows that the volume cannot show.
pub struct Known<'a> {
    pub handles: &'a HashMap<Ino, Handles>,
    /// Paths on which an operation failed half-way: disks and index may differ until the next clean start.
    pub in_doubt: &'a dyn Fn(&str) -> bool,
    /// A directory operation failed half-way: copies may be missing or unknown until the next clean start.
    pub dirs_in_doubt: bool,
    /// The disk could not say how large a file is when it was closed.
    pub size_in_doubt: &'a dyn Fn(&Found) -> bool,
    /// Second copies of a name can exist: a disk was away, or refused to unlink.
    pub shadows: &'a dyn Fn(&Found) -> bool,
}

/// Everything visible on the disks.
pub fn walk(dirs: &[PathBuf]) -> Vec<Found> {
    let mut found = Vec::new();
    for (disk, dir) in dirs.iter().enumerate() {
        walk_dir(disk, dir, "", &mut found);
    }
    found
}

fn walk_dir(disk: usize, root: &Path, below: &str, found: &mut Vec<Found>) {
    for entry in std::fs::read_dir(root.join(below)).expect("a directory of a disk") {
        let entry = entry.expect("an entry");
        let name = entry.file_name().to_string_lossy().into_owned();
        if below.is_empty() && (name == ".kvspan" || name == "lost+found") {
            continue;
        }
        let path = if below.is_empty() { name } else { format!("{below}/{name}") };
        let meta = entry.path().symlink_metadata().expect("an object's attributes");
        found.push(Found {
            disk,
            path: path.clone(),
            is_dir: meta.is_dir(),
            inode: meta.ino(),
            size_bytes: meta.len(),
            bytes_on_disk: meta.blocks() * 512,
        });
        if meta.is_dir() {
            walk_dir(disk, root, &path, found);
        }
    }
}

/// Everything in the index, by path.
pub fn entries(volume: &Volume) -> Vec<(String, Entry)> {
    let mut all: Vec<(String, Entry)> = Vec::new();
    let mut pending = vec![(String::new(), Ino::ROOT)];
    while let Some((below, dir)) = pending.pop() {
        volume.list(dir, 0, &mut |name, entry, _| {
            let name = String::from_utf8_lossy(name);
            let path = if below.is_empty() { name.into_owned() } else { format!("{below}/{name}") };
            if entry.kind == Kind::Dir {
                pending.push((path.clone(), entry.ino));
            }
            all.push((path, entry));
            true
        });
    }
    all
}

/// Checks that index, disks and handles agree.
///
/// # Errors
/// The first disagreement, in words.
pub fn check(volume: &Volume, found: &[Found], known: &Known<'_>) -> Result<(), String> {
    volume.check_invariants()?;
    let entries = entries(volume);
    let on_disks: HashMap<(usize, &str), &Found> = found.iter().map(|f| ((f.disk, f.path.as_str()), f)).collect();
    for (path, entry) in &entries {
        check_handles(path, entry, known)?;
        match entry.kind {
            Kind::File => check_file(volume, path, entry, &on_disks, known)?,
            Kind::Dir => check_dir(volume, path, entry, &on_disks, known)?,
        }
    }
    let by_path: HashMap<&str, &Entry> = entries.iter().map(|(path, entry)| (path.as_str(), entry)).collect();
    for found in found {
        check_found(volume, found, &by_path, known)?;
    }
    check_used(volume, &entries, known)
}

fn check_handles(path: &str, entry: &Entry, known: &Known<'_>) -> Result<(), String> {
    let handles = known.handles.get(&entry.ino).copied().unwrap_or_default();
    if entry.pinned != (handles.all > 0) {
        return Err(format!("{path:?} is pinned: {}, and has {} handles", entry.pinned, handles.all));
    }
    if entry.writing && handles.writers == 0 {
        return Err(format!("{path:?} is being written, says the index, and nobody has it open for writing"));
    }
    Ok(())
}

fn check_file(
    volume: &Volume,
    path: &str,
    entry: &Entry,
    on_disks: &HashMap<(usize, &str), &Found>,
    known: &Known<'_>,
) -> Result<(), String> {
    if (known.in_doubt)(path) {
        return Ok(());
    }
    let disk = entry.disk.index();
    let found = on_disks.get(&(disk, path)).filter(|found| !found.is_dir);
    let found = found.ok_or_else(|| format!("{path:?} is on disk {disk}, says the index, and is not there"))?;
    let name = path.rsplit('/').next().unwrap_or(path);
    if entry.away != (volume.owner(name.as_bytes()) != Some(entry.disk)) {
        return Err(format!("{path:?} is away: {}, on disk {disk}", entry.away));
    }
    if (known.size_in_doubt)(found) {
        return Ok(());
    }
    let has_writer = known.handles.get(&entry.ino).is_some_and(|handles| handles.writers > 0);
    let sizes = (entry.attr.size_bytes, entry.attr.bytes_on_disk());
    if !has_writer && sizes != (found.size_bytes, found.bytes_on_disk) {
        let real = (found.size_bytes, found.bytes_on_disk);
        return Err(format!("{path:?} has (size, room) {sizes:?} in the index and {real:?} on disk {disk}"));
    }
    Ok(())
}

fn check_dir(
    volume: &Volume,
    path: &str,
    entry: &Entry,
    on_disks: &HashMap<(usize, &str), &Found>,
    known: &Known<'_>,
) -> Result<(), String> {
    if known.dirs_in_doubt || (known.in_doubt)(path) {
        return Ok(());
    }
    let copies = volume.dir_disks(entry.ino);
    if copies.is_empty() {
        return Err(format!("directory {path:?} is on no disk"));
    }
    for copy in copies {
        let disk = volume.disks().iter().position(|disk| disk.id == copy.id).unwrap_or(usize::MAX);
        if !on_disks.get(&(disk, path)).is_some_and(|found| found.is_dir) {
            return Err(format!("directory {path:?} is on disk {disk}, says the index, and is not there"));
        }
    }
    Ok(())
}

/// Everything visible on a disk that has been scanned is in the index.
fn check_found(
    volume: &Volume,
    found: &Found,
    entries: &HashMap<&str, &Entry>,
    known: &Known<'_>,
) -> Result<(), String> {
    let Found { disk, path, is_dir, .. } = found;
    let scanned = volume.disk(DiskNo(*disk as u8)).is_ok_and(|disk| disk.is_scanned());
    if !scanned || (known.in_doubt)(path) || (*is_dir && known.dirs_in_doubt) {
        return Ok(());
    }
    match entries.get(path.as_str()) {
        Some(entry) if *is_dir && entry.kind == Kind::Dir => Ok(()),
        Some(entry) if !*is_dir && entry.kind == Kind::File && entry.disk.index() == *disk => Ok(()),
        Some(_) if (known.shadows)(found) => Ok(()),
        Some(entry) => Err(format!("{path:?} is on disk {disk} too; the index has it on disk {}", entry.disk.0)),
        None if (known.shadows)(found) => Ok(()),
        None => Err(format!("{path:?} is on disk {disk} and not in the index")),
    }
}

/// The used bytes of a disk are the sum over its linked files and over those that only handles still hold.
fn check_used(volume: &Volume, entries: &[(String, Entry)], known: &Known<'_>) -> Result<(), String> {
    let mut sums = vec![0u64; volume.disks().len()];
    let linked: Vec<Ino> = entries.iter().map(|(_, entry)| entry.ino).collect();
    for (_, entry) in entries.iter().filter(|(_, entry)| entry.kind == Kind::File) {
        sums[entry.disk.index()] += entry.attr.bytes_on_disk();
    }
    for ino in known.handles.keys().filter(|ino| !linked.contains(ino)) {
        let entry = volume.attributes(*ino).map_err(|e| format!("inode {} is open and has gone: {e}", ino.0))?;
        sums[entry.disk.index()] += entry.attr.bytes_on_disk();
    }
    for (disk, (report, sum)) in volume.disk_reports().iter().zip(&sums).enumerate() {
        let scanned = volume.disks()[disk].is_scanned();
        if scanned && report.used_bytes != *sum {
            return Err(format!("disk {disk} has {} bytes in use; its files take {sum}", report.used_bytes));
        }
    }
    Ok(())
}
