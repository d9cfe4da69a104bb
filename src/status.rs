//! The status of a mounted volume as JSON: the value of the root's xattr `user.kvspan.status`.
//!
//! Written by `fs::xattr`, read by the commands. Fields are only ever added: a reader ignores those it does not
//! know, and takes zero for those it misses, so that commands and daemons of two versions understand each other.

use serde::{Deserialize, Serialize};
use uuid::Uuid;

/// The xattrs of the root that the commands read.
pub const XATTR_STATUS: &str = "user.kvspan.status";
pub const XATTR_DISKS: &str = "user.kvspan.disks";

/// A volume, as its daemon sees it.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Status {
    /// The volume id.
    pub volume: Uuid,
    /// Of the daemon.
    pub version: String,
    /// Of the daemon, in its own pid namespace.
    pub pid: u32,
    pub mountpoint: String,
    pub state: VolumeState,
    pub io_mode: IoMode,
    /// Opens since the mount whose disk the kernel would not pass through, so that their bytes go through the daemon.
    pub passthrough_refused: u64,
    /// Files in the index.
    pub files: u64,
    pub used_bytes: u64,
    pub limit_bytes: u64,
    pub recovery: Recovery,
    pub shadows: Shadows,
    pub evictions: Evictions,
    pub unlinked_open: UnlinkedOpen,
    pub lookups: Lookups,
    pub disks: Vec<Disk>,
    /// Path of the control socket where the daemon runs; empty if it has none.
    pub control_socket: String,
}

/// Whether every disk has been scanned since the mount.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum VolumeState {
    Recovering,
    Ready,
    #[default]
    #[serde(other)]
    Unknown,
}

/// How bytes of open files travel.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum IoMode {
    Passthrough,
    Daemon,
    #[default]
    #[serde(other)]
    Unknown,
}

/// A disk's state, in the words of the design.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum DiskState {
    Online,
    Suspect,
    Offline,
    ReadOnly,
    Missing,
    Draining,
    #[default]
    #[serde(other)]
    Unknown,
}

impl DiskState {
    /// The word for it.
    pub fn word(self) -> &'static str {
        match self {
            DiskState::Online => "online",
            DiskState::Suspect => "suspect",
            DiskState::Offline => "offline",
            DiskState::ReadOnly => "read-only",
            DiskState::Missing => "missing",
            DiskState::Draining => "draining",
            DiskState::Unknown => "unknown",
        }
    }
}

impl VolumeState {
    /// The word for it.
    pub fn word(self) -> &'static str {
        match self {
            VolumeState::Recovering => "recovering",
            VolumeState::Ready => "ready",
            VolumeState::Unknown => "unknown",
        }
    }
}

impl IoMode {
    /// The word for it.
    pub fn word(self) -> &'static str {
        match self {
            IoMode::Passthrough => "passthrough",
            IoMode::Daemon => "daemon",
            IoMode::Unknown => "unknown",
        }
    }
}

/// What the recovery scan of this mount has done.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Recovery {
    pub files: u64,
    pub seconds: f64,
    /// Orphans, outdated files, and files that a power loss may have torn.
    pub removed_files: u64,
    /// Temp files whose writers are gone, by rescans too.
    pub orphans_removed: u64,
    /// Temp files that were too young to be orphans.
    pub temp_files: u64,
    /// Files whose names were taken away while their disk was missing.
    pub outdated_removed: u64,
}

/// Second copies of names: never served.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Shadows {
    /// That are there now, as far as is known.
    pub files: u64,
    /// Since the mount.
    pub removed: u64,
    /// Names that are a file on one disk and a directory on another: left alone.
    pub conflicts: u64,
}

/// What has been evicted since the mount.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Evictions {
    pub files: u64,
    pub bytes: u64,
}

/// Files that were unlinked and that somebody still has open: they take room until the last one closes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct UnlinkedOpen {
    /// Files.
    pub files: u64,
    /// Bytes on the disks, a part of `used_bytes`.
    pub bytes: u64,
}

/// Look-ups that reached the daemon since the mount.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Lookups {
    pub hits: u64,
    pub misses: u64,
}

/// One configured disk.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Disk {
    /// The disk id; null while the disk is missing and its label was never read.
    pub uuid: Option<Uuid>,
    pub path: String,
    pub state: DiskState,
    pub size_bytes: u64,
    pub used_bytes: u64,
    pub limit_bytes: u64,
    pub files: u64,
    /// Files whose owner is another disk.
    pub away_files: u64,
    /// The index knows all that is on the disk.
    pub scanned: bool,
    /// Objects on it that are neither file nor directory: left alone.
    pub foreign_objects: u64,
    /// Times that a victim could not be unlinked.
    pub undeletable_victims: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fields_are_those_of_the_documentation() {
        let status = Status {
            disks: vec![Disk { state: DiskState::ReadOnly, ..Disk::default() }],
            state: VolumeState::Ready,
            ..Status::default()
        };
        let text = serde_json::to_string(&status).unwrap();
        let nil = "00000000-0000-0000-0000-000000000000";
        assert_eq!(
            text,
            format!(
                r#"{{"volume":"{nil}","version":"","pid":0,"mountpoint":"","state":"ready","io_mode":"unknown","passthrough_refused":0,"files":0,"used_bytes":0,"limit_bytes":0,"recovery":{{"files":0,"seconds":0.0,"removed_files":0,"orphans_removed":0,"temp_files":0,"outdated_removed":0}},"shadows":{{"files":0,"removed":0,"conflicts":0}},"evictions":{{"files":0,"bytes":0}},"unlinked_open":{{"files":0,"bytes":0}},"lookups":{{"hits":0,"misses":0}},"disks":[{{"uuid":null,"path":"","state":"read-only","size_bytes":0,"used_bytes":0,"limit_bytes":0,"files":0,"away_files":0,"scanned":false,"foreign_objects":0,"undeletable_victims":0}}],"control_socket":""}}"#
            )
        );
        assert_eq!(serde_json::from_str::<Status>(&text).unwrap(), status);
    }

    #[test]
    fn a_later_daemon_is_understood() {
        let text = r#"{"pid":7,"state":"rebalancing","colour":"red","disks":[{"state":"draining","x":[1]}]}"#;
        let status: Status = serde_json::from_str(text).unwrap();
        assert_eq!((status.pid, status.state), (7, VolumeState::Unknown));
        assert_eq!(status.disks[0].state.word(), "draining");
    }
}
