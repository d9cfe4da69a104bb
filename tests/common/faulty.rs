//! A disk that fails, stalls or is slow on demand: `FaultyDisk` over a real one, and `Faults` to command it.
//!
//! A fault comes before the call has had any effect, so what is on the disk is always what the calls that succeeded
//! have made of it. The `Faults` of a directory outlive the volume, as a broken disk outlives a remount.

use std::collections::{HashMap, HashSet, VecDeque};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use kvspan::volume::disk::real::RealDisk;
use kvspan::volume::disk::{Access, DirReader, DiskIo, FoundName, FoundStat, NewAttr, Space};
use kvspan::volume::record::rule::MountInstance;
use parking_lot::{Condvar, Mutex, MutexGuard};
use rustix::io::Errno;

use super::gate;

/// What a volume asks of a disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Call {
    Open,
    Create,
    Stat,
    StatFd,
    Rename,
    Exchange,
    Unlink,
    Mkdir,
    Rmdir,
    List,
    ListNext,
    SetAttr,
    OpenDir,
    Read,
    Write,
    Fsync,
    Fallocate,
    Seek,
    Copy,
    Xattr,
    SetAtime,
    Space,
    SyncFs,
    MountInstance,
}

/// What happens to a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// It fails and does nothing.
    Fail(Errno),
    /// It waits until [`Faults::release`].
    Stall,
    /// It is done at once, and its answer waits until [`Faults::release`].
    StallAnswer,
    /// It takes longer.
    Delay(Duration),
}

/// The next calls of one kind: `skip` of them pass, then `count` suffer.
#[derive(Clone, Copy, Debug)]
pub struct Rule {
    pub call: Call,
    pub effect: Effect,
    pub skip: u32,
    pub count: u32,
}

/// Calls, counted over all disks that share it, that fail: a bad moment, or the end of a process that is killed.
#[derive(Debug)]
pub struct Window {
    calls: AtomicU64,
    from: u64,
    until: u64,
    errno: Errno,
}

impl Window {
    /// The calls `from .. until` fail.
    pub fn new(from: u64, until: u64, errno: Errno) -> Arc<Window> {
        Arc::new(Window { calls: AtomicU64::new(0), from, until, errno })
    }

    fn enter(&self) -> io::Result<()> {
        let call = self.calls.fetch_add(1, Ordering::SeqCst);
        if (self.from..self.until).contains(&call) { Err(self.errno.into()) } else { Ok(()) }
    }
}

/// The command over one disk's faults.
#[derive(Default)]
pub struct Faults {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    rules: Vec<Rule>,
    /// Faults wait while a test looks on.
    paused: bool,
    dead: Option<Errno>,
    /// A directory whose listing fails after so many names.
    broken_listing: Option<(Vec<u8>, usize)>,
    window: Option<Arc<Window>>,
    calls: HashMap<Call, u64>,
    stalled: usize,
    releases: u64,
    /// Birth times that a file system's clock is too coarse to tell apart, by inode number.
    births: HashMap<u64, i64>,
    /// Inode numbers of files whose bytes a power cut would take.
    dirty: HashSet<u64>,
    last_birth: i64,
}

impl Faults {
    pub fn add(&self, rule: Rule) {
        self.state.lock().rules.push(rule);
    }

    /// The next `count` calls of a kind fail.
    pub fn fail_next(&self, call: Call, errno: Errno, count: u32) {
        self.add(Rule { call, effect: Effect::Fail(errno), skip: 0, count });
    }

    /// The disk is dead: every call fails.
    pub fn fail_all(&self, errno: Errno) {
        self.state.lock().dead = Some(errno);
    }

    /// The listing of this directory says EIO after so many names.
    pub fn fail_listing(&self, path: &str, names: usize) {
        self.state.lock().broken_listing = Some((path.as_bytes().to_vec(), names));
    }

    /// The next call of a kind waits until [`release`](Self::release).
    pub fn stall_next(&self, call: Call) {
        self.add(Rule { call, effect: Effect::Stall, skip: 0, count: 1 });
    }

    /// The answer of the next [`Call::StatFd`] or [`Call::Stat`] waits until [`release`](Self::release).
    pub fn stall_answer_of_next(&self, call: Call) {
        self.add(Rule { call, effect: Effect::StallAnswer, skip: 0, count: 1 });
    }

    /// The next `count` calls of a kind take longer.
    pub fn delay_next(&self, call: Call, by: Duration, count: u32) {
        self.add(Rule { call, effect: Effect::Delay(by), skip: 0, count });
    }

    /// Calls fail as the window says; none takes it away again.
    pub fn set_window(&self, window: Option<&Arc<Window>>) {
        self.state.lock().window = window.map(Arc::clone);
    }

    /// Lets all stalled calls go on.
    pub fn release(&self) {
        self.state.lock().releases += 1;
        self.changed.notify_all();
    }

    /// The disk is well again; stalled calls go on.
    pub fn heal(&self) {
        let mut state = self.state.lock();
        state.rules.clear();
        state.dead = None;
        state.broken_listing = None;
        state.window = None;
        state.releases += 1;
        self.changed.notify_all();
    }

    /// Faults wait until this is taken back, so that a test can look without meeting them.
    pub fn pause(&self, paused: bool) {
        self.state.lock().paused = paused;
    }

    /// Whether a fault may still come.
    pub fn is_armed(&self) -> bool {
        let state = self.state.lock();
        let broken = state.dead.is_some() || state.broken_listing.is_some();
        broken || !state.rules.is_empty() || state.window.is_some()
    }

    /// Whether every call fails.
    pub fn is_dead(&self) -> bool {
        self.state.lock().dead.is_some()
    }

    /// Calls of a kind so far, those that failed included.
    pub fn calls(&self, call: Call) -> u64 {
        self.state.lock().calls.get(&call).copied().unwrap_or(0)
    }

    /// Waits until `count` calls are stalled; false if they are not within `at_most`.
    pub fn wait_stalled(&self, count: usize, at_most: Duration) -> bool {
        let mut state = self.state.lock();
        let result = self.changed.wait_while_for(&mut state, |state| state.stalled < count, at_most);
        !result.timed_out()
    }

    fn enter(&self, call: Call) -> io::Result<()> {
        let mut state = self.state.lock();
        if state.paused {
            return Ok(());
        }
        *state.calls.entry(call).or_default() += 1;
        if let Some(errno) = state.dead {
            return Err(errno.into());
        }
        if let Some(window) = &state.window {
            window.enter()?;
        }
        match state.effect_on(call, |effect| effect != Effect::StallAnswer) {
            None | Some(Effect::StallAnswer) => Ok(()),
            Some(Effect::Fail(errno)) => Err(errno.into()),
            Some(Effect::Delay(by)) => {
                drop(state);
                std::thread::sleep(by);
                Ok(())
            }
            Some(Effect::Stall) => {
                self.wait_for_release(&mut state);
                state.dead.map_or(Ok(()), |errno| Err(errno.into()))
            }
        }
    }

    /// The call has been done: its answer may have to wait.
    fn answer(&self, call: Call) {
        let mut state = self.state.lock();
        if state.effect_on(call, |effect| effect == Effect::StallAnswer).is_some() {
            self.wait_for_release(&mut state);
        }
    }

    fn wait_for_release(&self, state: &mut MutexGuard<'_, State>) {
        let before = state.releases;
        state.stalled += 1;
        self.changed.notify_all();
        self.changed.wait_while(state, |state| state.releases == before);
        state.stalled -= 1;
    }

    fn names_before_failure(&self, path: &[u8]) -> Option<usize> {
        let state = self.state.lock();
        state.broken_listing.as_ref().filter(|(broken, _)| broken == path).map(|(_, names)| *names)
    }

    /// The file with this inode number was born then, whatever the file system says.
    pub fn set_birth(&self, inode: u64, birth_ns: i64) {
        self.state.lock().births.insert(inode, birth_ns);
    }

    fn born(&self, inode: u64) {
        let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let mut state = self.state.lock();
        state.last_birth = (since.as_nanos() as i64).max(state.last_birth + 1);
        let birth = state.last_birth;
        state.births.insert(inode, birth);
    }

    fn dirtied(&self, fd: BorrowedFd<'_>) -> io::Result<()> {
        let inode = rustix::fs::fstat(fd)?.st_ino;
        self.state.lock().dirty.insert(inode);
        Ok(())
    }

    /// The files whose bytes were written since they were last made durable; they are clean from now on.
    pub fn take_dirty(&self) -> HashSet<u64> {
        std::mem::take(&mut self.state.lock().dirty)
    }

    fn with_birth(&self, found: FoundStat) -> FoundStat {
        let birth = self.state.lock().births.get(&found.ino).copied();
        FoundStat { birth_ns: birth.unwrap_or(found.birth_ns), ..found }
    }
}

impl State {
    /// What the first rule that is due says.
    fn effect_on(&mut self, call: Call, kind: impl Fn(Effect) -> bool) -> Option<Effect> {
        let mut due = None;
        for rule in self.rules.iter_mut().filter(|rule| rule.call == call && kind(rule.effect)) {
            if rule.skip > 0 {
                rule.skip -= 1;
            } else if due.is_none() && rule.count > 0 {
                rule.count -= 1;
                due = Some(rule.effect);
            }
        }
        self.rules.retain(|rule| rule.count > 0);
        due
    }
}

/// A disk whose calls pass by its [`Faults`].
pub struct FaultyDisk {
    real: RealDisk,
    faults: Arc<Faults>,
    /// Names that a listing returns at a time; 0: as the disk does.
    batch: usize,
}

impl FaultyDisk {
    pub fn new(real: RealDisk, faults: Arc<Faults>) -> Self {
        FaultyDisk { real, faults, batch: 0 }
    }

    /// Listings return at most `names` names at a time.
    pub fn with_batches_of(self, names: usize) -> Self {
        FaultyDisk { batch: names, ..self }
    }
}

struct FaultyReader {
    real: Box<dyn DirReader>,
    left: VecDeque<FoundName>,
    faults: Arc<Faults>,
    batch: usize,
    /// The listing fails after so many names.
    fails_after: Option<usize>,
}

impl DirReader for FaultyReader {
    fn next_batch(&mut self) -> io::Result<Vec<FoundName>> {
        self.faults.enter(Call::ListNext)?;
        if self.fails_after == Some(0) {
            return Err(Errno::IO.into());
        }
        if self.left.is_empty() {
            self.left.extend(self.real.next_batch()?);
        }
        let take = if self.batch == 0 { self.left.len() } else { self.batch.min(self.left.len()) };
        let take = take.min(self.fails_after.unwrap_or(take));
        self.fails_after = self.fails_after.map(|names| names - take);
        let batch = self.left.drain(..take).collect();
        gate::pass()?;
        Ok(batch)
    }
}

impl DiskIo for FaultyDisk {
    fn open(&self, path: &[u8], access: Access) -> io::Result<OwnedFd> {
        self.faults.enter(Call::Open)?;
        self.real.open(path, access)
    }

    fn create(&self, path: &[u8], mode: u16) -> io::Result<OwnedFd> {
        self.faults.enter(Call::Create)?;
        let fd = self.real.create(path, mode)?;
        self.faults.born(rustix::fs::fstat(&fd)?.st_ino);
        self.faults.dirtied(fd.as_fd())?;
        Ok(fd)
    }

    fn stat(&self, path: &[u8]) -> io::Result<FoundStat> {
        self.faults.enter(Call::Stat)?;
        let found = self.real.stat(path)?;
        self.faults.answer(Call::Stat);
        Ok(self.faults.with_birth(found))
    }

    fn stat_fd(&self, fd: BorrowedFd<'_>) -> io::Result<FoundStat> {
        self.faults.enter(Call::StatFd)?;
        let found = self.real.stat_fd(fd)?;
        self.faults.answer(Call::StatFd);
        Ok(self.faults.with_birth(found))
    }

    fn rename(&self, from: &[u8], to: &[u8], replace: bool) -> io::Result<()> {
        self.faults.enter(Call::Rename)?;
        self.real.rename(from, to, replace)
    }

    fn exchange(&self, a: &[u8], b: &[u8]) -> io::Result<()> {
        self.faults.enter(Call::Exchange)?;
        self.real.exchange(a, b)
    }

    fn unlink(&self, path: &[u8]) -> io::Result<()> {
        self.faults.enter(Call::Unlink)?;
        self.real.unlink(path)
    }

    fn mkdir(&self, path: &[u8], mode: u16) -> io::Result<()> {
        self.faults.enter(Call::Mkdir)?;
        self.real.mkdir(path, mode)
    }

    fn rmdir(&self, path: &[u8]) -> io::Result<()> {
        self.faults.enter(Call::Rmdir)?;
        self.real.rmdir(path)
    }

    fn list(&self, path: &[u8]) -> io::Result<Box<dyn DirReader>> {
        self.faults.enter(Call::List)?;
        let (real, faults) = (self.real.list(path)?, Arc::clone(&self.faults));
        let fails_after = self.faults.names_before_failure(path);
        Ok(Box::new(FaultyReader { real, left: VecDeque::new(), faults, batch: self.batch, fails_after }))
    }

    fn set_attr(&self, fd: BorrowedFd<'_>, new: &NewAttr) -> io::Result<()> {
        self.faults.enter(Call::SetAttr)?;
        if new.size_bytes.is_some() {
            self.faults.dirtied(fd)?;
        }
        self.real.set_attr(fd, new)
    }

    fn open_dir(&self, path: &[u8]) -> io::Result<OwnedFd> {
        self.faults.enter(Call::OpenDir)?;
        self.real.open_dir(path)
    }

    fn read(&self, fd: BorrowedFd<'_>, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        self.faults.enter(Call::Read)?;
        self.real.read(fd, buffer, offset)
    }

    fn write(&self, fd: BorrowedFd<'_>, data: &[u8], offset: u64) -> io::Result<()> {
        self.faults.enter(Call::Write)?;
        self.faults.dirtied(fd)?;
        self.real.write(fd, data, offset)
    }

    fn fsync(&self, fd: BorrowedFd<'_>, data_only: bool) -> io::Result<()> {
        self.faults.enter(Call::Fsync)?;
        self.real.fsync(fd, data_only)?;
        self.faults.state.lock().dirty.remove(&rustix::fs::fstat(fd)?.st_ino);
        Ok(())
    }

    fn fallocate(&self, fd: BorrowedFd<'_>, mode: u32, offset: u64, length: u64) -> io::Result<()> {
        self.faults.enter(Call::Fallocate)?;
        self.real.fallocate(fd, mode, offset, length)
    }

    fn seek(&self, fd: BorrowedFd<'_>, offset: u64, hole: bool) -> io::Result<u64> {
        self.faults.enter(Call::Seek)?;
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
        self.faults.enter(Call::Copy)?;
        self.real.copy(from, from_at, to, to_at, length)
    }

    fn get_xattr(&self, fd: BorrowedFd<'_>, name: &[u8]) -> io::Result<Vec<u8>> {
        self.faults.enter(Call::Xattr)?;
        self.real.get_xattr(fd, name)
    }

    fn list_xattrs(&self, fd: BorrowedFd<'_>) -> io::Result<Vec<u8>> {
        self.faults.enter(Call::Xattr)?;
        self.real.list_xattrs(fd)
    }

    fn set_xattr(&self, fd: BorrowedFd<'_>, name: &[u8], value: &[u8], flags: u32) -> io::Result<()> {
        self.faults.enter(Call::Xattr)?;
        self.real.set_xattr(fd, name, value, flags)
    }

    fn remove_xattr(&self, fd: BorrowedFd<'_>, name: &[u8]) -> io::Result<()> {
        self.faults.enter(Call::Xattr)?;
        self.real.remove_xattr(fd, name)
    }

    fn set_atime(&self, path: &[u8], atime_ns: i64) -> io::Result<()> {
        self.faults.enter(Call::SetAtime)?;
        self.real.set_atime(path, atime_ns)
    }

    fn space(&self) -> io::Result<Space> {
        self.faults.enter(Call::Space)?;
        self.real.space()
    }

    fn sync_fs(&self) -> io::Result<()> {
        self.faults.enter(Call::SyncFs)?;
        self.real.sync_fs()?;
        self.faults.state.lock().dirty.clear();
        Ok(())
    }

    fn mount_instance(&self) -> io::Result<Option<MountInstance>> {
        self.faults.enter(Call::MountInstance)?;
        self.real.mount_instance()
    }
}
