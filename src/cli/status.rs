//! `kvspan status`: what the daemon says of itself, as a table or as it came.

use std::io::{self, IsTerminal};
use std::path::Path;
use std::thread;
use std::time::Duration;

use super::{StatusArgs, out, xattr};
use crate::error::SetupError;
use crate::status::{Disk, DiskState, Status, VolumeState, XATTR_STATUS};

/// Carries out the command.
pub fn run(args: &StatusArgs) -> Result<(), SetupError> {
    loop {
        let text = xattr::of_root(&args.mountpoint, XATTR_STATUS)?;
        let status = parse(&args.mountpoint, &text)?;
        let mut page = String::new();
        if args.watch.is_some() && !args.json && io::stdout().is_terminal() {
            page.push_str("\x1b[H\x1b[2J");
        }
        if args.json {
            page.push_str(text.trim_end());
            page.push('\n');
        } else {
            page.push_str(&render(&status, out::is_colour_wanted()));
        }
        out::print(&page)?;
        let Some(seconds) = args.watch else {
            return Ok(());
        };
        thread::sleep(Duration::from_secs(seconds));
    }
}

/// Asks the daemon of a mount.
pub fn fetch(mountpoint: &Path) -> Result<Status, SetupError> {
    parse(mountpoint, &xattr::of_root(mountpoint, XATTR_STATUS)?)
}

fn parse(mountpoint: &Path, text: &str) -> Result<Status, SetupError> {
    serde_json::from_str(text).map_err(|error| SetupError::NotKvspan {
        path: mountpoint.to_path_buf(),
        detail: format!(": its status cannot be read ({error})"),
    })
}

fn render(status: &Status, colour: bool) -> String {
    let facts = [
        ("volume", status.volume.to_string()),
        ("mounted on", out::printable(&status.mountpoint)),
        ("daemon", format!("pid {}, version {}", status.pid, out::printable(&status.version))),
        ("state", status.state.word().to_string()),
        ("I/O", io_mode(status)),
        ("files", status.files.to_string()),
        (
            "used",
            format!(
                "{} of {} ({})",
                out::human_bytes(status.used_bytes),
                out::human_bytes(status.limit_bytes),
                out::percent(status.used_bytes, status.limit_bytes)
            ),
        ),
        (
            "look-ups",
            // No share: a store asks for its names too, and the kernel answers for what it knows.
            format!("{} hits, {} misses that the kernel asked about", status.lookups.hits, status.lookups.misses),
        ),
        (
            "held open",
            format!("{} unlinked files, {}", status.unlinked_open.files, out::human_bytes(status.unlinked_open.bytes)),
        ),
        (
            "evicted",
            format!(
                "{} files, {}, {} times a file that could not be unlinked",
                status.evictions.files,
                out::human_bytes(status.evictions.bytes),
                status.disks.iter().map(|disk| disk.undeletable_victims).fold(0, u64::saturating_add)
            ),
        ),
        (
            "recovery",
            format!(
                "{} files in {:.1} s, {} removed ({} orphans), {} temp files kept",
                status.recovery.files,
                status.recovery.seconds,
                status.recovery.removed_files,
                status.recovery.orphans_removed,
                status.recovery.temp_files
            ),
        ),
        (
            "left alone",
            format!(
                "{} foreign objects, {} shadows ({} removed), {} conflicts",
                status.disks.iter().map(|disk| disk.foreign_objects).fold(0, u64::saturating_add),
                status.shadows.files,
                status.shadows.removed,
                status.shadows.conflicts
            ),
        ),
    ];
    let rows: Vec<Vec<String>> = facts.into_iter().map(|(name, value)| vec![name.to_string(), value]).collect();
    format!(
        "{}\n{}",
        out::table(&rows, &[]),
        disk_table(&status.disks, status.state == VolumeState::Recovering, colour)
    )
}

/// How bytes travel, and how often they did not.
fn io_mode(status: &Status) -> String {
    match (status.io_mode.word(), status.passthrough_refused) {
        (mode, 0) => mode.to_string(),
        (mode, refused) => format!("{mode}, refused for {refused} opens, whose bytes went through the daemon"),
    }
}

/// A disk that is online and being scanned says so.
fn state_of(disk: &Disk, recovering: bool) -> &'static str {
    if recovering && !disk.scanned && disk.state == DiskState::Online { "scanning" } else { disk.state.word() }
}

fn disk_table(disks: &[Disk], recovering: bool, colour: bool) -> String {
    let head = ["DISK", "STATE", "SIZE", "USED", "LIMIT", "USE%", "FILES", "AWAY", "ID"];
    let mut rows = vec![head.map(str::to_string).to_vec()];
    rows.extend(disks.iter().map(|disk| {
        vec![
            out::printable(&disk.path),
            state_of(disk, recovering).to_string(),
            out::human_bytes(disk.size_bytes),
            out::human_bytes(disk.used_bytes),
            out::human_bytes(disk.limit_bytes),
            out::percent(disk.used_bytes, disk.limit_bytes),
            disk.files.to_string(),
            disk.away_files.to_string(),
            disk.uuid.map_or("-".to_string(), |uuid| uuid.to_string()),
        ]
    }));
    let text = out::table(&rows, &[2, 3, 4, 5, 6, 7]);
    if !colour {
        return text;
    }
    let mut lines = text.lines();
    let mut coloured = format!("\x1b[1m{}\x1b[0m\n", lines.next().unwrap_or_default());
    for (line, disk) in lines.zip(disks) {
        coloured.push_str(&format!("\x1b[{}m{line}\x1b[0m\n", colour_of(disk.state)));
    }
    coloured
}

/// The terminal's code: default, yellow or red.
fn colour_of(state: DiskState) -> u8 {
    match state {
        DiskState::Online => 39,
        DiskState::Suspect | DiskState::ReadOnly | DiskState::Draining | DiskState::Unknown => 33,
        DiskState::Offline | DiskState::Missing => 31,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> Status {
        let disk = |path: &str, state| Disk {
            path: path.to_string(),
            state,
            size_bytes: 4 << 40,
            used_bytes: 1 << 40,
            limit_bytes: 2 << 40,
            files: 7,
            ..Disk::default()
        };
        Status {
            mountpoint: "/mnt/k\nv".to_string(),
            disks: vec![disk("/a", DiskState::Online), disk("/bb", DiskState::Offline)],
            ..Status::default()
        }
    }

    #[test]
    fn the_table_has_a_line_a_disk() {
        let text = render(&sample(), false);
        assert!(text.contains("mounted on  /mnt/k\\nv\n"), "{text}");
        assert!(text.contains("/a    online   4.0 TiB  1.0 TiB  2.0 TiB  50.0%      7     0  -\n"), "{text}");
        assert!(!text.contains('\x1b'));
        let coloured = render(&sample(), true);
        assert!(coloured.contains("\x1b[31m/bb"), "{coloured}");
    }
}
