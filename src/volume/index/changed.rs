//! Which files of a disk have changed lately: what a failed sync may have torn.
//!
//! The part of [`Index`] that `volume::power` calls. Takes no lock.

use super::slab::flag;
use super::{DiskNo, Index, Ino};

impl Index {
    /// Collects the linked files of a disk whose contents or attributes have changed since a time, from the slots
    /// `from .. from + slots`; returns where to go on, None at the end. Start with 0.
    pub fn changed_since(
        &self,
        (disk, since_ns): (DiskNo, i64),
        from: u32,
        slots: u32,
        out: &mut Vec<Ino>,
    ) -> Option<u32> {
        let end = from.saturating_add(slots.max(1)).min(self.slots.len());
        for slot in from..end {
            let Some(item) = self.slots.get(slot) else { continue };
            let is_file = item.has(flag::USED) && !item.is_dir() && item.is_linked();
            if is_file && item.disk == disk.0 && item.mtime_ns.max(item.ctime_ns) >= since_ns {
                out.push(self.slots.ino(slot));
            }
        }
        (end < self.slots.len()).then_some(end)
    }
}
