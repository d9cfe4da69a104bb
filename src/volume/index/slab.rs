//! The slab: one 72-byte slot for each entry, in chunks that never move.
//!
//! Called by the rest of the index; holds the entries and the free list. Invariants: a slot is either
//! used or on the free list; growing allocates one chunk and moves nothing but the list of chunks;
//! memory follows the largest number of entries there has been. Takes no lock.

use crate::volume::attr::Ino;

/// No slot: the end of every list.
pub(super) const NIL: u32 = u32::MAX;
/// The root directory's slot.
pub(super) const ROOT_SLOT: u32 = 0;

/// Items in one chunk.
const CHUNK_ITEMS: usize = 1024;

/// A vector in fixed-size chunks: growing never copies the items.
#[derive(Debug)]
pub(super) struct Chunked<T> {
    chunks: Vec<Vec<T>>,
    len: u32,
}

impl<T> Chunked<T> {
    pub(super) fn new() -> Self {
        Self { chunks: Vec::new(), len: 0 }
    }

    pub(super) fn len(&self) -> u32 {
        self.len
    }

    pub(super) fn get(&self, at: u32) -> Option<&T> {
        let at = at as usize;
        self.chunks.get(at / CHUNK_ITEMS)?.get(at % CHUNK_ITEMS)
    }

    pub(super) fn get_mut(&mut self, at: u32) -> Option<&mut T> {
        let at = at as usize;
        self.chunks.get_mut(at / CHUNK_ITEMS)?.get_mut(at % CHUNK_ITEMS)
    }

    /// Appends `item` and returns its place.
    pub(super) fn push(&mut self, item: T) -> u32 {
        let at = self.len;
        self.len += 1;
        match self.chunks.last_mut() {
            Some(chunk) if chunk.len() < CHUNK_ITEMS => chunk.push(item),
            _ => {
                let mut chunk = Vec::with_capacity(CHUNK_ITEMS);
                chunk.push(item);
                self.chunks.push(chunk);
            }
        }
        at
    }

    /// Bytes of heap held.
    pub(super) fn heap_bytes(&self) -> usize {
        self.chunks.len() * CHUNK_ITEMS * size_of::<T>() + self.chunks.capacity() * size_of::<Vec<T>>()
    }
}

/// One bit of [`Slot::flags`].
pub(super) mod flag {
    /// The slot holds an entry.
    pub const USED: u8 = 1;
    /// A directory, else a regular file.
    pub const DIR: u8 = 1 << 1;
    /// The entry has a name.
    pub const LINKED: u8 = 1 << 2;
    /// Some handle is open.
    pub const PINNED: u8 = 1 << 3;
    /// Not yet published or open for writing.
    pub const WRITING: u8 = 1 << 4;
    /// The location is not the owner.
    pub const AWAY: u8 = 1 << 5;
    /// The two bits that hold the LRU tier.
    pub const TIER_SHIFT: u32 = 6;
}

/// One entry, packed.
#[derive(Clone, Copy, Debug)]
pub(super) struct Slot {
    /// Insertion number; never reused. It is the listing cookie.
    pub seq: u64,
    pub size_bytes: u64,
    pub mtime_ns: i64,
    pub ctime_ns: i64,
    /// Last use.
    pub atime_ns: i64,
    /// The directory's slot; an unlinked entry's own slot.
    pub parent: u32,
    /// Neighbour towards the warm end; a directory's place in the table of directories.
    pub lru_prev: u32,
    /// Neighbour towards the cold end; the next free slot of a free one.
    pub lru_next: u32,
    pub lookups: u32,
    /// Where the packed name is.
    pub name: u32,
    /// Room on the disk in 512-byte units, at most 2 TiB.
    pub blocks_512: u32,
    pub mode: u16,
    /// Interned owner and group.
    pub owner: u16,
    pub disk: u8,
    pub flags: u8,
    /// The last use is newer than what the disk knows.
    pub recent: bool,
    /// Nobody has used the file since it was published: it is in the LRU of those.
    pub probation: bool,
}

const _: () = assert!(size_of::<Slot>() == 72);

impl Slot {
    pub(super) fn has(&self, flag: u8) -> bool {
        self.flags & flag != 0
    }

    pub(super) fn set(&mut self, flag: u8, on: bool) {
        if on {
            self.flags |= flag;
        } else {
            self.flags &= !flag;
        }
    }

    pub(super) fn is_dir(&self) -> bool {
        self.has(flag::DIR)
    }

    pub(super) fn is_linked(&self) -> bool {
        self.has(flag::LINKED)
    }

    /// A linked directory's or unlinked open directory's place in the table of directories.
    pub(super) fn dir(&self) -> Option<u32> {
        self.is_dir().then_some(self.lru_prev)
    }

    /// The LRU tier as the two stored bits; 0 is in no list.
    pub(super) fn tier_bits(&self) -> u8 {
        self.flags >> flag::TIER_SHIFT
    }

    pub(super) fn set_tier_bits(&mut self, bits: u8) {
        let keep = (1 << flag::TIER_SHIFT) - 1;
        self.flags = (self.flags & keep) | (bits << flag::TIER_SHIFT);
    }
}

/// All slots and the free list.
#[derive(Debug)]
pub(super) struct Slab {
    slots: Chunked<Slot>,
    free_head: u32,
    free_count: u32,
    /// Slots that may ever exist.
    pub(super) max_slots: u32,
}

impl Slab {
    pub(super) fn new() -> Self {
        // The last slot number must leave room for `slot + 1` and for NIL.
        Self { slots: Chunked::new(), free_head: NIL, free_count: 0, max_slots: NIL - 1 }
    }

    /// Slots that exist, free ones included.
    pub(super) fn len(&self) -> u32 {
        self.slots.len()
    }

    pub(super) fn free_count(&self) -> u32 {
        self.free_count
    }

    pub(super) fn is_full(&self) -> bool {
        self.free_head == NIL && self.slots.len() >= self.max_slots
    }

    /// The entry in `slot`, if there is one.
    pub(super) fn get(&self, slot: u32) -> Option<&Slot> {
        self.slots.get(slot).filter(|s| s.has(flag::USED))
    }

    pub(super) fn get_mut(&mut self, slot: u32) -> Option<&mut Slot> {
        self.slots.get_mut(slot).filter(|s| s.has(flag::USED))
    }

    /// The entry's insertion number; 0 for a slot that is not used.
    pub(super) fn seq(&self, slot: u32) -> u64 {
        self.get(slot).map_or(0, |s| s.seq)
    }

    /// Takes a slot; None when there is none left.
    pub(super) fn alloc(&mut self, item: Slot) -> Option<u32> {
        debug_assert!(item.has(flag::USED), "a slot is allocated in use");
        if self.is_full() {
            return None;
        }
        let head = self.free_head;
        let Some(free) = self.slots.get_mut(head) else {
            return Some(self.slots.push(item));
        };
        debug_assert!(!free.has(flag::USED), "a free slot is in use");
        self.free_head = free.lru_next;
        self.free_count -= 1;
        *free = item;
        Some(head)
    }

    pub(super) fn free(&mut self, slot: u32) {
        let next = self.free_head;
        let Some(item) = self.get_mut(slot) else {
            debug_assert!(false, "slot {slot} freed twice");
            return;
        };
        item.flags = 0;
        item.lru_next = next;
        self.free_head = slot;
        self.free_count += 1;
    }

    /// The slot that `ino` names, unless it was given to another entry since.
    pub(super) fn slot_of(&self, ino: Ino) -> Option<u32> {
        let slot = (ino.0 as u32).checked_sub(1)?;
        let item = self.get(slot)?;
        (u64::from(item.seq as u32) == ino.0 >> 32).then_some(slot)
    }

    /// The inode number of the entry in `slot`.
    pub(super) fn ino(&self, slot: u32) -> Ino {
        make_ino(self.seq(slot), slot)
    }

    pub(super) fn heap_bytes(&self) -> usize {
        self.slots.heap_bytes()
    }
}

/// `(low 32 bits of the insertion number) << 32 | (slot + 1)`.
pub(super) fn make_ino(seq: u64, slot: u32) -> Ino {
    Ino(u64::from(seq as u32) << 32 | (u64::from(slot) + 1))
}
