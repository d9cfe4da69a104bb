//! The directories: what an entry has more if it is a directory.
//!
//! Called by the index; a slab of its own, so that a regular file pays nothing for it. Invariant: each
//! used directory slot has one place here. Takes no lock.

use super::order::Order;
use super::slab::{Chunked, NIL};

/// One directory.
#[derive(Debug)]
pub(super) struct Dir {
    pub order: Order,
    /// Entries in it; the next free place while this one is free.
    pub children: u32,
    /// Directories among them.
    pub subdirs: u32,
    /// Bit d: the directory exists on disk d.
    pub disks: u64,
}

/// All directories.
#[derive(Debug)]
pub(super) struct Dirs {
    dirs: Chunked<Dir>,
    free_head: u32,
    live: u32,
}

impl Dirs {
    pub(super) fn new() -> Self {
        Self { dirs: Chunked::new(), free_head: NIL, live: 0 }
    }

    /// Makes an empty directory that is on `disks`.
    pub(super) fn alloc(&mut self, disks: u64) -> u32 {
        let new = Dir { order: Order::new(), children: 0, subdirs: 0, disks };
        self.live += 1;
        let at = self.free_head;
        match self.dirs.get_mut(at) {
            Some(old) => {
                self.free_head = old.children;
                *old = new;
                at
            }
            None => self.dirs.push(new),
        }
    }

    pub(super) fn free(&mut self, at: u32) {
        if let Some(dir) = self.dirs.get_mut(at) {
            debug_assert!(dir.children == 0, "a directory was freed with entries in it");
            let next = std::mem::replace(&mut self.free_head, at);
            *dir = Dir { order: Order::new(), children: next, subdirs: 0, disks: 0 };
            self.live -= 1;
        }
    }

    pub(super) fn get(&self, at: u32) -> Option<&Dir> {
        self.dirs.get(at)
    }

    pub(super) fn get_mut(&mut self, at: u32) -> Option<&mut Dir> {
        self.dirs.get_mut(at)
    }

    /// Directories in use.
    pub(super) fn live(&self) -> u32 {
        self.live
    }

    pub(super) fn heap_bytes(&self) -> usize {
        self.dirs.heap_bytes()
    }
}
