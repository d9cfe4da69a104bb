//! Orphans: temp files whose writers are gone (DESIGN.md section 5).
//!
//! Called by recovery for what the index does not know, and by rescans for what it does. A temp file is an orphan when
//! neither its contents nor its attributes changed for `temp_ttl` and no time of it lies in the future; one that is
//! open never is. The caller holds the name.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use super::attr::DiskNo;
use super::disk::{FoundKind, FoundStat};
use super::files::is_gone;
use super::index::Entry;
use super::name::EntryName;
use super::{Volume, name, now_ns};
use crate::error::{Error, Result};
use crate::messages::event;

/// The temp files that scans came across.
pub(super) struct Orphans {
    /// On each disk.
    removed: Vec<AtomicU64>,
    kept: AtomicU64,
}

impl Orphans {
    pub(super) fn new(disks: usize) -> Self {
        Orphans { removed: (0..disks).map(|_| AtomicU64::new(0)).collect(), kept: AtomicU64::new(0) }
    }
}

/// Whether a temp file with these times has been left behind.
fn is_left_behind(stat: &FoundStat, temp_ttl: Duration, now_ns: i64) -> bool {
    let youngest = stat.attr.mtime_ns.max(stat.attr.ctime_ns);
    let ttl_ns = i64::try_from(temp_ttl.as_nanos()).unwrap_or(i64::MAX);
    !temp_ttl.is_zero() && youngest <= now_ns && now_ns.saturating_sub(youngest) > ttl_ns
}

impl Volume {
    /// Orphans that have been removed since the volume was opened.
    pub fn orphans_removed(&self) -> u64 {
        self.orphans.removed.iter().map(|disk| disk.load(Ordering::Relaxed)).sum()
    }

    /// Of these on one disk.
    pub(super) fn orphans_removed_on(&self, no: DiskNo) -> u64 {
        self.orphans.removed.get(no.index()).map_or(0, |disk| disk.load(Ordering::Relaxed))
    }

    /// Temp files that scans found too young to be orphans.
    pub fn temp_files_kept(&self) -> u64 {
        self.orphans.kept.load(Ordering::Relaxed)
    }

    /// Removes an orphan that a scan came across and the index does not know; false if it is none, or stays because
    /// the disk does not let it go: it is then shown like any file.
    pub(super) fn remove_orphan(&self, no: DiskNo, bytes: &[u8], path: &[u8], stat: &FoundStat) -> bool {
        if stat.kind != FoundKind::File || !name::is_unpublished_name(bytes) {
            return false;
        }
        let is_orphan = is_left_behind(stat, self.settings.temp_ttl, now_ns());
        if is_orphan && self.unlink_orphan(no, path).is_ok() {
            return true;
        }
        self.orphans.kept.fetch_add(1, Ordering::Relaxed);
        false
    }

    /// The same for a file that the index shows: the index first, and never while somebody has it open.
    pub(super) fn remove_known_orphan(&self, entry: &Entry, bytes: &[u8], path: &[u8], stat: &FoundStat) -> bool {
        let Ok(name) = EntryName::new(bytes) else {
            return false;
        };
        let is_orphan = name::is_unpublished_name(bytes) && is_left_behind(stat, self.settings.temp_ttl, now_ns());
        if !is_orphan || entry.pinned || entry.writing {
            return false;
        }
        let _kept = {
            let mut shared = self.shared.lock();
            // Handles join without the name lock.
            if shared.open.contains_key(&entry.ino) {
                return false;
            }
            shared.unlink(entry.ino)
        };
        let removed = self.unlink_orphan(entry.disk, path).is_ok();
        if !removed {
            self.put_back((entry.parent, name), entry);
        }
        removed
    }

    fn unlink_orphan(&self, no: DiskNo, path: &[u8]) -> Result<()> {
        match self.disk(no)?.io.unlink(path) {
            Err(error) if !is_gone(&error) => {
                event!(Warn, self.about(no).path(path).error(&error), "an orphan stays");
                return Err(Error::disk(no, error));
            }
            _ => {}
        }
        if let Some(disk) = self.orphans.removed.get(no.index()) {
            disk.fetch_add(1, Ordering::Relaxed);
        }
        event!(Info, self.about(no).path(path), "an orphan is removed");
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::volume::attr::Attr;

    #[test]
    fn an_orphan_is_old_by_both_times_and_none_lies_in_the_future() {
        let hour = Duration::from_secs(3600);
        let second = 1_000_000_000;
        let now = 10_000 * second;
        let stat = |mtime_ns, ctime_ns| FoundStat {
            ino: 1,
            kind: FoundKind::File,
            attr: Attr { mtime_ns, ctime_ns, ..Attr::default() },
            birth_ns: 0,
        };
        let old = now - 3_601 * second;
        assert!(is_left_behind(&stat(old, old), hour, now));
        assert!(is_left_behind(&stat(i64::MIN, old), hour, now));
        for young in [now, now - 3_599 * second, now + second, i64::MAX] {
            assert!(!is_left_behind(&stat(young, old), hour, now));
            assert!(!is_left_behind(&stat(old, young), hour, now));
        }
        assert!(!is_left_behind(&stat(0, 0), Duration::ZERO, now));
    }
}
