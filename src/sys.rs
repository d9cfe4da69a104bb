//! The cellar: the only room that may use `unsafe` and raw libc. Everything else goes through rustix.
//!
//! Called by the daemon, by the command that starts it, and where clients' bytes are written. Takes no lock.

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

/// Does `work`, on this thread, as a user who is not root. A file system that keeps blocks back keeps them for user 0,
/// whatever its capabilities, and clients must not get at them through us. Where it may not be done, `work` is done all the
/// same.
pub fn as_nobody<T>(work: impl FnOnce() -> T) -> T {
    const NOBODY: libc::uid_t = 65_534;
    let _back = FsUser(set_fs_user(NOBODY));
    work()
}

/// The user to be again.
struct FsUser(libc::uid_t);

impl Drop for FsUser {
    fn drop(&mut self) {
        set_fs_user(self.0);
    }
}

/// The user whose rights file systems look at; returns the one before.
fn set_fs_user(user: libc::uid_t) -> libc::uid_t {
    // SAFETY: setfsuid takes any id, concerns the calling thread alone and touches no memory of ours.
    unsafe { libc::setfsuid(user) }.cast_unsigned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fs_user() -> String {
        let status = std::fs::read_to_string("/proc/thread-self/status").unwrap();
        let ids = status.lines().find_map(|line| line.strip_prefix("Uid:")).unwrap();
        ids.split_whitespace().nth(3).unwrap().to_string()
    }

    #[test]
    fn a_thread_is_itself_again_also_after_a_panic() {
        let before = fs_user();
        let during = as_nobody(fs_user);
        assert!(before != "0" || during == "65534", "{during}");
        assert_eq!(fs_user(), before);
        assert!(std::panic::catch_unwind(|| as_nobody(|| panic!("meant"))).is_err());
        assert_eq!(fs_user(), before);
    }
}
