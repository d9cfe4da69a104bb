//! The daemon's side of the control socket.
//!
//! One thread accepts, one a connection answers; connections, lines and times are bounded, so that a client that hangs,
//! floods or lies costs a slot for a while and nothing else. Who asks is the kernel's word (`SO_PEERCRED`). Takes no
//! lock.

use std::fs;
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use rustix::io::Errno;
use rustix::net::sockopt::socket_peercred;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};
use rustix::process::{geteuid, getpid};

use super::{Handler, REQUEST_BYTES_MAX, Request, Response};

/// Clients at a time; more are told so.
const CONNECTIONS_MAX: usize = 8;
/// How long a request may take to arrive, and a line of an answer to be taken.
const LINE_BOUND: Duration = Duration::from_secs(5);
/// Progress is said at most this often.
const PROGRESS_INTERVAL: Duration = Duration::from_millis(500);
/// A pause when nothing can be accepted, so that no error becomes a busy loop.
const ACCEPT_PAUSE: Duration = Duration::from_millis(200);

/// How old a socket is at least before it counts as left behind.
const YOUNG_SECONDS: u64 = 60;

/// A bound socket.
#[derive(Debug)]
pub struct Server {
    listener: UnixListener,
    file: SocketFile,
}

/// The file of a socket, known by its inode and its time: another daemon may have put its own there.
#[derive(Debug, Clone)]
pub struct SocketFile {
    path: PathBuf,
    identity: Identity,
}

/// Device, inode number, and when it was made: a number is soon used again.
type Identity = (u64, u64, i64, i64);

fn identity_of(path: &Path) -> io::Result<Identity> {
    let found = fs::symlink_metadata(path)?;
    Ok((found.dev(), found.ino(), found.ctime(), found.ctime_nsec()))
}

impl SocketFile {
    /// Where clients connect.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Takes the file away.
    pub fn remove(&self) {
        if identity_of(&self.path).is_ok_and(|now| now == self.identity) {
            let _ = fs::remove_file(&self.path);
        }
    }
}

impl Server {
    /// Binds `<name>.sock` in a directory that only this user can enter. A socket that nobody answers is replaced; if
    /// somebody does, the name gets this process's id.
    ///
    /// # Errors
    /// What the system said.
    pub fn bind(dir: &Path, name: &str) -> io::Result<Server> {
        own_directory(dir)?;
        let usual = dir.join(format!("{name}.sock"));
        let path = if is_answered(&usual) { dir.join(format!("{name}-{}.sock", getpid())) } else { usual };
        remove_dead_sockets(dir);
        match fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let listener = UnixListener::bind(&path)?;
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600))?;
        let identity = identity_of(&path)?;
        Ok(Server { listener, file: SocketFile { path, identity } })
    }

    /// The socket's file, to be removed at the end.
    pub fn file(&self) -> &SocketFile {
        &self.file
    }

    /// Answers for ever.
    pub fn run(self, handler: Arc<dyn Handler>) {
        let clients = Arc::new(AtomicUsize::new(0));
        loop {
            let stream = match self.listener.accept() {
                Ok((stream, _)) => stream,
                Err(error) => {
                    log::debug!("control socket: {error}");
                    thread::sleep(ACCEPT_PAUSE);
                    continue;
                }
            };
            let Ok(client) = Client::new(stream) else { continue };
            if clients.fetch_add(1, Ordering::AcqRel) >= CONNECTIONS_MAX {
                clients.fetch_sub(1, Ordering::AcqRel);
                client.turn_away();
                continue;
            }
            let (handler, count) = (Arc::clone(&handler), Slot(Arc::clone(&clients)));
            let started = thread::Builder::new().name("control".to_string()).spawn(move || {
                let _count = count;
                client.serve(handler.as_ref());
            });
            if let Err(error) = started {
                log::warn!("control socket: no thread for a client: {error}");
            }
        }
    }
}

/// A client that is counted; dropped also when its thread could not be started.
struct Slot(Arc<AtomicUsize>);

impl Drop for Slot {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

/// One connection.
struct Client {
    stream: UnixStream,
}

impl Client {
    fn new(stream: UnixStream) -> io::Result<Client> {
        stream.set_read_timeout(Some(LINE_BOUND))?;
        stream.set_write_timeout(Some(LINE_BOUND))?;
        Ok(Client { stream })
    }

    /// Says so to a client too many, without waiting for it.
    fn turn_away(mut self) {
        if self.stream.set_nonblocking(true).is_ok() {
            let _ = self.say(&error("too many commands are running; try again later"));
        }
    }

    /// Answers requests until the client has gone or errs.
    fn serve(mut self, handler: &dyn Handler) {
        if !self.may_ask() {
            let _ = self.say(&error("this is for root and for the user of the daemon"));
            return;
        }
        let mut rest = Vec::new();
        while let Ok(Some(line)) = self.read_line(&mut rest) {
            let answer = match serde_json::from_slice(&line) {
                Ok(request) => self.carry_out(&request, handler),
                Err(problem) => error(&format!("the request is not understood: {problem}")),
            };
            if self.say(&answer).is_err() {
                return;
            }
        }
    }

    /// Whether the kernel says that the other end is root or this user.
    fn may_ask(&self) -> bool {
        socket_peercred(&self.stream).is_ok_and(|peer| peer.uid.is_root() || peer.uid == geteuid())
    }

    fn carry_out(&mut self, request: &Request, handler: &dyn Handler) -> Response {
        // A client that has gone does not stop the work: it is the volume's, not the client's.
        let mut said = Instant::now();
        let mut gone = false;
        let mut progress = |files: u64| {
            if !gone && said.elapsed() >= PROGRESS_INTERVAL {
                gone = self.say(&Response::Progress { files }).is_err();
                said = Instant::now();
            }
        };
        let done = match request {
            Request::Ping => {
                Ok(Response::Pong { version: env!("CARGO_PKG_VERSION").to_string(), pid: std::process::id() })
            }
            Request::Rescan => handler.rescan(&mut progress).map(Response::Rescanned),
            Request::Evict { bytes } => handler.evict(*bytes, &mut progress).map(Response::Evicted),
        };
        done.unwrap_or_else(|message| Response::Error { message })
    }

    fn say(&mut self, response: &Response) -> io::Result<()> {
        let mut line = serde_json::to_vec(response)?;
        line.push(b'\n');
        self.stream.write_all(&line)
    }

    /// The next line, which must be whole within its time; `None` at the end. `rest` is what came behind the last one.
    fn read_line(&mut self, rest: &mut Vec<u8>) -> io::Result<Option<Vec<u8>>> {
        let until = Instant::now() + LINE_BOUND;
        loop {
            if let Some(end) = rest.iter().position(|byte| *byte == b'\n') {
                let behind = rest.split_off(end + 1);
                let line = std::mem::replace(rest, behind);
                return Ok(Some(line));
            }
            if rest.len() >= REQUEST_BYTES_MAX {
                let _ = self.say(&error("the request is too long"));
                return Ok(None);
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(Errno::TIMEDOUT.into());
            }
            self.stream.set_read_timeout(Some(left))?;
            let mut buffer = [0; 1024];
            match self.stream.read(&mut buffer) {
                Ok(0) => return Ok(None),
                Ok(length) => rest.extend_from_slice(buffer.get(..length).unwrap_or_default()),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }
}

fn error(message: &str) -> Response {
    Response::Error { message: message.to_string() }
}

/// Sees to it that the directory is there, ours, and closed to others.
fn own_directory(dir: &Path) -> io::Result<()> {
    match fs::DirBuilder::new().mode(0o700).create(dir) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
        _ => {}
    }
    let found = fs::symlink_metadata(dir)?;
    if !found.is_dir() || found.uid() != geteuid().as_raw() {
        return Err(io::Error::other(format!("'{}' is not a directory of this user", dir.display())));
    }
    if found.mode() & 0o777 != 0o700 {
        fs::set_permissions(dir, fs::Permissions::from_mode(0o700))?;
    }
    Ok(())
}

/// A daemon that was killed leaves its socket: those that nobody answers any more go. A young one may be of a daemon that
/// has made it and does not listen yet.
fn remove_dead_sockets(dir: &Path) {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |now| now.as_secs());
    let paths = fs::read_dir(dir).into_iter().flatten().flatten().map(|entry| entry.path());
    for path in paths.filter(|path| path.extension().is_some_and(|end| end == "sock")) {
        let Ok(identity) = identity_of(&path) else {
            continue;
        };
        let is_young = u64::try_from(identity.2).is_ok_and(|made| now < made.saturating_add(YOUNG_SECONDS));
        if !is_young && !is_answered(&path) {
            SocketFile { path, identity }.remove();
        }
    }
}

/// Whether a daemon listens there. Never waits: one whose queue is full is there.
fn is_answered(path: &Path) -> bool {
    let tried = || -> Result<(), Errno> {
        let socket: OwnedFd =
            socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::NONBLOCK | SocketFlags::CLOEXEC, None)?;
        connect(&socket, &SocketAddrUnix::new(path)?)
    };
    matches!(tried(), Ok(()) | Err(Errno::AGAIN))
}

#[cfg(test)]
mod tests;
