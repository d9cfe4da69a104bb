//! The cellar: the only room that may use `unsafe` and raw libc. Everything else goes through rustix.
//!
//! Called by the daemon and by the command that starts it. Takes no lock.

#![allow(unsafe_code, reason = "this is the room for it")]

/// Marks every descriptor from 3 on as closed for programs that are started from now on: a daemon must not hold what its
/// caller happened to have open. Kernels before 5.11 leave them as they are.
pub fn keep_descriptors_from_children() {
    const CLOSE_RANGE_CLOEXEC: libc::c_uint = 4;
    // SAFETY: close_range with this flag only sets close-on-exec; no descriptor of ours is closed or invalidated.
    unsafe {
        libc::syscall(libc::SYS_close_range, 3 as libc::c_uint, libc::c_uint::MAX, CLOSE_RANGE_CLOEXEC);
    }
}

/// Ends the process at once, without joining threads or running destructors: what is left for a shutdown
/// whose threads are stuck inside a dead disk.
pub fn exit_now(code: i32) -> ! {
    // SAFETY: `_exit` takes any status, never returns and touches no memory of ours.
    unsafe { libc::_exit(code) }
}
