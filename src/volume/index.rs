//! The index: name -> location, attributes and last use of every entry; it is also the inode table.
//!
//! Called by `volume` alone, which wraps it in one mutex; pure, does no I/O, reads no clock and takes no
//! lock. Every call is O(1) or O(log n), but for [`Index::list`] and [`Index::scanned`], which the caller
//! bounds, and for the depth of a path.
//!
//! Invariants ([`Index::check_invariants`] checks them): a linked entry's parent is a linked directory;
//! exactly the linked entries but the root are in the hash table and in their directory's order; exactly
//! the linked regular files are in one of their disk's two LRUs; files, away files and used bytes of a disk are the
//! sums over its entries; an entry lives while it is linked, looked up or pinned.
//!
//! An entry's insertion number never changes and is never reused: listings resume by it, and an inode
//! number holds its low 32 bits, so that one whose slot went to another entry resolves to nothing.

mod affixes;
mod arena;
mod changed;
mod check;
mod dirs;
mod ghosts;
mod lru;
mod names;
mod namespace;
mod order;
mod owners;
mod probation;
mod recency;
mod slab;
mod sweep;
mod table;
#[cfg(test)]
mod tests;

use super::attr::{Attr, DiskNo, Ino, Kind, MAX_DISKS};
use dirs::{Dir, Dirs};

use lru::Lru;
use names::Names;
pub use namespace::{InsertError, RenameError};
use owners::Owners;
use probation::{Probation, sums_on_probation};
pub use recency::Coldest;
use slab::{NIL, ROOT_SLOT, Slab, Slot, flag, make_ino};
pub use sweep::Placing;
use table::Table;

/// What a new entry starts with.
#[derive(Clone, Copy, Debug)]
pub struct NewEntry {
    /// File or directory.
    pub kind: Kind,
    /// Location; for a directory the disk that its attributes come from.
    pub disk: DiskNo,
    /// Attributes; `atime_ns` is the last use.
    pub attr: Attr,
    /// Open for writing and not yet published.
    pub writing: bool,
    /// The location is not the owner.
    pub away: bool,
}

/// A copy of what the index knows about an entry, without its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Inode number.
    pub ino: Ino,
    /// The directory that it is in; of the root and of an unlinked entry it is the entry itself.
    pub parent: Ino,
    /// File or directory.
    pub kind: Kind,
    /// Location; for a directory the disk that its attributes come from.
    pub disk: DiskNo,
    /// Attributes; `atime_ns` is the last use, `blocks_512` at most `u32::MAX`.
    pub attr: Attr,
    /// Open for writing and not yet published.
    pub writing: bool,
    /// The location is not the owner.
    pub away: bool,
    /// It has a name.
    pub linked: bool,
    /// Some handle is open.
    pub pinned: bool,
    /// Look-ups that the kernel has not forgotten.
    pub lookups: u32,
    /// Insertion number: where a listing resumes behind this entry.
    pub cookie: u64,
}

/// One entry of a listing.
#[derive(Clone, Copy, Debug)]
pub struct Listed<'a> {
    /// Give it to [`Index::list`] to resume behind this entry.
    pub cookie: u64,
    /// Inode number.
    pub ino: Ino,
    /// File or directory.
    pub kind: Kind,
    /// The entry's own name.
    pub name: &'a [u8],
    /// Attributes.
    pub attr: Attr,
}

/// What is counted for each disk, and its LRUs.
#[derive(Clone, Copy, Debug)]
struct Disk {
    /// All files, but for those on probation.
    lru: Lru,
    probation: Lru,
    sums: Sums,
}

impl Disk {
    fn lru_of(&mut self, probation: bool) -> &mut Lru {
        if probation { &mut self.probation } else { &mut self.lru }
    }
}

/// What entries add to their disk: linked regular files, those away, and 512-byte units of regular files
/// that are linked or pinned; and what of the linked ones is on probation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Sums {
    files: u64,
    away: u64,
    blocks_512: u64,
    probation_files: u64,
    probation_512: u64,
}

/// The index of one volume.
#[derive(Debug)]
pub struct Index {
    slots: Slab,
    dirs: Dirs,
    names: Names,
    table: Table,
    owners: Owners,
    disks: Vec<Disk>,
    /// There if files start on probation.
    probation: Option<Probation>,
    next_seq: u64,
    /// Linked entries without the root.
    linked: usize,
}

impl Index {
    /// An index with nothing but the root directory, for `disks` disks (at most [`MAX_DISKS`]).
    pub fn new(disks: usize, root: Attr) -> Self {
        let disk = Disk { lru: Lru::new(), probation: Lru::new(), sums: Sums::default() };
        let mut index = Self {
            slots: Slab::new(),
            dirs: Dirs::new(),
            names: Names::new(),
            table: Table::new(),
            owners: Owners::default(),
            disks: vec![disk; disks.min(MAX_DISKS)],
            probation: None,
            next_seq: 1,
            linked: 0,
        };
        let flags = flag::USED | flag::DIR | flag::LINKED;
        let mut slot = new_slot(0, ROOT_SLOT, NIL, DiskNo(0), flags);
        slot.lru_prev = index.dirs.alloc(0);
        index.slots.alloc(slot);
        index.write_attr(ROOT_SLOT, None, root);
        index
    }

    /// The entry called `name` in the directory `parent`.
    pub fn find(&self, parent: Ino, name: &[u8]) -> Option<Ino> {
        let parent = self.slots.slot_of(parent)?;
        let hash = self.table.hash(parent, name);
        self.find_slot(hash, parent, name).map(|slot| self.slots.ino(slot))
    }

    /// A copy of the entry; None if it is gone.
    pub fn get(&self, ino: Ino) -> Option<Entry> {
        let (slot, item) = self.item(ino)?;
        Some(Entry {
            ino,
            parent: self.slots.ino(item.parent),
            kind: kind_of(item),
            disk: DiskNo(item.disk),
            attr: self.attr_of(slot, item),
            writing: item.has(flag::WRITING),
            away: item.has(flag::AWAY),
            linked: item.is_linked(),
            pinned: item.has(flag::PINNED),
            lookups: item.lookups,
            cookie: item.seq,
        })
    }

    /// Appends the entry's own name, after an unlink its last one; nothing for the root. False if the
    /// entry is gone.
    pub fn name(&self, ino: Ino, out: &mut Vec<u8>) -> bool {
        let Some((slot, item)) = self.item(ino) else { return false };
        slot == ROOT_SLOT || self.names.append(item.name, out)
    }

    /// Appends the path from the root, '/' between names; nothing for the root. False if the entry or a
    /// directory above it has no name. Costs the depth of the path.
    pub fn path(&self, ino: Ino, out: &mut Vec<u8>) -> bool {
        let Some(mut slot) = self.slots.slot_of(ino) else { return false };
        let mut names = Vec::new();
        while slot != ROOT_SLOT {
            match self.slots.get(slot) {
                Some(item) if item.is_linked() => {
                    names.push(item.name);
                    slot = item.parent;
                }
                _ => return false,
            }
        }
        let mut whole = true;
        for (i, name) in names.into_iter().rev().enumerate() {
            if i > 0 {
                out.push(b'/');
            }
            whole &= self.names.append(name, out);
        }
        whole
    }

    /// Counts `n` more look-ups by the kernel, at most up to `u32::MAX` together.
    pub fn add_lookups(&mut self, ino: Ino, n: u32) {
        if let Some((_, item)) = self.item_mut(ino) {
            item.lookups = item.lookups.saturating_add(n);
        }
    }

    /// Counts `n` look-ups less. The last one ends an entry that is neither linked nor pinned.
    pub fn forget(&mut self, ino: Ino, n: u64) {
        if let Some((slot, item)) = self.item_mut(ino) {
            item.lookups = u64::from(item.lookups).saturating_sub(n) as u32;
            self.free_if_unused(slot);
        }
    }

    /// Says whether some handle is open. Clearing it ends an entry that is neither linked nor looked up.
    pub fn set_pinned(&mut self, ino: Ino, pinned: bool) {
        if let Some(slot) = self.slots.slot_of(ino) {
            self.recount(slot, |item| item.set(flag::PINNED, pinned));
            self.free_if_unused(slot);
        }
    }

    /// Replaces the attributes, the last use among them, and keeps the disk's used bytes right. The place
    /// in the LRU stays: see [`Index::touch`] and [`Index::set_last_use`].
    pub fn set_attr(&mut self, ino: Ino, attr: Attr) {
        if let Some((slot, item)) = self.item(ino) {
            let old = item.owner;
            self.write_attr(slot, Some(old), attr);
        }
    }

    /// Says whether the file is open for writing and not yet published.
    pub fn set_writing(&mut self, ino: Ino, writing: bool) {
        if let Some((_, item)) = self.item_mut(ino) {
            item.set(flag::WRITING, writing);
        }
    }

    /// Says whether the location is not the owner.
    pub fn set_away(&mut self, ino: Ino, away: bool) {
        if let Some(slot) = self.slots.slot_of(ino) {
            self.recount(slot, |item| item.set(flag::AWAY, away));
        }
    }

    /// Calls `each` for the entries of `dir` behind the cookie `after` (0: all), in the order of their
    /// insertion, until it returns false. An entry that stays is met exactly once in a listing that is
    /// resumed at the last cookie seen, whatever else comes and goes; one renamed within the directory
    /// keeps its place, one moved in from another has the place of its own insertion.
    pub fn list(&self, dir: Ino, after: u64, each: &mut dyn FnMut(Listed<'_>) -> bool) {
        let Some(dir) = self.dir(dir) else { return };
        let mut name = Vec::with_capacity(names::MAX_NAME_BYTES);
        for slot in dir.order.after(after, |slot| self.slots.seq(slot)) {
            let Some(item) = self.slots.get(slot) else { continue };
            name.clear();
            self.names.append(item.name, &mut name);
            let more = each(Listed {
                cookie: item.seq,
                ino: make_ino(item.seq, slot),
                kind: kind_of(item),
                name: &name,
                attr: self.attr_of(slot, item),
            });
            if !more {
                return;
            }
        }
    }

    /// Entries in the directory.
    pub fn child_count(&self, dir: Ino) -> usize {
        self.dir(dir).map_or(0, |dir| dir.children as usize)
    }

    /// Directories in the directory.
    pub fn subdir_count(&self, dir: Ino) -> u32 {
        self.dir(dir).map_or(0, |dir| dir.subdirs)
    }

    /// The disks that the directory exists on: bit d for disk d.
    pub fn dir_disks(&self, dir: Ino) -> u64 {
        self.dir(dir).map_or(0, |dir| dir.disks)
    }

    /// Replaces the set of disks that the directory exists on.
    pub fn set_dir_disks(&mut self, dir: Ino, set: u64) {
        let at = self.item(dir).and_then(|(_, item)| item.dir());
        if let Some(dir) = at.and_then(|at| self.dirs.get_mut(at)) {
            dir.disks = set;
        }
    }

    /// Linked regular files on the disk.
    pub fn files(&self, disk: DiskNo) -> u64 {
        self.sums(disk).files
    }

    /// Linked regular files on the disk that are away.
    pub fn away_files(&self, disk: DiskNo) -> u64 {
        self.sums(disk).away
    }

    /// Bytes on the disk of regular files that are linked or pinned.
    pub fn used_bytes(&self, disk: DiskNo) -> u64 {
        self.sums(disk).blocks_512.saturating_mul(512)
    }

    /// Linked entries, files and directories, without the root.
    pub fn len(&self) -> usize {
        self.linked
    }

    /// Whether the root is empty.
    pub fn is_empty(&self) -> bool {
        self.linked == 0
    }

    /// Bytes of memory held, estimated from capacities. Costs a walk over the hash table's 4,096 shards
    /// and no more.
    pub fn memory_bytes(&self) -> usize {
        // A place in a listing: 4 bytes in a chunk that is three quarters full.
        let orders = self.linked * 16 / 3;
        size_of::<Self>()
            + self.slots.heap_bytes()
            + self.dirs.heap_bytes()
            + self.names.heap_bytes()
            + self.table.heap_bytes()
            + self.owners.heap_bytes()
            + self.probation.as_ref().map_or(0, Probation::heap_bytes)
            + self.disks.capacity() * size_of::<Disk>()
            + orders
    }

    fn item(&self, ino: Ino) -> Option<(u32, &Slot)> {
        let slot = self.slots.slot_of(ino)?;
        Some((slot, self.slots.get(slot)?))
    }

    fn item_mut(&mut self, ino: Ino) -> Option<(u32, &mut Slot)> {
        let slot = self.slots.slot_of(ino)?;
        Some((slot, self.slots.get_mut(slot)?))
    }

    fn dir(&self, ino: Ino) -> Option<&Dir> {
        let (_, item) = self.item(ino)?;
        self.dirs.get(item.dir()?)
    }

    fn find_slot(&self, hash: u64, parent: u32, name: &[u8]) -> Option<u32> {
        self.table.find(hash, |slot| {
            let item = self.slots.get(slot);
            item.is_some_and(|item| item.parent == parent && self.names.is(item.name, name))
        })
    }

    fn sums(&self, disk: DiskNo) -> Sums {
        self.disks.get(disk.index()).map_or_else(Sums::default, |disk| disk.sums)
    }

    fn attr_of(&self, slot: u32, item: &Slot) -> Attr {
        let (uid, gid) = self.owners.get(slot, item.owner);
        Attr {
            size_bytes: item.size_bytes,
            blocks_512: u64::from(item.blocks_512),
            mode: item.mode,
            uid,
            gid,
            mtime_ns: item.mtime_ns,
            ctime_ns: item.ctime_ns,
            atime_ns: item.atime_ns,
        }
    }

    /// Stores attributes; `old` is the owner's number that the slot has had.
    fn write_attr(&mut self, slot: u32, old: Option<u16>, attr: Attr) {
        let owner = self.owners.set(slot, old, (attr.uid, attr.gid));
        self.recount(slot, |item| {
            item.size_bytes = attr.size_bytes;
            item.blocks_512 = u32::try_from(attr.blocks_512).unwrap_or(u32::MAX);
            item.mode = attr.mode;
            item.owner = owner;
            item.mtime_ns = attr.mtime_ns;
            item.ctime_ns = attr.ctime_ns;
            item.atime_ns = attr.atime_ns;
        });
    }

    /// Changes an entry and its disk's sums with it.
    fn recount(&mut self, slot: u32, change: impl FnOnce(&mut Slot)) {
        let Some(item) = self.slots.get_mut(slot) else { return };
        let (disk, sums) = (item.disk, sums_of(item));
        if let Some(disk) = self.disks.get_mut(usize::from(disk)) {
            disk.sums.files -= sums.files;
            disk.sums.away -= sums.away;
            disk.sums.blocks_512 -= sums.blocks_512;
            disk.sums.probation_files -= sums.probation_files;
            disk.sums.probation_512 -= sums.probation_512;
        }
        change(item);
        let (disk, sums) = (item.disk, sums_of(item));
        if let Some(disk) = self.disks.get_mut(usize::from(disk)) {
            disk.sums.files += sums.files;
            disk.sums.away += sums.away;
            disk.sums.blocks_512 += sums.blocks_512;
            disk.sums.probation_files += sums.probation_files;
            disk.sums.probation_512 += sums.probation_512;
        }
    }
}

/// What the entry adds to its disk.
fn sums_of(item: &Slot) -> Sums {
    let file = item.has(flag::USED) && !item.is_dir();
    let linked = file && item.is_linked();
    let held = linked || (file && item.has(flag::PINNED));
    Sums {
        files: u64::from(linked),
        away: u64::from(linked && item.has(flag::AWAY)),
        blocks_512: if held { u64::from(item.blocks_512) } else { 0 },
        ..sums_on_probation(item)
    }
}

fn kind_of(item: &Slot) -> Kind {
    if item.is_dir() { Kind::Dir } else { Kind::File }
}

fn new_slot(seq: u64, parent: u32, name: u32, disk: DiskNo, flags: u8) -> Slot {
    Slot {
        seq,
        size_bytes: 0,
        mtime_ns: 0,
        ctime_ns: 0,
        atime_ns: 0,
        parent,
        lru_prev: NIL,
        lru_next: NIL,
        lookups: 0,
        name,
        blocks_512: 0,
        mode: 0,
        owner: 0,
        disk: disk.0,
        flags,
        recent: false,
        probation: false,
    }
}
