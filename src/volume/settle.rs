//! Settling: how much room a written file takes is read again after the next sync.
//!
//! A file system may hold more for a file than it needs until the file is closed and synced (XFS), or allocate only then
//! (ext4). Called by closes and by the sync threads. Each file is looked at under its name lock; the index lock is never held
//! over it.

use super::attr::{Attr, DiskNo, Ino};
use super::{Shared, Volume};

/// Files that wait to be read again; any more stay as they were at their close.
const MAX_UNSETTLED: usize = 1 << 20;

impl Shared {
    /// Notes files whose room is to be read again after the next sync.
    pub(super) fn note_unmeasured(&mut self, inodes: impl IntoIterator<Item = Ino>) {
        let left = MAX_UNSETTLED.saturating_sub(self.unmeasured.len());
        self.unmeasured.extend(inodes.into_iter().take(left));
    }
}

impl Volume {
    /// Reads again how much room the files of a disk take that were written since the last call.
    pub(super) fn settle_sizes(&self, no: DiskNo) {
        let written = std::mem::take(&mut self.shared.lock().unmeasured);
        let mut later = Vec::new();
        for ino in written {
            let at = self.shared.lock().index.get(ino).filter(|entry| entry.linked);
            let Some(entry) = at else {
                continue;
            };
            if entry.disk != no || !self.settle_size(no, ino) {
                later.push(ino);
            }
        }
        self.shared.lock().note_unmeasured(later);
    }

    /// False if somebody works on the file: it is looked at another time.
    fn settle_size(&self, no: DiskNo, ino: Ino) -> bool {
        let _tree = self.tree_if_nested(ino);
        let Ok((parent, name)) = self.entry_name(ino) else {
            return true;
        };
        let (Some(_name), Some(path)) = (self.names.try_lock(parent, &name), self.path(ino)) else {
            return false;
        };
        let reading = self.begin_reading(ino);
        let Ok(Ok(stat)) = self.disk(no).map(|disk| disk.io.stat(&path)) else {
            return true;
        };
        let mut shared = self.shared.lock();
        let latest = reading.end_as_latest(&mut shared);
        let entry = shared.index.get(ino).filter(|_| latest && shared.index.find(parent, &name) == Some(ino));
        if let Some(entry) = entry.filter(|entry| entry.disk == no) {
            shared.index.set_attr(ino, Attr { blocks_512: stat.attr.blocks_512, ..entry.attr });
        }
        true
    }
}
