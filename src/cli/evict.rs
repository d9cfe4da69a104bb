//! `kvspan evict`: frees bytes at once, from the cold end of every disk.

use super::rescan::{ask, misunderstood};
use super::{EvictArgs, out};
use crate::config::Amount;
use crate::config::units::parse_amount;
use crate::control::{Request, Response};
use crate::error::SetupError;

/// Carries out the command.
pub fn run(args: &EvictArgs) -> Result<(), SetupError> {
    let Ok(Amount::Bytes(bytes)) = parse_amount(&args.size) else {
        let size = &args.size;
        return Err(SetupError::Usage(format!(
            "'{size}' is not a number of bytes; write an integer with K, M, G or T"
        )));
    };
    match ask(&args.mountpoint, &Request::Evict { bytes }, &mut |_| {})? {
        Response::Evicted(gone) => {
            out::print(&format!("{} files, {} evicted\n", gone.files, out::human_bytes(gone.bytes)))
        }
        _ => Err(misunderstood(&args.mountpoint)),
    }
}
