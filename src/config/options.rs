//! The options of a mount: their names, defaults and values.
//!
//! One table serves `-o` and the TOML file, so an option means the same in both. The order of the table is the
//! order of the help text. No I/O but asking for the number of CPUs.

use std::path::{Path, PathBuf};
use std::time::Duration;

use super::log::LogTarget;
use super::units::{self, Amount};
use super::{MAX_DISKS, escape, mount8, suggest};
use crate::error::{Origin, SetupError};

/// I/O on open files: in the kernel where it grants that, or always through the daemon.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Passthrough {
    Auto,
    Off,
}

/// What `statfs` calls free: the room not used, or also what could be evicted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StatfsMode {
    Strict,
    Cache,
}

/// Which disk takes a new file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PlacementPolicy {
    Rendezvous,
    MostFree,
}

/// What goes first when a disk must lose files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EvictionPolicy {
    /// What was used longest ago.
    Lru,
    /// What was stored and never used, as long as that fills more than its share; else what was used longest ago.
    ScanResistant,
}

/// How many of the configured disks must be there for a mount.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Require {
    All,
    /// At least one.
    Any,
    AtLeast(usize),
}

impl Require {
    /// True if `present` of `configured` disks are enough. No disk at all is never enough.
    pub fn is_met(self, present: usize, configured: usize) -> bool {
        let needed = match self {
            Require::All => configured,
            Require::Any => 1,
            Require::AtLeast(count) => count,
        };
        present >= needed.max(1)
    }
}

impl std::fmt::Display for Require {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Require::All => f.write_str("all"),
            Require::Any => f.write_str("any"),
            Require::AtLeast(count) => write!(f, "{count}"),
        }
    }
}

/// Every option of a mount, with the defaults of the design filled in.
#[derive(Debug, Clone, PartialEq)]
pub struct Options {
    /// What a disk may hold, of its size, unless the disk says otherwise.
    pub limit: Amount,
    /// What must stay free on a disk, of its size, unless the disk says otherwise.
    pub reserve: Amount,
    /// High watermark in percent of a disk's bound, in (0, 100]; above `low`.
    pub high: f64,
    /// Low watermark in percent of a disk's bound, in (0, 100].
    pub low: f64,
    /// Other users than the one who mounts may use the mount.
    pub allow_other: bool,
    /// Option `ro`.
    pub read_only: bool,
    /// Nothing can be executed from the mount.
    pub noexec: bool,
    /// Threads that serve requests, at least 2.
    pub threads: usize,
    pub passthrough: Passthrough,
    pub statfs: StatfsMode,
    pub placement: PlacementPolicy,
    pub eviction: EvictionPolicy,
    pub require: Require,
    /// A file's recency is made durable at most once in this time.
    pub atime_interval: Duration,
    /// Added to `entry_ttl`: a name used that recently is no victim.
    pub grace: Duration,
    /// A temp file older than this is an orphan.
    pub temp_ttl: Duration,
    pub sync_interval: Duration,
    /// Zero: never.
    pub rescan_interval: Duration,
    pub entry_ttl: Duration,
    pub negative_ttl: Duration,
    /// A window in which requests waited and nothing on the disk completed.
    pub io_timeout: Duration,
    /// Requests inside one disk at a time.
    pub disk_queue: usize,
    pub probe_interval: Duration,
    /// Bound for the work of an unmount.
    pub stop_timeout: Duration,
    pub log: LogTarget,
}

impl Default for Options {
    fn default() -> Options {
        let cpus = std::thread::available_parallelism().map_or(2, |cpus| cpus.get());
        Options {
            limit: Amount::Percent(95.0),
            reserve: Amount::Percent(2.0),
            high: 95.0,
            low: 90.0,
            allow_other: false,
            read_only: false,
            noexec: false,
            threads: cpus.clamp(THREADS_MIN, THREADS_MAX),
            passthrough: Passthrough::Auto,
            statfs: StatfsMode::Strict,
            placement: PlacementPolicy::Rendezvous,
            eviction: EvictionPolicy::Lru,
            // A missing disk costs its own keys, not the mount.
            require: Require::Any,
            atime_interval: Duration::from_secs(60),
            grace: Duration::from_secs(10),
            temp_ttl: Duration::from_secs(3600),
            sync_interval: Duration::from_secs(30),
            rescan_interval: Duration::ZERO,
            entry_ttl: Duration::from_secs(5),
            negative_ttl: Duration::from_secs(5),
            io_timeout: Duration::from_secs(1),
            disk_queue: 32,
            probe_interval: Duration::from_secs(2),
            stop_timeout: Duration::from_secs(10),
            log: LogTarget::Auto,
        }
    }
}

const THREADS_MIN: usize = 2;
const THREADS_MAX: usize = 1024;
const DISK_QUEUE_MAX: usize = 4096;

type SetValue = fn(&mut Options, &str) -> Result<(), String>;
type SetFlag = fn(&mut Options, bool);

/// Options that take a value.
const VALUED: &[(&str, SetValue)] = &[
    ("limit", |o, v| put(&mut o.limit, units::parse_amount_above_zero(v))),
    ("reserve", |o, v| put(&mut o.reserve, units::parse_amount(v))),
    ("high", |o, v| put(&mut o.high, units::parse_percent(v))),
    ("low", |o, v| put(&mut o.low, units::parse_percent(v))),
    ("threads", |o, v| put(&mut o.threads, units::parse_count(v, THREADS_MIN..=THREADS_MAX))),
    ("passthrough", |o, v| put(&mut o.passthrough, one_of(v, PASSTHROUGH))),
    ("statfs", |o, v| put(&mut o.statfs, one_of(v, STATFS))),
    ("placement", |o, v| put(&mut o.placement, one_of(v, PLACEMENT))),
    ("eviction", |o, v| put(&mut o.eviction, one_of(v, EVICTION))),
    ("require", |o, v| put(&mut o.require, require(v))),
    ("atime_interval", |o, v| put(&mut o.atime_interval, units::parse_duration(v))),
    ("grace", |o, v| put(&mut o.grace, units::parse_duration(v))),
    ("temp_ttl", |o, v| put(&mut o.temp_ttl, units::parse_duration(v))),
    ("sync_interval", |o, v| put(&mut o.sync_interval, units::parse_duration(v))),
    ("rescan_interval", |o, v| put(&mut o.rescan_interval, units::parse_duration(v))),
    ("entry_ttl", |o, v| put(&mut o.entry_ttl, units::parse_duration(v))),
    ("negative_ttl", |o, v| put(&mut o.negative_ttl, units::parse_duration(v))),
    ("io_timeout", |o, v| put(&mut o.io_timeout, units::parse_duration(v))),
    ("disk_queue", |o, v| put(&mut o.disk_queue, units::parse_count(v, 1..=DISK_QUEUE_MAX))),
    ("probe_interval", |o, v| put(&mut o.probe_interval, units::parse_duration(v))),
    ("stop_timeout", |o, v| put(&mut o.stop_timeout, units::parse_duration(v))),
    ("log", |o, v| put(&mut o.log, log_target(v))),
];

/// Options that are there or not.
const FLAGS: &[(&str, SetFlag)] = &[
    ("allow_other", |o, on| o.allow_other = on),
    ("ro", |o, on| o.read_only = on),
    ("rw", |o, on| o.read_only = !on),
    ("noexec", |o, on| o.noexec = on),
];

const PASSTHROUGH: &[(&str, Passthrough)] = &[("auto", Passthrough::Auto), ("off", Passthrough::Off)];
const STATFS: &[(&str, StatfsMode)] = &[("strict", StatfsMode::Strict), ("cache", StatfsMode::Cache)];
const PLACEMENT: &[(&str, PlacementPolicy)] =
    &[("rendezvous", PlacementPolicy::Rendezvous), ("most-free", PlacementPolicy::MostFree)];
const EVICTION: &[(&str, EvictionPolicy)] =
    &[("lru", EvictionPolicy::Lru), ("scan-resistant", EvictionPolicy::ScanResistant)];

impl Options {
    /// Applies one `-o` argument, `OPT,OPT,...`. A later option wins over an earlier one; `\,` is a comma.
    pub fn apply_list(&mut self, list: &str) -> Result<(), SetupError> {
        for item in escape::split(list.as_bytes(), b',') {
            let item = String::from_utf8_lossy(&item);
            match item.split_once('=') {
                _ if item.is_empty() => {}
                Some((name, value)) => self.set(name, value, Origin::CommandLine)?,
                None => self.set_word(&item)?,
            }
        }
        Ok(())
    }

    /// Sets the option `name` to `value`, which was written at `origin`.
    pub fn set(&mut self, name: &str, value: &str, origin: Origin) -> Result<(), SetupError> {
        let bad = |reason: String, origin| SetupError::BadValue {
            name: name.to_string(),
            value: value.to_string(),
            origin,
            reason,
        };
        if let Some((_, set)) = VALUED.iter().find(|(known, _)| *known == name) {
            return set(self, value).map_err(|reason| bad(reason, origin));
        }
        if is_flag(name) {
            let reason = match origin {
                Origin::CommandLine => "it takes no value",
                Origin::File { .. } => "write true or false, without quotes",
            };
            return Err(bad(reason.to_string(), origin));
        }
        Err(unknown(name, origin))
    }

    /// Sets or clears the flag `name`.
    pub fn set_flag(&mut self, name: &str, on: bool, origin: Origin) -> Result<(), SetupError> {
        if let Some((_, set)) = FLAGS.iter().find(|(known, _)| *known == name) {
            set(self, on);
            return Ok(());
        }
        self.set(name, if on { "true" } else { "false" }, origin)
    }

    /// A word without `=`: a flag, a word of mount(8), or a mistake.
    fn set_word(&mut self, word: &str) -> Result<(), SetupError> {
        if mount8::UNDERSTOOD.contains(&word) {
            return Ok(());
        }
        if VALUED.iter().any(|(known, _)| *known == word) {
            return Err(SetupError::Usage(format!("option '{word}' needs a value: write {word}=...")));
        }
        if !is_flag(word) {
            return Err(unknown(word, Origin::CommandLine));
        }
        self.set_flag(word, true, Origin::CommandLine)
    }

    /// What no single option can see: the watermarks' order, and more disks required than given.
    pub fn check(&self, disks: usize) -> Result<(), SetupError> {
        if self.low >= self.high {
            return Err(SetupError::Usage(format!(
                "option 'low' ({}) must be below option 'high' ({})",
                self.low, self.high
            )));
        }
        match self.require {
            Require::AtLeast(count) if count > disks => {
                Err(SetupError::Usage(format!("option 'require' asks for {count} disks, and only {disks} are given")))
            }
            _ => Ok(()),
        }
    }
}

/// The names of all options, as written in `-o` and in a TOML file.
pub fn names() -> impl Iterator<Item = &'static str> {
    let valued = VALUED.iter().map(|(name, _)| *name);
    valued.chain(FLAGS.iter().map(|(name, _)| *name))
}

fn is_flag(name: &str) -> bool {
    FLAGS.iter().any(|(known, _)| *known == name)
}

fn unknown(name: &str, origin: Origin) -> SetupError {
    SetupError::UnknownOption { name: name.to_string(), origin, hint: suggest::hint(name, names()) }
}

fn put<T>(slot: &mut T, value: Result<T, String>) -> Result<(), String> {
    *slot = value?;
    Ok(())
}

fn one_of<T: Copy>(text: &str, choices: &[(&str, T)]) -> Result<T, String> {
    let found = choices.iter().find(|(word, _)| *word == text);
    found.map(|(_, value)| *value).ok_or_else(|| {
        let words: Vec<&str> = choices.iter().map(|(word, _)| *word).collect();
        format!("write {}", words.join(" or "))
    })
}

fn require(text: &str) -> Result<Require, String> {
    match text {
        "all" => Ok(Require::All),
        "any" => Ok(Require::Any),
        _ => units::parse_count(text, 1..=MAX_DISKS)
            .map(Require::AtLeast)
            .map_err(|_| format!("write all, any or a number of disks from 1 to {MAX_DISKS}")),
    }
}

fn log_target(text: &str) -> Result<LogTarget, String> {
    match text {
        "" => Err("write stderr or the path of a file".to_string()),
        "stderr" => Ok(LogTarget::Stderr),
        _ => absolute(Path::new(text))
            .map(LogTarget::File)
            .map_err(|error| format!("its path cannot be made absolute: {error}")),
    }
}

/// `path` against the current directory: symlinks and `..` stay, a trailing slash goes.
pub(super) fn absolute(path: &Path) -> std::io::Result<PathBuf> {
    Ok(std::path::absolute(path)?.components().collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn parse(list: &str) -> Result<Options, String> {
        let mut options = Options::default();
        options.apply_list(list).map_err(|e| e.to_string())?;
        options.check(3).map_err(|e| e.to_string())?;
        Ok(options)
    }

    #[test]
    fn defaults_are_those_of_the_design() {
        let options = Options::default();
        assert_eq!(options.check(1).map_err(|e| e.to_string()), Ok(()));
        assert_eq!((options.high, options.low), (95.0, 90.0));
        assert_eq!(options.require, Require::Any);
        assert_eq!(options.eviction, EvictionPolicy::Lru);
        assert!(options.threads >= 2);
    }

    #[test]
    fn a_list_is_applied_in_order() {
        let options = parse("ro,limit=10G,,reserve=0,defaults,rw,limit=20G,log=/a\\,b").unwrap();
        assert!(!options.read_only);
        assert_eq!(options.limit, Amount::Bytes(20 << 30));
        assert_eq!(options.reserve, Amount::Bytes(0));
        assert_eq!(options.log, LogTarget::File("/a,b".into()));
    }

    #[test]
    fn every_valued_option_takes_its_default_text() {
        let list = "limit=95%,reserve=2%,high=95,low=90,threads=2,passthrough=off,statfs=cache,\
            placement=most-free,eviction=scan-resistant,require=2,atime_interval=60s,grace=10,temp_ttl=1h,sync_interval=30s,\
            rescan_interval=0,entry_ttl=5s,negative_ttl=0,io_timeout=500ms,disk_queue=32,\
            probe_interval=2s,stop_timeout=10s,log=stderr,allow_other,ro,noexec";
        let options = parse(list).unwrap();
        assert_eq!(options.passthrough, Passthrough::Off);
        assert_eq!(options.statfs, StatfsMode::Cache);
        assert_eq!(options.placement, PlacementPolicy::MostFree);
        assert_eq!(options.eviction, EvictionPolicy::ScanResistant);
        assert_eq!(options.require, Require::AtLeast(2));
        assert_eq!(options.negative_ttl, Duration::ZERO);
        assert_eq!(list.split(',').filter(|i| i.contains('=')).count(), VALUED.len());
    }

    #[test]
    fn mistakes_are_named() {
        let table = [
            ("hihg=5", "option 'hihg' is not known; did you mean 'high'?"),
            ("colour", "option 'colour' is not known"),
            ("_netdev", "option '_netdev' is not known"),
            ("=5", "option '' is not known"),
            ("ro=1", "option 'ro' cannot be '1': it takes no value"),
            ("limit", "option 'limit' needs a value: write limit=..."),
            ("limit=0", "option 'limit' cannot be '0': nothing could be stored; write more than 0"),
            ("eviction=fifo", "option 'eviction' cannot be 'fifo': write lru or scan-resistant"),
            ("statfs=x", "option 'statfs' cannot be 'x': write strict or cache"),
            ("threads=1", "option 'threads' cannot be '1': write an integer from 2 to 1024"),
            ("require=4", "option 'require' asks for 4 disks, and only 3 are given"),
            ("low=95", "option 'low' (95) must be below option 'high' (95)"),
            ("log=", "option 'log' cannot be '': write stderr or the path of a file"),
        ];
        for (list, sentence) in table {
            assert_eq!(parse(list).err().as_deref(), Some(sentence), "{list}");
        }
    }

    #[test]
    fn require_counts() {
        let table = [
            (Require::All, 3, 3, true),
            (Require::All, 2, 3, false),
            (Require::Any, 1, 3, true),
            (Require::Any, 0, 3, false),
            (Require::AtLeast(2), 2, 3, true),
            (Require::AtLeast(2), 1, 3, false),
        ];
        for (require, present, configured, met) in table {
            assert_eq!(require.is_met(present, configured), met);
        }
    }

    proptest! {
        #[test]
        fn lists_never_panic(list in "\\PC*") {
            let _ = parse(&list);
        }

        #[test]
        fn near_lists_never_panic(list in "((limit|high|log|ro|require|grace)(=[0-9a-z%]{0,6})?,?){0,5}") {
            let _ = parse(&list);
        }
    }
}
