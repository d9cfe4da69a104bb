//! Reception: takes the kernel's requests, asks `crate::fs`, answers. No decision is made here.
//!
//! Every method turns arguments into plain types, calls one method of [`CacheFs`], and replies. What cannot be said in
//! plain types lives in the rooms below: `backing` (passthrough), `convert` (attributes and errno), `session` (mounting).
//! Takes no lock of its own.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime};

use fuser::{
    BsdFileFlags, CopyFileRangeFlags, Errno, FileHandle, Filesystem, FopenFlags, INodeNo, InitFlags, IoctlFlags,
    KernelConfig, LockOwner, OpenFlags, RenameFlags, ReplyAttr, ReplyCreate, ReplyData, ReplyDirectory,
    ReplyDirectoryPlus, ReplyEmpty, ReplyEntry, ReplyIoctl, ReplyLseek, ReplyOpen, ReplyStatfs, ReplyWrite, ReplyXattr,
    Request, TimeOrNow, WriteFlags,
};

use crate::error::Error;
use crate::fs::{CacheFs, OpenedFile};
use crate::sys;
use crate::volume::NewOwner;
use crate::volume::attr::Ino;
use crate::volume::disk::NewAttr;
use crate::volume::files::RenameMode;
use crate::volume::index::Entry;
use backing::{backing_id, is_passed_through};
use convert::{errno, file_attr, file_type, generation, new_time, open_intent};

mod backing;
mod convert;
pub mod notifier;
pub mod session;

/// What the kernel may remember, and how bytes travel.
#[derive(Clone, Copy, Debug)]
pub struct GlueSettings {
    /// How long the kernel trusts a name and its attributes.
    pub entry_ttl: Duration,
    /// How long the kernel trusts a miss, once all disks have been scanned.
    pub negative_ttl: Duration,
    /// Whether passthrough is wanted, if the kernel grants it.
    pub passthrough: bool,
    /// Whether some disk lies on a stacked file system, which passthrough then has to reach through.
    pub stacked_disks: bool,
}

/// The `fuser` face of a file system.
pub struct Glue {
    fs: Arc<CacheFs>,
    settings: GlueSettings,
    passthrough: Arc<AtomicBool>,
}

impl Glue {
    /// A face for a file system; `passthrough` is set to what the kernel granted.
    pub fn new(fs: Arc<CacheFs>, settings: GlueSettings, passthrough: Arc<AtomicBool>) -> Self {
        Glue { fs, settings, passthrough }
    }

    fn attr(&self, entry: &Entry) -> fuser::FileAttr {
        file_attr(entry, self.fs.links(entry))
    }

    fn io_mode(&self, ino: Ino) -> &'static str {
        let decided = self.fs.volume().attached(ino).and_then(|attached| is_passed_through(&attached));
        let passthrough = decided.unwrap_or(self.passthrough.load(Ordering::Relaxed));
        if passthrough { "passthrough" } else { "daemon" }
    }

    /// A handle is open; decides how its bytes travel. Passthrough where one can register the backing file.
    fn backing_id<'a>(
        &self,
        opened: &'a OpenedFile,
        register: impl FnOnce() -> std::io::Result<fuser::BackingId>,
    ) -> Result<Option<&'a fuser::BackingId>, Error> {
        let wanted = self.passthrough.load(Ordering::Relaxed);
        let id = backing_id(&opened.attached, || {
            // The kernel writes to the file with the rights of who registers it.
            let registered = wanted.then(|| sys::as_nobody(register))?;
            registered.inspect_err(|error| self.fs.monitor().note_refused_passthrough(error)).ok()
        });
        if id.is_none()
            && let Err(error) = self.fs.check_regular(opened)
        {
            self.fs.close(opened.handle);
            return Err(error);
        }
        Ok(id)
    }

    /// How long the kernel may believe attributes: not at all while a map may change them.
    fn attr_ttl(&self, ino: Ino) -> Duration {
        if self.fs.changes_unseen(ino) { Duration::ZERO } else { self.settings.entry_ttl }
    }

    fn reply_entry(&self, reply: ReplyEntry, found: Result<Entry, Error>) {
        match found {
            Ok(entry) => {
                let ttl = &self.settings.entry_ttl;
                reply.entry_with_ttls(&self.attr_ttl(entry.ino), ttl, &self.attr(&entry), generation());
            }
            Err(Error::NotFound) => convert::reply_miss(reply, self.fs.miss_ttl(self.settings.negative_ttl)),
            Err(error) => reply.error(errno(&error)),
        }
    }

    fn reply_attr(&self, reply: ReplyAttr, found: Result<Entry, Error>) {
        match found {
            Ok(entry) => reply.attr(&self.attr_ttl(entry.ino), &self.attr(&entry)),
            Err(error) => reply.error(errno(&error)),
        }
    }
}

/// What a caller makes is the caller's; the kernel has applied the umask.
fn new_owner(request: &Request, mode: u32) -> NewOwner {
    NewOwner { uid: request.uid(), gid: request.gid(), mode: (mode & 0o7777) as u16 }
}

fn reply_done(reply: ReplyEmpty, done: Result<(), Error>) {
    match done {
        Ok(()) => reply.ok(),
        Err(error) => reply.error(errno(&error)),
    }
}

fn reply_xattr(reply: ReplyXattr, size: u32, value: Result<Vec<u8>, Error>) {
    match value {
        Ok(value) if size == 0 => reply.size(u32::try_from(value.len()).unwrap_or(u32::MAX)),
        Ok(value) if value.len() > size as usize => reply.error(errno(&Error::BufferTooSmall)),
        Ok(value) => reply.data(&value),
        Err(error) => reply.error(errno(&error)),
    }
}

impl Filesystem for Glue {
    fn init(&mut self, _request: &Request, config: &mut KernelConfig) -> std::io::Result<()> {
        let granted = session::negotiate(config, &self.settings);
        self.passthrough.store(granted, Ordering::Relaxed);
        Ok(())
    }

    fn lookup(&self, _request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        self.reply_entry(reply, self.fs.lookup(Ino(parent.0), name.as_bytes()));
    }

    fn forget(&self, _request: &Request, ino: INodeNo, count: u64) {
        self.fs.forget(Ino(ino.0), count);
    }

    fn getattr(&self, _request: &Request, ino: INodeNo, _handle: Option<FileHandle>, reply: ReplyAttr) {
        self.reply_attr(reply, self.fs.attributes(Ino(ino.0)));
    }

    fn setattr(
        &self,
        request: &Request,
        ino: INodeNo,
        mode: Option<u32>,
        uid: Option<u32>,
        gid: Option<u32>,
        size: Option<u64>,
        atime: Option<TimeOrNow>,
        mtime: Option<TimeOrNow>,
        _ctime: Option<SystemTime>,
        handle: Option<FileHandle>,
        _crtime: Option<SystemTime>,
        _chgtime: Option<SystemTime>,
        _bkuptime: Option<SystemTime>,
        _flags: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        let new = NewAttr {
            size_bytes: size,
            mode: mode.map(|mode| (mode & 0o7777) as u16),
            uid,
            gid,
            atime: atime.map(new_time),
            mtime: mtime.map(new_time),
        };
        let changed = self.fs.set_attributes(Ino(ino.0), handle.map(|h| h.0), &new, request.uid());
        self.reply_attr(reply, changed);
    }

    fn mknod(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        _umask: u32,
        _rdev: u32,
        reply: ReplyEntry,
    ) {
        if mode & 0o170_000 != 0o100_000 {
            return reply.error(Errno::EPERM);
        }
        let owner = new_owner(request, mode);
        self.reply_entry(reply, self.fs.make_file(Ino(parent.0), name.as_bytes(), owner));
    }

    fn mkdir(&self, request: &Request, parent: INodeNo, name: &OsStr, mode: u32, _umask: u32, reply: ReplyEntry) {
        let owner = new_owner(request, mode);
        self.reply_entry(reply, self.fs.mkdir(Ino(parent.0), name.as_bytes(), owner));
    }

    fn link(&self, _request: &Request, _ino: INodeNo, _parent: INodeNo, _name: &OsStr, reply: ReplyEntry) {
        reply.error(Errno::EPERM);
    }

    fn symlink(&self, _request: &Request, _parent: INodeNo, _name: &OsStr, _target: &Path, reply: ReplyEntry) {
        reply.error(Errno::EPERM);
    }

    fn unlink(&self, _request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        reply_done(reply, self.fs.unlink(Ino(parent.0), name.as_bytes()));
    }

    fn rmdir(&self, _request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        reply_done(reply, self.fs.rmdir(Ino(parent.0), name.as_bytes()));
    }

    fn rename(
        &self,
        _request: &Request,
        parent: INodeNo,
        name: &OsStr,
        new_parent: INodeNo,
        new_name: &OsStr,
        flags: RenameFlags,
        reply: ReplyEmpty,
    ) {
        let mode = match flags {
            RenameFlags::RENAME_NOREPLACE => RenameMode::NoReplace,
            RenameFlags::RENAME_EXCHANGE => RenameMode::Exchange,
            flags if flags.is_empty() => RenameMode::Replace,
            _ => return reply.error(Errno::EINVAL),
        };
        let (from, to) = ((Ino(parent.0), name.as_bytes()), (Ino(new_parent.0), new_name.as_bytes()));
        reply_done(reply, self.fs.rename(from, to, mode));
    }

    fn open(&self, request: &Request, ino: INodeNo, flags: OpenFlags, reply: ReplyOpen) {
        let opened = match self.fs.open_as(Ino(ino.0), open_intent(flags.0), request.uid()) {
            // The kernel then looks the name up again, learns the new size, and opens once more.
            Ok(opened) if opened.is_news => {
                self.fs.close(opened.handle);
                return reply.error(Errno::ESTALE);
            }
            Ok(opened) => opened,
            Err(error) => return reply.error(errno(&error)),
        };
        match self.backing_id(&opened, || reply.open_backing(&opened.fd)) {
            Ok(Some(id)) => reply.opened_passthrough(FileHandle(opened.handle), FopenFlags::FOPEN_NOFLUSH, id),
            Ok(None) => reply.opened(FileHandle(opened.handle), FopenFlags::FOPEN_NOFLUSH),
            Err(error) => reply.error(errno(&error)),
        }
    }

    fn create(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        _umask: u32,
        flags: i32,
        reply: ReplyCreate,
    ) {
        let owner = new_owner(request, mode);
        let created = self.fs.create(Ino(parent.0), name.as_bytes(), owner, open_intent(flags));
        let opened = match created {
            Ok(opened) => opened,
            Err(error) => return reply.error(errno(&error)),
        };
        let (ttl, attr, handle) = (&self.settings.entry_ttl, self.attr(&opened.entry), FileHandle(opened.handle));
        match self.backing_id(&opened, || reply.open_backing(&opened.fd)) {
            Ok(Some(id)) => reply.created_passthrough(ttl, &attr, generation(), handle, FopenFlags::FOPEN_NOFLUSH, id),
            Ok(None) => reply.created(ttl, &attr, generation(), handle, FopenFlags::FOPEN_NOFLUSH),
            Err(error) => reply.error(errno(&error)),
        }
    }

    fn read(
        &self,
        _request: &Request,
        _ino: INodeNo,
        handle: FileHandle,
        offset: u64,
        size: u32,
        _flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        reply: ReplyData,
    ) {
        convert::with_read_buffer(size as usize, |buffer| match self.fs.read(handle.0, buffer, offset) {
            Ok(length) => reply.data(buffer.get(..length).unwrap_or_default()),
            Err(error) => reply.error(errno(&error)),
        });
    }

    fn write(
        &self,
        _request: &Request,
        _ino: INodeNo,
        handle: FileHandle,
        offset: u64,
        data: &[u8],
        _write_flags: WriteFlags,
        _flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        match self.fs.write(handle.0, data, offset) {
            Ok(()) => reply.written(u32::try_from(data.len()).unwrap_or(u32::MAX)),
            Err(error) => reply.error(errno(&error)),
        }
    }

    fn flush(&self, _request: &Request, _ino: INodeNo, _handle: FileHandle, _owner: LockOwner, reply: ReplyEmpty) {
        // Nothing to flush: the kernel asks no more after this answer.
        reply.error(Errno::ENOSYS);
    }

    fn release(
        &self,
        _request: &Request,
        _ino: INodeNo,
        handle: FileHandle,
        _flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        _flush: bool,
        reply: ReplyEmpty,
    ) {
        self.fs.close(handle.0);
        reply.ok();
    }

    fn fsync(&self, _request: &Request, _ino: INodeNo, handle: FileHandle, datasync: bool, reply: ReplyEmpty) {
        reply_done(reply, self.fs.fsync(handle.0, datasync));
    }

    fn opendir(&self, _request: &Request, ino: INodeNo, _flags: OpenFlags, reply: ReplyOpen) {
        match self.fs.open_dir(Ino(ino.0)) {
            Ok(handle) => reply.opened(FileHandle(handle), FopenFlags::empty()),
            Err(error) => reply.error(errno(&error)),
        }
    }

    fn readdir(&self, _request: &Request, ino: INodeNo, handle: FileHandle, offset: u64, mut reply: ReplyDirectory) {
        let listed = self.fs.list(handle.0, Ino(ino.0), offset, &mut |entry| {
            !reply.add(INodeNo(entry.ino.0), entry.cookie, file_type(entry.kind), OsStr::from_bytes(entry.name))
        });
        match listed {
            Ok(()) => reply.ok(),
            Err(error) => reply.error(errno(&error)),
        }
    }

    fn readdirplus(
        &self,
        _request: &Request,
        ino: INodeNo,
        handle: FileHandle,
        offset: u64,
        mut reply: ReplyDirectoryPlus,
    ) {
        let listed = self.fs.list_plus(handle.0, Ino(ino.0), offset, &mut |entry| {
            let ttl = if entry.changes_unseen { Duration::ZERO } else { self.settings.entry_ttl };
            let attr = match &entry.entry {
                Some((full, links)) => file_attr(full, *links),
                None => convert::dot_attr(entry.ino),
            };
            !reply.add(attr.ino, entry.cookie, OsStr::from_bytes(entry.name), &ttl, &attr, generation())
        });
        match listed {
            Ok(()) => reply.ok(),
            Err(error) => reply.error(errno(&error)),
        }
    }

    fn releasedir(&self, _request: &Request, _ino: INodeNo, handle: FileHandle, _flags: OpenFlags, reply: ReplyEmpty) {
        self.fs.close_dir(handle.0);
        reply.ok();
    }

    fn fsyncdir(&self, _request: &Request, ino: INodeNo, _handle: FileHandle, _datasync: bool, reply: ReplyEmpty) {
        reply_done(reply, self.fs.fsync_dir(Ino(ino.0)));
    }

    fn statfs(&self, _request: &Request, _ino: INodeNo, reply: ReplyStatfs) {
        let s = self.fs.statfs();
        let block = convert::STATFS_BLOCK_BYTES;
        reply.statfs(s.blocks, s.blocks_free, s.blocks_free, s.inodes, s.inodes_free, block, 255, block);
    }

    fn setxattr(
        &self,
        _request: &Request,
        ino: INodeNo,
        name: &OsStr,
        value: &[u8],
        flags: i32,
        _position: u32,
        reply: ReplyEmpty,
    ) {
        reply_done(reply, self.fs.set_xattr(Ino(ino.0), name.as_bytes(), value, flags.cast_unsigned()));
    }

    fn getxattr(&self, _request: &Request, ino: INodeNo, name: &OsStr, size: u32, reply: ReplyXattr) {
        let ino = Ino(ino.0);
        reply_xattr(reply, size, self.fs.get_xattr(ino, name.as_bytes(), &|| self.io_mode(ino)));
    }

    fn listxattr(&self, _request: &Request, ino: INodeNo, size: u32, reply: ReplyXattr) {
        reply_xattr(reply, size, self.fs.list_xattrs(Ino(ino.0)));
    }

    fn removexattr(&self, _request: &Request, ino: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        reply_done(reply, self.fs.remove_xattr(Ino(ino.0), name.as_bytes()));
    }

    fn ioctl(
        &self,
        _request: &Request,
        _ino: INodeNo,
        _handle: FileHandle,
        _flags: IoctlFlags,
        _command: u32,
        _in_data: &[u8],
        _out_size: u32,
        reply: ReplyIoctl,
    ) {
        // Never forwarded: one ioctl can shut a disk's file system down.
        reply.error(Errno::ENOTTY);
    }

    fn fallocate(
        &self,
        _request: &Request,
        _ino: INodeNo,
        handle: FileHandle,
        offset: u64,
        length: u64,
        mode: i32,
        reply: ReplyEmpty,
    ) {
        reply_done(reply, self.fs.fallocate(handle.0, mode.cast_unsigned(), offset, length));
    }

    fn lseek(
        &self,
        _request: &Request,
        _ino: INodeNo,
        handle: FileHandle,
        offset: i64,
        whence: i32,
        reply: ReplyLseek,
    ) {
        match convert::seek(&self.fs, handle.0, offset, whence) {
            Ok(offset) => reply.offset(offset),
            Err(error) => reply.error(errno(&error)),
        }
    }

    fn copy_file_range(
        &self,
        _request: &Request,
        _ino_in: INodeNo,
        handle_in: FileHandle,
        offset_in: u64,
        _ino_out: INodeNo,
        handle_out: FileHandle,
        offset_out: u64,
        length: u64,
        _flags: CopyFileRangeFlags,
        reply: ReplyWrite,
    ) {
        match self.fs.copy((handle_in.0, offset_in), (handle_out.0, offset_out), length) {
            Ok(length) => reply.written(u32::try_from(length).unwrap_or(u32::MAX)),
            Err(error) => reply.error(errno(&error)),
        }
    }
}

/// What the kernel is asked for at INIT, where it offers it.
const WANTED: [InitFlags; 6] = [
    InitFlags::FUSE_ASYNC_DIO,
    InitFlags::FUSE_AUTO_INVAL_DATA,
    InitFlags::FUSE_PARALLEL_DIROPS,
    InitFlags::FUSE_DO_READDIRPLUS,
    InitFlags::FUSE_READDIRPLUS_AUTO,
    // Without it the kernel asks for `security.capability` before every write call, not once a file.
    InitFlags::FUSE_HANDLE_KILLPRIV_V2,
];
