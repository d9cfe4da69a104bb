//! The arena: byte cells of 4 to 260 bytes, packed by size, addressed by a `u32`.
//!
//! Called by `names`. A chunk of 16 KiB holds cells of one size; chunks with room are in a list for each
//! size; a chunk whose last cell is freed goes back to the allocator, so that names of one length leave
//! nothing behind for names of another. Invariants: a chunk is in its size's list exactly when it has
//! room; a cell is live, free or never used. At most 8 GiB. Takes no lock.

use super::slab::NIL;

const CHUNK_BYTES: usize = 16 * 1024;
/// Cell sizes and addresses are multiples of this.
const UNIT_BYTES: usize = 2;
const CHUNK_UNITS: u32 = (CHUNK_BYTES / UNIT_BYTES) as u32;
/// Largest cell, in units.
const MAX_UNITS: usize = 130;
/// Chunks that a `u32` can address, the last one left out for NIL.
const MAX_CHUNKS: usize = (u32::MAX / CHUNK_UNITS) as usize;
/// No free cell in a chunk.
const NO_CELL: u16 = u16::MAX;

/// 16 KiB of cells of one size. Offsets are in units.
#[derive(Debug)]
struct Chunk {
    /// Empty while the chunk is not in use.
    bytes: Box<[u8]>,
    cell_units: u16,
    live: u16,
    /// First freed cell; each holds the next in its first two bytes.
    free: u16,
    /// First cell that was never used.
    fresh: u16,
    prev: u32,
    /// Next chunk with room, or next unused chunk.
    next: u32,
}

impl Chunk {
    fn new(cell_units: u16) -> Self {
        Self {
            bytes: vec![0; CHUNK_BYTES].into_boxed_slice(),
            cell_units,
            live: 0,
            free: NO_CELL,
            fresh: 0,
            prev: NIL,
            next: NIL,
        }
    }

    fn has_room(&self) -> bool {
        self.free != NO_CELL || u32::from(self.fresh) + u32::from(self.cell_units) <= CHUNK_UNITS
    }

    fn range(&self, offset: u16) -> std::ops::Range<usize> {
        let start = usize::from(offset) * UNIT_BYTES;
        start..start + usize::from(self.cell_units) * UNIT_BYTES
    }

    fn link(&self, offset: u16) -> u16 {
        let cell = self.bytes.get(self.range(offset)).and_then(|c| c.first_chunk());
        cell.map_or(NO_CELL, |two: &[u8; 2]| u16::from_le_bytes(*two))
    }

    /// Takes a cell. The caller knows that there is one.
    fn take(&mut self) -> u16 {
        self.live += 1;
        if self.free == NO_CELL {
            let cell = self.fresh;
            self.fresh += self.cell_units;
            return cell;
        }
        let cell = self.free;
        self.free = self.link(cell);
        cell
    }

    fn give_back(&mut self, offset: u16) {
        let next = self.free.to_le_bytes();
        let range = self.range(offset);
        if let Some(two) = self.bytes.get_mut(range).and_then(|c| c.first_chunk_mut()) {
            *two = next;
            self.free = offset;
            self.live = self.live.saturating_sub(1);
        }
    }
}

/// All chunks.
#[derive(Debug)]
pub(super) struct Arena {
    chunks: Vec<Chunk>,
    /// First chunk with room, by cell units.
    roomy: [u32; MAX_UNITS + 1],
    /// First chunk number without bytes.
    unused: u32,
    chunks_in_use: usize,
}

impl Arena {
    pub(super) fn new() -> Self {
        Self { chunks: Vec::new(), roomy: [NIL; MAX_UNITS + 1], unused: NIL, chunks_in_use: 0 }
    }

    /// Bytes of the cell that holds `len` bytes.
    pub(super) fn cell_bytes(len: usize) -> usize {
        len.max(4).next_multiple_of(UNIT_BYTES)
    }

    /// Stores `record`, padded with zeros to its cell. None if it is too long or the arena is full.
    pub(super) fn alloc(&mut self, record: &[u8]) -> Option<u32> {
        let units = Self::cell_bytes(record.len()) / UNIT_BYTES;
        let at = match *self.roomy.get(units)? {
            NIL => self.add_chunk(units)?,
            at => at,
        };
        let chunk = self.chunks.get_mut(at as usize)?;
        let offset = chunk.take();
        let full = !chunk.has_room();
        let range = chunk.range(offset);
        let cell = chunk.bytes.get_mut(range)?;
        cell.fill(0);
        for (to, from) in cell.iter_mut().zip(record) {
            *to = *from;
        }
        if full {
            self.leave_list(at);
        }
        Some(at * CHUNK_UNITS + u32::from(offset))
    }

    /// The whole cell at `at`.
    pub(super) fn get(&self, at: u32) -> Option<&[u8]> {
        let chunk = self.chunks.get((at / CHUNK_UNITS) as usize)?;
        chunk.bytes.get(chunk.range((at % CHUNK_UNITS) as u16))
    }

    pub(super) fn free(&mut self, at: u32) {
        let number = at / CHUNK_UNITS;
        let Some(chunk) = self.chunks.get_mut(number as usize) else {
            return;
        };
        debug_assert!(chunk.live > 0, "a cell of an empty chunk was freed");
        let was_full = !chunk.has_room();
        chunk.give_back((at % CHUNK_UNITS) as u16);
        let empty = chunk.live == 0;
        if was_full {
            self.join_list(number);
        }
        if empty {
            self.drop_chunk(number);
        }
    }

    /// Live cells.
    pub(super) fn live(&self) -> u64 {
        self.chunks.iter().map(|c| u64::from(c.live)).sum()
    }

    pub(super) fn heap_bytes(&self) -> usize {
        self.chunks_in_use * CHUNK_BYTES + self.chunks.capacity() * size_of::<Chunk>()
    }

    fn add_chunk(&mut self, units: usize) -> Option<u32> {
        let new = Chunk::new(u16::try_from(units).ok()?);
        let number = if let Some(old) = self.chunks.get_mut(self.unused as usize) {
            let number = self.unused;
            self.unused = old.next;
            *old = new;
            number
        } else if self.chunks.len() < MAX_CHUNKS {
            self.chunks.push(new);
            (self.chunks.len() - 1) as u32
        } else {
            return None;
        };
        self.chunks_in_use += 1;
        self.join_list(number);
        Some(number)
    }

    /// Gives an empty chunk back, unless it is the only one of its size with room: the next name of
    /// that length would allocate it again.
    fn drop_chunk(&mut self, number: u32) {
        match self.chunks.get(number as usize) {
            Some(chunk) if chunk.prev != NIL || chunk.next != NIL => {}
            _ => return,
        }
        self.leave_list(number);
        let unused = self.unused;
        if let Some(chunk) = self.chunks.get_mut(number as usize) {
            chunk.bytes = Box::default();
            chunk.next = unused;
            self.unused = number;
            self.chunks_in_use -= 1;
        }
    }

    fn join_list(&mut self, number: u32) {
        let Some(units) = self.chunks.get(number as usize).map(|c| usize::from(c.cell_units)) else {
            return;
        };
        let Some(head) = self.roomy.get_mut(units) else { return };
        let old = std::mem::replace(head, number);
        if let Some(next) = self.chunks.get_mut(old as usize) {
            next.prev = number;
        }
        if let Some(chunk) = self.chunks.get_mut(number as usize) {
            chunk.prev = NIL;
            chunk.next = old;
        }
    }

    fn leave_list(&mut self, number: u32) {
        let Some(chunk) = self.chunks.get_mut(number as usize) else { return };
        let units = usize::from(chunk.cell_units);
        let prev = std::mem::replace(&mut chunk.prev, NIL);
        let next = std::mem::replace(&mut chunk.next, NIL);
        if let Some(chunk) = self.chunks.get_mut(next as usize) {
            chunk.prev = prev;
        }
        if let Some(chunk) = self.chunks.get_mut(prev as usize) {
            chunk.next = next;
        } else if let Some(head) = self.roomy.get_mut(units) {
            *head = next;
        }
    }
}
