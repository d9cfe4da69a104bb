//! The namespace: how entries come, move and go.
//!
//! The part of [`Index`] that changes names. Invariants: see `index`; each call leaves all of them true
//! or changes nothing. Takes no lock.

use super::lru::Lru;
use super::names::MAX_NAME_BYTES;
use super::slab::{NIL, ROOT_SLOT, Slab, flag};
use super::{Index, Ino, Kind, NewEntry, new_slot};

/// Why an entry was not inserted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InsertError {
    /// This entry has the name.
    Exists(Ino),
    /// The parent is gone or has no name.
    NoParent,
    /// The parent is a file.
    NotADirectory,
    /// Not 1 to 255 bytes without NUL and '/'.
    BadName,
    /// The volume has no such disk.
    NoDisk,
    /// 4 billion entries, or 8 GiB of names.
    Full,
}

/// Why an entry was not renamed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RenameError {
    /// The entry is gone or has no name.
    NoEntry,
    /// The root has no name to change.
    IsRoot,
    /// The new parent is gone or has no name.
    NoParent,
    /// The new parent is a file, or a directory would replace a file.
    NotADirectory,
    /// A file would replace a directory.
    IsADirectory,
    /// The directory that would be replaced is not empty.
    NotEmpty,
    /// A directory would come below itself.
    IntoItself,
    /// Not 1 to 255 bytes without NUL and '/'.
    BadName,
    /// 8 GiB of names.
    Full,
}

impl Index {
    /// Adds an entry; a file becomes the most recent one of its disk, or of those on probation. A directory exists on `new.disk`
    /// alone until [`Index::set_dir_disks`] says otherwise.
    pub fn insert(&mut self, parent: Ino, name: &[u8], new: NewEntry) -> Result<Ino, InsertError> {
        let slot = self.insert_slot(parent, name, new)?;
        if new.kind == Kind::File {
            let probation = self.probation.is_some() && self.starts_on_probation(self.hash_of(slot));
            self.enlist(slot, probation, Lru::add_warmest);
        }
        Ok(self.slots.ino(slot))
    }

    /// As [`Index::insert`], for what a scan finds: a file is colder than all that were used since the
    /// start, and among the scanned ones it is in no order until [`Index::settle`].
    pub fn insert_cold(&mut self, parent: Ino, name: &[u8], new: NewEntry) -> Result<Ino, InsertError> {
        let slot = self.insert_slot(parent, name, new)?;
        if new.kind == Kind::File {
            let probation = self.was_never_used(&new);
            self.enlist(slot, probation, Lru::add_scanned);
        }
        Ok(self.slots.ino(slot))
    }

    /// Gives the entry another name. An entry that had the name is unlinked as by [`Index::unlink`] and
    /// returned; its number is stale already if nobody used it. Keeps inode number and cookie. Costs the
    /// depth of the new parent if a directory is moved.
    pub fn rename(&mut self, ino: Ino, to_parent: Ino, to_name: &[u8]) -> Result<Option<Ino>, RenameError> {
        let slot = self.named(ino)?;
        let parent = self.linked_dir(to_parent).map_err(|e| match e {
            InsertError::NotADirectory => RenameError::NotADirectory,
            _ => RenameError::NoParent,
        })?;
        if !is_name(to_name) {
            return Err(RenameError::BadName);
        }
        if self.is_within(parent, slot) {
            return Err(RenameError::IntoItself);
        }
        let hash = self.table.hash(parent, to_name);
        let target = self.find_slot(hash, parent, to_name);
        if target == Some(slot) {
            return Ok(None);
        }
        if let Some(target) = target {
            self.check_replace(slot, target)?;
        }
        let name = self.names.store(to_name).ok_or(RenameError::Full)?;
        let replaces_used = target.and_then(|target| self.slots.get(target)).is_some_and(|item| !item.probation);
        let replaced = target.map(|target| {
            let ino = self.slots.ino(target);
            self.unlink(ino);
            ino
        });
        self.detach(slot);
        if let Some(item) = self.slots.get_mut(slot) {
            item.parent = parent;
            self.names.free(std::mem::replace(&mut item.name, name));
        }
        self.attach(slot, hash);
        self.inherit_probation(slot, hash, replaces_used);
        Ok(replaced)
    }

    /// Swaps the names of two entries. Costs their depths if one is a directory.
    pub fn exchange(&mut self, a: Ino, b: Ino) -> Result<(), RenameError> {
        let (a, b) = (self.named(a)?, self.named(b)?);
        if a == b {
            return Ok(());
        }
        if self.is_within(a, b) || self.is_within(b, a) {
            return Err(RenameError::IntoItself);
        }
        self.detach(a);
        self.detach(b);
        let place = |index: &Self, slot| index.slots.get(slot).map(|item| (item.parent, item.name));
        for (slot, place) in [(a, place(self, b)), (b, place(self, a))] {
            if let (Some(item), Some(place)) = (self.slots.get_mut(slot), place) {
                (item.parent, item.name) = place;
            }
        }
        for slot in [a, b] {
            self.attach(slot, self.hash_of(slot));
        }
        Ok(())
    }

    /// Takes the entry's name away. The entry itself ends when it is also neither looked up nor pinned.
    /// Does nothing to the root, to an entry without a name and to a directory that is not empty (which
    /// the caller must not ask for).
    pub fn unlink(&mut self, ino: Ino) {
        let Ok(slot) = self.named(ino) else { return };
        if self.child_count(ino) > 0 {
            debug_assert!(false, "unlink of a directory that is not empty");
            return;
        }
        self.detach(slot);
        let place = self.slots.get(slot).map(|item| (usize::from(item.disk), item.probation));
        if let Some((disk, probation)) = place
            && let Some(disk) = self.disks.get_mut(disk)
        {
            disk.lru_of(probation).remove(&mut self.slots, slot);
        }
        self.recount(slot, |item| {
            item.set(flag::LINKED, false);
            item.parent = slot;
        });
        self.free_if_unused(slot);
    }

    /// Takes an [`Index::unlink`] back: the entry has its last name in `parent` again, and its number and cookie. A file
    /// is its disk's most recent one then. False if the entry has gone, or the name is taken.
    pub fn relink(&mut self, ino: Ino, parent: Ino) -> bool {
        let (Some(slot), Ok(parent)) = (self.slots.slot_of(ino), self.linked_dir(parent)) else { return false };
        let mut name = Vec::with_capacity(MAX_NAME_BYTES);
        self.name(ino, &mut name);
        let hash = self.table.hash(parent, &name);
        if self.item(ino).is_none_or(|(_, item)| item.is_linked()) || self.find_slot(hash, parent, &name).is_some() {
            return false;
        }
        self.recount(slot, |item| {
            item.set(flag::LINKED, true);
            item.parent = parent;
        });
        self.attach(slot, hash);
        let Some(item) = self.slots.get(slot).filter(|item| !item.is_dir()) else { return true };
        if let Some(disk) = self.disks.get_mut(usize::from(item.disk)) {
            disk.lru.add_warmest(&mut self.slots, slot);
        }
        true
    }

    /// Ends an entry that is neither linked nor looked up nor pinned.
    pub(super) fn free_if_unused(&mut self, slot: u32) {
        let Some(item) = self.slots.get(slot) else { return };
        if item.is_linked() || item.has(flag::PINNED) || item.lookups > 0 {
            return;
        }
        self.names.free(item.name);
        self.owners.clear(slot, item.owner);
        if let Some(dir) = item.dir() {
            self.dirs.free(dir);
        }
        self.slots.free(slot);
    }

    /// The hash of the entry's parent and name.
    pub(super) fn hash_of(&self, slot: u32) -> u64 {
        let mut name = Vec::with_capacity(MAX_NAME_BYTES);
        let item = self.slots.get(slot);
        let parent = item.map_or(NIL, |item| {
            self.names.append(item.name, &mut name);
            item.parent
        });
        self.table.hash(parent, &name)
    }

    /// Adds a linked entry that is in no list yet.
    fn insert_slot(&mut self, parent: Ino, name: &[u8], new: NewEntry) -> Result<u32, InsertError> {
        let parent = self.linked_dir(parent)?;
        if !is_name(name) {
            return Err(InsertError::BadName);
        }
        if new.disk.index() >= self.disks.len() {
            return Err(InsertError::NoDisk);
        }
        let hash = self.table.hash(parent, name);
        if let Some(slot) = self.find_slot(hash, parent, name) {
            return Err(InsertError::Exists(self.slots.ino(slot)));
        }
        if self.slots.is_full() {
            return Err(InsertError::Full);
        }
        let name = self.names.store(name).ok_or(InsertError::Full)?;
        let mut item = new_slot(self.next_seq, parent, name, new.disk, flag::USED);
        item.set(flag::DIR, new.kind == Kind::Dir);
        item.set(flag::WRITING, new.writing);
        item.set(flag::AWAY, new.away);
        if new.kind == Kind::Dir {
            item.lru_prev = self.dirs.alloc(1 << new.disk.0);
        }
        let slot = self.slots.alloc(item).ok_or(InsertError::Full)?;
        self.next_seq += 1;
        self.write_attr(slot, None, new.attr);
        self.recount(slot, |item| item.set(flag::LINKED, true));
        self.attach(slot, hash);
        Ok(slot)
    }

    /// Puts a new file into one of its disk's LRUs.
    fn enlist(&mut self, slot: u32, probation: bool, put: impl FnOnce(&mut Lru, &mut Slab, u32)) {
        self.recount(slot, |item| item.probation = probation);
        let number = self.slots.get(slot).map_or(0, |item| usize::from(item.disk));
        if let Some(disk) = self.disks.get_mut(number) {
            put(disk.lru_of(probation), &mut self.slots, slot);
        }
    }

    /// The slot of a linked directory.
    fn linked_dir(&self, ino: Ino) -> Result<u32, InsertError> {
        match self.item(ino) {
            Some((_, item)) if !item.is_dir() => Err(InsertError::NotADirectory),
            Some((slot, item)) if item.is_linked() => Ok(slot),
            _ => Err(InsertError::NoParent),
        }
    }

    /// The slot of an entry that has a name.
    fn named(&self, ino: Ino) -> Result<u32, RenameError> {
        match self.item(ino) {
            Some((ROOT_SLOT, _)) => Err(RenameError::IsRoot),
            Some((slot, item)) if item.is_linked() => Ok(slot),
            _ => Err(RenameError::NoEntry),
        }
    }

    /// Whether the entry in `slot` is `top` or below it.
    fn is_within(&self, slot: u32, top: u32) -> bool {
        if self.slots.get(top).is_none_or(|top| !top.is_dir()) {
            return slot == top;
        }
        let mut at = slot;
        while at != top && at != ROOT_SLOT {
            match self.slots.get(at) {
                Some(item) if item.parent != at => at = item.parent,
                _ => return false,
            }
        }
        at == top
    }

    /// Whether the entry in `slot` may take the name of the one in `target`.
    fn check_replace(&self, slot: u32, target: u32) -> Result<(), RenameError> {
        let is_dir = |slot| self.slots.get(slot).is_some_and(|item| item.is_dir());
        match (is_dir(slot), is_dir(target)) {
            (true, false) => Err(RenameError::NotADirectory),
            (false, true) => Err(RenameError::IsADirectory),
            (true, true) if self.child_count(self.slots.ino(target)) > 0 => Err(RenameError::NotEmpty),
            _ => Ok(()),
        }
    }

    /// Enters the entry into the table and its parent's order. `hash` is that of its parent and name.
    fn attach(&mut self, slot: u32, hash: u64) {
        let Self { slots, dirs, names, table, .. } = self;
        table.insert(hash, slot, |slot, name| {
            slots.get(slot).map_or(NIL, |item| {
                names.append(item.name, name);
                item.parent
            })
        });
        self.linked += 1;
        let Some(item) = slots.get(slot) else { return };
        let parent = slots.get(item.parent).and_then(|parent| parent.dir());
        if let Some(dir) = parent.and_then(|at| dirs.get_mut(at)) {
            dir.order.insert(item.seq, slot, |slot| slots.seq(slot));
            dir.children += 1;
            dir.subdirs += u32::from(item.is_dir());
        }
    }

    /// Takes the entry out of the table and its parent's order.
    fn detach(&mut self, slot: u32) {
        let hash = self.hash_of(slot);
        let Self { slots, dirs, names, table, .. } = self;
        table.remove(hash, slot, |slot, name| {
            slots.get(slot).map_or(NIL, |item| {
                names.append(item.name, name);
                item.parent
            })
        });
        self.linked -= 1;
        let Some(item) = slots.get(slot) else { return };
        let parent = slots.get(item.parent).and_then(|parent| parent.dir());
        if let Some(dir) = parent.and_then(|at| dirs.get_mut(at)) {
            dir.order.remove(item.seq, slot, |slot| slots.seq(slot));
            dir.children -= 1;
            dir.subdirs -= u32::from(item.is_dir());
        }
    }
}

/// 1 to 255 bytes without NUL and '/'.
fn is_name(name: &[u8]) -> bool {
    (1..=MAX_NAME_BYTES).contains(&name.len()) && !name.iter().any(|b| matches!(b, 0 | b'/'))
}
