//! What /proc tells: processes here, mounts in [`mountinfo`].
//!
//! Called by `volume::identity` (lock files) and `cli::umount`. Reading /proc never touches a mounted file system,
//! so it answers when a mount hangs. No locks.

pub mod mountinfo;

use std::fs;
use std::io;
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// When the process `pid` started: clock ticks since boot. With the pid it names one process of this boot.
pub fn start_ticks(pid: u32) -> io::Result<u64> {
    let stat = fs::read(format!("/proc/{pid}/stat"))?;
    parse_start_ticks(&stat)
        .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "unknown form of /proc/PID/stat"))
}

/// The name of the process `pid`, as `ps` shows it.
pub fn comm(pid: u32) -> io::Result<String> {
    let comm = fs::read(format!("/proc/{pid}/comm"))?;
    Ok(String::from_utf8_lossy(&comm).trim_end().to_string())
}

/// Now, on the clock that [`start_ticks`] counts with.
pub fn now_ticks() -> u64 {
    let now = clock_gettime(ClockId::Boottime);
    let seconds = Duration::new(
        u64::try_from(now.tv_sec).unwrap_or(0),
        u32::try_from(now.tv_nsec).unwrap_or(0),
    );
    let per_second = rustix::param::clock_ticks_per_second();
    u64::try_from(seconds.as_nanos() * u128::from(per_second) / 1_000_000_000).unwrap_or(u64::MAX)
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
    fn this_process_started_before_now() {
        let started = start_ticks(std::process::id()).unwrap();
        assert!(started > 0 && started <= now_ticks());
        assert!(!comm(std::process::id()).unwrap().is_empty());
    }
}
