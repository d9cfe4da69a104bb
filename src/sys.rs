//! The cellar: the only room that may use `unsafe` and raw libc. Everything else goes through rustix.
//!
//! Called by the daemon alone. Takes no lock.

#![allow(unsafe_code, reason = "this is the room for it")]

/// Ends the process at once, without joining threads or running destructors: what is left for a shutdown
/// whose threads are stuck inside a dead disk.
pub fn exit_now(code: i32) -> ! {
    // SAFETY: `_exit` takes any status, never returns and touches no memory of ours.
    unsafe { libc::_exit(code) }
}
