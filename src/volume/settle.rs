//! Settling: what a written file has become, and how much room it takes, is read again when nobody tells.
//!
//! A file system may hold more for a file than it needs until the file is closed and synced (XFS), or allocate only then
//! (ext4); and a map outlives the handle that it was made with, and changes times and room unseen. Called by closes, look-ups
//! and the sync threads. Each file is looked at under its name lock; the index lock is never held over it.

use std::num::NonZeroUsize;

use super::attr::{Attr, DiskNo, Ino};
use super::index::Entry;
use super::{Shared, Volume};

/// Files that are looked at again because they may be mapped: those that were last closed of all that were open for both
/// reading and writing, which a map that writes needs. The kernel tells of no map, and of the end of none.
pub(super) const MAX_MAPPED: NonZeroUsize = NonZeroUsize::new(4096).expect("not zero");
/// Files that took more room at their close than they need and are looked at before anything is evicted for them.
const MAX_SWOLLEN: usize = 1024;
/// Files that wait to be read again; any more stay as they were at their close.
const MAX_UNSETTLED: usize = 1 << 20;

impl Shared {
    /// Notes files whose room is to be read again after the next sync.
    pub(super) fn note_unmeasured(&mut self, inodes: impl IntoIterator<Item = Ino>) {
        let left = MAX_UNSETTLED.saturating_sub(self.unmeasured.len());
        self.unmeasured.extend(inodes.into_iter().take(left));
    }

    /// Notes a file that its writers have closed, if it takes more room than it needs: XFS takes back what it allocated
    /// ahead when the last of them has really gone, which may be a moment later.
    fn note_swollen(&mut self, ino: Ino) {
        if self.is_swollen(ino) && self.swollen.len() < MAX_SWOLLEN {
            self.swollen.push(ino);
        }
    }

    /// Whether a file that has a name takes more room than it needs.
    pub(super) fn is_swollen(&self, ino: Ino) -> bool {
        self.index.get(ino).is_some_and(|entry| entry.linked && entry.attr.is_swollen())
    }

    /// Takes the files of a disk that were noted so.
    fn take_swollen(&mut self, no: DiskNo) -> Vec<Ino> {
        let index = &self.index;
        let (here, others) = std::mem::take(&mut self.swollen)
            .into_iter()
            .partition(|ino| index.get(*ino).is_none_or(|entry| entry.disk == no));
        self.swollen = others;
        here
    }

    /// Notes a file that may be mapped although its handle is closed.
    pub(super) fn note_mapped(&mut self, ino: Ino) {
        self.mapped.put(ino, ());
    }
}

impl Volume {
    /// Reads again how much room the files of a disk take that were written since the last call, or may be mapped.
    pub(super) fn settle_sizes(&self, no: DiskNo) {
        let (written, mapped) = {
            let mut shared = self.shared.lock();
            // What they still take after the sync they need.
            shared.take_swollen(no);
            let mapped: Vec<Ino> = shared.mapped.iter().map(|(ino, ())| *ino).collect();
            (std::mem::take(&mut shared.unmeasured), mapped)
        };
        let disk_of = |ino| self.shared.lock().index.get(ino).filter(|entry| entry.linked).map(|entry| entry.disk);
        let mut later = Vec::new();
        for ino in written {
            match disk_of(ino) {
                Some(disk) if disk != no || !self.look_again(no, ino) => later.push(ino),
                _ => {}
            }
        }
        for ino in mapped.into_iter().filter(|ino| disk_of(*ino) == Some(no)) {
            self.look_again(no, ino);
        }
        self.shared.lock().note_unmeasured(later);
    }

    /// A file was closed that takes more room than it needs: looks at it again now, and before it counts if it still does.
    pub(super) fn settle_closed_swollen(&self, no: DiskNo, ino: Ino) {
        self.look_again(no, ino);
        self.shared.lock().note_swollen(ino);
    }

    /// Looks again at the files of a disk that took more room at their close than they need, before their room is believed.
    /// What still takes it is looked at again, until the next sync.
    pub(super) fn settle_swollen(&self, no: DiskNo) {
        let swollen = self.shared.lock().take_swollen(no);
        for ino in swollen {
            self.settle_closed_swollen(no, ino);
        }
    }

    /// The entry of a file that may be mapped, brought up to date unless somebody is at work on it.
    pub(super) fn look_again_at(&self, entry: Entry) -> Entry {
        self.look_again(entry.disk, entry.ino);
        self.shared.lock().index.get(entry.ino).unwrap_or(entry)
    }

    /// Reads a file's room again, and its times if they have moved; its size only a handle changes. False if somebody works
    /// on the file: it is looked at another time.
    fn look_again(&self, no: DiskNo, ino: Ino) -> bool {
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
            let mut attr = Attr { blocks_512: stat.attr.blocks_512, ..entry.attr };
            if stat.attr.ctime_ns > attr.ctime_ns {
                (attr.mtime_ns, attr.ctime_ns) = (stat.attr.mtime_ns, stat.attr.ctime_ns);
            }
            shared.index.set_attr(ino, attr);
        }
        true
    }
}
