//! The door: arguments in, exit code out.

use std::process::ExitCode;

fn main() -> ExitCode {
    kvspan::cli::run()
}
