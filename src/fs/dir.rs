//! Listings: `readdir` from the index, complete also while the disks are still being scanned.
//!
//! A cookie is 1 for `.`, 2 for `..`, and an entry's insertion number plus 2 otherwise: it is never used again, so a
//! listing goes on at any cookie, also of an entry that has gone. Called by the FUSE glue through [`CacheFs`]. A
//! listing's own lock (rank 0: one listing, one client) is held over the reading of directories.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use parking_lot::Mutex;

use super::CacheFs;
use crate::error::{Error, Result};
use crate::volume::attr::{Ino, Kind};
use crate::volume::index::Entry;
use crate::volume::recovery::ListingScan;

/// Cookies below this are the two dots.
const FIRST_COOKIE: u64 = 2;

/// One entry of a listing.
pub struct DirEntry<'a> {
    /// Where to go on after this entry.
    pub cookie: u64,
    /// Its inode.
    pub ino: Ino,
    /// What it is.
    pub kind: Kind,
    /// Its name.
    pub name: &'a [u8],
    /// Its entry and hard links, for all but the dots.
    pub entry: Option<(Entry, u32)>,
    /// See [`CacheFs::changes_unseen`]; said by [`CacheFs::list_plus`] only.
    pub changes_unseen: bool,
}

/// An open directory.
pub struct Listing {
    scan: Option<ListingScan>,
}

impl CacheFs {
    /// Opens a directory for listing.
    ///
    /// # Errors
    /// [`Error::NotDirectory`], or [`Error::Stale`] for one that has gone.
    pub fn open_dir(&self, dir: Ino) -> Result<u64> {
        let entry = self.volume.attributes(dir)?;
        if entry.kind != Kind::Dir {
            return Err(Error::NotDirectory);
        }
        let scan = self.volume.is_recovering().then(|| ListingScan::new(&self.volume, dir));
        let handle = self.next_handle.fetch_add(1, Ordering::Relaxed);
        self.listings.lock().insert(handle, Arc::new(Mutex::new(Listing { scan })));
        Ok(handle)
    }

    /// Closes a listing.
    pub fn close_dir(&self, handle: u64) {
        self.listings.lock().remove(&handle);
    }

    /// Calls `each` with the entries after `after`, until it returns false because its buffer is full.
    ///
    /// # Errors
    /// [`Error::BadHandle`], or what a disk said while it was being scanned.
    pub fn list(&self, handle: u64, dir: Ino, after: u64, each: &mut dyn FnMut(DirEntry<'_>) -> bool) -> Result<()> {
        let listing = self.listings.lock().get(&handle).cloned().ok_or(Error::BadHandle)?;
        let mut listing = listing.lock();
        if !self.list_dots(dir, after, each) {
            return Ok(());
        }
        let mut after = after.max(FIRST_COOKIE);
        loop {
            if !self.list_index(dir, &mut after, each) {
                return Ok(());
            }
            // The buffer has room and the index has no more: read on from the disks.
            let more = match &mut listing.scan {
                Some(scan) => scan.advance(&self.volume)?,
                None => false,
            };
            if !more {
                listing.scan = None;
                return Ok(());
            }
        }
    }

    /// Like [`list`](Self::list), and counts one look-up of each that `each` took.
    ///
    /// # Errors
    /// As [`list`](Self::list).
    pub fn list_plus(
        &self,
        handle: u64,
        dir: Ino,
        after: u64,
        each: &mut dyn FnMut(DirEntry<'_>) -> bool,
    ) -> Result<()> {
        let written = self.volume.refresh_writers(dir);
        let mut taken = Vec::new();
        let listed = self.list(handle, dir, after, &mut |entry| {
            let (ino, is_dot) = (entry.ino, entry.entry.is_none());
            let took = each(DirEntry { changes_unseen: written.contains(&ino), ..entry });
            if took && !is_dot {
                taken.push(ino);
            }
            took
        });
        self.volume.count_listed(&taken);
        listed
    }

    /// `.` and `..`; false when the buffer is full.
    fn list_dots(&self, dir: Ino, after: u64, each: &mut dyn FnMut(DirEntry<'_>) -> bool) -> bool {
        let parent = self.volume.parent(dir);
        let dots: [(u64, Ino, &[u8]); 2] = [(1, dir, b"."), (2, parent, b"..")];
        dots.into_iter().filter(|(cookie, ..)| *cookie > after).all(|(cookie, ino, name)| {
            each(DirEntry { cookie, ino, kind: Kind::Dir, name, entry: None, changes_unseen: false })
        })
    }

    /// What the index has after a cookie; false when the buffer is full.
    fn list_index(&self, dir: Ino, after: &mut u64, each: &mut dyn FnMut(DirEntry<'_>) -> bool) -> bool {
        let mut room = true;
        self.volume.list(dir, *after - FIRST_COOKIE, &mut |name, entry, links| {
            let cookie = entry.cookie + FIRST_COOKIE;
            let (ino, kind) = (entry.ino, entry.kind);
            room = each(DirEntry { cookie, ino, kind, name, entry: Some((entry, links)), changes_unseen: false });
            if room {
                *after = cookie;
            }
            room
        });
        room
    }
}
