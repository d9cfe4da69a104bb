//! The commands' side of the control socket.
//!
//! Called by `cli`. A daemon says progress every half second while it works, so a silence means that it hangs.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use super::{RESPONSE_BYTES_MAX, Request, Response};

/// How long a daemon may be silent.
const SILENCE_BOUND: Duration = Duration::from_secs(60);

/// Sends one request and returns the last answer; `progress` is told the files so far.
///
/// # Errors
/// What the system said; `InvalidData` for an answer that cannot be understood, `UnexpectedEof` when the daemon ended.
pub fn ask(socket: &Path, request: &Request, progress: &mut dyn FnMut(u64)) -> io::Result<Response> {
    let mut stream = UnixStream::connect(socket)?;
    stream.set_read_timeout(Some(SILENCE_BOUND))?;
    stream.set_write_timeout(Some(SILENCE_BOUND))?;
    let mut line = serde_json::to_vec(request)?;
    line.push(b'\n');
    stream.write_all(&line)?;
    let mut answers = BufReader::new(stream);
    loop {
        let mut line = Vec::new();
        let length = answers.by_ref().take(RESPONSE_BYTES_MAX as u64).read_until(b'\n', &mut line)?;
        if length == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        match serde_json::from_slice(&line).map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))? {
            Response::Progress { files } => progress(files),
            last => return Ok(last),
        }
    }
}
