//! Extended attributes: `user.kvspan.*` is computed and read-only, every other `user.*` is the backing file's.
//!
//! Called by the FUSE glue through [`CacheFs`]. A real attribute of a computed name on a backing file is hidden and
//! never trusted. Makes system calls only for names that are not kvspan's.

use std::os::fd::AsFd;
use std::time::{Duration, SystemTime};

use super::CacheFs;
use crate::error::{Error, Result};
use crate::status::Status;
use crate::volume::attr::{Ino, Kind};
use crate::volume::index::Entry;

const USER: &[u8] = b"user.";
const OURS: &[u8] = b"user.kvspan.";
const FILE_NAMES: [&str; 7] =
    ["disk_uuid", "disk_path", "backing_path", "owner_uuid", "away", "last_access", "io_mode"];
const DIR_NAMES: [&str; 1] = ["disk_uuids"];
const ROOT_NAMES: [&str; 4] = ["disk_uuids", "disks", "status", "version"];

impl CacheFs {
    /// The value of an attribute.
    ///
    /// # Errors
    /// [`Error::NoAttribute`] for one that is not there, or what the disk said. `io_mode` says how the inode's bytes
    /// travel, which only the session above knows.
    pub fn get_xattr(&self, ino: Ino, name: &[u8], io_mode: &dyn Fn() -> &'static str) -> Result<Vec<u8>> {
        if let Some(ours) = name.strip_prefix(OURS) {
            return self.computed(io_mode, ino, ours);
        }
        if !name.starts_with(USER) {
            // `security.capability` is asked for each new file: answered without a system call.
            return Err(Error::NoAttribute);
        }
        let (entry, fd) = self.backing(ino, false)?;
        let io = &self.volume.disk(entry.disk)?.io;
        io.get_xattr(fd.as_fd(), name).map_err(|e| Error::disk(entry.disk, e))
    }

    /// All names, each ended by a NUL.
    ///
    /// # Errors
    /// [`Error::Stale`] for an entry that has gone, or what the disk said.
    pub fn list_xattrs(&self, ino: Ino) -> Result<Vec<u8>> {
        let (entry, fd) = self.backing(ino, false)?;
        let io = &self.volume.disk(entry.disk)?.io;
        let real = match io.list_xattrs(fd.as_fd()) {
            Ok(real) => real,
            Err(error) if is_unsupported(&error) => Vec::new(),
            Err(error) => return Err(Error::disk(entry.disk, error)),
        };
        let mut names = Vec::with_capacity(real.len() + 256);
        for name in real.split_inclusive(|&b| b == 0) {
            if name.starts_with(USER) && !name.starts_with(OURS) {
                names.extend_from_slice(name);
            }
        }
        for name in computed_names(&entry) {
            names.extend_from_slice(OURS);
            names.extend_from_slice(name.as_bytes());
            names.push(0);
        }
        Ok(names)
    }

    /// Sets an attribute of the backing file.
    ///
    /// # Errors
    /// [`Error::NotPermitted`] for kvspan's own, [`Error::NotSupported`] outside `user.*`.
    pub fn set_xattr(&self, ino: Ino, name: &[u8], value: &[u8], flags: u32) -> Result<()> {
        let (entry, fd) = self.settable(ino, name)?;
        let io = &self.volume.disk(entry.disk)?.io;
        io.set_xattr(fd.as_fd(), name, value, flags).map_err(|e| Error::disk(entry.disk, e))?;
        self.volume.xattrs_changed(&entry, &fd)
    }

    /// Removes an attribute of the backing file.
    ///
    /// # Errors
    /// As [`set_xattr`](Self::set_xattr), and [`Error::NoAttribute`].
    pub fn remove_xattr(&self, ino: Ino, name: &[u8]) -> Result<()> {
        let (entry, fd) = self.settable(ino, name)?;
        let io = &self.volume.disk(entry.disk)?.io;
        io.remove_xattr(fd.as_fd(), name).map_err(|e| Error::disk(entry.disk, e))?;
        self.volume.xattrs_changed(&entry, &fd)
    }

    fn settable(&self, ino: Ino, name: &[u8]) -> Result<(Entry, std::sync::Arc<std::os::fd::OwnedFd>)> {
        if name.starts_with(OURS) {
            return Err(Error::NotPermitted);
        }
        if !name.starts_with(USER) {
            return Err(Error::NotSupported);
        }
        self.backing(ino, false)
    }

    /// The backing object; of a directory the copy that its attributes come from.
    fn backing(&self, ino: Ino, write: bool) -> Result<(Entry, std::sync::Arc<std::os::fd::OwnedFd>)> {
        let entry = self.volume.attributes(ino)?;
        Ok((entry, self.volume.fd_for(ino, write)?))
    }

    fn computed(&self, io_mode: &dyn Fn() -> &'static str, ino: Ino, name: &[u8]) -> Result<Vec<u8>> {
        let entry = self.volume.attributes(ino)?;
        let name = std::str::from_utf8(name).map_err(|_| Error::NoAttribute)?;
        if !computed_names(&entry).contains(&name) {
            return Err(Error::NoAttribute);
        }
        match entry.kind {
            Kind::File => self.of_file(io_mode, &entry, name),
            Kind::Dir => self.of_dir(&entry, name),
        }
    }

    fn of_file(&self, io_mode: &dyn Fn() -> &'static str, entry: &Entry, name: &str) -> Result<Vec<u8>> {
        let disk = self.volume.disk(entry.disk)?;
        Ok(match name {
            "disk_uuid" => disk.id.to_string().into_bytes(),
            "disk_path" => path_bytes(&disk.path),
            "backing_path" => {
                let mut path = path_bytes(&disk.path);
                path.push(b'/');
                path.extend(self.volume.path(entry.ino).ok_or(Error::NoAttribute)?);
                path
            }
            "owner_uuid" => self.volume.owner_of(entry.ino)?.id.to_string().into_bytes(),
            "away" => if entry.away { "yes" } else { "no" }.into(),
            "last_access" => rfc3339(entry.attr.atime_ns).into_bytes(),
            "io_mode" => io_mode().into(),
            _ => return Err(Error::NoAttribute),
        })
    }

    fn of_dir(&self, entry: &Entry, name: &str) -> Result<Vec<u8>> {
        Ok(match name {
            "disk_uuids" => {
                let ids: Vec<String> =
                    self.volume.dir_disks(entry.ino).into_iter().map(|disk| disk.id.to_string()).collect();
                ids.join(",").into_bytes()
            }
            "disks" => disk_lines(&self.monitor.status(&self.volume)).into_bytes(),
            "status" => serde_json::to_vec(&self.monitor.status(&self.volume)).map_err(|_| Error::NoAttribute)?,
            "version" => env!("CARGO_PKG_VERSION").into(),
            _ => return Err(Error::NoAttribute),
        })
    }
}

fn computed_names(entry: &Entry) -> &'static [&'static str] {
    match entry.kind {
        Kind::File => &FILE_NAMES,
        Kind::Dir if entry.ino == Ino::ROOT => &ROOT_NAMES,
        Kind::Dir => &DIR_NAMES,
    }
}

/// A line a disk: uuid, path, state, used, limit, files; tab-separated.
fn disk_lines(status: &Status) -> String {
    let mut lines = String::new();
    for disk in &status.disks {
        let id = disk.uuid.map_or_else(|| "-".to_string(), |id| id.to_string());
        let path = disk.path.replace(['\t', '\n'], "?");
        let state = disk.state.word();
        lines.push_str(&format!("{id}\t{path}\t{state}\t{}\t{}\t{}\n", disk.used_bytes, disk.limit_bytes, disk.files));
    }
    lines.pop();
    lines
}

fn path_bytes(path: &std::path::Path) -> Vec<u8> {
    use std::os::unix::ffi::OsStrExt;
    path.as_os_str().as_bytes().to_vec()
}

fn rfc3339(ns: i64) -> String {
    let time = SystemTime::UNIX_EPOCH + Duration::from_nanos(ns.max(0).unsigned_abs());
    humantime::format_rfc3339_nanos(time).to_string()
}

fn is_unsupported(error: &std::io::Error) -> bool {
    error.raw_os_error() == Some(rustix::io::Errno::OPNOTSUPP.raw_os_error())
}
