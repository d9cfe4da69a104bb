//! What the commands say: results to standard output, notes to standard error, sizes for people.

use std::env;
use std::io::{self, ErrorKind, IsTerminal, Write};

use crate::error::SetupError;
pub use crate::messages::printable;

/// Writes a result. A reader that has gone is [`SetupError::PipeClosed`], which ends the command quietly.
pub fn print(text: &str) -> Result<(), SetupError> {
    let mut stdout = io::stdout().lock();
    let written = stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush());
    written.map_err(|error| match error.kind() {
        ErrorKind::BrokenPipe => SetupError::PipeClosed,
        _ => SetupError::Failed(format!("cannot write to standard output: {error}")),
    })
}

/// Writes a sentence to standard error; if nobody reads it, nothing can be done.
pub fn note(sentence: &str) {
    let _ = writeln!(io::stderr().lock(), "kvspan: {sentence}");
}

/// True if standard output is a terminal on which colour is wanted.
pub fn is_colour_wanted() -> bool {
    let no_colour = env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    let dumb = env::var_os("TERM").is_some_and(|term| term == "dumb");
    io::stdout().is_terminal() && !no_colour && !dumb
}

/// Bytes in powers of 1024 with one decimal: `1.5 GiB`.
pub fn human_bytes(bytes: u64) -> String {
    const UNITS: [&str; 6] = ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    if bytes < 1024 {
        return format!("{bytes} B");
    }
    let mut value = bytes as f64 / 1024.0;
    let mut unit = 0;
    // 1023.95 would be shown as 1024.0.
    while value >= 1023.95 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    format!("{value:.1} {}", UNITS.get(unit).unwrap_or(&""))
}

/// `part` of `whole` in percent with one decimal, or `-` of nothing.
pub fn percent(part: u64, whole: u64) -> String {
    if whole == 0 {
        return "-".to_string();
    }
    format!("{:.1}%", part as f64 / whole as f64 * 100.0)
}

/// Lines of columns, each as wide as its widest cell, two spaces between. `right` are right-aligned columns.
pub fn table(rows: &[Vec<String>], right: &[usize]) -> String {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width = |column: usize| {
        let cells = rows.iter().filter_map(|row| row.get(column));
        cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..columns).map(width).collect();
    let mut text = String::new();
    for row in rows {
        let mut line = String::new();
        for (column, (cell, width)) in row.iter().zip(&widths).enumerate() {
            let pad = " ".repeat(width.saturating_sub(cell.chars().count()));
            let gap = if column == 0 { "" } else { "  " };
            line.push_str(gap);
            if right.contains(&column) {
                line.push_str(&pad);
                line.push_str(cell);
            } else {
                line.push_str(cell);
                line.push_str(&pad);
            }
        }
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_for_people() {
        let table = [
            (0, "0 B"),
            (1023, "1023 B"),
            (1024, "1.0 KiB"),
            (1536, "1.5 KiB"),
            ((1 << 20) - 1, "1.0 MiB"),
            (1 << 30, "1.0 GiB"),
            (u64::MAX, "16.0 EiB"),
        ];
        for (bytes, text) in table {
            assert_eq!(human_bytes(bytes), text, "{bytes}");
        }
        assert_eq!(percent(1, 3), "33.3%");
        assert_eq!(percent(1, 0), "-");
    }

    #[test]
    fn tables_are_aligned() {
        let rows = [vec!["A".to_string(), "B".to_string()], vec!["long".to_string(), "12".to_string()]];
        assert_eq!(table(&rows, &[1]), "A      B\nlong  12\n");
        assert_eq!(printable("a\tb\u{1b}[0m"), "a\\tb\\u{1b}[0m");
    }
}
