//! Backing ids: how the bytes of each open inode travel.
//!
//! The kernel wants one io mode and one backing id an inode at a time (an open with another one is EIO), so all
//! handles of an inode share what its first one got. Called by the glue. Rank 2: the table's lock is never held over
//! the ioctl that registers or closes an id.

use std::collections::HashMap;
use std::sync::{Arc, OnceLock};

use fuser::BackingId;
use parking_lot::Mutex;

use crate::volume::attr::Ino;

/// How the handles of one inode do their I/O.
#[derive(Default)]
pub struct Backing {
    decided: OnceLock<Option<BackingId>>,
}

impl Backing {
    /// The id for passthrough; `None` when bytes travel through the daemon.
    pub fn id(&self) -> Option<&BackingId> {
        self.decided.get().and_then(Option::as_ref)
    }
}

/// The inodes that have handles.
#[derive(Default)]
pub struct BackingTable {
    inodes: Mutex<HashMap<Ino, (u32, Arc<Backing>)>>,
}

impl BackingTable {
    /// One more handle. The first of an inode decides by `register`; without an id its bytes go through the daemon.
    pub fn join(&self, ino: Ino, register: impl FnOnce() -> Option<BackingId>) -> Arc<Backing> {
        let backing = {
            let mut inodes = self.inodes.lock();
            let (handles, backing) = inodes.entry(ino).or_default();
            *handles += 1;
            Arc::clone(backing)
        };
        backing.decided.get_or_init(register);
        backing
    }

    /// One handle less; with the last one the id is closed.
    pub fn leave(&self, ino: Ino) {
        let _last = {
            let mut inodes = self.inodes.lock();
            let Some((handles, _)) = inodes.get_mut(&ino) else {
                return;
            };
            *handles -= 1;
            if *handles == 0 { inodes.remove(&ino) } else { None }
        };
    }

    /// Whether an open inode is passed through; `None` when it has no handle.
    pub fn mode(&self, ino: Ino) -> Option<bool> {
        self.inodes.lock().get(&ino).map(|(_, backing)| backing.id().is_some())
    }
}
