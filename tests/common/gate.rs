//! A gate that holds one thread's listings, so that a test decides how far a scan has come.
//!
//! A scan that runs behind a gate stops after it has read a batch of names and before it looks at them: whatever
//! happens to the names meanwhile, it has to cope with.

use std::cell::RefCell;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};
use rustix::io::Errno;

thread_local! {
    static MINE: RefCell<Option<Arc<Gate>>> = const { RefCell::new(None) };
}

/// A gate, closed at first.
#[derive(Default)]
pub struct Gate {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    permits: u64,
    waits: bool,
    cancelled: bool,
    done: bool,
}

/// Waits at the gate that the current thread runs behind, if it does.
///
/// # Errors
/// `EIO` when the gate was given up.
pub fn pass() -> io::Result<()> {
    let gate = MINE.with(|mine| mine.borrow().clone());
    gate.map_or(Ok(()), |gate| gate.wait())
}

impl Gate {
    /// Runs `work` behind the gate.
    pub fn guard<T>(self: &Arc<Self>, work: impl FnOnce() -> T) -> T {
        struct Done<'a>(&'a Gate);
        impl Drop for Done<'_> {
            fn drop(&mut self) {
                self.0.state.lock().done = true;
                self.0.changed.notify_all();
            }
        }
        let _done = Done(self);
        MINE.with(|mine| *mine.borrow_mut() = Some(Arc::clone(self)));
        work()
    }

    /// Lets `count` batches through and waits until the thread is at the gate again, or done.
    pub fn let_through(&self, count: u64) {
        let mut state = self.state.lock();
        state.permits = state.permits.saturating_add(count);
        state.waits = false;
        self.changed.notify_all();
        let at_gate = |state: &mut State| !(state.done || state.waits && state.permits == 0);
        let result = self.changed.wait_while_for(&mut state, at_gate, Duration::from_secs(30));
        assert!(!result.timed_out(), "a scan that should have moved on did not");
    }

    /// Whether the work has come to its end.
    pub fn is_done(&self) -> bool {
        self.state.lock().done
    }

    /// Gives the work up: every batch fails.
    pub fn cancel(&self) {
        self.state.lock().cancelled = true;
        self.changed.notify_all();
    }

    fn wait(&self) -> io::Result<()> {
        let mut state = self.state.lock();
        loop {
            if state.cancelled {
                return Err(Errno::IO.into());
            }
            if state.permits > 0 {
                state.permits -= 1;
                return Ok(());
            }
            state.waits = true;
            self.changed.notify_all();
            self.changed.wait(&mut state);
        }
    }
}
