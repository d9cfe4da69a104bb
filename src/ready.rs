//! The word between a daemon that is being started and the command that started it.
//!
//! `kvspan mount` without `-f` starts itself again with its standard output on a pipe. The daemon writes one line
//! there: `ready`, or `error CODE MESSAGE`. `cli::mount` reads it; `daemon::run` is handed a [`Ready`] and calls
//! [`Ready::ok`] once, when the mount answers requests.
//!
//! Only then does the daemon leave its session: an automount exempts its starter's process group, so a `setsid`
//! before mount(2) would make the daemon wait for itself.

use std::env;
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::AsFd;

use rustix::io::Errno;
use rustix::process::setsid;

use crate::error::SetupError;

/// To be told when the mount answers requests.
#[derive(Debug, Clone, Copy)]
pub struct Ready {
    parent_waits: bool,
}

impl Ready {
    /// Nobody waits: standard input, output and error stay as they are.
    pub fn foreground() -> Ready {
        Ready { parent_waits: false }
    }

    /// The starting command waits at the other end of standard output.
    pub fn background() -> Ready {
        Ready { parent_waits: true }
    }

    /// True with `-f`.
    pub fn is_foreground(&self) -> bool {
        !self.parent_waits
    }

    /// True if stderr will still be read after [`Ready::ok`]: in the foreground and under systemd.
    pub fn stderr_stays(&self) -> bool {
        self.is_foreground() || stderr_is_journal()
    }

    /// The mount answers requests: lets go of the caller (session, directory, standard input and error, under
    /// systemd not error), tells it, and lets go of standard output. In the foreground it does nothing.
    ///
    /// A caller that has gone meanwhile is no error: the mount is there and stays.
    pub fn ok(&self) -> Result<(), SetupError> {
        if self.is_foreground() {
            return Ok(());
        }
        let fail = |error: io::Error| SetupError::Mount(format!("the daemon cannot let go of its caller: {error}"));
        let null = File::options().read(true).write(true).open("/dev/null").map_err(fail)?;
        match setsid() {
            // Already the leader of a group of its own: nothing to leave.
            Ok(_) | Err(Errno::PERM) => {}
            Err(errno) => return Err(fail(errno.into())),
        }
        env::set_current_dir("/").map_err(fail)?;
        rustix::stdio::dup2_stdin(null.as_fd()).map_err(|errno| fail(errno.into()))?;
        if !stderr_is_journal() {
            rustix::stdio::dup2_stderr(null.as_fd()).map_err(|errno| fail(errno.into()))?;
        }
        tell(&Answer::Ready);
        rustix::stdio::dup2_stdout(null.as_fd()).map_err(|errno| fail(errno.into()))
    }

    /// The mount failed: tells the starting command, if one waits and has not been told already.
    pub fn failed(&self, message: &str, code: u8) {
        if self.parent_waits {
            tell(&Answer::Failed { code, message: message.to_string() });
        }
    }
}

/// The line on the pipe.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    Ready,
    Failed {
        /// Exit code, never 0.
        code: u8,
        message: String,
    },
}

impl Answer {
    /// The line, with its line feed. Line feeds of a message travel escaped.
    pub fn to_line(&self) -> String {
        match self {
            Answer::Ready => "ready\n".to_string(),
            Answer::Failed { code, message } => {
                let message = message.replace('\\', "\\\\").replace('\n', "\\n");
                format!("error {code} {message}\n")
            }
        }
    }

    /// The answer in `line`, or nothing if the daemon was cut off in the middle of a word.
    pub fn from_line(line: &str) -> Option<Answer> {
        let line = line.strip_suffix('\n')?;
        if line == "ready" {
            return Some(Answer::Ready);
        }
        let (code, message) = line.strip_prefix("error ")?.split_once(' ')?;
        let code = code.parse().ok().filter(|code| *code != 0)?;
        let mut text = String::new();
        let mut chars = message.chars();
        while let Some(c) = chars.next() {
            if c == '\\' {
                text.push(if chars.next()? == 'n' { '\n' } else { '\\' });
            } else {
                text.push(c);
            }
        }
        Some(Answer::Failed { code, message: text })
    }
}

fn tell(answer: &Answer) {
    let mut stdout = io::stdout().lock();
    let told = stdout.write_all(answer.to_line().as_bytes()).and_then(|()| stdout.flush());
    if let Err(error) = told {
        log::warn!("the command that started this daemon has gone: {error}");
    }
}

/// True if stderr is the journal: systemd names the stream it opened in JOURNAL_STREAM as `device:inode`.
pub fn stderr_is_journal() -> bool {
    let Ok(stream) = env::var("JOURNAL_STREAM") else {
        return false;
    };
    let Some((device, inode)) = stream.split_once(':') else {
        return false;
    };
    rustix::fs::fstat(io::stderr().as_fd())
        .is_ok_and(|stat| device.parse() == Ok(stat.st_dev) && inode.parse() == Ok(stat.st_ino))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn lines_that_are_no_answer() {
        for line in [
            "",
            "ready",
            "read",
            "error\n",
            "error 1\n",
            "error 0 x\n",
            "error 256 x\n",
            "error x y\n",
            "error 1 a\\\n",
        ] {
            assert_eq!(Answer::from_line(line), None, "{line:?}");
        }
        assert_eq!(Answer::from_line("ready\n"), Some(Answer::Ready));
    }

    proptest! {
        #[test]
        fn a_message_comes_through(code in 1_u8.., message in "[\\PC\n\\\\n]*") {
            let answer = Answer::Failed { code, message };
            let line = answer.to_line();
            prop_assert_eq!(line.matches('\n').count(), 1);
            prop_assert_eq!(Answer::from_line(&line), Some(answer));
        }

        #[test]
        fn parsing_never_panics(line in "(error |ready)?[\\PC\n]*") {
            let _ = Answer::from_line(&line);
        }
    }
}
