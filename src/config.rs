//! What to mount, where and how: the validated configuration.
//!
//! Called by `cli`, handed to `daemon`. A [`Config`] that exists is consistent: options in range, paths absolute,
//! no disk named twice. Whether the disks are there is not asked here. No clap, no locks; the only I/O is reading
//! a TOML file.

pub mod escape;
pub mod log;
pub mod mount8;
pub mod options;
mod source;
mod suggest;
mod toml_file;
pub mod units;

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

pub use self::log::{LogSink, LogTarget};
pub use self::options::{EvictionPolicy, Options, Passthrough, PlacementPolicy, Require, StatfsMode};
use self::source::Source;
pub use self::units::Amount;
use crate::error::SetupError;

/// The most disks a volume can have.
pub const MAX_DISKS: usize = 64;

/// A volume to mount.
#[derive(Debug, Clone, PartialEq)]
pub struct Config {
    /// SOURCE as given, for `/proc/mounts`.
    pub source: String,
    /// Absolute, as given, symlinks not resolved.
    pub mountpoint: PathBuf,
    /// 1 to [`MAX_DISKS`] disks, in the order given.
    pub disks: Vec<DiskConfig>,
    pub options: Options,
}

/// One disk as configured; it may or may not be there.
#[derive(Debug, Clone, PartialEq)]
pub struct DiskConfig {
    /// Absolute, as given, symlinks not resolved.
    pub path: PathBuf,
    /// Instead of [`Options::limit`].
    pub limit: Option<Amount>,
    /// Instead of [`Options::reserve`].
    pub reserve: Option<Amount>,
}

impl DiskConfig {
    /// The limit that holds for this disk.
    pub fn limit_or(&self, options: &Options) -> Amount {
        self.limit.unwrap_or(options.limit)
    }

    /// The reserve that holds for this disk.
    pub fn reserve_or(&self, options: &Options) -> Amount {
        self.reserve.unwrap_or(options.reserve)
    }
}

impl Config {
    /// Reads the arguments of `kvspan mount`. `option_lists` are the `-o` arguments in their order; they and
    /// `mountpoint` win over a TOML file.
    pub fn load(source: &OsStr, mountpoint: Option<&Path>, option_lists: &[String]) -> Result<Config, SetupError> {
        let (from_file, disks, mut options) = match Source::of(source)? {
            Source::Toml(path) => {
                let volume = toml_file::read(&path)?;
                (volume.mountpoint, volume.disks, volume.options)
            }
            Source::Directories(paths) => {
                let disks = paths.iter().map(|path| source::disk_at(path));
                (None, disks.collect::<Result<_, _>>()?, Options::default())
            }
        };
        for list in option_lists {
            options.apply_list(list)?;
        }
        source::check_disks(&disks)?;
        options.check(disks.len())?;
        let mountpoint = match mountpoint {
            Some(path) => options::absolute(path)
                .map_err(|error| SetupError::Usage(format!("the mount point cannot be used: {error}")))?,
            None => from_file
                .ok_or_else(|| SetupError::Usage("no mount point is given; write it after the source".to_string()))?,
        };
        Ok(Config { source: source::shown(source), mountpoint, disks, options })
    }

    /// `/proc/mounts` shall show the source as mount(8) was given it: it looks there for what is mounted already.
    pub fn show_source_as(&mut self, given: &OsStr) {
        self.source = source::shown(given);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::OsString;

    fn load(source: &str, mountpoint: Option<&str>, lists: &[&str]) -> Result<Config, String> {
        let lists: Vec<String> = lists.iter().map(ToString::to_string).collect();
        Config::load(&OsString::from(source), mountpoint.map(Path::new), &lists).map_err(|error| error.to_string())
    }

    #[test]
    fn a_list_of_directories() {
        let config = load("/a:/b/:c", Some("/mnt"), &["limit=1G", "limit=2G,ro"]).unwrap();
        let cwd = std::env::current_dir().unwrap();
        let paths: Vec<&Path> = config.disks.iter().map(|d| d.path.as_path()).collect();
        assert_eq!(paths, [Path::new("/a"), Path::new("/b"), &cwd.join("c")]);
        assert_eq!(config.source, "/a:/b/:c");
        assert_eq!(config.options.limit, Amount::Bytes(2 << 30));
        assert!(config.options.read_only);
    }

    #[test]
    fn refused() {
        let many = (0..65).map(|n| format!("/d{n}")).collect::<Vec<_>>().join(":");
        let table = [
            ("/a", None, "no mount point is given; write it after the source"),
            ("/a:/b:/a/", Some("/m"), "disk '/a' is given twice, as number 1 and as number 3; name it once"),
            (many.as_str(), Some("/m"), "65 disks are given, and a volume has at most 64"),
        ];
        for (source, mountpoint, sentence) in table {
            assert_eq!(load(source, mountpoint, &[]).err().as_deref(), Some(sentence));
        }
        assert!(load("/a", Some(""), &[]).is_err());
    }

    #[test]
    fn the_command_line_wins_over_the_file() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("kv.toml");
        std::fs::write(&file, "mountpoint = \"/m\"\nro = true\nlow = 80\n[[disk]]\npath = \"/a\"\n").unwrap();
        let file = file.to_str().unwrap();
        let config = load(file, None, &["rw"]).unwrap();
        assert_eq!(config.mountpoint, Path::new("/m"));
        assert_eq!((config.options.read_only, config.options.low), (false, 80.0));
        assert_eq!(load(file, Some("/n"), &[]).unwrap().mountpoint, Path::new("/n"));
        assert!(load(file, None, &["high=80"]).is_err());
    }
}
