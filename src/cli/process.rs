//! Other processes: this program started again, and the end of one waited for.

use std::env;
use std::ffi::OsString;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

use super::mount_helper;

/// This program again, also if its file has been replaced meanwhile. Its name in `ps` stays.
pub fn this_program() -> Command {
    let name = env::args_os().next();
    let mut command = Command::new("/proc/self/exe");
    let name = name.filter(|name| !mount_helper::is_helper(name));
    command.arg0(name.unwrap_or_else(|| OsString::from("kvspan")));
    command
}

/// Waits until the process of `pidfd` has ended; false if it has not within `bound`.
pub fn wait_for_end(pidfd: &OwnedFd, bound: Duration) -> Result<bool, Errno> {
    let end = Instant::now() + bound;
    loop {
        let left = end.saturating_duration_since(Instant::now());
        let timeout =
            Timespec { tv_sec: i64::try_from(left.as_secs()).unwrap_or(i64::MAX), tv_nsec: left.subsec_nanos().into() };
        let mut fds = [PollFd::from_borrowed_fd(pidfd.as_fd(), PollFlags::IN)];
        match poll(&mut fds, Some(&timeout)) {
            Ok(0) => return Ok(false),
            Ok(_) => return Ok(true),
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::process::{Pid, PidfdFlags, pidfd_open};

    #[test]
    fn an_end_is_seen_and_a_bound_holds() {
        let mut child = Command::new("sleep").arg("60").spawn().unwrap();
        let pidfd = pidfd_open(Pid::from_child(&child), PidfdFlags::empty()).unwrap();
        assert_eq!(wait_for_end(&pidfd, Duration::from_millis(20)), Ok(false));
        child.kill().unwrap();
        assert_eq!(wait_for_end(&pidfd, Duration::from_secs(10)), Ok(true));
        child.wait().unwrap();
    }
}
