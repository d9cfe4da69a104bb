//! `kvspan rescan`: has every disk scanned again, waits for the end and says what was found.

use std::io::{self, IsTerminal, Write};
use std::path::{Path, PathBuf};

use super::{RescanArgs, out, status};
use crate::control::{Request, Rescanned, Response, client};
use crate::error::{SetupError, io_text};

/// Carries out the command.
pub fn run(args: &RescanArgs) -> Result<(), SetupError> {
    let shows_progress = io::stderr().is_terminal();
    let mut progress = |files: u64| {
        if shows_progress {
            let _ = write!(io::stderr(), "\r\x1b[K{files} files");
        }
    };
    let answer = ask(&args.mountpoint, &Request::Rescan, &mut progress);
    if shows_progress {
        let _ = write!(io::stderr(), "\r\x1b[K");
    }
    match answer? {
        Response::Rescanned(found) => out::print(&render(&found)),
        _ => Err(misunderstood(&args.mountpoint)),
    }
}

/// Sends a request to the daemon of a mount and waits for its last answer; a refusal is an error.
pub fn ask(mountpoint: &Path, request: &Request, progress: &mut dyn FnMut(u64)) -> Result<Response, SetupError> {
    let socket = status::fetch(mountpoint)?.control_socket;
    if socket.is_empty() {
        return Err(SetupError::Failed(format!(
            "the daemon of '{}' has no control socket; its log says why",
            mountpoint.display()
        )));
    }
    let socket = PathBuf::from(socket);
    match client::ask(&socket, request, progress) {
        Ok(Response::Error { message }) => Err(SetupError::Failed(message)),
        Ok(answer) => Ok(answer),
        Err(error) => Err(failed(mountpoint, &socket, error)),
    }
}

fn failed(mountpoint: &Path, socket: &Path, error: io::Error) -> SetupError {
    match error.kind() {
        io::ErrorKind::PermissionDenied => SetupError::Failed(format!(
            "only root and the user of the daemon may change the volume on '{}'",
            mountpoint.display()
        )),
        io::ErrorKind::InvalidData => misunderstood(mountpoint),
        io::ErrorKind::UnexpectedEof => {
            SetupError::Failed(format!("the daemon of '{}' ended before it had answered", mountpoint.display()))
        }
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => {
            SetupError::Failed(format!("the daemon of '{}' does not answer; look into its log", mountpoint.display()))
        }
        io::ErrorKind::NotFound => SetupError::Failed(format!(
            "there is no control socket '{}' here ({}); run the command on the host of the daemon",
            socket.display(),
            io_text(&error)
        )),
        _ => SetupError::io("talk to the daemon through", socket, error),
    }
}

pub(super) fn misunderstood(mountpoint: &Path) -> SetupError {
    SetupError::Failed(format!(
        "the daemon of '{}' gave an answer that this kvspan does not know; use the version that mounted it",
        mountpoint.display()
    ))
}

fn render(found: &Rescanned) -> String {
    let facts = [
        ("files", found.files),
        ("added", found.added),
        ("removed", found.removed),
        ("changed", found.changed),
        ("orphans removed", found.orphans_removed),
        ("shadows removed", found.shadows_removed),
        ("shadows left", found.shadows),
        ("conflicts", found.conflicts),
        ("foreign objects", found.foreign),
        ("unreadable", found.unreadable),
    ];
    let rows: Vec<Vec<String>> = facts.iter().map(|(what, count)| vec![what.to_string(), count.to_string()]).collect();
    out::table(&rows, &[1])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_found_is_a_line_each() {
        let found = Rescanned { files: 1200, added: 7, ..Rescanned::default() };
        let text = render(&found);
        assert!(text.starts_with("files            1200\nadded               7\n"), "{text}");
        assert_eq!(text.lines().count(), 10);
    }
}
