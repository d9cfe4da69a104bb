//! `kvspan mount`: in the foreground the daemon itself, otherwise its starter.
//!
//! Without `-f` nothing forks: the program is started again with `-f` and its standard output on a pipe, on which
//! it says when it is ready (`crate::ready`). The starter returns only then.

use std::ffi::OsStr;
use std::fs::DirBuilder;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::fs::DirBuilderExt;
use std::process::{Child, Stdio};
use std::time::Duration;

use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, pidfd_open};

use super::{MountArgs, process};
use crate::config::Config;
use crate::daemon;
use crate::error::SetupError;
use crate::messages;
use crate::ready::{Answer, Ready};
use crate::sys;

/// The options of a mount, below `kvspan mount --help`.
pub const OPTIONS_HELP: &str = "\
Options for -o (a TOML file takes them by the same names):
  limit=SIZE            what a disk may hold [95%]
  reserve=SIZE          what must stay free on a disk [2%]
  high=PERCENT          eviction begins above this share of a disk's bound [95]
  low=PERCENT           and ends below this one [90]
  require=all|any|N     disks that must be there for a mount [any]
  placement=POLICY      rendezvous or most-free [rendezvous]
  eviction=POLICY       lru, or scan-resistant: what was never used goes first [lru]
  statfs=strict|cache   cache: what could be evicted counts as free [strict]
  passthrough=auto|off  off: all bytes go through the daemon [auto]
  allow_other           other users may use the mount
  ro, rw, noexec        as in mount(8)
  threads=N             threads that serve requests [CPUs, at least 2]
  entry_ttl=TIME        how long the kernel remembers a name [5s]
  negative_ttl=TIME     and that there is none [5s]
  grace=TIME            a name used within entry_ttl + grace is not evicted [10s]
  temp_ttl=TIME         an older temp file is an orphan [1h]
  atime_interval=TIME   how often a file's last use is made durable [60s]
  sync_interval=TIME    how often the disks are synced [30s]
  rescan_interval=TIME  how often the disks are scanned again [0]
  io_timeout=TIME       how long a disk may do nothing while requests wait [1s]
  probe_interval=TIME   how often a disk is probed [2s]
  disk_queue=N          requests inside one disk [32]
  stop_timeout=TIME     bound for the work of an unmount [10s]
  log=stderr|PATH       where the daemon's messages go
                        [-f and systemd: stderr, else /var/log/kvspan/MOUNTPOINT.log]

SIZE: an integer with K, M, G, T or KiB, MiB, GiB, TiB (powers of 1024), or a share of the disk (95%).
TIME: 500ms, 5s, 10m, 1h; a bare number is seconds, 0 switches it off.";

/// How long a daemon that has said its last word may take to end.
const END_BOUND: Duration = Duration::from_secs(10);
/// No answer is longer.
const ANSWER_BYTES_MAX: u64 = 64 * 1024;

/// Carries out the command.
pub fn run(args: &MountArgs) -> Result<(), SetupError> {
    let done = if args.background_child {
        serve_in_background(args)
    } else if args.foreground {
        serve(args, Ready::foreground())
    } else {
        start(args)
    };
    messages::flush();
    done
}

fn serve(args: &MountArgs, ready: Ready) -> Result<(), SetupError> {
    // Started through /proc/self/exe the process would be called "exe".
    let _ = rustix::thread::set_name(c"kvspan");
    let mut config = Config::load(&args.source, args.mountpoint.as_deref(), &args.options)?;
    if let Some(shown) = &args.shown_source {
        config.show_source_as(shown);
    }
    if args.mkdir {
        let made = DirBuilder::new().recursive(true).mode(0o755).create(&config.mountpoint);
        // A dead mount there cannot be looked at; the daemon takes it away.
        made.or_else(
            |error| if error.raw_os_error() == Some(Errno::NOTCONN.raw_os_error()) { Ok(()) } else { Err(error) },
        )
        .map_err(|error| SetupError::io("make", &config.mountpoint, error))?;
    }
    daemon::run(config, ready)
}

/// The daemon's side. What fails before it is ready is said by the starter, later it is in the log.
fn serve_in_background(args: &MountArgs) -> Result<(), SetupError> {
    let ready = Ready::background();
    serve(args, ready).map_err(|error| {
        log::error!("{error}");
        let code = error.mount_exit_code();
        ready.failed(&error.to_string(), code);
        SetupError::Quiet { code }
    })
}

/// The starter's side.
fn start(args: &MountArgs) -> Result<(), SetupError> {
    sys::keep_descriptors_from_children();
    let mut command = process::this_program();
    command.args(["mount", "--background-child"]);
    for list in &args.options {
        command.arg("-o").arg(list);
    }
    if let Some(shown) = &args.shown_source {
        command.arg("--shown-source").arg(shown);
    }
    if args.mkdir {
        command.arg("--mkdir");
    }
    command.arg("--").arg(&args.source);
    command.args(args.mountpoint.as_deref().map(AsRef::<OsStr>::as_ref));
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .map_err(|error| SetupError::Mount(format!("cannot start the daemon: {error}")))?;
    match read_answer(&mut child) {
        Some(Answer::Ready) => Ok(()),
        Some(Answer::Failed { code, message }) => {
            end_of(&mut child);
            Err(SetupError::Daemon { message, code })
        }
        None => {
            let how = match end_of(&mut child) {
                Some(status) => format!("it ended with {status}"),
                None => format!("its pid is {}", child.id()),
            };
            Err(SetupError::Mount(format!(
                "the daemon gave no answer before the mount was there ({how}); run it with -f to see more"
            )))
        }
    }
}

fn read_answer(child: &mut Child) -> Option<Answer> {
    let mut line = String::new();
    let stdout = child.stdout.take()?;
    BufReader::new(stdout.take(ANSWER_BYTES_MAX)).read_line(&mut line).ok()?;
    Answer::from_line(&line)
}

/// How the child ended, if it did within the bound: what it locked is free then.
fn end_of(child: &mut Child) -> Option<std::process::ExitStatus> {
    let pidfd = pidfd_open(Pid::from_child(child), PidfdFlags::empty()).ok()?;
    match process::wait_for_end(&pidfd, END_BOUND) {
        Ok(true) => child.wait().ok(),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_help_names_every_option() {
        for name in crate::config::options::names() {
            assert!(OPTIONS_HELP.contains(name), "{name}");
        }
    }
}
