//! What /proc tells: processes here, mounts in [`mountinfo`].
//!
//! Called by `volume::identity` (lock files) and `cli::umount`. Reading /proc never touches a mounted file system,
//! so it answers when a mount hangs. No locks.

pub mod mountinfo;

use std::fs;
use std::io;
use std::path::Path;
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};
use uuid::Uuid;

/// When the process `pid` started: clock ticks since boot. With the pid it names one process of this boot.
pub fn start_ticks(pid: u32) -> io::Result<u64> {
    let stat = fs::read(format!("/proc/{pid}/stat"))?;
    parse_start_ticks(&stat).ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "unknown form of /proc/PID/stat"))
}

/// The id of this boot; `None` where /proc does not tell.
pub fn boot_id() -> Option<Uuid> {
    fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?.trim().parse().ok()
}

/// The name of the process `pid`, as `ps` shows it.
pub fn comm(pid: u32) -> io::Result<String> {
    let comm = fs::read(format!("/proc/{pid}/comm"))?;
    Ok(String::from_utf8_lossy(&comm).trim_end().to_string())
}

/// Now, on the clock that [`start_ticks`] counts with.
pub fn now_ticks() -> u64 {
    let now = clock_gettime(ClockId::Boottime);
    let seconds = Duration::new(u64::try_from(now.tv_sec).unwrap_or(0), u32::try_from(now.tv_nsec).unwrap_or(0));
    let per_second = rustix::param::clock_ticks_per_second();
    u64::try_from(seconds.as_nanos() * u128::from(per_second) / 1_000_000_000).unwrap_or(u64::MAX)
}

/// Whether a process has gone, or has been killed and is on its way.
pub fn is_ending(pid: u32) -> bool {
    let Ok(status) = fs::read_to_string(format!("/proc/{pid}/status")) else {
        return true;
    };
    const SIGKILL: u64 = 1 << 8;
    status.lines().any(|line| match line.split_once(':') {
        Some(("State", state)) => matches!(state.trim().chars().next(), Some('Z' | 'X')),
        Some(("SigPnd" | "ShdPnd", set)) => u64::from_str_radix(set.trim(), 16).is_ok_and(|set| set & SIGKILL != 0),
        _ => false,
    })
}

/// All processes that can be seen, in ascending order.
pub fn pids() -> Vec<u32> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let mut pids: Vec<u32> = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect();
    pids.sort_unstable();
    pids
}

/// The process that serves a FUSE connection, learned without asking it. A connection's number is the minor device
/// number of its mount. `None` too on older kernels, which do not tell, and for other users' processes.
pub fn fuse_server(connection: u32) -> Option<u32> {
    pids().into_iter().find(|pid| is_fuse_server(*pid, connection))
}

/// True if the process `pid` has the FUSE connection open.
pub fn is_fuse_server(pid: u32, connection: u32) -> bool {
    let fds = fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten();
    fds.flatten().any(|fd| {
        let is_fuse = fs::read_link(fd.path()).is_ok_and(|link| link == Path::new("/dev/fuse"));
        let number = fd.file_name();
        let info = || fs::read_to_string(Path::new(&format!("/proc/{pid}/fdinfo")).join(number));
        is_fuse && info().is_ok_and(|info| parse_fuse_connection(&info) == Some(connection))
    })
}

fn parse_fuse_connection(fdinfo: &str) -> Option<u32> {
    let mut lines = fdinfo.lines();
    lines.find_map(|line| line.strip_prefix("fuse_connection:")?.trim().parse().ok())
}

/// Field 22 of /proc/PID/stat. The second field, the name, may hold spaces and parentheses.
fn parse_start_ticks(stat: &[u8]) -> Option<u64> {
    let after_name = stat.iter().rposition(|byte| *byte == b')')? + 1;
    let text = std::str::from_utf8(stat.get(after_name..)?).ok()?;
    text.split_ascii_whitespace().nth(19)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_parentheses_does_not_shift_the_fields() {
        let stat = b"7 (a) b (c) S 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 424242 20 21\n";
        assert_eq!(parse_start_ticks(stat), Some(424_242));
        for broken in [&b""[..], b")", b"7 (a) S 1", b"7 a S"] {
            assert_eq!(parse_start_ticks(broken), None);
        }
    }

    #[test]
    fn a_fuse_connection_is_read_from_fdinfo() {
        let info = "pos:\t0\nflags:\t0100002\nfuse_connection:\t40\n";
        assert_eq!(parse_fuse_connection(info), Some(40));
        assert_eq!(parse_fuse_connection("fuse_connection:\tx\n"), None);
        assert_eq!(parse_fuse_connection(""), None);
    }

    #[test]
    fn this_process_started_before_now() {
        let started = start_ticks(std::process::id()).unwrap();
        assert!(started > 0 && started <= now_ticks());
        assert!(!comm(std::process::id()).unwrap().is_empty());
    }
}
