//! `kvspan init`: notes for people on standard error, the volume id alone on standard output.

use super::{InitArgs, out};
use crate::error::SetupError;
use crate::volume::identity;

/// Carries out the command.
pub fn run(args: &InitArgs) -> Result<(), SetupError> {
    let report = identity::init(&args.dirs, args.volume)?;
    for disk in &report.disks {
        let path = out::printable(&disk.path.display().to_string());
        if disk.was_labelled {
            out::note(&format!("'{path}' is already disk {} of this volume; nothing was changed", disk.disk_id));
        } else {
            out::note(&format!("'{path}' is now disk {}", disk.disk_id));
        }
    }
    out::print(&format!("{}\n", report.volume_id))
}
