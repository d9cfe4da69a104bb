//! What a supervising systemd is told (sd_notify(3)): that the mount answers, that it still does, that the end has begun.
//!
//! Called by `daemon`. Without `NOTIFY_SOCKET`, so also under a mount unit, nothing is sent. No locks.

use std::path::Path;
use std::thread;
use std::time::Duration;

use sd_notify::NotifyState;

use super::spawn;
use crate::error::SetupError;

/// The mount answers requests.
pub fn tell_ready(mountpoint: &Path) {
    tell(&[NotifyState::Ready, NotifyState::Status(&format!("serving {}", mountpoint.display()))]);
}

/// The unmount and the last flush have begun; they are bounded by `stop_timeout`.
pub fn tell_stopping(stop_timeout: Duration) {
    // The mount's users and the flush have a bound of their own each.
    let bound = u32::try_from(stop_timeout.saturating_mul(3).as_micros()).unwrap_or(u32::MAX);
    tell(&[NotifyState::Stopping, NotifyState::ExtendTimeoutUsec(bound), NotifyState::Status("unmounting")]);
}

/// Tells the watchdog, twice in its time, that the mount answers. Asked is the mount itself, through the kernel: a daemon
/// that hangs is then silent, and is started again.
pub fn spawn_watchdog(mountpoint: &Path) -> Result<(), SetupError> {
    let Some(interval) = sd_notify::watchdog_enabled() else {
        return Ok(());
    };
    let mountpoint = mountpoint.to_path_buf();
    spawn("watchdog", move || {
        loop {
            if rustix::fs::statvfs(&mountpoint).is_ok() {
                tell(&[NotifyState::Watchdog]);
            }
            thread::sleep(interval / 2);
        }
    })
}

fn tell(states: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(states) {
        log::warn!("systemd cannot be told: {error}");
    }
}
