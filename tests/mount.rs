//! What a mounted volume promises, through the kernel and by the real binary. Names are sentences of docs/SEMANTICS.md.
//!
//! Needs root and /dev/fuse; skipped by name where they are not there. The data path runs in both I/O modes.

#[path = "mount/access.rs"]
mod access;
#[path = "mount/alike.rs"]
mod alike;
#[path = "mount/archivers.rs"]
mod archivers;
#[path = "mount/below_other_file_systems.rs"]
mod below_other_file_systems;
#[path = "mount/bytes.rs"]
mod bytes;
#[path = "mount/data.rs"]
mod data;
#[path = "mount/directories.rs"]
mod directories;
#[path = "mount/ending.rs"]
mod ending;
#[path = "mount/lifecycle.rs"]
mod lifecycle;
#[path = "mount/listing.rs"]
mod listing;
#[path = "mount/log.rs"]
mod log;
#[path = "common/loops.rs"]
#[expect(dead_code, reason = "other suites use the rest")]
mod loops;
#[path = "mount/maps.rs"]
mod maps;
#[path = "mount/modes.rs"]
mod modes;
#[path = "mount/pjdfstest.rs"]
mod pjdfstest;
#[path = "mount/privileges.rs"]
mod privileges;
#[path = "mount/races.rs"]
mod races;
#[path = "mount/refusals.rs"]
mod refusals;
#[path = "mount/reports.rs"]
mod reports;
#[path = "mount/rig.rs"]
mod rig;
#[path = "mount/run.rs"]
mod run;
#[path = "mount/space.rs"]
mod space;
#[path = "mount/sparse.rs"]
mod sparse;
#[path = "mount/store.rs"]
mod store;
#[path = "mount/unprivileged.rs"]
mod unprivileged;
#[path = "mount/xattrs.rs"]
mod xattrs;
