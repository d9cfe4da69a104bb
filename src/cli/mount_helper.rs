//! mount(8)'s and umount(8)'s dialect: the program under the names `mount.fuse.kvspan` and `umount.fuse.kvspan`.
//!
//! `mount -t fuse.kvspan WHAT WHERE`, an fstab line and a systemd mount unit end here. Words that only mount(8) or
//! systemd means are dropped, the others are the options of `kvspan mount`. Exit codes are mount(8)'s: 1 usage, 32 failed.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Parser;
use rustix::mount::{MountFlags, UnmountFlags, mount_remount, unmount};

use super::{MountArgs, UmountArgs, mount, out, umount};
use crate::config::{Config, Options, escape, mount8};
use crate::error::{SetupError, io_text};

/// Where the volumes of names are described.
const CONFIG_DIR: &str = "/etc/kvspan";
/// A WHAT with this prefix can never be taken for a path, which mount(8) would make absolute.
const NAME_PREFIX: &str = "kvspan:";

const EXIT_USAGE: u8 = 1;
const EXIT_FAILED: u8 = 32;

/// What mount(8) calls this program by.
const MOUNT_NAME: &str = "mount.fuse.kvspan";
const UMOUNT_NAME: &str = "umount.fuse.kvspan";

/// Mount a kvspan volume for mount(8)
#[derive(Debug, Parser)]
#[command(name = MOUNT_NAME, version, max_term_width = 100)]
struct MountLine {
    /// A name (or kvspan:NAME) of a volume described in /etc/kvspan/NAME.toml, a TOML file, or DIR:DIR:...
    what: OsString,
    /// Where to mount
    mountpoint: PathBuf,
    /// Options, comma separated
    #[arg(short = 'o', value_name = "OPT,...")]
    options: Vec<String>,
    /// Ignore options that kvspan does not know
    #[arg(short = 's')]
    sloppy: bool,
    /// Check everything and mount nothing
    #[arg(short = 'f')]
    fake: bool,
    /// Say what is done
    #[arg(short = 'v')]
    verbose: bool,
    /// For mount(8)'s mtab, of which there is none
    #[arg(short = 'n')]
    no_mtab: bool,
    /// The type that mount(8) looked this program up by
    #[arg(short = 't', value_name = "TYPE")]
    fs_type: Option<String>,
    /// Not supported: enter the namespace first
    #[arg(short = 'N', value_name = "NAMESPACE")]
    namespace: Option<String>,
}

/// Unmount a kvspan volume for umount(8) and wait until its daemon has flushed and gone
#[derive(Debug, Parser)]
#[command(name = UMOUNT_NAME, version, max_term_width = 100)]
struct UmountLine {
    /// Where the volume is mounted
    mountpoint: PathBuf,
    /// Detach a busy mount
    #[arg(short = 'l')]
    lazy: bool,
    /// End the connection to a daemon that hangs; its users get errors
    #[arg(short = 'f')]
    force: bool,
    /// Make a busy mount read-only instead
    #[arg(short = 'r')]
    read_only: bool,
    /// For umount(8)'s mtab, of which there is none
    #[arg(short = 'n')]
    no_mtab: bool,
    /// Say what is done
    #[arg(short = 'v')]
    verbose: bool,
    /// The type that umount(8) looked this program up by
    #[arg(short = 't', value_name = "TYPE")]
    fs_type: Option<String>,
    /// Not supported: enter the namespace first
    #[arg(short = 'N', value_name = "NAMESPACE")]
    namespace: Option<String>,
}

/// Whether a process called so is one of the two helpers.
pub fn is_helper(name: &OsStr) -> bool {
    let name = Path::new(name).file_name();
    name == Some(OsStr::new(MOUNT_NAME)) || name == Some(OsStr::new(UMOUNT_NAME))
}

/// Carries out what the process was called for; none if it was called as `kvspan`.
pub fn run() -> Option<ExitCode> {
    let name = std::env::args_os().next().filter(|name| is_helper(name))?;
    let done = if Path::new(&name).ends_with(MOUNT_NAME) {
        MountLine::try_parse().map(|line| mount_line(&line))
    } else {
        UmountLine::try_parse().map(|line| umount_line(&line))
    };
    Some(match done {
        Ok(Ok(())) => ExitCode::SUCCESS,
        Ok(Err(error)) => {
            out::note(&error.to_string());
            ExitCode::from(exit_code(&error))
        }
        Err(usage) => {
            let _ = usage.print();
            ExitCode::from(if usage.use_stderr() { EXIT_USAGE } else { 0 })
        }
    })
}

/// The code of `kvspan` for a usage error is 2, which means a system error to mount(8).
fn exit_code(error: &SetupError) -> u8 {
    if error.exit_code() == 2 { EXIT_USAGE } else { EXIT_FAILED }
}

fn no_namespace(namespace: Option<&String>) -> Result<(), SetupError> {
    let text = "-N is not supported: run mount(8) inside the namespace (nsenter -m)";
    namespace.map_or(Ok(()), |_| Err(SetupError::Usage(text.to_string())))
}

fn mount_line(line: &MountLine) -> Result<(), SetupError> {
    no_namespace(line.namespace.as_ref())?;
    let words = Words::of(&line.options, line.sloppy)?;
    for word in &words.ignored {
        out::note(&format!("the option '{word}' is not known and ignored"));
    }
    if words.remount {
        return remount(line, &words.own);
    }
    let args = MountArgs {
        source: source_of(&line.what)?,
        shown_source: Some(line.what.clone()),
        mountpoint: Some(line.mountpoint.clone()),
        options: words.own.iter().map(|word| escaped(word)).collect(),
        mkdir: false,
        foreground: false,
        background_child: false,
    };
    if line.fake {
        return Config::load(&args.source, args.mountpoint.as_deref(), &args.options).map(drop);
    }
    mount::run(&args)?;
    if line.verbose {
        out::note(&format!("'{}' is mounted on '{}'", line.what.display(), line.mountpoint.display()));
    }
    Ok(())
}

/// The words of all `-o` lists, by whom they are for.
#[derive(Debug, Default, PartialEq, Eq)]
struct Words {
    /// Options of `kvspan mount`.
    own: Vec<String>,
    remount: bool,
    /// Words that nobody knows, with `-s`.
    ignored: Vec<String>,
}

impl Words {
    fn of(lists: &[String], sloppy: bool) -> Result<Words, SetupError> {
        let mut words = Words::default();
        for word in lists.iter().flat_map(|list| escape::split(list.as_bytes(), b',')) {
            let word = String::from_utf8_lossy(&word).into_owned();
            if word.is_empty() || mount8::is_foreign(&word) {
                continue;
            }
            match Options::default().apply_list(&escaped(&word)) {
                _ if word == "remount" => words.remount = true,
                Err(SetupError::UnknownOption { .. }) if sloppy => words.ignored.push(word),
                Err(error) => return Err(error),
                Ok(()) => words.own.push(word),
            }
        }
        Ok(words)
    }
}

/// A word as one item of an option list.
fn escaped(word: &str) -> String {
    word.replace('\\', "\\\\").replace(',', "\\,")
}

/// A WHAT without a slash is the name of a volume.
fn source_of(what: &OsStr) -> Result<OsString, SetupError> {
    let bytes = what.as_bytes();
    if bytes.contains(&b'/') {
        return Ok(what.to_os_string());
    }
    let name = bytes.strip_prefix(NAME_PREFIX.as_bytes()).unwrap_or(bytes);
    let is_name = |byte: &u8| byte.is_ascii_alphanumeric() || b"-_.@".contains(byte);
    if name.is_empty() || name.starts_with(b".") || !name.iter().all(is_name) {
        let shown = what.display();
        return Err(SetupError::Usage(format!(
            "'{shown}' is neither the name of a volume (letters, digits, '-', '_', '.', '@') nor a list of absolute paths"
        )));
    }
    let name = Path::new(OsStr::from_bytes(name));
    let mut file = Path::new(CONFIG_DIR).join(name).into_os_string();
    if name.extension() != Some(OsStr::new("toml")) {
        file.push(".toml");
    }
    Ok(file)
}

/// `mount -o remount` and `systemctl reload`. The kernel can take away and give back the right to write and to run
/// programs; everything else is the daemon's and holds until it is started again, so it is never started a second time.
fn remount(line: &MountLine, own: &[String]) -> Result<(), SetupError> {
    let mountpoint = umount::find_mount(&line.mountpoint)?.mountpoint;
    let last = |on: &str, off: &str| own.iter().rev().find(|word| *word == on || *word == off).is_some_and(|w| w == on);
    let mut flags = MountFlags::NOSUID | MountFlags::NODEV;
    flags.set(MountFlags::RDONLY, last("ro", "rw"));
    flags.set(MountFlags::NOEXEC, last("noexec", "exec"));
    if line.fake {
        return Ok(());
    }
    mount_remount(&mountpoint, flags, c"").map_err(|errno| SetupError::io("remount", &mountpoint, errno))?;
    if line.verbose {
        let shown = mountpoint.display();
        out::note(&format!("'{shown}' is remounted; options of kvspan itself hold from the next start on"));
    }
    Ok(())
}

fn umount_line(line: &UmountLine) -> Result<(), SetupError> {
    no_namespace(line.namespace.as_ref())?;
    if line.force {
        let mountpoint = umount::find_mount(&line.mountpoint)?.mountpoint;
        // Ends the connection also where the mount stays since somebody is in it.
        if let Err(errno) = unmount(&mountpoint, UnmountFlags::FORCE | UnmountFlags::NOFOLLOW) {
            let text = io_text(&errno.into());
            out::note(&format!("the connection of '{}' is ended; the mount: {text}", mountpoint.display()));
        }
        if umount::find_mount(&line.mountpoint).is_err() {
            return Ok(());
        }
    }
    let done = umount::run(&UmountArgs { lazy: line.lazy, mountpoint: line.mountpoint.clone() });
    match done {
        Err(SetupError::Busy { path, holders }) if line.read_only => {
            let flags = MountFlags::RDONLY | MountFlags::NOSUID | MountFlags::NODEV;
            mount_remount(&path, flags, c"").map_err(|_| SetupError::Busy { path: path.clone(), holders })?;
            out::note(&format!("'{}' is busy and is read-only now", path.display()));
            Ok(())
        }
        Ok(()) if line.verbose => {
            out::note(&format!("'{}' is unmounted", line.mountpoint.display()));
            Ok(())
        }
        done => done,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_lines_are_consistent() {
        MountLine::command().debug_assert();
        UmountLine::command().debug_assert();
    }

    #[test]
    fn names_of_helpers() {
        for (name, is) in [("/sbin/mount.fuse.kvspan", true), ("umount.fuse.kvspan", true), ("/usr/bin/kvspan", false)]
        {
            assert_eq!(is_helper(OsStr::new(name)), is, "{name}");
        }
    }

    #[test]
    fn a_what_is_a_name_or_paths() {
        let source = |what: &str| source_of(OsStr::new(what)).map(|to| to.to_string_lossy().into_owned());
        for what in ["kvcache", "kvspan:kvcache", "kvcache.toml", "kvspan:kvcache.toml"] {
            assert_eq!(source(what).ok().as_deref(), Some("/etc/kvspan/kvcache.toml"), "{what}");
        }
        assert_eq!(source("/disks/a:/disks/b").ok().as_deref(), Some("/disks/a:/disks/b"));
        for what in ["", "kvspan:", "..", ".hidden", "a:b", "a b", "kvspan:kvspan:a"] {
            assert!(source(what).is_err(), "{what}");
        }
    }

    #[test]
    fn words_of_mount8_are_dropped_and_unknown_ones_are_errors_unless_sloppy() {
        let lists = vec!["rw,_netdev,nofail,user=alice,x-systemd.requires=/a,limit=1G,noatime".to_string()];
        let words = Words::of(&lists, false).unwrap();
        assert_eq!((words.own, words.remount), (vec!["rw".to_string(), "limit=1G".to_string()], false));
        let lists = vec!["ro,remount,splat=1,log=/a\\,b".to_string()];
        assert!(matches!(Words::of(&lists, false), Err(SetupError::UnknownOption { .. })));
        let words = Words::of(&lists, true).unwrap();
        assert_eq!(words.own, ["ro", "log=/a,b"]);
        assert_eq!((words.ignored, words.remount), (vec!["splat=1".to_string()], true));
        assert!(matches!(Words::of(&["limit=x".to_string()], true), Err(SetupError::BadValue { .. })));
    }

    #[test]
    fn exit_codes_are_those_of_mount8() {
        assert_eq!(exit_code(&SetupError::Usage("x".into())), 1);
        assert_eq!(exit_code(&SetupError::Failed("x".into())), 32);
        assert_eq!(exit_code(&SetupError::Mount("x".into())), 32);
    }
}
