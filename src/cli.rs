//! The reception: arguments in, one command carried out, an exit code out.
//!
//! Called by `main`. One file a command; what they say goes through `out`, so that a closed pipe is no failure.
//! Exit codes: 0, 1 failed, 2 usage, 32 mount failed. No locks.

mod evict;
mod holders;
mod init;
mod mount;
mod mount_helper;
mod out;
mod process;
mod rescan;
mod status;
mod umount;
mod whereis;
mod xattr;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Parser, Subcommand};
use uuid::Uuid;

use crate::error::SetupError;

/// Many disks as one KV-cache volume.
#[derive(Debug, Parser)]
#[command(name = "kvspan", version, max_term_width = 100)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Label directories as disks of one volume and print the volume id
    ///
    /// Files already in the directories stay and are taken in. Directories labelled before keep their label; new
    /// ones join their volume. If anything is wrong, nothing is written anywhere.
    Init(InitArgs),
    /// Mount a volume
    ///
    /// Returns 0 when the mount answers requests; its daemon then stays behind and writes to the log. With -f it
    /// stays in the foreground.
    #[command(after_help = mount::OPTIONS_HELP)]
    Mount(MountArgs),
    /// Unmount a volume and wait until its daemon has gone
    Umount(UmountArgs),
    /// Show the state of a mounted volume and of its disks
    Status(StatusArgs),
    /// Show owner, location and rank of all disks for names, whether they exist or not
    Where(WhereArgs),
    /// Look for what was added, changed or removed on the disks behind the volume's back
    ///
    /// Waits for the end and says what was found. For root and for the user of the daemon.
    Rescan(RescanArgs),
    /// Free bytes at once by unlinking the files that were used longest ago
    ///
    /// Each disk gives its share. For root and for the user of the daemon.
    Evict(EvictArgs),
    /// Print the version
    Version,
}

#[derive(Debug, Args)]
struct InitArgs {
    /// Volume that the disks join; without it that of the directories labelled before, else a new one
    #[arg(long, value_name = "UUID")]
    volume: Option<Uuid>,
    /// Directories, each on a disk of its own
    #[arg(required = true, value_name = "DIR")]
    dirs: Vec<PathBuf>,
}

#[derive(Debug, Args)]
struct MountArgs {
    /// DIR:DIR:... (`\:` for a colon in a name) or a TOML file
    source: std::ffi::OsString,
    /// What `/proc/mounts` shows as the source
    #[arg(long, hide = true)]
    shown_source: Option<std::ffi::OsString>,
    /// Where to mount; may be left out if the TOML file says it
    mountpoint: Option<PathBuf>,
    /// Options, comma separated; they win over a TOML file, but for a limit or reserve of one disk
    #[arg(short = 'o', value_name = "OPT,...")]
    options: Vec<String>,
    /// Stay in the foreground
    #[arg(short = 'f', long)]
    foreground: bool,
    /// Make the mount point if it is missing, as a mount unit does
    #[arg(long)]
    mkdir: bool,
    /// Started by `mount` without -f: the answer goes to standard output
    #[arg(long, hide = true)]
    background_child: bool,
}

#[derive(Debug, Args)]
struct UmountArgs {
    /// Detach the mount now even if it is busy; the daemon ends with its last user
    #[arg(long, short = 'l')]
    lazy: bool,
    /// Where the volume is mounted, or the TOML file that says so
    mountpoint: PathBuf,
}

#[derive(Debug, Args)]
struct StatusArgs {
    /// Where the volume is mounted
    mountpoint: PathBuf,
    /// Print JSON instead of a table
    #[arg(long)]
    json: bool,
    /// Print again every so many seconds until interrupted
    #[arg(long, value_name = "SECONDS", num_args = 0..=1, require_equals = true,
          default_missing_value = "2", value_parser = clap::value_parser!(u64).range(1..=86_400))]
    watch: Option<u64>,
}

#[derive(Debug, Args)]
struct RescanArgs {
    /// Where the volume is mounted
    mountpoint: PathBuf,
}

#[derive(Debug, Args)]
struct EvictArgs {
    /// Where the volume is mounted
    mountpoint: PathBuf,
    /// Bytes to free: an integer with K, M, G or T
    size: String,
}

#[derive(Debug, Args)]
struct WhereArgs {
    /// Where the volume is mounted
    mountpoint: PathBuf,
    /// Names, or paths below the mount point
    #[arg(required = true, value_name = "NAME")]
    names: Vec<PathBuf>,
}

/// Carries out the command of the process's arguments.
pub fn run() -> ExitCode {
    if let Some(code) = mount_helper::run() {
        return code;
    }
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => {
            // Help and version are such errors too; a closed pipe is no failure.
            let _ = error.print();
            return ExitCode::from(if error.use_stderr() { 2 } else { 0 });
        }
    };
    let is_mount = matches!(cli.command, Command::Mount(_));
    let Err(error) = carry_out(cli.command) else {
        return ExitCode::SUCCESS;
    };
    let is_said = matches!(error, SetupError::PipeClosed | SetupError::Quiet { .. });
    if !is_said {
        out::note(&error.to_string());
    }
    ExitCode::from(if is_mount { error.mount_exit_code() } else { error.exit_code() })
}

fn carry_out(command: Command) -> Result<(), SetupError> {
    match command {
        Command::Init(args) => init::run(&args),
        Command::Mount(args) => mount::run(&args),
        Command::Umount(args) => umount::run(&args),
        Command::Status(args) => status::run(&args),
        Command::Where(args) => whereis::run(&args),
        Command::Rescan(args) => rescan::run(&args),
        Command::Evict(args) => evict::run(&args),
        Command::Version => out::print(&format!("kvspan {}\n", env!("CARGO_PKG_VERSION"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_commands_are_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn watch_does_not_swallow_the_mount_point() {
        let cli = Cli::try_parse_from(["kvspan", "status", "--watch", "/m"]).unwrap();
        let Command::Status(args) = cli.command else { panic!("not status") };
        assert_eq!((args.watch, args.mountpoint), (Some(2), "/m".into()));
    }
}
