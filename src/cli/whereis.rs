//! `kvspan where`: a line a name with its owner, its location and the rank of all disks.
//!
//! On a terminal a table; otherwise tab-separated fields: name, owner's disk id, owner's path, location's path or
//! `-`, and the paths of all disks in rank order, separated by tabs too.

use std::io::{self, IsTerminal};
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};

use uuid::Uuid;

use super::{WhereArgs, out, xattr};
use crate::error::SetupError;
use crate::status::XATTR_DISKS;
use crate::volume::name::PlacementKey;
use crate::volume::placement::Placement;

const DISK_UUID: &str = "user.kvspan.disk_uuid";

/// A disk as a line of `user.kvspan.disks` has it.
#[derive(Debug, Clone, PartialEq, Eq)]
struct DiskLine {
    id: Uuid,
    path: String,
}

/// Carries out the command.
pub fn run(args: &WhereArgs) -> Result<(), SetupError> {
    let disks = parse_disks(&xattr::of_root(&args.mountpoint, XATTR_DISKS)?);
    if disks.is_empty() {
        return Err(SetupError::Failed(format!(
            "the volume on '{}' has no disk with a known id; see `kvspan status`",
            args.mountpoint.display()
        )));
    }
    let weights: Vec<(Uuid, f64)> = disks.iter().map(|disk| (disk.id, 1.0)).collect();
    let placement = Placement::new(&weights).map_err(|error| SetupError::Failed(error.to_string()))?;
    let mut rows = Vec::new();
    for name in &args.names {
        rows.push(row(&args.mountpoint, name, &disks, &placement)?);
    }
    if !io::stdout().is_terminal() {
        let lines = rows.iter().map(|row| row.join("\t") + "\n");
        return out::print(&lines.collect::<String>());
    }
    let head = ["NAME", "OWNER", "OWNER'S PATH", "LOCATION", "RANK"];
    rows.insert(0, head.map(str::to_string).to_vec());
    out::print(&out::table(&rows, &[]))
}

fn row(mountpoint: &Path, name: &Path, disks: &[DiskLine], placement: &Placement) -> Result<Vec<String>, SetupError> {
    let path = below(mountpoint, name)?;
    let last = path.file_name().map(OsStrExt::as_bytes).unwrap_or_default();
    let rank = placement.rank(&PlacementKey::of(last));
    let ranked: Vec<&DiskLine> = rank.iter().filter_map(|at| disks.get(at.index())).collect();
    let location =
        xattr::of_file(&path, DISK_UUID).map_err(|errno| SetupError::io("ask for the location of", &path, errno))?;
    let location = location.map_or("-".to_string(), |id| {
        let disk = disks.iter().find(|disk| disk.id.to_string() == id);
        out::printable(disk.map_or(id.as_str(), |disk| disk.path.as_str()))
    });
    let owner = ranked.first();
    let mut cells = vec![
        out::printable(&name.display().to_string()),
        owner.map_or("-".to_string(), |disk| disk.id.to_string()),
        owner.map_or("-".to_string(), |disk| out::printable(&disk.path)),
        location,
    ];
    cells.extend(ranked.iter().map(|disk| out::printable(&disk.path)));
    Ok(cells)
}

/// The path of `name` in the mount. A name that leads out of it is refused.
fn below(mountpoint: &Path, name: &Path) -> Result<PathBuf, SetupError> {
    let relative = name.strip_prefix(mountpoint).unwrap_or(name);
    let plain = |part: Component<'_>| matches!(part, Component::Normal(_) | Component::CurDir);
    let inside = relative.components().all(plain) && relative.file_name().is_some();
    if !inside {
        return Err(SetupError::Usage(format!(
            "'{}' is no name below '{}'; write the name of a file, or its path from there",
            name.display(),
            mountpoint.display()
        )));
    }
    Ok(mountpoint.join(relative))
}

/// Lines of `uuid, path, state, used, limit, files`, tab-separated. A disk whose id is not known has no place in a
/// rank and is left out.
fn parse_disks(text: &str) -> Vec<DiskLine> {
    let line = |line: &str| {
        let mut fields = line.split('\t');
        let id = fields.next()?.parse().ok()?;
        let path = fields.next()?.to_string();
        Some(DiskLine { id, path })
    };
    text.lines().filter_map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn disks_without_an_id_have_no_rank() {
        let id = "6f1c1c64-0f43-4b6e-9a54-0c9a0f1d2e3f";
        let text = format!("{id}\t/a b\tonline\t1\t2\t3\n-\t/gone\tmissing\t0\t0\t0\n\n");
        let want = DiskLine { id: id.parse().unwrap(), path: "/a b".to_string() };
        assert_eq!(parse_disks(&text), [want]);
    }

    #[test]
    fn names_stay_inside() {
        let table = [
            ("k", Some("/m/k")),
            ("a/k", Some("/m/a/k")),
            ("/m/a/k", Some("/m/a/k")),
            ("../k", None),
            ("/etc/passwd", None),
            ("/m", None),
            ("", None),
        ];
        for (name, path) in table {
            let found = below(Path::new("/m"), Path::new(name)).ok();
            assert_eq!(found, path.map(PathBuf::from), "{name}");
        }
    }

    proptest! {
        #[test]
        fn parsing_never_panics(text in "[\\PC\t\n]*") {
            let _ = parse_disks(&text);
        }
    }
}
