//! Commands with a hard limit on their time, so that a hang is a failure with a name and not the end of the suite.

use std::io::Read;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, pidfd_open};

/// No command of the suite needs longer, on the slowest machine.
pub const COMMAND_LIMIT: Duration = Duration::from_secs(90);
/// How long a condition may take to come true.
const CONDITION_LIMIT: Duration = Duration::from_secs(30);
/// Between two looks at a condition.
const LOOK_INTERVAL: Duration = Duration::from_millis(2);

/// What a command said when it ended.
#[derive(Debug)]
pub struct Said {
    pub code: Option<i32>,
    pub out: String,
    pub err: String,
    command: String,
}

impl Said {
    /// The standard output of a command that must have succeeded.
    #[track_caller]
    pub fn ok(&self) -> &str {
        assert_eq!(self.code, Some(0), "{}: {}{}", self.command, self.out, self.err);
        &self.out
    }

    /// The standard error of a command that must have failed with an exit code.
    #[track_caller]
    pub fn failed(&self, code: i32) -> &str {
        assert_eq!(self.code, Some(code), "{}: {}{}", self.command, self.out, self.err);
        &self.err
    }
}

/// Runs a command to its end.
#[track_caller]
pub fn run(command: &mut Command) -> Said {
    let child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
    let child = child.unwrap_or_else(|error| panic!("{command:?} cannot be run: {error}"));
    end(child, &format!("{command:?}"))
}

/// Waits for a child and reads all that it said.
#[track_caller]
pub fn end(mut child: Child, command: &str) -> Said {
    let (out, err) = (reader(child.stdout.take()), reader(child.stderr.take()));
    let Some(code) = exit_code(&mut child, COMMAND_LIMIT) else {
        let _ = child.kill();
        panic!("{command} did not end within {COMMAND_LIMIT:?}");
    };
    let text = |from: mpsc::Receiver<String>| {
        let text = from.recv_timeout(COMMAND_LIMIT);
        text.unwrap_or_else(|_| panic!("{command} has ended, but somebody still holds its output"))
    };
    Said { code, out: text(out), err: text(err), command: command.to_string() }
}

/// The exit code of a child that ends within a limit; `Some(None)` for one that a signal ended.
pub fn exit_code(child: &mut Child, limit: Duration) -> Option<Option<i32>> {
    let pidfd = pidfd_open(Pid::from_child(child), PidfdFlags::empty()).expect("a pidfd of a child");
    if !ends_within(&pidfd, limit) {
        return None;
    }
    Some(child.wait().expect("a child that has ended").code())
}

/// Whether a process ends within a limit.
pub fn ends_within(pidfd: &OwnedFd, limit: Duration) -> bool {
    let deadline = Instant::now() + limit;
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        let timeout = Timespec { tv_sec: left.as_secs() as i64, tv_nsec: left.subsec_nanos().into() };
        match poll(&mut [PollFd::from_borrowed_fd(pidfd.as_fd(), PollFlags::IN)], Some(&timeout)) {
            Ok(ready) => return ready == 1,
            Err(errno) => assert_eq!(errno, rustix::io::Errno::INTR),
        }
    }
}

fn reader(stream: Option<impl Read + Send + 'static>) -> mpsc::Receiver<String> {
    let (to, from) = mpsc::channel();
    thread::spawn(move || {
        let mut bytes = Vec::new();
        if let Some(mut stream) = stream {
            let _ = stream.read_to_end(&mut bytes);
        }
        let _ = to.send(String::from_utf8_lossy(&bytes).into_owned());
    });
    from
}

/// Waits for a condition.
#[track_caller]
pub fn wait_until(what: &str, mut condition: impl FnMut() -> bool) {
    let deadline = Instant::now() + CONDITION_LIMIT;
    while !condition() {
        assert!(Instant::now() < deadline, "waited {CONDITION_LIMIT:?} in vain until {what}");
        thread::sleep(LOOK_INTERVAL);
    }
}

/// A shell script, with the working directory and the positional parameters given.
pub fn shell(dir: &Path, script: &str) -> Said {
    run(Command::new("sh").current_dir(dir).arg("-euc").arg(script))
}

/// A shell script as another user, who is in no other group.
pub fn shell_as(uid: u32, gid: u32, dir: &Path, script: &str) -> Said {
    shell_in_groups(uid, gid, &[], dir, script)
}

/// A shell script as another user with supplementary groups.
pub fn shell_in_groups(uid: u32, gid: u32, groups: &[u32], dir: &Path, script: &str) -> Said {
    run(&mut user_command(uid, gid, groups, dir, script))
}

/// The same, not yet started.
pub fn user_command(uid: u32, gid: u32, groups: &[u32], dir: &Path, script: &str) -> Command {
    let mut command = Command::new("setpriv");
    command.arg(format!("--reuid={uid}")).arg(format!("--regid={gid}"));
    match groups {
        [] => command.arg("--clear-groups"),
        _ => command.arg(format!("--groups={}", groups.iter().map(u32::to_string).collect::<Vec<_>>().join(","))),
    };
    command.args(["sh", "-euc"]).arg(script).current_dir(dir);
    command
}

/// A Python script that is to succeed; what it printed.
#[track_caller]
pub fn python(script: &str, args: &[&Path]) -> String {
    run(&mut python_command(script, args)).ok().to_string()
}

/// A Python script, not yet started.
pub fn python_command(script: &str, args: &[&Path]) -> Command {
    // A version manager's shim would start a shell each time.
    let system = "/usr/bin/python3";
    let mut command = Command::new(if Path::new(system).exists() { system } else { "python3" });
    command.args(["-I", "-c", script]).args(args);
    command
}

/// Whether a program is installed.
pub fn has(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|dir| dir.join(program).is_file())
}
