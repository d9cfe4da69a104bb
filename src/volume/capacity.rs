//! How many bytes each disk may hold, and what `df` shows of the volume.
//!
//! Called once a second with fresh readings of every disk that is there, by `statfs`, by the evictor
//! and by `kvspan status`. Disks on one file system share one bound: its free bytes exist once,
//! whoever fills them. Invariants: no arithmetic wraps or panics, whatever a file system reports; a
//! bound never promises more than the limit, nor bytes that the reserve needs; the volume's free
//! bytes are never more than its bounds. Pure: no I/O, no locks.

use super::attr::DiskNo;
use crate::config::{Amount, StatfsMode};

/// `f_bsize` and `f_frsize` of the volume; also the block that O_DIRECT clients align to.
pub const STATFS_BLOCK_BYTES: u64 = 4096;

/// The part of the bound that eviction leaves free beyond the headroom (DESIGN.md section 5, "Room
/// ahead of writers").
const EVICTION_SLACK_PERCENT: f64 = 5.0;

/// What one disk said at the last reading, with its configured limit and reserve.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct DiskReading {
    /// Which disk this is.
    pub disk: DiskNo,
    /// Device id of its file system (`st_dev`): disks with one id share one bound.
    pub device: u64,
    /// Size of the file system, from [`file_system_size_bytes`].
    pub size_bytes: u64,
    /// Bytes that the daemon could still write: `f_bavail * f_frsize`.
    pub available_bytes: u64,
    /// Bytes of this disk that are the volume's: `used` of DESIGN.md section 5, "Bounds".
    pub used_bytes: u64,
    /// The part of `used_bytes` that the evictor could unlink.
    pub evictable_bytes: u64,
    /// Bytes that the disk may hold.
    pub limit: Amount,
    /// Bytes that must stay free on the file system.
    pub reserve: Amount,
    /// Files and directories of the volume on this disk.
    pub files: u64,
    /// Inodes of the file system (`f_files`); 0 from one that makes them as it needs (btrfs).
    pub inodes: u64,
    /// Inodes that the daemon could still take (`f_favail`).
    pub inodes_available: u64,
}

/// Size of a file system in bytes, without the blocks that only root may take:
/// `f_blocks - (f_bfree - f_bavail)` in units of `f_frsize`, as `df` has it.
pub fn file_system_size_bytes(f_frsize: u64, f_blocks: u64, f_bfree: u64, f_bavail: u64) -> u64 {
    let root_only = f_bfree.saturating_sub(f_bavail);
    f_blocks.saturating_sub(root_only).saturating_mul(f_frsize)
}

/// One disk's own bound.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DiskBound {
    /// Which disk this is.
    pub disk: DiskNo,
    /// `min(limit, used + f_bavail - reserve)`: what it may hold while its neighbours on the file
    /// system hold what they hold now.
    pub bound_bytes: u64,
    /// The limit in bytes, for messages and `kvspan status`.
    pub limit_bytes: u64,
    /// The volume's bytes on it.
    pub used_bytes: u64,
}

/// The bound of one file system, shared by all disks on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SharedBound {
    /// Device id of the file system.
    pub device: u64,
    /// What the disks on it may hold together. With one disk it is that disk's bound.
    pub bound_bytes: u64,
    /// What they hold together.
    pub used_bytes: u64,
    /// What the evictors could unlink of it.
    pub evictable_bytes: u64,
    /// Files and directories of the volume on it.
    pub files: u64,
    /// Inodes that are left on it; none if it makes them as it needs.
    pub inodes_available: Option<u64>,
}

/// The volume as `statfs` answers for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Totals {
    /// `f_blocks`, in [`STATFS_BLOCK_BYTES`].
    pub blocks: u64,
    /// `f_bfree` and `f_bavail`, in [`STATFS_BLOCK_BYTES`].
    pub blocks_free: u64,
    /// `f_files`; 0, as btrfs says it, if any file system makes inodes as it needs them.
    pub inodes: u64,
    /// `f_ffree` and `f_favail`; 0 with `inodes` 0 means "no such limit", not "none left".
    pub inodes_free: u64,
}

/// The bounds of all disks of a volume that are there.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Capacity {
    disks: Vec<DiskBound>,
    shared: Vec<SharedBound>,
}

impl Capacity {
    /// Computes the bounds from one reading of every disk that is there, in any order.
    pub fn of(readings: &[DiskReading]) -> Capacity {
        let mut capacity = Capacity::default();
        for first in readings {
            if capacity.shared.iter().any(|bound| bound.device == first.device) {
                continue;
            }
            let same = readings.iter().filter(|other| other.device == first.device);
            let group = Group::of(same.clone());
            capacity.shared.push(group.bound(first.device));
            capacity.disks.extend(same.map(|reading| group.bound_of(reading)));
        }
        capacity
    }

    /// The bound of each disk, disks of one file system side by side.
    pub fn disks(&self) -> &[DiskBound] {
        &self.disks
    }

    /// The bound of each file system.
    pub fn file_systems(&self) -> &[SharedBound] {
        &self.shared
    }

    /// The bound of `disk`; none if it was not among the readings.
    pub fn disk(&self, disk: DiskNo) -> Option<&DiskBound> {
        self.disks.iter().find(|bound| bound.disk == disk)
    }

    /// The totals for `statfs`, every file system counted once.
    pub fn totals(&self, mode: StatfsMode) -> Totals {
        let sum = |of: fn(&SharedBound) -> u64| self.shared.iter().map(of).fold(0, u64::saturating_add);
        let bound_bytes = sum(|shared| shared.bound_bytes);
        let free_bytes = match mode {
            StatfsMode::Strict => sum(SharedBound::free_bytes),
            StatfsMode::Cache => sum(SharedBound::free_or_evictable_bytes),
        };
        let limited = self.shared.iter().all(|shared| shared.inodes_available.is_some());
        let inodes_free = sum(|shared| shared.inodes_available.unwrap_or(0));
        let inodes = sum(|shared| shared.files).saturating_add(inodes_free);
        Totals {
            blocks: bound_bytes / STATFS_BLOCK_BYTES,
            blocks_free: free_bytes / STATFS_BLOCK_BYTES,
            inodes: if limited { inodes } else { 0 },
            inodes_free: if limited { inodes_free } else { 0 },
        }
    }
}

impl SharedBound {
    /// Bytes that can still be stored before anything must be evicted.
    pub fn free_bytes(&self) -> u64 {
        self.bound_bytes.saturating_sub(self.used_bytes)
    }

    /// Bytes that can be stored if everything evictable is evicted.
    pub fn free_or_evictable_bytes(&self) -> u64 {
        self.bound_bytes.saturating_sub(self.used_bytes.saturating_sub(self.evictable_bytes))
    }
}

/// The disks of one file system taken together.
struct Group {
    limit_bytes: u64,
    /// The largest reserve: it is kept once, on the file system that all share.
    reserve_bytes: u64,
    /// The lowest reading: they were taken one after the other while somebody wrote.
    available_bytes: u64,
    used_bytes: u64,
    evictable_bytes: u64,
    files: u64,
    inodes_available: Option<u64>,
}

impl Group {
    fn of<'a>(readings: impl Iterator<Item = &'a DiskReading>) -> Group {
        let mut group = Group {
            limit_bytes: 0,
            reserve_bytes: 0,
            available_bytes: u64::MAX,
            used_bytes: 0,
            evictable_bytes: 0,
            files: 0,
            inodes_available: Some(u64::MAX),
        };
        // Limits in bytes are each disk's own and add up. Limits in percent are all of the one file
        // system: three times 95 % is 95 %.
        let mut percent_limit_bytes = 0;
        for reading in readings {
            let limit_bytes = reading.limit.of_bytes(reading.size_bytes);
            match reading.limit {
                Amount::Bytes(_) => {
                    group.limit_bytes = group.limit_bytes.saturating_add(limit_bytes);
                }
                Amount::Percent(_) => percent_limit_bytes = limit_bytes.max(percent_limit_bytes),
            }
            let reserve_bytes = reading.reserve.of_bytes(reading.size_bytes);
            group.reserve_bytes = group.reserve_bytes.max(reserve_bytes);
            group.available_bytes = group.available_bytes.min(reading.available_bytes);
            group.used_bytes = group.used_bytes.saturating_add(reading.used_bytes);
            let evictable_bytes = reading.evictable_bytes.min(reading.used_bytes);
            group.evictable_bytes = group.evictable_bytes.saturating_add(evictable_bytes);
            group.files = group.files.saturating_add(reading.files);
            let limited = (reading.inodes > 0).then_some(reading.inodes_available);
            group.inodes_available = group.inodes_available.zip(limited).map(|(a, b)| a.min(b));
        }
        group.limit_bytes = group.limit_bytes.saturating_add(percent_limit_bytes);
        group
    }

    /// What may be held beside the reserve by whoever holds `used_bytes` of it now.
    fn room_bytes(&self, used_bytes: u64) -> u64 {
        used_bytes.saturating_add(self.available_bytes).saturating_sub(self.reserve_bytes)
    }

    fn bound(&self, device: u64) -> SharedBound {
        SharedBound {
            device,
            bound_bytes: self.limit_bytes.min(self.room_bytes(self.used_bytes)),
            used_bytes: self.used_bytes,
            evictable_bytes: self.evictable_bytes,
            files: self.files,
            inodes_available: self.inodes_available,
        }
    }

    fn bound_of(&self, reading: &DiskReading) -> DiskBound {
        let limit_bytes = reading.limit.of_bytes(reading.size_bytes);
        DiskBound {
            disk: reading.disk,
            bound_bytes: limit_bytes.min(self.room_bytes(reading.used_bytes)),
            limit_bytes,
            used_bytes: reading.used_bytes,
        }
    }
}

/// The use above which the evictor starts: `min(high x bound, bound - headroom)`.
pub fn start_evicting_at(bound_bytes: u64, high_percent: f64, headroom_bytes: u64) -> u64 {
    Amount::Percent(high_percent).of_bytes(bound_bytes).min(bound_bytes.saturating_sub(headroom_bytes))
}

/// The use that the evictor goes down to: `min(low x bound, bound - headroom - 5 %)`.
pub fn evict_down_to(bound_bytes: u64, low_percent: f64, headroom_bytes: u64) -> u64 {
    let slack_bytes = Amount::Percent(EVICTION_SLACK_PERCENT).of_bytes(bound_bytes);
    let kept_free = headroom_bytes.saturating_add(slack_bytes);
    Amount::Percent(low_percent).of_bytes(bound_bytes).min(bound_bytes.saturating_sub(kept_free))
}

#[cfg(test)]
mod tests;
