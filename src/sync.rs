//! Lock ranks and the name locks.
//!
//! Ascending: 0 a name (or the tree, for nested paths) · 1 index and open files · 2 handle table. Only rank 0 may
//! be held over a system call. Called by the volume; the map's own mutex is held for a few instructions only.

use std::collections::HashSet;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

use crate::error::{Error, Result};
use crate::volume::attr::Ino;

type Name = (Ino, Box<[u8]>);

/// The exact names that requests work on right now. A stuck name blocks no other.
pub struct NameLocks {
    state: Mutex<State>,
    freed: Condvar,
    deadline: Duration,
}

#[derive(Default)]
struct State {
    held: HashSet<Name>,
    waiting: usize,
}

/// One or two locked names; dropping it lets them go.
pub struct NameGuard<'a> {
    locks: &'a NameLocks,
    first: Option<Name>,
    second: Option<Name>,
}

impl NameLocks {
    /// Locks that wait at most `deadline` for a name.
    pub fn new(deadline: Duration) -> Self {
        NameLocks { state: Mutex::default(), freed: Condvar::new(), deadline }
    }

    /// Locks one name of a directory.
    ///
    /// # Errors
    /// [`Error::Busy`] when another request has held it for the whole deadline.
    pub fn lock(&self, parent: Ino, name: &[u8]) -> Result<NameGuard<'_>> {
        let until = Instant::now() + self.deadline;
        let first = Some(self.take((parent, name.into()), until)?);
        Ok(NameGuard { locks: self, first, second: None })
    }

    /// Locks two names, in one order for everybody, so that two renames cannot wait for each other.
    ///
    /// # Errors
    /// [`Error::Busy`] when another request has held one of them for the whole deadline.
    pub fn lock_two(&self, a: (Ino, &[u8]), b: (Ino, &[u8])) -> Result<NameGuard<'_>> {
        let (low, high) = if a <= b { (a, b) } else { (b, a) };
        let mut guard = self.lock(low.0, low.1)?;
        if low != high {
            let until = Instant::now() + self.deadline;
            guard.second = Some(self.take((high.0, high.1.into()), until)?);
        }
        Ok(guard)
    }

    /// Locks a name that nobody holds.
    pub fn try_lock(&self, parent: Ino, name: &[u8]) -> Option<NameGuard<'_>> {
        let name: Name = (parent, name.into());
        let mut state = self.state.lock();
        let first = state.held.insert(name.clone()).then_some(name)?;
        Some(NameGuard { locks: self, first: Some(first), second: None })
    }

    fn take(&self, name: Name, until: Instant) -> Result<Name> {
        let mut state = self.state.lock();
        while state.held.contains(&name) {
            state.waiting += 1;
            let timed_out = self.freed.wait_until(&mut state, until).timed_out();
            state.waiting -= 1;
            if timed_out && state.held.contains(&name) {
                return Err(Error::Busy);
            }
        }
        state.held.insert(name.clone());
        Ok(name)
    }
}

/// Wakes a thread that has nothing to do until somebody rings.
#[derive(Default)]
pub struct Bell {
    rung: Mutex<bool>,
    heard: Condvar,
}

impl Bell {
    /// Wakes the thread that waits, or the next one that does.
    pub fn ring(&self) {
        *self.rung.lock() = true;
        self.heard.notify_all();
    }

    /// Waits for a ring, at most for `timeout`.
    pub fn wait(&self, timeout: Duration) {
        let mut rung = self.rung.lock();
        if !*rung {
            let _ = self.heard.wait_for(&mut rung, timeout);
        }
        *rung = false;
    }
}

impl Drop for NameGuard<'_> {
    fn drop(&mut self) {
        let mut state = self.locks.state.lock();
        for name in [self.first.take(), self.second.take()].into_iter().flatten() {
            state.held.remove(&name);
        }
        if state.waiting > 0 {
            self.locks.freed.notify_all();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};

    #[test]
    fn a_held_name_blocks_only_itself() {
        let locks = NameLocks::new(Duration::from_millis(20));
        let held = locks.lock(Ino::ROOT, b"a");
        assert!(held.is_ok());
        assert!(locks.lock(Ino::ROOT, b"b").is_ok());
        assert!(locks.lock(Ino(7), b"a").is_ok());
        assert!(matches!(locks.lock(Ino::ROOT, b"a"), Err(Error::Busy)));
        drop(held);
        assert!(locks.lock(Ino::ROOT, b"a").is_ok());
    }

    #[test]
    fn crossing_renames_never_wait_for_each_other_and_exclude_each_other() {
        let locks = NameLocks::new(Duration::from_secs(30));
        let inside = AtomicUsize::new(0);
        std::thread::scope(|scope| {
            for swap in [false, true, false, true] {
                let (locks, inside) = (&locks, &inside);
                scope.spawn(move || {
                    let (a, b): (&[u8], &[u8]) = if swap { (b"x", b"y") } else { (b"y", b"x") };
                    for _ in 0..2_000 {
                        let guard = locks.lock_two((Ino::ROOT, a), (Ino::ROOT, b));
                        assert!(guard.is_ok());
                        assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0);
                        inside.fetch_sub(1, Ordering::SeqCst);
                    }
                });
            }
        });
        assert!(locks.state.lock().held.is_empty());
    }
}
