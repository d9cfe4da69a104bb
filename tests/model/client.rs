//! What a client's system calls become: the requests that the kernel would send, with the checks it makes itself.

use kvspan::error::Error;
use kvspan::fs::{OpenIntent, OpenedFile};
use kvspan::volume::NewOwner;
use kvspan::volume::attr::{Ino, Kind};
use kvspan::volume::files::RenameMode;
use kvspan::volume::index::Entry;
use rustix::io::Errno;

use super::reference::is_below;
use super::world::World;
use crate::common::{READ, me};

pub type Answer<T> = Result<T, Errno>;

/// What a load has seen.
#[derive(Debug)]
pub enum Loaded {
    Dir,
    /// The size that the look-up said, and the bytes up to the end of the file.
    File {
        size_bytes: u64,
        bytes: Vec<u8>,
    },
    /// The file was opened, and its disk then failed.
    Broken(Errno),
}

fn errno(error: Error) -> Errno {
    Errno::from_raw_os_error(error.errno())
}

impl World {
    /// LOOKUP of every component, each forgotten at once.
    pub fn resolve(&self, path: &str) -> Answer<Entry> {
        let mut at = self.fs().attributes(Ino::ROOT).map_err(errno)?;
        for name in path.split('/').filter(|name| !name.is_empty()) {
            if at.kind != Kind::Dir {
                return Err(Errno::NOTDIR);
            }
            at = self.fs().lookup(at.ino, name.as_bytes()).map_err(errno)?;
            self.fs().forget(at.ino, 1);
        }
        Ok(at)
    }

    fn dir_of<'a>(&self, path: &'a str) -> Answer<(Ino, &'a [u8])> {
        let (dir, name) = path.rsplit_once('/').unwrap_or(("", path));
        let entry = self.resolve(dir)?;
        if entry.kind == Kind::Dir { Ok((entry.ino, name.as_bytes())) } else { Err(Errno::NOTDIR) }
    }

    /// Like `resolve`, with a miss of the last component as an answer.
    fn find(&self, path: &str) -> Answer<Option<Entry>> {
        self.dir_of(path)?;
        match self.resolve(path) {
            Err(Errno::NOENT) => Ok(None),
            found => found.map(Some),
        }
    }

    pub fn do_create(&self, path: &str, exclusive: bool) -> Answer<OpenedFile> {
        let intent = OpenIntent { write: true, truncate: true, exclusive, ..OpenIntent::default() };
        let (dir, name) = self.dir_of(path)?;
        match self.find(path)? {
            Some(_) if exclusive => Err(Errno::EXIST),
            Some(entry) if entry.kind == Kind::Dir => Err(Errno::ISDIR),
            Some(entry) => self.fs().open(entry.ino, intent).map_err(errno),
            None => {
                let made = self.fs().create(dir, name, me(), intent).map_err(errno)?;
                self.fs().forget(made.entry.ino, 1);
                Ok(made)
            }
        }
    }

    pub fn do_open(&self, path: &str) -> Answer<OpenedFile> {
        let entry = self.resolve(path)?;
        if entry.kind == Kind::Dir {
            return Err(Errno::ISDIR);
        }
        self.fs().open(entry.ino, READ).map_err(errno)
    }

    pub fn do_load(&self, path: &str) -> Answer<Loaded> {
        let entry = self.resolve(path)?;
        if entry.kind == Kind::Dir {
            return Ok(Loaded::Dir);
        }
        let opened = self.fs().open(entry.ino, READ).map_err(errno)?;
        let bytes = self.read_all(opened.handle);
        self.fs().close(opened.handle);
        Ok(match bytes {
            Ok(bytes) => Loaded::File { size_bytes: entry.attr.size_bytes, bytes },
            Err(error) => Loaded::Broken(error),
        })
    }

    pub fn read_all(&self, handle: u64) -> Answer<Vec<u8>> {
        let mut bytes = vec![0; 256 * 1024];
        let length = self.fs().read(handle, &mut bytes, 0).map_err(errno)?;
        bytes.truncate(length);
        Ok(bytes)
    }

    pub fn do_write(&self, handle: u64, data: &[u8], offset: usize) -> Answer<()> {
        self.fs().write(handle, data, offset as u64).map_err(errno)
    }

    pub fn do_unlink(&self, path: &str) -> Answer<()> {
        let (dir, name) = self.dir_of(path)?;
        let entry = self.find(path)?.ok_or(Errno::NOENT)?;
        if entry.kind == Kind::Dir {
            return Err(Errno::ISDIR);
        }
        self.fs().unlink(dir, name).map_err(errno)
    }

    pub fn do_mkdir(&self, path: &str) -> Answer<()> {
        let (dir, name) = self.dir_of(path)?;
        if self.find(path)?.is_some() {
            return Err(Errno::EXIST);
        }
        let made = self.fs().mkdir(dir, name, NewOwner { mode: 0o755, ..me() }).map_err(errno)?;
        self.fs().forget(made.ino, 1);
        Ok(())
    }

    pub fn do_rmdir(&self, path: &str) -> Answer<()> {
        let (dir, name) = self.dir_of(path)?;
        let entry = self.find(path)?.ok_or(Errno::NOENT)?;
        if entry.kind != Kind::Dir {
            return Err(Errno::NOTDIR);
        }
        self.fs().rmdir(dir, name).map_err(errno)
    }

    pub fn do_rename(&self, from: &str, to: &str, mode: RenameMode) -> Answer<()> {
        let (a, b) = (self.dir_of(from)?, self.dir_of(to)?);
        self.find(from)?.ok_or(Errno::NOENT)?;
        match self.find(to)? {
            Some(_) if mode == RenameMode::NoReplace => return Err(Errno::EXIST),
            None if mode == RenameMode::Exchange => return Err(Errno::NOENT),
            _ if is_below(to, from) => return Err(Errno::INVAL),
            _ if is_below(from, to) && mode == RenameMode::Exchange => return Err(Errno::INVAL),
            _ if is_below(from, to) => return Err(Errno::NOTEMPTY),
            _ => {}
        }
        self.fs().rename(a, b, mode).map_err(errno)
    }

    /// All names of a directory, `batch` entries a request, and whether each is a directory.
    pub fn do_list(&self, dir: &str, batch: usize) -> Answer<Vec<(String, bool)>> {
        let entry = self.resolve(dir)?;
        let handle = self.fs().open_dir(entry.ino).map_err(errno)?;
        let names = self.list_all(handle, entry.ino, batch);
        self.fs().close_dir(handle);
        names
    }

    fn list_all(&self, handle: u64, dir: Ino, batch: usize) -> Answer<Vec<(String, bool)>> {
        let (mut names, mut after) = (Vec::new(), 0);
        loop {
            let (mut taken, before) = (0, after);
            let mut each = |entry: kvspan::fs::dir::DirEntry<'_>| {
                if taken == batch {
                    return false;
                }
                taken += 1;
                after = entry.cookie;
                if entry.entry.is_some() {
                    names.push((String::from_utf8_lossy(entry.name).into_owned(), entry.kind == Kind::Dir));
                }
                true
            };
            self.fs().list(handle, dir, before, &mut each).map_err(errno)?;
            if after == before {
                return Ok(names);
            }
        }
    }
}
