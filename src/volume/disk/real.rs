//! The real disk: a directory on a file system of the host.
//!
//! Everything is opened relative to the disk's own fd and never follows a symlink or crosses a mount, so a planted
//! link, or a disk that is unmounted under us, cannot redirect a request. Takes one private lock around the cache
//! of directory fds, never over a system call.

use std::io;
use std::mem::MaybeUninit;
use std::num::NonZeroUsize;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use lru::LruCache;
use parking_lot::Mutex;
use rustix::fs::{
    AtFlags, FallocateFlags, FileType, Gid, Mode, OFlags, RawDir, RenameFlags, ResolveFlags, SeekFrom, Statx,
    StatxFlags, Timestamps, Uid, XattrFlags,
};
use rustix::io::Errno;

use super::{Access, DirReader, DiskIo, FoundKind, FoundName, FoundStat, NewAttr, NewTime, Space};
use crate::sys;
use crate::volume::attr::Attr;
use crate::volume::record::rule::MountInstance;

/// Directory fds that one disk keeps open for nested paths.
const DIR_CACHE: NonZeroUsize = NonZeroUsize::new(64).expect("not zero");
/// Bytes asked of the kernel in one `getdents64`.
const LIST_BUFFER_BYTES: usize = 64 * 1024;

/// A listing of a real directory.
struct RealDirReader {
    fd: OwnedFd,
    done: bool,
}

impl DirReader for RealDirReader {
    fn next_batch(&mut self) -> io::Result<Vec<FoundName>> {
        let mut names = Vec::new();
        let mut buffer = vec![MaybeUninit::uninit(); LIST_BUFFER_BYTES];
        while names.is_empty() && !self.done {
            let mut dir = RawDir::new(&self.fd, &mut buffer);
            loop {
                let Some(entry) = dir.next() else {
                    self.done = true;
                    break;
                };
                let entry = entry?;
                let name = entry.file_name().to_bytes();
                if name != b"." && name != b".." {
                    names.push((name.to_vec(), kind_of(entry.file_type())));
                }
                if dir.is_buffer_empty() {
                    break;
                }
            }
        }
        Ok(names)
    }
}

/// A directory on a real file system.
pub struct RealDisk {
    root: OwnedFd,
    dirs: Mutex<LruCache<Vec<u8>, Arc<OwnedFd>>>,
}

/// The directory in which a name lies: the disk's own fd, or a cached one.
enum ParentFd<'a> {
    Root(BorrowedFd<'a>),
    Nested(Arc<OwnedFd>),
}

impl AsFd for ParentFd<'_> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            ParentFd::Root(fd) => *fd,
            ParentFd::Nested(fd) => fd.as_fd(),
        }
    }
}

impl RealDisk {
    /// A disk over an open directory.
    pub fn new(root: OwnedFd) -> Self {
        RealDisk { root, dirs: Mutex::new(LruCache::new(DIR_CACHE)) }
    }

    /// Opens below the disk's directory, crossing neither symlinks nor mounts.
    fn open_beneath(&self, path: &[u8], flags: OFlags, mode: Mode) -> io::Result<OwnedFd> {
        let path: &[u8] = if path.is_empty() { b"." } else { path };
        let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_XDEV;
        let flags = flags | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        loop {
            // EAGAIN: a rename elsewhere raced with the walk; openat2(2) says to try again.
            match rustix::fs::openat2(&self.root, path, flags, mode, resolve) {
                Err(Errno::AGAIN | Errno::INTR) => {}
                opened => return Ok(opened?),
            }
        }
    }

    /// Runs `call` with the fd of the directory that holds `path`, and the last component. A cached fd may be of
    /// a directory that was removed and made again behind our back, so ENOENT is asked once more with a new one.
    fn in_parent<T>(
        &self,
        path: &[u8],
        call: impl Fn(BorrowedFd<'_>, &[u8]) -> rustix::io::Result<T>,
    ) -> io::Result<T> {
        let (dir, name) = split(path);
        if dir.is_empty() {
            return Ok(call(self.root.as_fd(), name)?);
        }
        if let Some(fd) = self.cached(dir) {
            match call(fd.as_fd(), name) {
                Err(Errno::NOENT | Errno::STALE) => self.forget(dir),
                done => return Ok(done?),
            }
        }
        let fd = self.open_parent(dir)?;
        Ok(call(fd.as_fd(), name)?)
    }

    fn cached(&self, dir: &[u8]) -> Option<Arc<OwnedFd>> {
        self.dirs.lock().get(dir).cloned()
    }

    fn open_parent(&self, dir: &[u8]) -> io::Result<ParentFd<'_>> {
        if dir.is_empty() {
            return Ok(ParentFd::Root(self.root.as_fd()));
        }
        let fd = Arc::new(self.open_beneath(dir, OFlags::PATH | OFlags::DIRECTORY, Mode::empty())?);
        self.dirs.lock().put(dir.to_vec(), Arc::clone(&fd));
        Ok(ParentFd::Nested(fd))
    }

    fn parent<'p>(&self, path: &'p [u8]) -> io::Result<(ParentFd<'_>, &'p [u8])> {
        let (dir, name) = split(path);
        match self.cached(dir) {
            Some(fd) => Ok((ParentFd::Nested(fd), name)),
            None => Ok((self.open_parent(dir)?, name)),
        }
    }

    /// Drops the cached fds of a directory and of all below it, whose paths have changed or gone.
    fn forget(&self, dir: &[u8]) {
        let mut dirs = self.dirs.lock();
        let below: Vec<Vec<u8>> =
            dirs.iter().map(|(path, _)| path.clone()).filter(|p| is_at_or_below(p, dir)).collect();
        for path in below {
            dirs.pop(&path);
        }
    }

    fn rename_with(&self, from: &[u8], to: &[u8], flags: RenameFlags) -> io::Result<()> {
        let once = || -> io::Result<()> {
            let (from_dir, from_name) = self.parent(from)?;
            let (to_dir, to_name) = self.parent(to)?;
            Ok(rustix::fs::renameat_with(&from_dir, from_name, &to_dir, to_name, flags)?)
        };
        let mut done = once();
        if done.as_ref().is_err_and(|e| e.raw_os_error() == Some(Errno::NOENT.raw_os_error())) && nested(from, to) {
            self.dirs.lock().clear();
            done = once();
        }
        // A renamed directory takes its cached fds to another path.
        self.forget(from);
        self.forget(to);
        done
    }
}

/// The directory part, empty for a name in the root, and the name.
fn split(path: &[u8]) -> (&[u8], &[u8]) {
    match path.iter().rposition(|&b| b == b'/') {
        Some(slash) => (path.get(..slash).unwrap_or_default(), path.get(slash + 1..).unwrap_or_default()),
        None => (&[], path),
    }
}

fn nested(a: &[u8], b: &[u8]) -> bool {
    a.contains(&b'/') || b.contains(&b'/')
}

fn is_at_or_below(path: &[u8], dir: &[u8]) -> bool {
    path.strip_prefix(dir).is_some_and(|rest| rest.first().is_none_or(|&b| b == b'/'))
}

impl DiskIo for RealDisk {
    fn open(&self, path: &[u8], access: Access) -> io::Result<OwnedFd> {
        let flags = match (access.read, access.write) {
            (true, true) => OFlags::RDWR,
            (false, true) => OFlags::WRONLY,
            _ => OFlags::RDONLY,
        };
        // NONBLOCK: an object that was swapped for a FIFO must not stop the request.
        self.open_beneath(path, flags | OFlags::NONBLOCK | OFlags::NOCTTY, Mode::empty())
    }

    fn create(&self, path: &[u8], mode: u16) -> io::Result<OwnedFd> {
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NONBLOCK;
        self.open_beneath(path, flags, Mode::from_raw_mode(u32::from(mode)))
    }

    fn stat(&self, path: &[u8]) -> io::Result<FoundStat> {
        if path.is_empty() {
            return self.stat_fd(self.root.as_fd());
        }
        let stat =
            self.in_parent(path, |dir, name| rustix::fs::statx(dir, name, AtFlags::SYMLINK_NOFOLLOW, wanted()))?;
        Ok(found(&stat))
    }

    fn stat_fd(&self, fd: BorrowedFd<'_>) -> io::Result<FoundStat> {
        Ok(found(&rustix::fs::statx(fd, c"", AtFlags::EMPTY_PATH, wanted())?))
    }

    fn rename(&self, from: &[u8], to: &[u8], replace: bool) -> io::Result<()> {
        self.rename_with(from, to, if replace { RenameFlags::empty() } else { RenameFlags::NOREPLACE })
    }

    fn exchange(&self, a: &[u8], b: &[u8]) -> io::Result<()> {
        self.rename_with(a, b, RenameFlags::EXCHANGE)
    }

    fn unlink(&self, path: &[u8]) -> io::Result<()> {
        self.in_parent(path, |dir, name| rustix::fs::unlinkat(dir, name, AtFlags::empty()))
    }

    fn mkdir(&self, path: &[u8], mode: u16) -> io::Result<()> {
        self.in_parent(path, |dir, name| rustix::fs::mkdirat(dir, name, Mode::from_raw_mode(u32::from(mode))))
    }

    fn rmdir(&self, path: &[u8]) -> io::Result<()> {
        self.forget(path);
        self.in_parent(path, |dir, name| rustix::fs::unlinkat(dir, name, AtFlags::REMOVEDIR))
    }

    fn list(&self, path: &[u8]) -> io::Result<Box<dyn DirReader>> {
        Ok(Box::new(RealDirReader { fd: self.open_dir(path)?, done: false }))
    }

    fn open_dir(&self, path: &[u8]) -> io::Result<OwnedFd> {
        self.open_beneath(path, OFlags::RDONLY | OFlags::DIRECTORY, Mode::empty())
    }

    fn set_attr(&self, fd: BorrowedFd<'_>, new: &NewAttr) -> io::Result<()> {
        if new.uid.is_some() || new.gid.is_some() {
            rustix::fs::fchown(fd, new.uid.map(Uid::from_raw), new.gid.map(Gid::from_raw))?;
        }
        // After the owner, whose change takes setuid and setgid away.
        if let Some(mode) = new.mode {
            rustix::fs::fchmod(fd, Mode::from_raw_mode(u32::from(mode)))?;
        }
        if let Some(size) = new.size_bytes {
            rustix::fs::ftruncate(fd, size)?;
        }
        if new.atime.is_some() || new.mtime.is_some() {
            let times = Timestamps { last_access: timespec(new.atime), last_modification: timespec(new.mtime) };
            rustix::fs::futimens(fd, &times)?;
        }
        Ok(())
    }

    fn read(&self, fd: BorrowedFd<'_>, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        let mut done = 0;
        while done < buffer.len() {
            match rustix::io::pread(fd, buffer.get_mut(done..).unwrap_or_default(), offset + done as u64) {
                Ok(0) => break,
                Ok(n) => done += n,
                Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(done)
    }

    fn write(&self, fd: BorrowedFd<'_>, data: &[u8], offset: u64) -> io::Result<()> {
        let mut done = 0;
        while done < data.len() {
            let left = data.get(done..).unwrap_or_default();
            match sys::as_nobody(|| rustix::io::pwrite(fd, left, offset + done as u64)) {
                Ok(0) => return Err(Errno::IO.into()),
                Ok(n) => done += n,
                Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    fn fsync(&self, fd: BorrowedFd<'_>, data_only: bool) -> io::Result<()> {
        Ok(if data_only { rustix::fs::fdatasync(fd) } else { rustix::fs::fsync(fd) }?)
    }

    fn fallocate(&self, fd: BorrowedFd<'_>, mode: u32, offset: u64, length: u64) -> io::Result<()> {
        let mode = FallocateFlags::from_bits_retain(mode);
        Ok(sys::as_nobody(|| rustix::fs::fallocate(fd, mode, offset, length))?)
    }

    fn seek(&self, fd: BorrowedFd<'_>, offset: u64, hole: bool) -> io::Result<u64> {
        let to = if hole { SeekFrom::Hole(offset) } else { SeekFrom::Data(offset) };
        Ok(rustix::fs::seek(fd, to)?)
    }

    fn copy(
        &self,
        from: BorrowedFd<'_>,
        mut from_at: u64,
        to: BorrowedFd<'_>,
        mut to_at: u64,
        length: usize,
    ) -> io::Result<usize> {
        let copy = || rustix::fs::copy_file_range(from, Some(&mut from_at), to, Some(&mut to_at), length);
        Ok(sys::as_nobody(copy)?)
    }

    fn get_xattr(&self, fd: BorrowedFd<'_>, name: &[u8]) -> io::Result<Vec<u8>> {
        read_growing(|buffer| rustix::fs::fgetxattr(fd, name, buffer))
    }

    fn list_xattrs(&self, fd: BorrowedFd<'_>) -> io::Result<Vec<u8>> {
        read_growing(|buffer| rustix::fs::flistxattr(fd, buffer))
    }

    fn set_xattr(&self, fd: BorrowedFd<'_>, name: &[u8], value: &[u8], flags: u32) -> io::Result<()> {
        Ok(rustix::fs::fsetxattr(fd, name, value, XattrFlags::from_bits_retain(flags))?)
    }

    fn remove_xattr(&self, fd: BorrowedFd<'_>, name: &[u8]) -> io::Result<()> {
        Ok(rustix::fs::fremovexattr(fd, name)?)
    }

    fn set_atime(&self, path: &[u8], atime_ns: i64) -> io::Result<()> {
        let times =
            Timestamps { last_access: timespec(Some(NewTime::At(atime_ns))), last_modification: timespec(None) };
        self.in_parent(path, |dir, name| rustix::fs::utimensat(dir, name, &times, AtFlags::SYMLINK_NOFOLLOW))
    }

    fn space(&self) -> io::Result<Space> {
        let vfs = rustix::fs::fstatvfs(&self.root)?;
        let device = rustix::fs::fstat(&self.root)?.st_dev;
        let kept_back = vfs.f_bfree.saturating_sub(vfs.f_bavail);
        Ok(Space {
            device,
            size_bytes: vfs.f_blocks.saturating_sub(kept_back).saturating_mul(vfs.f_frsize),
            used_bytes: vfs.f_blocks.saturating_sub(vfs.f_bfree).saturating_mul(vfs.f_frsize),
            available_bytes: vfs.f_bavail.saturating_mul(vfs.f_frsize),
            inodes: vfs.f_files,
            inodes_free: vfs.f_favail,
        })
    }

    fn sync_fs(&self) -> io::Result<()> {
        Ok(rustix::fs::syncfs(&self.root)?)
    }

    fn mount_instance(&self) -> io::Result<Option<MountInstance>> {
        // Linux 6.8; an older kernel does not set the bit in the answer.
        let unique = StatxFlags::from_bits_retain(0x4000);
        for (asked, unique) in [(unique, true), (StatxFlags::MNT_ID, false)] {
            let stat = rustix::fs::statx(&self.root, c"", AtFlags::EMPTY_PATH, asked)?;
            if StatxFlags::from_bits_retain(stat.stx_mask).contains(asked) {
                return Ok(Some(MountInstance { id: stat.stx_mnt_id, unique }));
            }
        }
        Ok(None)
    }
}

/// Asks for a value whose size is only known by asking: grows until it fits.
fn read_growing(mut ask: impl FnMut(&mut [u8]) -> rustix::io::Result<usize>) -> io::Result<Vec<u8>> {
    let mut buffer = vec![0; 1024];
    loop {
        match ask(&mut buffer) {
            Ok(length) => {
                buffer.truncate(length);
                return Ok(buffer);
            }
            // 64 KiB is the kernel's largest value.
            Err(Errno::RANGE) if buffer.len() < 64 * 1024 => buffer.resize(64 * 1024, 0),
            Err(error) => return Err(error.into()),
        }
    }
}

fn wanted() -> StatxFlags {
    StatxFlags::BASIC_STATS | StatxFlags::BTIME
}

fn kind_of(file_type: FileType) -> FoundKind {
    match file_type {
        FileType::RegularFile => FoundKind::File,
        FileType::Directory => FoundKind::Dir,
        FileType::Unknown => FoundKind::Unknown,
        _ => FoundKind::Foreign,
    }
}

fn found(stat: &Statx) -> FoundStat {
    let nanoseconds =
        |t: rustix::fs::StatxTimestamp| t.tv_sec.saturating_mul(1_000_000_000).saturating_add(i64::from(t.tv_nsec));
    let has_birth = StatxFlags::from_bits_retain(stat.stx_mask).contains(StatxFlags::BTIME);
    FoundStat {
        kind: kind_of(FileType::from_raw_mode(u32::from(stat.stx_mode))),
        ino: stat.stx_ino,
        attr: Attr {
            size_bytes: stat.stx_size,
            blocks_512: stat.stx_blocks,
            mode: stat.stx_mode & 0o7777,
            uid: stat.stx_uid,
            gid: stat.stx_gid,
            mtime_ns: nanoseconds(stat.stx_mtime),
            ctime_ns: nanoseconds(stat.stx_ctime),
            atime_ns: nanoseconds(stat.stx_atime),
        },
        birth_ns: if has_birth { nanoseconds(stat.stx_btime) } else { i64::MIN },
    }
}

fn timespec(time: Option<NewTime>) -> rustix::fs::Timespec {
    match time {
        None => rustix::fs::Timespec { tv_sec: 0, tv_nsec: rustix::fs::UTIME_OMIT },
        Some(NewTime::Now) => rustix::fs::Timespec { tv_sec: 0, tv_nsec: rustix::fs::UTIME_NOW },
        Some(NewTime::At(ns)) => {
            rustix::fs::Timespec { tv_sec: ns.div_euclid(1_000_000_000), tv_nsec: ns.rem_euclid(1_000_000_000) }
        }
    }
}
