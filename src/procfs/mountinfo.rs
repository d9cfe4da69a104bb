//! /proc/self/mountinfo: what is mounted where, learned without touching it.
//!
//! Called by `volume::identity` and by the commands that look at a mount. A line that cannot be parsed is left out.

use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

/// The file system type of a mounted volume.
pub const FS_TYPE: &str = "fuse.kvspan";

/// One mount.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mount {
    pub mount_id: u64,
    pub parent_id: u64,
    /// `major:minor`.
    pub device: String,
    pub mountpoint: PathBuf,
    pub fs_type: String,
    pub source: OsString,
}

impl Mount {
    /// The number of a FUSE mount's connection: the minor device number.
    pub fn connection(&self) -> Option<u32> {
        self.device.split_once(':')?.1.parse().ok()
    }
}

/// All mounts of this mount namespace, in the order they were made.
pub fn read() -> io::Result<Vec<Mount>> {
    Ok(parse(&fs::read("/proc/self/mountinfo")?))
}

/// The mount that `mountpoint` shows: of several on top of each other the last.
pub fn topmost<'a>(mounts: &'a [Mount], mountpoint: &Path) -> Option<&'a Mount> {
    mounts.iter().rfind(|mount| mount.mountpoint == mountpoint)
}

/// The mounts strictly below a directory.
pub fn below<'a>(mounts: &'a [Mount], directory: &'a Path) -> impl Iterator<Item = &'a Mount> {
    mounts.iter().filter(move |mount| mount.mountpoint != directory && mount.mountpoint.starts_with(directory))
}

/// `path` as mountinfo writes it: its parent resolved, the last name not touched, for it may be a mount that hangs.
/// If nothing is mounted there, the last name is resolved as well, for it may be a symlink.
pub fn resolve(path: &Path, mounts: &[Mount]) -> io::Result<PathBuf> {
    let absolute: PathBuf = std::path::absolute(path)?.components().collect();
    let (Some(parent), Some(name)) = (absolute.parent(), absolute.file_name()) else {
        return absolute.canonicalize();
    };
    if topmost(mounts, &absolute).is_some() {
        return Ok(absolute);
    }
    let candidate = parent.canonicalize()?.join(name);
    if topmost(mounts, &candidate).is_some() {
        return Ok(candidate);
    }
    candidate.canonicalize()
}

/// Parses the text of a mountinfo file.
pub fn parse(text: &[u8]) -> Vec<Mount> {
    text.split(|byte| *byte == b'\n').filter_map(parse_line).collect()
}

fn parse_line(line: &[u8]) -> Option<Mount> {
    let mut fields = line.split(|byte| *byte == b' ');
    let mount_id = number(fields.next()?)?;
    let parent_id = number(fields.next()?)?;
    let device = String::from_utf8(fields.next()?.to_vec()).ok()?;
    let _root = fields.next()?;
    let mountpoint = PathBuf::from(unescape(fields.next()?));
    let _options = fields.next()?;
    // Any number of optional fields, ended by a lone hyphen.
    fields.by_ref().find(|field| *field == b"-")?;
    let fs_type = String::from_utf8_lossy(fields.next()?).into_owned();
    let source = unescape(fields.next()?);
    Some(Mount { mount_id, parent_id, device, mountpoint, fs_type, source })
}

fn number(field: &[u8]) -> Option<u64> {
    std::str::from_utf8(field).ok()?.parse().ok()
}

/// Undoes the kernel's `\ooo` for space, tab, line feed and backslash.
fn unescape(field: &[u8]) -> OsString {
    let mut bytes = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((first, tail)) = rest.split_first() {
        match octal(rest) {
            Some(byte) => {
                bytes.push(byte);
                rest = rest.get(4..).unwrap_or_default();
            }
            None => {
                bytes.push(*first);
                rest = tail;
            }
        }
    }
    OsString::from_vec(bytes)
}

fn octal(text: &[u8]) -> Option<u8> {
    let [b'\\', a, b, c, ..] = text else {
        return None;
    };
    let digits = [*a, *b, *c];
    u8::from_str_radix(std::str::from_utf8(&digits).ok()?, 8).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const SAMPLE: &[u8] = b"21 1 254:0 / / rw,relatime shared:1 - ext4 /dev/root rw\n\
        90 21 0:45 / /mnt/a\\040b rw,nosuid master:2 propagate_from:3 - fuse.kvspan /x:/y\\134z rw,user_id=0\n\
        91 90 0:46 / /mnt/a\\040b/sub rw - tmpfs none rw\n\
        92 21 0:47 / /mnt/a\\040b rw - tmpfs top rw\n\
        garbage\n";

    #[test]
    fn fields_and_escapes() {
        let mounts = parse(SAMPLE);
        assert_eq!(mounts.len(), 4);
        assert_eq!(mounts[1].fs_type, FS_TYPE);
        assert_eq!(mounts[1].mountpoint, Path::new("/mnt/a b"));
        assert_eq!(mounts[1].connection(), Some(45));
        assert_eq!(mounts[1].source, r"/x:/y\z");
        assert_eq!((mounts[1].mount_id, mounts[1].parent_id), (90, 21));
    }

    #[test]
    fn the_last_mount_is_the_one_seen() {
        let mounts = parse(SAMPLE);
        let top = topmost(&mounts, Path::new("/mnt/a b")).unwrap();
        assert_eq!(top.source, "top");
        let below: Vec<_> = below(&mounts, Path::new("/mnt/a b")).collect();
        assert_eq!(below.len(), 1);
        assert_eq!(resolve(Path::new("/mnt/a b/"), &mounts).unwrap(), Path::new("/mnt/a b"));
    }

    #[test]
    fn the_root_of_this_machine_is_mounted() {
        let mounts = read().unwrap();
        assert!(topmost(&mounts, Path::new("/")).is_some());
    }

    proptest! {
        #[test]
        fn parsing_never_panics(text in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = parse(&text);
            let _ = unescape(&text);
        }
    }
}
