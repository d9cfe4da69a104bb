//! kvspan
pub mod cli;
pub mod config;
pub mod daemon;
pub mod error;
pub mod fs;
pub mod fuse;
mod procfs;
pub mod ready;
pub mod status;
mod sync;
mod sys;
pub mod volume;
