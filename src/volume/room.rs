//! Room: how much each disk holds, may hold, and must keep free for the files that are being written.
//!
//! Called by the evictor, by creates and by reports. The arithmetic is in [`super::capacity`]; this room feeds it with
//! the index's sums and the disks' last readings. No system call; the index lock for a few sums.

use super::Volume;
use super::attr::DiskNo;
use super::capacity::{Capacity, DiskReading, evict_down_to, start_evicting_at};
use super::disk::Disk;

/// Assumed size of an object until enough have been seen (DESIGN.md section 5).
const ASSUMED_OBJECT_BYTES: u64 = 64 << 20;
/// Published objects after which the largest one is believed.
const ENOUGH_OBJECTS: u64 = 100;
/// The smallest thing that takes room.
const BLOCK_BYTES: u64 = 4096;

/// Whose files must go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Scope {
    /// The disk's own: it is above its own limit.
    Disk,
    /// The coldest of all disks on its file system, whose room they share.
    FileSystem,
}

/// How much must go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Goal {
    /// Down to so many bytes of the scope's files.
    Bytes(u64),
    /// Down to so many of the scope's files: the file system runs out of inodes.
    Files(u64),
}

/// Why files must go, and when enough have gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Pressure {
    pub(super) scope: Scope,
    pub(super) goal: Goal,
}

/// What objects have looked like, to keep room for the next ones.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ObjectSizes {
    /// The largest one ever published on the volume, in bytes.
    pub largest_bytes: u64,
    /// Objects published so far.
    pub published: u64,
}

impl ObjectSizes {
    /// Room to keep for one file that is being written.
    fn expected_bytes(self) -> u64 {
        if self.published < ENOUGH_OBJECTS { self.largest_bytes.max(ASSUMED_OBJECT_BYTES) } else { self.largest_bytes }
    }

    /// One more was published.
    pub(super) fn add(&mut self, bytes: u64) {
        self.largest_bytes = self.largest_bytes.max(bytes);
        self.published = self.published.saturating_add(1);
    }

    /// Both together, as when a disk's record is read.
    pub fn join(&mut self, other: ObjectSizes) {
        self.largest_bytes = self.largest_bytes.max(other.largest_bytes);
        self.published = self.published.max(other.published);
    }
}

impl Volume {
    /// What the volume's objects have looked like, for the record that outlives this mount.
    pub fn object_sizes(&self) -> ObjectSizes {
        self.shared.lock().sizes
    }

    /// Takes in what an earlier mount has seen.
    pub fn recall_object_sizes(&self, sizes: ObjectSizes) {
        self.shared.lock().sizes.join(sizes);
    }

    /// Bytes of a disk that are the volume's. Before the disk is scanned the file system's own figure, less what was
    /// foreign at the last sync, is believed where it is larger.
    pub fn used_bytes(&self, no: DiskNo) -> u64 {
        let indexed = self.shared.lock().index.used_bytes(no);
        self.disk(no).map_or(indexed, |disk| used_of(disk, indexed))
    }

    /// The bounds of all disks, from the last readings.
    pub fn capacity(&self) -> Capacity {
        let shared = self.shared.lock();
        let reading = |(no, disk): (DiskNo, &Disk)| {
            let space = disk.space();
            let used_bytes = used_of(disk, shared.index.used_bytes(no));
            DiskReading {
                disk: no,
                device: space.device,
                size_bytes: space.size_bytes,
                available_bytes: space.available_bytes,
                used_bytes,
                evictable_bytes: used_bytes,
                limit: disk.limits.limit,
                reserve: disk.limits.reserve,
                files: shared.index.files(no),
                inodes: space.inodes,
                inodes_available: space.inodes_free,
            }
        };
        let readings: Vec<DiskReading> = self.numbered().map(reading).collect();
        drop(shared);
        Capacity::of(&readings)
    }

    /// Keeps each disk's bound where creates can see it at the cost of one load.
    pub(super) fn recompute_room(&self) {
        let capacity = self.capacity();
        for (no, disk) in self.numbered() {
            let Some(own) = capacity.disk(no) else {
                continue;
            };
            let shared = capacity.file_systems().iter().find(|fs| fs.device == disk.space().device);
            // What the neighbours on the file system leave of the shared bound.
            let left = shared
                .map_or(u64::MAX, |fs| own.used_bytes.saturating_add(fs.bound_bytes.saturating_sub(fs.used_bytes)));
            disk.set_bound_bytes(own.bound_bytes.min(left));
        }
    }

    /// Why a disk must lose files now, if it must.
    pub(super) fn pressure(&self, no: DiskNo) -> Option<Pressure> {
        let disk = self.disk(no).ok()?;
        let capacity = self.capacity();
        let own = capacity.disk(no)?;
        let headroom = self.headroom_bytes(no, own.bound_bytes, 0);
        if let Some(excess) = self.excess(own.used_bytes, own.bound_bytes, headroom) {
            return Some(Pressure { scope: Scope::Disk, goal: Goal::Bytes(own.used_bytes - excess) });
        }
        let fs = capacity.file_systems().iter().find(|fs| fs.device == disk.space().device)?;
        let headroom = self.neighbours(no).map(|no| self.headroom_bytes(no, fs.bound_bytes, 0)).sum();
        if let Some(excess) = self.excess(fs.used_bytes, fs.bound_bytes, headroom) {
            return Some(Pressure { scope: Scope::FileSystem, goal: Goal::Bytes(fs.used_bytes - excess) });
        }
        self.inode_pressure(no, disk)
    }

    /// The disks on a disk's file system, itself among them.
    pub(super) fn neighbours(&self, no: DiskNo) -> impl Iterator<Item = DiskNo> {
        let device = self.disk(no).map(|disk| disk.space().device).unwrap_or_default();
        self.numbered().filter(move |(other, disk)| *other == no || disk.space().device == device).map(|(no, _)| no)
    }

    /// Whether the disk's own limit, and not the room that it shares, is in the way of one more writer.
    pub(super) fn is_at_own_limit(&self, no: DiskNo) -> bool {
        self.capacity().disk(no).is_some_and(|own| {
            let needed = self.headroom_bytes(no, own.bound_bytes, 1).max(BLOCK_BYTES);
            own.used_bytes.saturating_add(needed) > own.bound_bytes
        })
    }

    /// Whether enough has gone.
    pub(super) fn is_relieved(&self, no: DiskNo, pressure: &Pressure) -> bool {
        let sum = |of: &dyn Fn(DiskNo) -> u64| match pressure.scope {
            Scope::Disk => of(no),
            Scope::FileSystem => self.neighbours(no).map(of).sum(),
        };
        match pressure.goal {
            Goal::Bytes(down_to) => sum(&|no| self.used_bytes(no)) <= down_to,
            Goal::Files(down_to) => sum(&|no| self.files_on(no)) <= down_to,
        }
    }

    /// Bytes above the low watermark, if the high one is passed.
    fn excess(&self, used: u64, bound: u64, headroom: u64) -> Option<u64> {
        let headroom = headroom.min(bound / 4);
        let above = used > start_evicting_at(bound, self.settings.high_percent, headroom);
        let excess = used.saturating_sub(evict_down_to(bound, self.settings.low_percent, headroom));
        (above && excess > 0).then_some(excess)
    }

    /// A file system that is nearly out of inodes is as full as one without blocks; one that reports none makes them
    /// as it needs.
    fn inode_pressure(&self, no: DiskNo, disk: &Disk) -> Option<Pressure> {
        let space = disk.space();
        if space.inodes == 0 {
            return None;
        }
        let (least, wanted) = ((space.inodes / 50).max(4), (space.inodes / 25).max(8));
        let files: u64 = self.neighbours(no).map(|no| self.files_on(no)).sum();
        if space.inodes_free >= least || files == 0 {
            return None;
        }
        let goal = Goal::Files(files.saturating_sub(wanted - space.inodes_free));
        Some(Pressure { scope: Scope::FileSystem, goal })
    }

    /// Room to keep for the disk's open writers and `more` of them: at most a quarter of the bound.
    fn headroom_bytes(&self, no: DiskNo, bound: u64, more: u64) -> u64 {
        let shared = self.shared.lock();
        let writers = u64::from(shared.writers_on(no)).saturating_add(more);
        writers.saturating_mul(shared.sizes.expected_bytes()).min(bound / 4)
    }

    /// Whether one more writer fits on a disk as it is.
    pub(super) fn has_headroom(&self, no: DiskNo) -> bool {
        let Ok(disk) = self.disk(no) else {
            return false;
        };
        let bound = disk.bound_bytes();
        let needed = self.headroom_bytes(no, bound, 1).max(BLOCK_BYTES);
        let space = disk.space();
        let has_inode = space.inodes == 0 || space.inodes_free > 0;
        has_inode && self.used_bytes(no).saturating_add(needed) <= bound
    }

    /// Whether a disk has room for one block at all.
    pub(super) fn has_block(&self, no: DiskNo) -> bool {
        let Ok(disk) = self.disk(no) else {
            return false;
        };
        let space = disk.space();
        let has_inode = space.inodes == 0 || space.inodes_free > 0;
        has_inode && self.used_bytes(no).saturating_add(BLOCK_BYTES) <= disk.bound_bytes()
    }
}

pub(super) fn used_of(disk: &Disk, indexed: u64) -> u64 {
    match disk.foreign_bytes() {
        Some(foreign) if !disk.is_scanned() => indexed.max(disk.space().used_bytes.saturating_sub(foreign)),
        _ => indexed,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sixty_four_mebibytes_are_assumed_until_a_hundred_objects_have_been_seen() {
        let mut sizes = ObjectSizes::default();
        assert_eq!(sizes.expected_bytes(), ASSUMED_OBJECT_BYTES);
        for _ in 0..99 {
            sizes.add(1 << 20);
        }
        assert_eq!(sizes.expected_bytes(), ASSUMED_OBJECT_BYTES);
        sizes.add(4096);
        assert_eq!(sizes.expected_bytes(), 1 << 20);
        sizes.add(512 << 20);
        assert_eq!(sizes.expected_bytes(), 512 << 20);
        sizes.join(ObjectSizes { largest_bytes: 1 << 30, published: 7 });
        assert_eq!(sizes, ObjectSizes { largest_bytes: 1 << 30, published: 101 });
    }
}
