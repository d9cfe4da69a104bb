//! Who a disk is: its label, its place among the other disks, and the lock that only one daemon holds.
//!
//! Called by `cli::init`, which is the only thing that writes labels, and by `daemon` before it mounts. Nothing a
//! disk holds is trusted: a label is read with a bound, as a regular file, without following a symlink. Paths are
//! used once, to open the directory; what follows is relative to that directory. Takes no locks of the process.

mod init;
mod label;
mod lock;
mod nesting;
mod open;

pub use self::init::{InitDisk, InitReport, init};
pub use self::label::{FORMAT, LABEL_BYTES_MAX, Label, read_label};
pub use self::lock::lock_disk;
pub use self::open::{DiskAtStart, MissingDisk, OpenDisk, check_require, open_disks};
pub use crate::error::LabelProblem;

/// kvspan's own directory on each disk, hidden and refused through the mount.
pub const KVSPAN_DIR: &str = ".kvspan";
/// The label in it.
pub const LABEL_FILE: &str = "label.json";
/// The file whose `flock` one daemon holds.
pub const LOCK_FILE: &str = "lock";
