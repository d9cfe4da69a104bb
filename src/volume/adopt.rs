//! Adoption: what lies on a disk enters the index.
//!
//! Called by probes, scans and creates that meet an object they did not expect. The caller holds the name. Makes no system
//! call but one look at the other copy of a name; the index lock is held between.

use std::sync::atomic::Ordering;

use super::attr::{Attr, DiskNo, Ino, Kind};
use super::disk::{FoundKind, FoundStat};
use super::index::NewEntry;
use super::name::EntryName;
use super::{Volume, now_ns};
use crate::messages::event;

impl Volume {
    /// Takes an object that lies on a disk into the index. The caller holds the name.
    ///
    /// Returns whether the index now shows it at that disk.
    pub(super) fn adopt(&self, no: DiskNo, parent: Ino, name: EntryName<'_>, stat: &FoundStat) -> bool {
        let kind = match stat.kind {
            FoundKind::File => Kind::File,
            FoundKind::Dir => Kind::Dir,
            FoundKind::Foreign | FoundKind::Unknown => return false,
        };
        if kind == Kind::Dir && self.is_another_disk(no, parent, name) {
            return false;
        }
        if self.is_lost(no, (parent, name), stat) {
            return false;
        }
        if kind == Kind::File && self.is_outdated(no, (parent, name), stat) {
            return false;
        }
        let away = kind == Kind::File && self.is_away(name.as_bytes(), no);
        let known = {
            let mut shared = self.shared.lock();
            match shared.index.find(parent, name.as_bytes()).and_then(|ino| shared.index.get(ino)) {
                // The name was taken away, and this copy of it goes with it.
                None if kind == Kind::File && self.shadows.is_doomed(no, (parent, name), stat) => return false,
                None => {
                    // A clock that was set back must not make a file the last to go.
                    let attr = Attr { atime_ns: stat.attr.atime_ns.min(now_ns()), ..stat.attr };
                    let new = NewEntry { kind, disk: no, attr, writing: false, away };
                    return match shared.index.insert_cold(parent, name.as_bytes(), new) {
                        Ok(ino) => {
                            if kind == Kind::Dir {
                                shared.index.set_dir_disks(ino, 1 << no.0);
                            } else {
                                self.counters.adopted.fetch_add(1, Ordering::Relaxed);
                            }
                            true
                        }
                        Err(_) => false,
                    };
                }
                Some(entry) => entry,
            }
        };
        match (known.kind, kind) {
            (Kind::Dir, Kind::Dir) => {
                self.adopt_dir_copy(no, &known, name, stat);
                true
            }
            (Kind::File, Kind::File) if known.disk == no => true,
            (Kind::File, Kind::File) => self.adopt_second_copy(no, name, &known, stat, away),
            _ => {
                self.conflict(no, (parent, name));
                false
            }
        }
    }

    /// A labelled directory inside a disk is a disk of somebody, and none of its files are ours.
    fn is_another_disk(&self, no: DiskNo, parent: Ino, name: EntryName<'_>) -> bool {
        let (Ok(disk), Some(mut path)) = (self.disk(no), self.path_of(parent, name)) else {
            return false;
        };
        path.extend_from_slice(b"/.kvspan/label.json");
        let labelled = disk.io.stat(&path).is_ok_and(|stat| stat.kind == FoundKind::File);
        if labelled {
            disk.count_foreign();
            event!(Warn, disk.about().path(&path), "the disk with this label is inside another one, and is left alone");
        }
        labelled
    }
}
