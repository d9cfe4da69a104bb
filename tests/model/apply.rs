//! One operation, done to the volume and to the reference, and both compared.
//!
//! Where no fault can hit the operation and all its paths are settled, exactly one answer is right. Otherwise an
//! answer may be an error, but a yes is a yes: what it says has then happened.

use kvspan::volume::files::RenameMode;
use rustix::io::Errno;

use super::client::{Answer, Loaded};
use super::op::Op;
use super::reference::{Id, Node, OnDisks, Reading, is_below, with_ancestors};
use super::world::{Open, World};
use crate::common::faulty::{Effect, Rule, Window};

pub type Outcome = Result<(), String>;

/// Runs a case.
///
/// # Errors
/// The first thing that was not right, and after which operation.
pub fn run(disks: usize, ops: &[Op]) -> Outcome {
    let mut world = World::new(disks)?;
    for (at, op) in ops.iter().enumerate() {
        world.apply(op).map_err(|error| format!("operation {at}, {op:?}: {error}"))?;
    }
    // Whatever happened, a clean start shows what is there.
    world.kill(true).and_then(|()| world.look_at_everything()).map_err(|error| format!("at the end: {error}"))
}

/// Whether an operation may take a file away for good that is at this path.
fn may_lose(op: &Op, troubled: bool, path: &str) -> bool {
    match op {
        // A disk that says it is full loses its coldest files to the new one.
        Op::Store { .. } | Op::StoreUnreleased { .. } | Op::Create { .. } if troubled => true,
        Op::Store { key, .. } | Op::StoreUnreleased { key, .. } => {
            path.strip_prefix(key).is_some_and(|end| end == ".data" || end == ".tmp")
        }
        Op::Create { path: own, .. } | Op::Unlink { path: own } | Op::Rename { to: own, .. } => path == *own,
        Op::EvictTo { .. } => true,
        Op::CrashIn { op, .. } | Op::FailIn { op, .. } => may_lose(op, true, path),
        _ => false,
    }
}

impl World {
    pub fn apply(&mut self, op: &Op) -> Outcome {
        self.troubled = self.is_troubled();
        let in_window = matches!(op, Op::FailIn { .. } | Op::CrashIn { .. });
        self.reference.unreadable = self.unreadable_files(in_window);
        let before = self.ids_on_disks();
        match op {
            Op::CrashIn { calls, op } => self.crash_in(*calls, op)?,
            Op::FailIn { calls, count, error, op } => {
                self.fail_in(&Window::new(*calls, calls + count, error.errno()), op)?;
            }
            Op::Heal => self.heal(),
            Op::FailNext { disk, call, error, skip, count } => {
                let (call, effect) = (*call, Effect::Fail(error.errno()));
                self.faults(*disk).add(Rule { call, effect, skip: *skip, count: *count });
            }
            Op::FailAll { disk, error } => self.faults(*disk).fail_all(error.errno()),
            Op::Remount { scan } => self.remount(*scan)?,
            Op::Kill { scan } => self.kill(*scan)?,
            Op::PowerCut { scan, zeroes } => self.power_cut(*scan, *zeroes)?,
            Op::SyncDisk { disk } => self.sync_disk(*disk),
            Op::AddDisk { disk } => self.change_disks(|present| _ = present.insert(*disk))?,
            Op::RemoveDisk { disk } => self.change_disks(|present| _ = present.remove(disk))?,
            Op::Scan { disk, batches } => self.scan_some(*disk, *batches),
            Op::FinishScan => self.finish_scan(self.troubled)?,
            client => self.apply_client(client)?,
        }
        self.unharmed(|world| {
            // The daemon's thread does so as soon as there is something.
            world.fs().volume().flush_removed();
            world.settle(op, &before)
        })
    }

    /// After an operation: nothing is lost, and all agree.
    fn settle(&mut self, op: &Op, before: &[(String, Id)]) -> Outcome {
        let starts = matches!(op, Op::Remount { .. } | Op::Kill { .. } | Op::CrashIn { .. });
        let sync_fails = self.troubled && matches!(op, Op::Remount { .. } | Op::SyncDisk { .. } | Op::Rescan { .. });
        let within = if let Op::FailIn { op, .. } = op { op } else { op };
        let may_go = matches!(op, Op::AddDisk { .. } | Op::RemoveDisk { .. } | Op::PowerCut { .. })
            || (starts && self.may_remove_at_start())
            || self.may_remove()
            || matches!(within, Op::Scan { .. } | Op::FinishScan | Op::Rescan { .. } if self.may_remove_at_start())
            || sync_fails;
        let found = self.found();
        let unsure = self.troubled || matches!(op, Op::CrashIn { .. });
        let nodes = self.on_disks(&found, unsure)?;
        let gone = |id: Id| !nodes.values().any(|nodes| nodes.contains(&Node::File(id)));
        // A copy that was replaced is removed as soon as that is safe.
        let lost = before.iter().filter(|(path, id)| !self.reference.is_retired(path, Node::File(*id)));
        let lost = lost.into_iter().find(|(path, id)| !may_lose(op, self.troubled, path) && gone(*id));
        if let Some((path, id)) = lost.filter(|_| !may_go) {
            return Err(format!("file {id}, which was at {path:?}, is gone"));
        }
        if self.troubled {
            self.reference.read(&nodes, Reading::HalfDone, &|_| true)?;
            // A directory may have been made for a file that then was not.
            self.dirs_in_doubt = true;
        }
        self.check(&found, &nodes)
    }

    fn ids_on_disks(&self) -> Vec<(String, Id)> {
        let known = |found: crate::common::invariants::Found| Some((found.path, self.reference.id_of(found.inode)?));
        self.found().into_iter().filter_map(known).collect()
    }

    pub fn apply_client(&mut self, op: &Op) -> Outcome {
        match op {
            Op::Store { key, len } => self.store(key, *len, true),
            Op::StoreUnreleased { key, len } => self.store(key, *len, false),
            Op::Create { path, exclusive } => self.create(path, *exclusive).map(drop),
            Op::WritePart { slot, len } => self.write_part(*slot, *len).map(drop),
            Op::Close { slot } => {
                self.close(*slot);
                Ok(())
            }
            Op::OpenRead { path } => self.open_read(path),
            Op::ReadOpen { slot } => self.read_open(*slot),
            Op::Load { path } => self.load(path),
            Op::Exists { path } => self.exists(path),
            Op::Unlink { path } => self.unlink(path),
            Op::Rename { from, to, mode } => self.rename(from, to, *mode).map(drop),
            Op::Mkdir { path } => self.mkdir(path),
            Op::Rmdir { path } => self.rmdir(path),
            Op::List { dir, batch } => self.list(dir, *batch),
            Op::EvictTo { disk, bytes } => self.evict(*disk, *bytes),
            Op::FlushRecency => {
                self.fs().volume().flush_recency(std::time::Duration::ZERO, None);
                Ok(())
            }
            Op::RemoveShadows => {
                self.fs().volume().remove_shadows(&|| false);
                Ok(())
            }
            Op::Rescan { disk } => self.rescan(*disk),
            other => Err(format!("{other:?} is no client's")),
        }
    }

    /// Whether exactly one answer is right.
    pub fn is_strict(&self, paths: &[&str]) -> bool {
        !self.troubled && paths.iter().all(|path| self.reference.is_tree_settled(path))
    }

    /// Compares an answer with the right one, where there is one.
    pub fn expect<T>(&self, strict: bool, got: &Answer<T>, want: Answer<()>) -> Outcome {
        let got = got.as_ref().map(drop).map_err(|error| *error);
        if !strict || got == want { Ok(()) } else { Err(format!("the answer is {got:?}, not {want:?}")) }
    }

    /// What a path's directory says, before the path itself is looked at.
    pub fn want_parent(&self, path: &str) -> Answer<()> {
        let mut above: Vec<&str> = with_ancestors(path).skip(1).collect();
        above.reverse();
        for dir in above {
            match self.reference.must(dir) {
                Node::Dir => {}
                Node::Absent => return Err(Errno::NOENT),
                Node::File(_) => return Err(Errno::NOTDIR),
            }
        }
        Ok(())
    }

    fn want_there(&self, path: &str) -> Answer<Node> {
        self.want_parent(path)?;
        match self.reference.must(path) {
            Node::Absent => Err(Errno::NOENT),
            node => Ok(node),
        }
    }

    /// What a yes has put on the disks must be there.
    pub fn nodes_now(&mut self) -> Result<OnDisks, String> {
        let found = self.found();
        let ghosts = self.troubled;
        self.on_disks(&found, ghosts)
    }

    fn store(&mut self, key: &str, len: usize, release: bool) -> Outcome {
        let (temp, name) = (format!("{key}.tmp"), format!("{key}.data"));
        let must_work = self.troubled
            && self.has_healthy_disk()
            && !key.contains('/')
            && self.reference.must(&temp) == Node::Absent
            && self.reference.is_settled(&temp)
            && self.reference.is_settled(&name)
            && self.reference.must(&name) != Node::Dir;
        let Some(handle) = self.create(&temp, false)? else {
            return if must_work { Err("a healthy disk is there, and the store failed".into()) } else { Ok(()) };
        };
        let slot = self.handles.iter().position(|open| open.handle == handle).expect("the handle");
        let written = self.write_part(slot, len)?;
        if !release && written {
            self.rename(&temp, &name, RenameMode::Replace)?;
            return Ok(());
        }
        self.close(slot);
        if !written {
            return Ok(());
        }
        let done = self.rename(&temp, &name, RenameMode::Replace)?;
        if done || !must_work { Ok(()) } else { Err("a healthy disk is there, and the publish failed".into()) }
    }

    fn create(&mut self, path: &str, exclusive: bool) -> Result<Option<u64>, String> {
        let strict = self.is_strict(&[path]);
        let want = self.want_parent(path).and_then(|()| match self.reference.must(path) {
            Node::Absent => Ok(()),
            _ if exclusive => Err(Errno::EXIST),
            Node::Dir => Err(Errno::ISDIR),
            Node::File(_) => Ok(()),
        });
        let got = self.do_create(path, exclusive);
        self.expect(strict, &got, want)?;
        let Ok(opened) = got else {
            self.note_truncated(path);
            return Ok(None);
        };
        let inode = rustix::fs::fstat(&opened.fd).expect("an open file").st_ino;
        let id = match self.reference.id_of(inode) {
            Some(id) if !self.reference.allowed(path).contains(&Node::File(id)) && !self.troubled => {
                return Err(format!("file {id} was opened"));
            }
            Some(id) if !self.reference.has_had(path, id) => return Err(format!("file {id} was opened")),
            Some(id) => id,
            None => self.reference.new_file(inode),
        };
        self.reference.bytes[id].clear();
        self.reference.put(path, Node::File(id));
        self.must_be_on_disk(path)?;
        self.handles.push(Open { handle: opened.handle, ino: opened.entry.ino, id, writer: true });
        Ok(Some(opened.handle))
    }

    /// A create that failed may have emptied the file that was there.
    fn note_truncated(&mut self, path: &str) {
        if let Node::File(id) = self.reference.must(path)
            && self.troubled
            && let Some(found) = self.found().iter().find(|found| self.reference.id_of(found.inode) == Some(id))
            && found.size_bytes == 0
        {
            self.reference.bytes[id].clear();
            self.sizes_in_doubt.insert(id);
        }
    }

    fn must_be_on_disk(&mut self, path: &str) -> Outcome {
        let (must, nodes) = (self.reference.must(path), self.nodes_now()?);
        let there = nodes.get(path).is_some_and(|nodes| nodes.contains(&must));
        if there { Ok(()) } else { Err(format!("the answer is yes, and {must:?} is not at {path:?}")) }
    }

    /// False if the disk refused.
    fn write_part(&mut self, slot: usize, len: usize) -> Result<bool, String> {
        let writers: Vec<usize> = (0..self.handles.len()).filter(|at| self.handles[*at].writer).collect();
        let at = if self.handles.get(slot).is_some_and(|open| open.writer) {
            slot
        } else if let Some(at) = writers.get(slot % writers.len().max(1)) {
            *at
        } else {
            return Ok(true);
        };
        let (handle, id) = (self.handles[at].handle, self.handles[at].id);
        let data = self.new_bytes(len);
        let got = self.do_write(handle, &data, self.reference.bytes[id].len());
        self.expect(!self.troubled, &got, Ok(()))?;
        if got.is_ok() {
            self.reference.bytes[id].extend_from_slice(&data);
        }
        Ok(got.is_ok())
    }

    fn close(&mut self, slot: usize) {
        if !self.handles.is_empty() {
            let at = if slot < self.handles.len() { slot } else { slot % self.handles.len() };
            let open = self.handles.remove(at);
            self.fs().close(open.handle);
            if self.troubled && open.writer {
                self.sizes_in_doubt.insert(open.id);
            }
        }
    }

    fn open_read(&mut self, path: &str) -> Outcome {
        let strict = self.is_strict(&[path]);
        let want = self.want_there(path).and_then(|node| if node == Node::Dir { Err(Errno::ISDIR) } else { Ok(()) });
        let got = self.do_open(path);
        self.expect(strict, &got, want)?;
        if let Ok(opened) = got {
            let inode = rustix::fs::fstat(&opened.fd).expect("an open file").st_ino;
            let id = self.reference.id_of(inode).ok_or("a file that nobody has made was opened")?;
            self.may_be(path, Node::File(id))?;
            self.handles.push(Open { handle: opened.handle, ino: opened.entry.ino, id, writer: false });
        }
        Ok(())
    }

    /// Whether an observation is right, or at least not wrong.
    fn may_be(&mut self, path: &str, seen: Node) -> Outcome {
        let mut allowed = self.reference.allowed(path);
        if self.troubled {
            allowed.insert(Node::Absent);
            // The disk with the newer copy cannot be read.
            let nodes = self.unharmed(|world| world.nodes_now())?;
            let retired = nodes.get(path).into_iter().flatten().filter(|node| self.reference.is_retired(path, **node));
            allowed.extend(retired.copied());
        }
        if allowed.contains(&seen) { Ok(()) } else { Err(format!("{path:?} shows {seen:?}, not one of {allowed:?}")) }
    }

    fn read_open(&mut self, slot: usize) -> Outcome {
        let Some(open) = self.handles.get(slot % self.handles.len().max(1)) else {
            return Ok(());
        };
        match self.read_all(open.handle) {
            Ok(bytes) if bytes == self.reference.bytes[open.id] => Ok(()),
            Ok(bytes) => Err(format!("file {} has {} other bytes", open.id, bytes.len())),
            Err(_) if self.troubled => Ok(()),
            Err(error) => Err(format!("the answer is {error}")),
        }
    }

    pub fn load(&mut self, path: &str) -> Outcome {
        let got = self.do_load(path);
        match got {
            Ok(Loaded::Dir) => self.may_be(path, Node::Dir),
            Ok(Loaded::Broken(_)) if self.troubled => Ok(()),
            Ok(Loaded::Broken(error)) => Err(format!("the read said {error}")),
            Ok(Loaded::File { size_bytes, bytes }) => {
                if size_bytes != bytes.len() as u64 {
                    return Err(format!("the look-up said {size_bytes} bytes, the file has {}", bytes.len()));
                }
                let ids = (0..self.reference.bytes.len()).filter(|id| self.reference.bytes[*id] == bytes);
                let ids: Vec<Id> = ids.filter(|id| self.reference.has_had(path, *id)).collect();
                let wrong = || format!("{path:?} has {} bytes that were never stored under it", bytes.len());
                let last = ids.last().copied().ok_or_else(wrong)?;
                match ids.iter().find(|id| self.may_be(path, Node::File(**id)).is_ok()) {
                    Some(_) => Ok(()),
                    None => self.may_be(path, Node::File(last)),
                }
            }
            Err(Errno::NOENT | Errno::NOTDIR) => {
                let want = self.want_there(path);
                if self.is_strict(&[path]) {
                    self.expect(true, &got, want.map(drop))
                } else {
                    self.may_be(path, Node::Absent)
                }
            }
            // A disk in trouble is a miss; only what is no trouble of a disk is passed on.
            Err(Errno::NOSPC | Errno::MFILE) if self.troubled => Ok(()),
            Err(error) => Err(format!("the answer is {error}")),
        }
    }

    fn exists(&mut self, path: &str) -> Outcome {
        let strict = self.is_strict(&[path]);
        let got = self.resolve(path);
        self.expect(strict, &got, self.want_there(path).map(drop))?;
        match got {
            Ok(entry) if strict => match self.reference.must(path) {
                Node::File(id) if entry.attr.size_bytes != self.reference.bytes[id].len() as u64 => {
                    Err(format!("stat says {} bytes, not {}", entry.attr.size_bytes, self.reference.bytes[id].len()))
                }
                _ => Ok(()),
            },
            Err(Errno::NOENT | Errno::NOTDIR) if !strict => self.may_be(path, Node::Absent),
            Err(error) if !strict => Err(format!("the answer is {error}")),
            _ => Ok(()),
        }
    }

    fn unlink(&mut self, path: &str) -> Outcome {
        let strict = self.is_strict(&[path]);
        let want = self.want_there(path).and_then(|node| if node == Node::Dir { Err(Errno::ISDIR) } else { Ok(()) });
        let got = self.do_unlink(path);
        self.expect(strict, &got, want)?;
        if got.is_ok() {
            self.reference.put(path, Node::Absent);
        }
        if strict { Ok(()) } else { self.reread(&[path]) }
    }

    /// An operation on unsettled paths: the disks say what has come of it.
    pub fn reread(&mut self, paths: &[&str]) -> Outcome {
        let nodes = self.unharmed(|world| world.nodes_now())?;
        let touched = |path: &str| paths.iter().any(|top| path == *top || is_below(path, top));
        self.reference.read(&nodes, Reading::HalfDone, &touched)
    }

    fn mkdir(&mut self, path: &str) -> Outcome {
        let strict = self.is_strict(&[path]);
        let want = self.want_parent(path);
        let want =
            want.and_then(|()| if self.reference.must(path) == Node::Absent { Ok(()) } else { Err(Errno::EXIST) });
        let got = self.do_mkdir(path);
        self.expect(strict, &got, want)?;
        if got.is_ok() {
            self.reference.put(path, Node::Dir);
            self.must_be_on_disk(path)?;
        }
        if strict { Ok(()) } else { self.reread(&[path]) }
    }

    fn rmdir(&mut self, path: &str) -> Outcome {
        let strict = self.is_strict(&[path]);
        let want = self.want_there(path).and_then(|node| match node {
            Node::Dir if self.reference.has_children(path) => Err(Errno::NOTEMPTY),
            Node::Dir => Ok(()),
            _ => Err(Errno::NOTDIR),
        });
        let got = self.do_rmdir(path);
        self.expect(strict, &got, want)?;
        if got.is_ok() {
            self.reference.put(path, Node::Absent);
        }
        if strict { Ok(()) } else { self.reread(&[path]) }
    }

    pub fn list(&mut self, dir: &str, batch: usize) -> Outcome {
        let strict = self.is_strict(&[dir]);
        let want = if dir.is_empty() { Ok(()) } else { self.want_there(dir).map(drop) };
        let want = want.and_then(|()| match self.reference.must(dir) {
            Node::File(_) => Err(Errno::NOTDIR),
            _ => Ok(()),
        });
        let got = self.do_list(dir, batch);
        self.expect(strict, &got, want)?;
        let Ok(mut names) = got else {
            return Ok(());
        };
        names.sort();
        let all = names.len();
        names.dedup();
        if names.len() != all {
            return Err(format!("a name is listed twice: {names:?}"));
        }
        let must = if self.reference.is_settled(dir) { self.reference.children(dir) } else { Default::default() };
        if let Some(missing) = must.keys().find(|name| !names.iter().any(|(listed, _)| listed == *name)) {
            return Err(format!("{missing:?} is not listed in {dir:?}: {names:?}"));
        }
        for (name, is_dir) in names {
            let path = if dir.is_empty() { name } else { format!("{dir}/{name}") };
            let allowed = self.reference.allowed(&path);
            if !allowed.iter().any(|node| *node != Node::Absent && (*node == Node::Dir) == is_dir) {
                return Err(format!("{path:?} is listed, and is one of {allowed:?}"));
            }
        }
        Ok(())
    }

    fn evict(&mut self, disk: usize, bytes: u64) -> Outcome {
        let Some(no) = self.position(disk) else {
            return Ok(());
        };
        self.fs().volume().evict_bytes(no, bytes);
        let nodes = self.unharmed(|world| world.nodes_now())?;
        for (path, id) in self.reference.files() {
            if nodes.get(&path).is_some_and(|nodes| nodes.contains(&Node::File(id))) {
                continue;
            }
            if self.handles.iter().any(|open| open.id == id && open.writer) {
                return Err(format!("{path:?} was evicted while it is open for writing"));
            }
            if path.ends_with(".tmp") {
                return Err(format!("{path:?}, a young temp file, was evicted"));
            }
            self.reference.put(&path, Node::Absent);
        }
        self.reread(&[""])
    }
}
