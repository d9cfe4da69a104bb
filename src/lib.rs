//! kvspan presents the disks of an LLM host as one KV-cache volume.
//!
//! # Floor plan
//!
//! Rooms in layer order; each knows those below it and nobody above. `tests/tidy.rs` checks it.
//!
//! | room | what it does |
//! |---|---|
//! | [`cli`] | the commands: arguments in, sentences and exit codes out |
//! | [`daemon`] | wires a mount: open disks, mount, recover, wait, unmount |
//! | [`fuse`] | the kernel's requests in plain types, and the answers back |
//! | [`fs`] | POSIX over a volume: handles, listings, xattrs; runs without a mount |
//! | [`volume`] | the only room that changes disks and index together |
//! | `volume::{name, placement, index, capacity}` | pure: no I/O, no clock, no lock |
//! | [`volume::disk`] | one directory fd a disk, and the seam where tests put faults |
//! | [`control`] | the socket between the commands that change something and the daemon |
//! | [`messages`] | the log: one line an event, with fields |
//! | [`config`], [`error`], [`status`], [`ready`] | words that every room uses |
//! | `sys` | the only `unsafe` and the only libc |
//!
//! # A store and a load
//!
//! A store is LOOKUP (answered by the index), CREATE (name to key to owner, one `openat2`), writes that the kernel
//! passes to the disk, RENAME (one `renameat2`) and RELEASE (one `statx`, one `close`). A load is OPEN (one `openat2`),
//! reads in the kernel, and RELEASE. docs/ARCHITECTURE.md walks through both.
//!
//! # Locks
//!
//! Ascending: 0 name locks and the tree lock, 1 the index with the open files, 2 the handle table. Only rank 0 is held
//! over a system call. `sync` has the type.

#![deny(unsafe_code)]
#![cfg_attr(
    not(test),
    deny(
        clippy::unwrap_used,
        clippy::expect_used,
        clippy::indexing_slicing,
        clippy::panic,
        clippy::unreachable,
        clippy::todo
    )
)]

pub mod cli;
pub mod config;
pub mod control;
pub mod daemon;
pub mod error;
pub mod fs;
pub mod fuse;
pub mod messages;
mod procfs;
pub mod ready;
pub mod status;
mod sync;
mod sys;
pub mod volume;
