//! The volume: the only room that changes disks and index together.
//!
//! Called by the file system above it (`crate::fs`) and by the daemon's background work; knows nothing of FUSE.
//! Create and rename touch the disk first and the index second; unlink the index first. Locks: rank 0 name locks
//! and the tree lock (nested paths), which may be held over system calls; rank 1 [`Shared`], which never is.
//!
//! Invariants: a name has one location; every linked file of the index is on its disk; an inode with an open handle
//! is pinned; a disk's used bytes are the sum over its files that are linked or open.

use std::collections::{HashMap, HashSet};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use lru::LruCache;
use parking_lot::{Mutex, RwLock, RwLockReadGuard};
use uuid::Uuid;

use crate::config::{EvictionPolicy, PlacementPolicy};
use crate::error::{Error, Result, is_disk_trouble};
use crate::messages::{About, event};
use crate::sync::{NameGuard, NameLocks};
use attr::{Attr, DiskNo, Ino, Kind};
use disk::Disk;
use index::{Entry, Index};
use name::{EntryName, PlacementKey};
pub use open_files::Attached;
use open_files::{KeptFiles, OpenFile};
use placement::Placement;
use room::ObjectSizes;
use writers::Writers;

mod adopt;
pub mod attr;
pub mod capacity;
mod deferred;
mod dirs;
pub mod disk;
mod durable;
pub mod evictor;
pub mod files;
pub mod identity;
pub mod index;
mod intent;
mod live;
pub mod name;
mod open_files;
mod orphans;
pub mod placement;
pub mod power;
mod readings;
pub mod recency;
pub mod record;
pub mod recovery;
mod removed;
mod rename;
mod rename_dir;
mod replace;
pub mod report;
pub mod rescan;
pub mod room;
mod settle;
pub mod shadows;
mod writers;

/// What a file system of the volume's size needs to know of itself besides its disks.
pub struct VolumeSettings {
    /// The id that all labels share.
    pub id: Uuid,
    /// Where a new file goes.
    pub policy: PlacementPolicy,
    /// How long a request waits for a name that another one works on, and a create for the scan's first files.
    pub io_timeout: Duration,
    /// A younger temp file is never a victim; 0: no temp file is.
    pub temp_ttl: Duration,
    /// A name used within this time is no victim while a colder one is there: the kernel may have answered for it since.
    pub grace: Duration,
    /// Eviction begins above this share of a disk's bound.
    pub high_percent: f64,
    /// It ends below this one.
    pub low_percent: f64,
    /// What goes first.
    pub eviction: EvictionPolicy,
    /// Files that stay open after their last handle, at most.
    pub kept_files: usize,
}

/// Is told the inode of every file that was evicted and that the kernel may still know.
pub type OnEvicted = Box<dyn Fn(Ino) + Send + Sync>;

/// N disks and the index over them.
pub struct Volume {
    settings: VolumeSettings,
    disks: Vec<Disk>,
    placement: Placement,
    names: NameLocks,
    /// Shared by requests on nested paths, exclusive for the rename of a directory.
    tree: RwLock<()>,
    shared: Mutex<Shared>,
    on_evicted: OnEvicted,
    counters: Counters,
    shadows: shadows::Shadows,
    orphans: orphans::Orphans,
    removed: removed::Removed,
    renames: intent::Renames,
}

/// Rank 1: the index and the files that are open.
struct Shared {
    index: Index,
    open: HashMap<Ino, OpenFile>,
    /// Files without a handle that are open for the next load.
    kept: KeptFiles,
    /// What is open for writing, for each disk.
    writers: Vec<Writers>,
    sizes: ObjectSizes,
    /// Files whose disk could not say what they had become when their writer closed them.
    unsettled: HashSet<Ino>,
    /// Files whose last use the disk does not know.
    recent: Vec<Ino>,
    /// Files that were written since the last sync, whose room may still change.
    unmeasured: Vec<Ino>,
    /// Of those, files that took more room at their close than they need.
    swollen: Vec<Ino>,
    /// Files that may still be mapped although no handle is open.
    mapped: LruCache<Ino, ()>,
    readings: readings::Readings,
}

/// What the volume has done since it was opened.
#[derive(Default)]
struct Counters {
    hits: AtomicU64,
    misses: AtomicU64,
    adopted: AtomicU64,
    /// Files that a power loss may have torn and that were removed.
    lost_removed: AtomicU64,
    evicted_files: AtomicU64,
    evicted_bytes: AtomicU64,
}

/// An open file, as the layer above keeps it in a handle.
pub struct Opened {
    /// The entry at the time of the open.
    pub entry: Entry,
    /// The backing file.
    pub fd: Arc<OwnedFd>,
    /// What the layer above keeps with the open file.
    pub attached: Arc<Attached>,
    /// It is not as the index knew it: somebody has changed or replaced it behind our back.
    pub is_news: bool,
}

/// Who a new file or directory belongs to, and its permission bits.
#[derive(Clone, Copy, Debug)]
pub struct NewOwner {
    /// Owner.
    pub uid: u32,
    /// Group, unless the directory hands its own down.
    pub gid: u32,
    /// The low 12 bits of `st_mode`, umask applied.
    pub mode: u16,
}

/// Nanoseconds since the epoch by the clock that file systems take their times from. A finer one would show a new
/// file's times a few milliseconds ahead of those that the disk gives it, and they would then go back.
pub(crate) fn now_ns() -> i64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::RealtimeCoarse);
    now.tv_sec.saturating_mul(1_000_000_000).saturating_add(now.tv_nsec)
}

impl Volume {
    /// A volume over labelled disks, with an index that knows the root only.
    ///
    /// # Errors
    /// [`Error::NoDisk`] without disks, or what the first disk said about its directory.
    pub fn new(settings: VolumeSettings, disks: Vec<Disk>, on_evicted: OnEvicted) -> Result<Self> {
        let ids: Vec<(Uuid, f64)> = disks.iter().map(|disk| (disk.id, 1.0)).collect();
        let root = root_attr(&disks)?;
        let placement = Placement::new(&ids).map_err(|_| Error::Invalid)?;
        let mut index = Index::new(disks.len(), root);
        let disk_count = disks.len();
        index.set_dir_disks(Ino::ROOT, all_disks(disk_count));
        if settings.eviction == EvictionPolicy::ScanResistant {
            index.keep_scans_apart();
        }
        let shared = Shared {
            index,
            open: HashMap::new(),
            kept: KeptFiles::new(settings.kept_files),
            writers: (0..disk_count).map(|_| Writers::default()).collect(),
            sizes: ObjectSizes::default(),
            unsettled: HashSet::new(),
            recent: Vec::new(),
            unmeasured: Vec::new(),
            swollen: Vec::new(),
            mapped: LruCache::new(settle::MAX_MAPPED),
            readings: readings::Readings::default(),
        };
        Ok(Volume {
            names: NameLocks::new(settings.io_timeout),
            settings,
            placement,
            disks,
            tree: RwLock::new(()),
            shared: Mutex::new(shared),
            on_evicted,
            counters: Counters::default(),
            shadows: shadows::Shadows::new(),
            orphans: orphans::Orphans::new(disk_count),
            removed: removed::Removed::new(disk_count),
            renames: intent::Renames::default(),
        })
    }

    /// The id that all labels share.
    pub fn id(&self) -> Uuid {
        self.settings.id
    }

    /// All disks, in configured order.
    pub fn disks(&self) -> &[Disk] {
        &self.disks
    }

    /// One disk.
    ///
    /// # Errors
    /// [`Error::NoDisk`] for a number that no disk has.
    pub fn disk(&self, no: DiskNo) -> Result<&Disk> {
        self.disks.get(no.index()).ok_or(Error::NoDisk)
    }

    /// What a message about a disk says of it.
    pub fn about(&self, no: DiskNo) -> About {
        self.disk(no).map(Disk::about).unwrap_or_default()
    }

    /// The same of a name in a directory of it; of the directory itself, if the name is empty.
    fn about_in(&self, no: DiskNo, dir: Ino, name: &[u8]) -> About {
        let mut path = self.path(dir).unwrap_or_default();
        if !path.is_empty() && !name.is_empty() {
            path.push(b'/');
        }
        path.extend_from_slice(name);
        self.about(no).path(&path)
    }

    /// The disk that placement picks for a name.
    pub fn owner(&self, name: &[u8]) -> Option<DiskNo> {
        self.placement.owner(&PlacementKey::of(name))
    }

    /// Whether a file of this name lies elsewhere than on its owner. With `most-free` a name has no owner, and none is away.
    fn is_away(&self, name: &[u8], no: DiskNo) -> bool {
        self.settings.policy == PlacementPolicy::Rendezvous && self.owner(name) != Some(no)
    }

    /// The disk that placement picks for an entry's name; with `most-free` the one that it lies on.
    ///
    /// # Errors
    /// [`Error::Stale`] when the entry has gone.
    pub fn owner_of(&self, ino: Ino) -> Result<&Disk> {
        let (_, name) = self.entry_name(ino)?;
        if self.settings.policy == PlacementPolicy::MostFree {
            let entry = self.shared.lock().index.get(ino).ok_or(Error::Stale)?;
            return self.disk(entry.disk);
        }
        self.disk(self.owner(&name).ok_or(Error::NoDisk)?)
    }

    /// Looks a name up and counts one look-up of its inode, which the caller owes a [`forget`](Self::forget).
    ///
    /// # Errors
    /// [`Error::NotFound`] for a miss, which is also what a disk that cannot be read answers.
    pub fn lookup(&self, parent: Ino, name: EntryName<'_>) -> Result<Entry> {
        let now = now_ns();
        let found = {
            let mut shared = self.shared.lock();
            shared.index.find(parent, name.as_bytes()).and_then(|ino| shared.count_lookup(ino, now))
        };
        let found = match found {
            Some(entry) => Some(entry),
            None if self.is_recovering() => self.lookup_unscanned(parent, name, now)?,
            None => None,
        };
        let counter = if found.is_some() { &self.counters.hits } else { &self.counters.misses };
        counter.fetch_add(1, Ordering::Relaxed);
        let entry = found.ok_or(Error::NotFound)?;
        self.live(entry).inspect_err(|_| self.forget(entry.ino, 1))
    }

    fn lookup_unscanned(&self, parent: Ino, name: EntryName<'_>, now: i64) -> Result<Option<Entry>> {
        let _tree = self.tree_for(parent);
        let _name = self.names.lock(parent, name.as_bytes())?;
        let Some(entry) = self.find_or_probe(parent, name)? else {
            return Ok(None);
        };
        Ok(self.shared.lock().count_lookup(entry.ino, now))
    }

    /// Takes back `count` look-ups; the slot of an entry that has gone is then free again.
    pub fn forget(&self, ino: Ino, count: u64) {
        let gone = {
            let mut shared = self.shared.lock();
            shared.index.forget(ino, count);
            shared.index.get(ino).is_none()
        };
        if gone {
            self.let_go_of_unneeded(ino);
        }
    }

    /// The entry as the index has it, or live from the disk while somebody may be writing to it.
    ///
    /// # Errors
    /// [`Error::Stale`] when the entry has gone and nobody has it open.
    pub fn attributes(&self, ino: Ino) -> Result<Entry> {
        let (mut entry, writer, mapped) = {
            let shared = self.shared.lock();
            let entry = shared.index.get(ino).ok_or(Error::Stale)?;
            let open = shared.open.get(&ino);
            if !entry.linked && open.is_none() && entry.kind == Kind::File {
                return Err(Error::Stale);
            }
            let writer = open.filter(|open| open.writers > 0 || !entry.linked).map(|open| Arc::clone(&open.fd));
            (entry, writer, shared.mapped.contains(&ino))
        };
        match writer {
            Some(fd) => entry.attr = self.refresh(&entry, &fd)?,
            None if mapped => entry = self.look_again_at(entry),
            None => {}
        }
        Ok(entry)
    }

    /// Whether some disk has not been scanned to its end.
    pub fn is_recovering(&self) -> bool {
        self.disks.iter().any(|disk| !disk.is_scanned())
    }

    /// Finds a name in the index or, while disks are being scanned, on the disks. The caller holds the name.
    fn find_or_probe(&self, parent: Ino, name: EntryName<'_>) -> Result<Option<Entry>> {
        if let Some(entry) = self.find(parent, name) {
            return Ok(Some(entry));
        }
        if !self.is_recovering() {
            return Ok(None);
        }
        // Every unscanned disk is asked, not only the first that answers yes: two may hold a copy.
        for (no, disk) in self.numbered().filter(|(_, disk)| !disk.is_scanned()) {
            let Some(path) = self.path_of(parent, name) else {
                return Ok(None);
            };
            match disk.io.stat(&path) {
                Ok(stat) => drop(self.adopt(no, parent, name, &stat)),
                Err(error) if is_disk_trouble(&error) => {
                    event!(Warn, disk.about().path(&path).error(&error), "a name could not be looked for")
                }
                Err(_) => {}
            }
        }
        Ok(self.find(parent, name))
    }

    fn find(&self, parent: Ino, name: EntryName<'_>) -> Option<Entry> {
        let shared = self.shared.lock();
        shared.index.find(parent, name.as_bytes()).and_then(|ino| shared.index.get(ino))
    }

    /// All disks with their numbers.
    pub fn numbered(&self) -> impl Iterator<Item = (DiskNo, &Disk)> {
        (0u8..).map(DiskNo).zip(&self.disks)
    }

    /// The disks in the order in which a new file with this name tries them.
    fn rank(&self, name: EntryName<'_>) -> Vec<DiskNo> {
        if self.settings.policy == PlacementPolicy::MostFree {
            let room = |(no, disk): (DiskNo, &Disk)| (disk.bound_bytes().saturating_sub(self.used_bytes(no)), no);
            let mut by_room: Vec<(u64, DiskNo)> = self.numbered().map(room).collect();
            by_room.sort_by_key(|(room, _)| std::cmp::Reverse(*room));
            return by_room.into_iter().map(|(_, no)| no).collect();
        }
        self.placement.rank(&PlacementKey::of(name.as_bytes())).to_vec()
    }

    /// The path of a name below a directory, relative to every disk's root; `None` when the directory has gone.
    fn path_of(&self, parent: Ino, name: EntryName<'_>) -> Option<Vec<u8>> {
        let mut path = Vec::with_capacity(256);
        if parent != Ino::ROOT {
            if !self.shared.lock().index.path(parent, &mut path) {
                return None;
            }
            path.push(b'/');
        }
        path.extend_from_slice(name.as_bytes());
        Some(path)
    }

    /// The path of an entry relative to every disk's root.
    pub fn path(&self, ino: Ino) -> Option<Vec<u8>> {
        let mut path = Vec::with_capacity(256);
        self.shared.lock().index.path(ino, &mut path).then_some(path)
    }

    /// Shared hold on the tree, which only nested paths need: the root cannot be renamed.
    fn tree_for(&self, parent: Ino) -> Option<RwLockReadGuard<'_, ()>> {
        (parent != Ino::ROOT).then(|| self.tree.read())
    }

    /// Locks the name that an inode has now. The root has none.
    fn lock_entry(&self, ino: Ino) -> Result<(Entry, Vec<u8>, NameGuard<'_>)> {
        if ino == Ino::ROOT {
            return Err(Error::IsDirectory);
        }
        loop {
            let (parent, name) = self.entry_name(ino)?;
            let guard = self.names.lock(parent, &name)?;
            let shared = self.shared.lock();
            if shared.index.find(parent, &name) == Some(ino) {
                let entry = shared.index.get(ino).ok_or(Error::Stale)?;
                return Ok((entry, name, guard));
            }
        }
    }

    fn entry_name(&self, ino: Ino) -> Result<(Ino, Vec<u8>)> {
        let shared = self.shared.lock();
        let entry = shared.index.get(ino).filter(|entry| entry.linked).ok_or(Error::Stale)?;
        let mut name = Vec::with_capacity(256);
        shared.index.name(ino, &mut name);
        Ok((entry.parent, name))
    }
}

impl Shared {
    /// A look-up that hit: one more reference and a use.
    fn count_lookup(&mut self, ino: Ino, now: i64) -> Option<Entry> {
        let entry = self.index.get(ino)?;
        self.index.add_lookups(ino, 1);
        if entry.kind == Kind::File {
            self.note_use(ino, now);
        }
        self.index.get(ino)
    }

    /// A directory whose names have changed.
    fn changed_dir(&mut self, dir: Ino, now: i64) {
        if let Some(entry) = self.index.get(dir) {
            self.index.set_attr(dir, Attr { mtime_ns: now, ctime_ns: now, ..entry.attr });
        }
    }
}

/// The set of the first `count` disks, a bit each.
fn all_disks(count: usize) -> u64 {
    u64::MAX.checked_shr(64 - count.min(64) as u32).unwrap_or(0)
}

/// The root's attributes: of the disk with the lowest UUID, times the latest of all.
fn root_attr(disks: &[Disk]) -> Result<Attr> {
    let mut root: Option<(Uuid, Attr)> = None;
    let (mut mtime_ns, mut ctime_ns) = (i64::MIN, i64::MIN);
    let mut trouble = Error::NoDisk;
    for (no, disk) in (0u8..).map(DiskNo).zip(disks) {
        match disk.io.stat(b"") {
            Ok(stat) => {
                mtime_ns = mtime_ns.max(stat.attr.mtime_ns);
                ctime_ns = ctime_ns.max(stat.attr.ctime_ns);
                if root.is_none_or(|(id, _)| disk.id < id) {
                    root = Some((disk.id, stat.attr));
                }
            }
            Err(error) => trouble = Error::disk(no, error),
        }
    }
    match root {
        Some((_, attr)) => Ok(Attr { mtime_ns, ctime_ns, ..attr }),
        None => Err(trouble),
    }
}
