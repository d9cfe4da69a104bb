//! The control socket: commands that change something, for root and for the daemon's own user (DESIGN.md section 8).
//!
//! Words of both sides. A request is one line of JSON; the answer is lines of JSON, of which the last is no progress.
//! Unknown fields are ignored and unknown commands refused, so that commands and daemons of two versions understand each
//! other. [`server`] runs in the daemon, [`client`] in the commands; who does the work is the daemon's [`Handler`]. The
//! socket lies in `/run/kvspan`, for a daemon that is not root's in `$XDG_RUNTIME_DIR/kvspan`, and its path is in the
//! status of the mount. Takes no lock.

use std::env;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

pub mod client;
pub mod server;

/// Where sockets are, instead of the usual place: for tests.
pub const DIR_VARIABLE: &str = "KVSPAN_CONTROL_DIR";

/// No request is longer.
pub const REQUEST_BYTES_MAX: usize = 4 * 1024;
/// No line of an answer is longer.
pub const RESPONSE_BYTES_MAX: usize = 64 * 1024;

/// What a command asks for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "command", rename_all = "kebab-case")]
pub enum Request {
    /// Is somebody there?
    Ping,
    /// Look for what was added or removed behind the volume's back, on every disk.
    Rescan,
    /// Make room: unlink the coldest files until this many bytes are free again.
    Evict { bytes: u64 },
}

/// What the daemon answers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "answer", rename_all = "kebab-case")]
pub enum Response {
    Pong {
        version: String,
        pid: u32,
    },
    /// The work goes on; any other answer is the last one.
    Progress {
        files: u64,
    },
    Rescanned(Rescanned),
    Evicted(Evicted),
    /// The request was not understood or failed; the sentence is complete.
    Error {
        message: String,
    },
}

/// What a rescan of all disks found.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Rescanned {
    pub files: u64,
    pub added: u64,
    pub removed: u64,
    pub changed: u64,
    pub orphans_removed: u64,
    pub shadows: u64,
    pub shadows_removed: u64,
    pub conflicts: u64,
    pub foreign: u64,
    pub unreadable: u64,
}

/// What an eviction on request did.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Evicted {
    pub files: u64,
    pub bytes: u64,
}

/// Who does what is asked for. Called from several threads; a failure is a sentence.
pub trait Handler: Send + Sync + 'static {
    /// Scans all disks again. `progress` is told the files so far.
    fn rescan(&self, progress: &mut dyn FnMut(u64)) -> Result<Rescanned, String>;
    /// Evicts until `bytes` more are free.
    fn evict(&self, bytes: u64, progress: &mut dyn FnMut(u64)) -> Result<Evicted, String>;
}

/// The directory for sockets of this user; none without a place that only this user can write.
pub fn directory() -> Option<PathBuf> {
    if let Some(dir) = env::var_os(DIR_VARIABLE).filter(|dir| !dir.is_empty()) {
        return Some(PathBuf::from(dir));
    }
    if rustix::process::geteuid().is_root() {
        return Some(PathBuf::from("/run/kvspan"));
    }
    let runtime = env::var_os("XDG_RUNTIME_DIR").filter(|dir| !dir.is_empty())?;
    Some(PathBuf::from(runtime).join("kvspan"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn lines_are_those_of_the_documentation() {
        let requests = [
            (Request::Ping, r#"{"command":"ping"}"#),
            (Request::Rescan, r#"{"command":"rescan"}"#),
            (Request::Evict { bytes: 5 }, r#"{"command":"evict","bytes":5}"#),
        ];
        for (request, line) in requests {
            assert_eq!(serde_json::to_string(&request).unwrap(), line);
            assert_eq!(serde_json::from_str::<Request>(line).unwrap(), request);
        }
        let responses = [
            (Response::Progress { files: 7 }, r#"{"answer":"progress","files":7}"#),
            (Response::Evicted(Evicted { files: 1, bytes: 2 }), r#"{"answer":"evicted","files":1,"bytes":2}"#),
            (Response::Error { message: "no".into() }, r#"{"answer":"error","message":"no"}"#),
        ];
        for (response, line) in responses {
            assert_eq!(serde_json::to_string(&response).unwrap(), line);
            assert_eq!(serde_json::from_str::<Response>(line).unwrap(), response);
        }
    }

    #[test]
    fn a_later_side_is_understood() {
        let answer = r#"{"answer":"rescanned","files":3,"colour":"red"}"#;
        let found = Rescanned { files: 3, ..Rescanned::default() };
        assert_eq!(serde_json::from_str::<Response>(answer).unwrap(), Response::Rescanned(found));
        assert!(serde_json::from_str::<Request>(r#"{"command":"explode"}"#).is_err());
    }

    proptest! {
        #[test]
        fn parsing_never_panics(line in "\\PC*") {
            let _ = serde_json::from_str::<Request>(&line);
            let _ = serde_json::from_str::<Response>(&line);
        }
    }
}
