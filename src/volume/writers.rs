//! Who writes: the files that are open for writing on each disk.
//!
//! Part of [`Shared`], under its lock. The evictor looks at these files many times a second, so finding them must not cost
//! a walk over everything that is open.

use std::collections::HashMap;

use super::attr::{DiskNo, Ino};
use super::{OpenFile, Shared};

/// The files that are open for writing on one disk, with their handles.
#[derive(Default)]
pub(super) struct Writers {
    handles: u32,
    files: HashMap<Ino, u32>,
}

impl Shared {
    /// Handles open for writing on a disk.
    pub(super) fn writers_on(&self, no: DiskNo) -> u32 {
        self.writers.get(no.index()).map_or(0, |writers| writers.handles)
    }

    /// Handles open for writing on a file.
    pub(super) fn writers_of(&self, ino: Ino) -> u32 {
        self.open.get(&ino).map_or(0, |open| open.writers)
    }

    /// The files that are open for writing on a disk.
    pub(super) fn writing_on(&self, no: DiskNo) -> impl Iterator<Item = (Ino, &OpenFile)> {
        let files = self.writers.get(no.index()).into_iter().flat_map(|writers| writers.files.keys());
        files.filter_map(|ino| Some((*ino, self.open.get(ino)?)))
    }

    pub(super) fn add_writer(&mut self, no: DiskNo, ino: Ino) {
        if let Some(writers) = self.writers.get_mut(no.index()) {
            writers.handles = writers.handles.saturating_add(1);
            *writers.files.entry(ino).or_default() += 1;
        }
    }

    pub(super) fn remove_writer(&mut self, no: DiskNo, ino: Ino) {
        let Some(writers) = self.writers.get_mut(no.index()) else {
            return;
        };
        writers.handles = writers.handles.saturating_sub(1);
        if let Some(handles) = writers.files.get_mut(&ino) {
            *handles = handles.saturating_sub(1);
            if *handles == 0 {
                writers.files.remove(&ino);
            }
        }
    }
}
