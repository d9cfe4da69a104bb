//! Mounting: opens `/dev/fuse`, mounts, negotiates, and runs the threads that answer requests.
//!
//! Called by the daemon. The mount is made here and not by fuser, whose session would unmount the path once more when
//! it ends, and by then another daemon's mount may lie there. Without the right to mount, `fusermount3` does it.

use std::ffi::{CString, OsString};
use std::io::{self, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::time::Duration;

use fuser::{InitFlags, KernelConfig, Session, SessionACL};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::mount::{MountFlags, UnmountFlags};
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags};

use super::notifier::EvictedFiles;
use super::{Glue, GlueSettings, WANTED};
use crate::error::errno_text;
use crate::fs::CacheFs;
use crate::procfs;
use crate::procfs::mountinfo::{self, FS_TYPE};

/// How long a mount point may take to answer before its daemon counts as gone.
const STALE_MOUNT_PATIENCE: Duration = Duration::from_secs(2);

/// How to mount.
#[derive(Clone, Debug)]
pub struct MountSettings<'a> {
    /// SOURCE, as `/proc/mounts` shows it.
    pub source: &'a str,
    /// Where, an absolute path.
    pub mountpoint: &'a Path,
    /// Users other than the daemon's may use the mount.
    pub allow_other: bool,
    /// Nothing may be changed.
    pub read_only: bool,
    /// No program on the mount may be run.
    pub noexec: bool,
    /// Threads that answer requests.
    pub threads: usize,
}

/// A mounted file system whose requests are not answered yet.
pub struct MountedSession {
    session: Session<Glue>,
    passthrough: Arc<AtomicBool>,
}

impl MountedSession {
    /// Mounts and does the first hand-shake with the kernel.
    ///
    /// # Errors
    /// What the kernel or `fusermount3` said; nothing is left mounted then.
    pub fn new(fs: Arc<CacheFs>, mount: &MountSettings<'_>, glue: GlueSettings) -> io::Result<Self> {
        let device = mount_device(mount)?;
        let passthrough = Arc::new(AtomicBool::new(false));
        let mut config = fuser::Config::default();
        config.n_threads = Some(mount.threads);
        let glue = Glue::new(fs, glue, Arc::clone(&passthrough));
        match Session::from_fd(glue, device, SessionACL::All, config) {
            Ok(session) => Ok(MountedSession { session, passthrough }),
            Err(error) => {
                let _ = unmount(mount.mountpoint, true);
                Err(error)
            }
        }
    }

    /// Whether the kernel granted passthrough.
    pub fn passthrough(&self) -> bool {
        self.passthrough.load(Ordering::Relaxed)
    }

    /// The work of the notifier thread: takes evicted files out of the kernel's caches.
    ///
    /// # Errors
    /// No file descriptor was left.
    pub fn notifier(&self, evicted: EvictedFiles) -> io::Result<impl FnOnce() + Send + 'static> {
        let kernel = self.session.notifier();
        let device = self.session.as_fd().try_clone_to_owned()?;
        Ok(move || evicted.tell(&kernel, &device))
    }

    /// Answers requests until the file system is unmounted.
    ///
    /// # Errors
    /// What ended the session other than an unmount.
    pub fn run(self) -> io::Result<()> {
        self.session.run()
    }
}

/// Asks the kernel for what the glue can use; whether passthrough was granted.
pub(super) fn negotiate(config: &mut KernelConfig, settings: &GlueSettings) -> bool {
    for wanted in WANTED {
        // One that this kernel does not offer is done without.
        let _ = config.add_capabilities(wanted);
    }
    let depth = if settings.stacked_disks { 2 } else { 1 };
    // BACKING_OPEN needs CAP_SYS_ADMIN in the first user namespace.
    let granted = settings.passthrough
        && may_register()
        && config.add_capabilities(InitFlags::FUSE_PASSTHROUGH).is_ok()
        && config.set_max_stack_depth(depth).is_ok();
    if settings.passthrough && !granted {
        log::warn!(
            "passthrough cannot be had here (kernel 6.9 and CAP_SYS_ADMIN are needed): data goes through the daemon"
        );
    }
    granted
}

fn may_register() -> bool {
    use rustix::thread::{CapabilitySet, capabilities};
    capabilities(None).is_ok_and(|sets| sets.effective.contains(CapabilitySet::SYS_ADMIN))
}

fn mount_device(mount: &MountSettings<'_>) -> io::Result<OwnedFd> {
    let device = rustix::fs::open("/dev/fuse", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty()).map_err(|errno| {
        let error = io::Error::from(errno);
        io::Error::new(error.kind(), format!("/dev/fuse cannot be opened: {}", errno_text(errno)))
    })?;
    let data = format!(
        "fd={},rootmode=40000,user_id={},group_id={},default_permissions{}",
        device.as_raw_fd(),
        rustix::process::getuid().as_raw(),
        rustix::process::getgid().as_raw(),
        if mount.allow_other { ",allow_other" } else { "" }
    );
    let data = CString::new(data)?;
    let mut flags = MountFlags::NOSUID | MountFlags::NODEV;
    flags.set(MountFlags::RDONLY, mount.read_only);
    flags.set(MountFlags::NOEXEC, mount.noexec);
    match rustix::mount::mount(mount.source, mount.mountpoint, FS_TYPE, flags, Some(data.as_c_str())) {
        Ok(()) => Ok(device),
        Err(Errno::PERM) => {
            drop(device);
            mount_by_helper(mount)
        }
        Err(error) => Err(error.into()),
    }
}

/// Lets the setuid helper mount, and takes the device that it passes over a socket.
fn mount_by_helper(mount: &MountSettings<'_>) -> io::Result<OwnedFd> {
    let (ours, theirs) = UnixStream::pair()?;
    let mut options = OsString::from("default_permissions,subtype=kvspan,fsname=");
    // The helper's option list has no room for a comma in a name but an escaped one.
    options.push(mount.source.replace('\\', "\\\\").replace(',', "\\,"));
    for (wanted, option) in [(mount.allow_other, ",allow_other"), (mount.read_only, ",ro"), (mount.noexec, ",noexec")] {
        if wanted {
            options.push(option);
        }
    }
    let inherited = rustix::io::dup(&theirs)?;
    let mut helper = Command::new("fusermount3");
    helper.arg("-o").arg(options).arg("--").arg(mount.mountpoint);
    helper.env("_FUSE_COMMFD", inherited.as_raw_fd().to_string());
    let child = helper.stderr(std::process::Stdio::piped()).spawn();
    let child =
        child.map_err(|e| io::Error::new(e.kind(), format!("fusermount3 could not be run ({e}); install fuse3")))?;
    drop((theirs, inherited));
    let device = receive_fd(&ours);
    let output = child.wait_with_output()?;
    device?.ok_or_else(|| io::Error::other(String::from_utf8_lossy(&output.stderr).trim().to_string()))
}

fn receive_fd(socket: &UnixStream) -> io::Result<Option<OwnedFd>> {
    let mut byte = [0u8];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let flags = RecvFlags::CMSG_CLOEXEC;
    rustix::net::recvmsg(socket.as_fd(), &mut [IoSliceMut::new(&mut byte)], &mut control, flags)?;
    let fds = control.drain().filter_map(|message| match message {
        RecvAncillaryMessage::ScmRights(fds) => Some(fds),
        _ => None,
    });
    Ok(fds.flatten().next())
}

/// Takes away what a daemon that died left at the mount point: a mount that answers `ENOTCONN` to everybody, or to nobody
/// while a thread of its daemon is stuck. Who serves it is read from `/proc`, without touching the path; only where the
/// kernel does not tell is the path asked, by a thread that may wait.
///
/// # Errors
/// `EBUSY` when a living daemon serves a volume there, or what the unmount said.
pub fn clear_stale_mount(mountpoint: &Path) -> io::Result<()> {
    let mounts = mountinfo::read()?;
    let Some(mount) = mountinfo::topmost(&mounts, mountpoint).filter(|mount| mount.fs_type == FS_TYPE) else {
        return Ok(());
    };
    let server = mount.connection().and_then(procfs::fuse_server);
    if let Some(pid) = server {
        let text = format!("the daemon with pid {pid} has a volume mounted there already");
        return Err(io::Error::new(io::ErrorKind::ResourceBusy, text));
    }
    if asked(mountpoint, STALE_MOUNT_PATIENCE).is_some_and(|answer| answer != Err(Errno::NOTCONN)) {
        return Err(io::Error::new(io::ErrorKind::ResourceBusy, "a volume is mounted there already"));
    }
    log::info!("'{}' is the mount of a daemon that has died; it is taken away", mountpoint.display());
    // FORCE ends the connection, and with it every request that nobody will answer.
    let _ = rustix::mount::unmount(mountpoint, UnmountFlags::FORCE | UnmountFlags::NOFOLLOW);
    match unmount(mountpoint, true) {
        Err(error) if error.raw_os_error() == Some(Errno::INVAL.raw_os_error()) => Ok(()),
        done => done,
    }
}

/// What the file system at a path answers, if it does within the time.
fn asked(path: &Path, patience: Duration) -> Option<std::result::Result<(), Errno>> {
    let (tell, hear) = mpsc::channel();
    let path = path.to_path_buf();
    std::thread::spawn(move || tell.send(rustix::fs::statvfs(&path).map(drop)));
    hear.recv_timeout(patience).ok()
}

/// Unmounts; `lazily` detaches a mount that is in use from the tree and lets its users finish.
///
/// # Errors
/// What the kernel or `fusermount3` said, `EBUSY` for a mount in use.
pub fn unmount(mountpoint: &Path, lazily: bool) -> io::Result<()> {
    let flags = if lazily { UnmountFlags::DETACH } else { UnmountFlags::empty() };
    match rustix::mount::unmount(mountpoint, flags | UnmountFlags::NOFOLLOW) {
        Err(Errno::PERM) => {
            let mut helper = Command::new("fusermount3");
            helper.arg(if lazily { "-uz" } else { "-u" }).arg("--").arg(mountpoint);
            let output = helper.output()?;
            if output.status.success() {
                return Ok(());
            }
            let said = String::from_utf8_lossy(&output.stderr).trim().to_string();
            let busy = said.to_ascii_lowercase().contains("busy");
            Err(if busy { Errno::BUSY.into() } else { io::Error::other(said) })
        }
        done => Ok(done?),
    }
}

/// Whether a directory lies on a file system that is itself stacked on another: overlayfs or FUSE.
pub fn is_stacked(directory: &Path) -> bool {
    const OVERLAY: u64 = 0x794c_7630;
    const FUSE: u64 = 0x6573_5546;
    let magic = rustix::fs::statfs(CString::new(directory.as_os_str().as_bytes()).unwrap_or_default());
    magic.is_ok_and(|fs| matches!(fs.f_type.cast_unsigned(), OVERLAY | FUSE))
}
