//! SOURCE of a mount: a TOML file, or a list of directories.
//!
//! Called by `Config::load`. Reads the kind of one path, nothing more.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use super::{DiskConfig, MAX_DISKS, escape, options};
use crate::error::SetupError;

/// The longest source shown in `/proc/mounts`; the kernel takes less than a page.
const SOURCE_BYTES_MAX: usize = 2048;

/// What SOURCE names.
#[derive(Debug, PartialEq, Eq)]
pub enum Source {
    Toml(PathBuf),
    Directories(Vec<PathBuf>),
}

impl Source {
    /// A regular file is a TOML file; everything else is `DIR:DIR:...`, in which `\:` is a colon.
    pub fn of(text: &OsStr) -> Result<Source, SetupError> {
        let path = Path::new(text);
        if path.is_file() {
            return Ok(Source::Toml(path.to_path_buf()));
        }
        if path.extension().is_some_and(|ext| ext == "toml") && !path.is_dir() {
            return Err(SetupError::Usage(format!("there is no file '{}' to read the volume from", path.display())));
        }
        let parts = escape::split(text.as_bytes(), b':');
        if parts.iter().any(Vec::is_empty) {
            return Err(SetupError::Usage(format!(
                "source '{}' names an empty directory; write DIR:DIR:..., and \\: for a colon in a name",
                path.display()
            )));
        }
        let path_of = |part| PathBuf::from(OsString::from_vec(part));
        Ok(Source::Directories(parts.into_iter().map(path_of).collect()))
    }
}

/// SOURCE as `/proc/mounts` shall show it: as given, cut at a character if it is too long for the kernel.
pub fn shown(text: &OsStr) -> String {
    let mut shown = text.to_string_lossy().into_owned();
    if shown.len() > SOURCE_BYTES_MAX {
        let mut end = SOURCE_BYTES_MAX;
        while !shown.is_char_boundary(end) {
            end -= 1;
        }
        shown.truncate(end);
        shown.push_str("...");
    }
    shown
}

/// A directory as given on the command line, made absolute lexically.
pub fn disk_at(path: &Path) -> Result<DiskConfig, SetupError> {
    Ok(DiskConfig {
        path: options::absolute(path).map_err(|source| SetupError::io("make absolute", path, source))?,
        limit: None,
        reserve: None,
    })
}

/// The number of disks, and no path twice.
pub fn check_disks(disks: &[DiskConfig]) -> Result<(), SetupError> {
    if disks.is_empty() {
        return Err(SetupError::Usage("no disk is given; name at least one directory".to_string()));
    }
    if disks.len() > MAX_DISKS {
        return Err(SetupError::Usage(format!(
            "{} disks are given, and a volume has at most {MAX_DISKS}",
            disks.len()
        )));
    }
    for (at, disk) in disks.iter().enumerate() {
        let earlier = disks.iter().take(at).position(|other| other.path == disk.path);
        if let Some(earlier) = earlier {
            return Err(SetupError::Usage(format!(
                "disk '{}' is given twice, as number {} and as number {}; name it once",
                disk.path.display(),
                earlier + 1,
                at + 1
            )));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn directories(text: &str) -> Result<Vec<PathBuf>, String> {
        match Source::of(OsStr::new(text)) {
            Ok(Source::Directories(paths)) => Ok(paths),
            Ok(Source::Toml(path)) => Err(format!("toml {}", path.display())),
            Err(error) => Err(error.to_string()),
        }
    }

    #[test]
    fn sources() {
        assert_eq!(directories("/a"), Ok(vec!["/a".into()]));
        assert_eq!(directories(r"/a\:b:c"), Ok(vec!["/a:b".into(), "c".into()]));
        for text in ["", ":", "/a:", ":/a", "/a::/b"] {
            assert!(directories(text).is_err(), "{text}");
        }
        let missing = directories("/nowhere/kv.toml").err().unwrap_or_default();
        assert_eq!(missing, "there is no file '/nowhere/kv.toml' to read the volume from");
    }

    #[test]
    fn a_long_source_is_cut_at_a_character() {
        assert_eq!(shown(OsStr::new("/a:/b")), "/a:/b");
        let long = shown(OsStr::new(&"€".repeat(4000)));
        assert!(long.len() <= SOURCE_BYTES_MAX + 3 && long.ends_with("€..."));
    }
}
