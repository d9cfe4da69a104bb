//! A disk that fails where a test says so.

use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex};

use kvspan::volume::disk::real::RealDisk;
use kvspan::volume::disk::{Access, DirReader, DiskIo, FoundStat, NewAttr, Space};

/// What fails now.
#[derive(Default)]
pub struct Faults {
    listing: Mutex<Option<(String, usize)>>,
    fsync: Mutex<bool>,
    all: Mutex<bool>,
}

impl Faults {
    /// The listing of this directory says EIO after so many names.
    pub fn fail_listing(&self, path: &str, names: usize) {
        *self.listing.lock().expect("not poisoned") = Some((path.to_string(), names));
    }

    pub fn fail_fsync(&self) {
        *self.fsync.lock().expect("not poisoned") = true;
    }

    /// No look at a name and no listing succeeds.
    pub fn fail_all(&self) {
        *self.all.lock().expect("not poisoned") = true;
    }

    fn all(&self) -> io::Result<()> {
        if *self.all.lock().expect("not poisoned") { Err(eio()) } else { Ok(()) }
    }

    pub fn clear(&self) {
        *self.all.lock().expect("not poisoned") = false;
        *self.listing.lock().expect("not poisoned") = None;
        *self.fsync.lock().expect("not poisoned") = false;
    }
}

fn eio() -> io::Error {
    io::Error::from_raw_os_error(rustix::io::Errno::IO.raw_os_error())
}

/// A real disk with faults.
pub struct Faulty {
    real: RealDisk,
    faults: Arc<Faults>,
}

impl Faulty {
    pub fn new(real: RealDisk, faults: &Arc<Faults>) -> Faulty {
        Faulty { real, faults: Arc::clone(faults) }
    }
}

/// A listing whose end is never reached.
struct Broken {
    reader: Box<dyn DirReader>,
    left: usize,
}

impl DirReader for Broken {
    fn next_batch(&mut self) -> io::Result<Vec<(Vec<u8>, kvspan::volume::disk::FoundKind)>> {
        if self.left == 0 {
            return Err(eio());
        }
        let mut batch = self.reader.next_batch()?;
        batch.truncate(std::mem::take(&mut self.left));
        Ok(batch)
    }
}

impl DiskIo for Faulty {
    fn list(&self, path: &[u8]) -> io::Result<Box<dyn DirReader>> {
        self.faults.all()?;
        let reader = self.real.list(path)?;
        match &*self.faults.listing.lock().expect("not poisoned") {
            Some((fails, left)) if fails.as_bytes() == path => Ok(Box::new(Broken { reader, left: *left })),
            _ => Ok(reader),
        }
    }

    fn fsync(&self, fd: BorrowedFd<'_>, data_only: bool) -> io::Result<()> {
        if *self.faults.fsync.lock().expect("not poisoned") {
            return Err(eio());
        }
        self.real.fsync(fd, data_only)
    }

    fn open(&self, path: &[u8], access: Access) -> io::Result<OwnedFd> {
        self.real.open(path, access)
    }
    fn create(&self, path: &[u8], mode: u16) -> io::Result<OwnedFd> {
        self.real.create(path, mode)
    }
    fn stat(&self, path: &[u8]) -> io::Result<FoundStat> {
        if !path.is_empty() {
            self.faults.all()?;
        }
        self.real.stat(path)
    }
    fn stat_fd(&self, fd: BorrowedFd<'_>) -> io::Result<FoundStat> {
        self.real.stat_fd(fd)
    }
    fn rename(&self, from: &[u8], to: &[u8], replace: bool) -> io::Result<()> {
        self.real.rename(from, to, replace)
    }
    fn exchange(&self, a: &[u8], b: &[u8]) -> io::Result<()> {
        self.real.exchange(a, b)
    }
    fn unlink(&self, path: &[u8]) -> io::Result<()> {
        self.real.unlink(path)
    }
    fn mkdir(&self, path: &[u8], mode: u16) -> io::Result<()> {
        self.real.mkdir(path, mode)
    }
    fn rmdir(&self, path: &[u8]) -> io::Result<()> {
        self.real.rmdir(path)
    }
    fn sync_fs(&self) -> io::Result<()> {
        self.real.sync_fs()
    }
    fn mount_instance(&self) -> io::Result<Option<kvspan::volume::record::rule::MountInstance>> {
        self.real.mount_instance()
    }
    fn set_attr(&self, fd: BorrowedFd<'_>, new: &NewAttr) -> io::Result<()> {
        self.real.set_attr(fd, new)
    }
    fn open_dir(&self, path: &[u8]) -> io::Result<OwnedFd> {
        self.real.open_dir(path)
    }
    fn read(&self, fd: BorrowedFd<'_>, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        self.real.read(fd, buffer, offset)
    }
    fn write(&self, fd: BorrowedFd<'_>, data: &[u8], offset: u64) -> io::Result<()> {
        self.real.write(fd, data, offset)
    }
    fn fallocate(&self, fd: BorrowedFd<'_>, mode: u32, offset: u64, length: u64) -> io::Result<()> {
        self.real.fallocate(fd, mode, offset, length)
    }
    fn seek(&self, fd: BorrowedFd<'_>, offset: u64, hole: bool) -> io::Result<u64> {
        self.real.seek(fd, offset, hole)
    }
    fn copy(
        &self,
        from: BorrowedFd<'_>,
        from_at: u64,
        to: BorrowedFd<'_>,
        to_at: u64,
        length: usize,
    ) -> io::Result<usize> {
        self.real.copy(from, from_at, to, to_at, length)
    }
    fn get_xattr(&self, fd: BorrowedFd<'_>, name: &[u8]) -> io::Result<Vec<u8>> {
        self.real.get_xattr(fd, name)
    }
    fn list_xattrs(&self, fd: BorrowedFd<'_>) -> io::Result<Vec<u8>> {
        self.real.list_xattrs(fd)
    }
    fn set_xattr(&self, fd: BorrowedFd<'_>, name: &[u8], value: &[u8], flags: u32) -> io::Result<()> {
        self.real.set_xattr(fd, name, value, flags)
    }
    fn remove_xattr(&self, fd: BorrowedFd<'_>, name: &[u8]) -> io::Result<()> {
        self.real.remove_xattr(fd, name)
    }
    fn set_atime(&self, path: &[u8], atime_ns: i64) -> io::Result<()> {
        self.real.set_atime(path, atime_ns)
    }
    fn space(&self) -> io::Result<Space> {
        self.real.space()
    }
}
