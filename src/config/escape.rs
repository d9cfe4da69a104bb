//! Lists in one argument: `DIR:DIR:...` and `OPT,OPT,...` with a backslash for a separator that is meant.
//!
//! Called by `source` and `options`. Pure.

/// Splits at `separator`. A backslash before a separator or before a backslash takes it literally; any other
/// backslash is an ordinary byte. Empty parts are kept.
pub fn split(text: &[u8], separator: u8) -> Vec<Vec<u8>> {
    let mut parts = vec![Vec::new()];
    let mut bytes = text.iter().copied().peekable();
    while let Some(byte) = bytes.next() {
        let mut literal = byte;
        if byte == separator {
            parts.push(Vec::new());
            continue;
        }
        if byte == b'\\'
            && let Some(next) = bytes.next_if(|next| *next == separator || *next == b'\\')
        {
            literal = next;
        }
        if let Some(part) = parts.last_mut() {
            part.push(literal);
        }
    }
    parts
}

/// An absolute path as a file name, the way systemd escapes one: `/mnt/kv-1` is `mnt-kv\x2d1`.
pub fn file_name_of_path(path: &[u8]) -> String {
    let mut name = String::new();
    for part in path.split(|byte| *byte == b'/').filter(|p| !p.is_empty()) {
        if !name.is_empty() {
            name.push('-');
        }
        for byte in part {
            let leading_dot = *byte == b'.' && name.is_empty();
            if (byte.is_ascii_alphanumeric() || b":_.".contains(byte)) && !leading_dot {
                name.push(char::from(*byte));
            } else {
                name.push_str(&format!("\\x{byte:02x}"));
            }
        }
    }
    if name.is_empty() { "-".to_string() } else { name }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn splits() {
        let table: [(&str, &[&str]); 7] = [
            ("/a", &["/a"]),
            ("/a:/b", &["/a", "/b"]),
            (r"/a\:b:/c", &["/a:b", "/c"]),
            (r"/a\\:/c", &[r"/a\", "/c"]),
            (r"/a\x:/c\", &[r"/a\x", r"/c\"]),
            ("", &[""]),
            ("::", &["", "", ""]),
        ];
        for (text, parts) in table {
            let want: Vec<Vec<u8>> = parts.iter().map(|p| p.as_bytes().to_vec()).collect();
            assert_eq!(split(text.as_bytes(), b':'), want, "{text}");
        }
    }

    #[test]
    fn names_of_paths() {
        let table = [
            ("/mnt/kv-cache", r"mnt-kv\x2dcache"),
            ("/", "-"),
            ("/mnt//kv/", "mnt-kv"),
            ("/.hidden/a b", r"\x2ehidden-a\x20b"),
        ];
        for (path, name) in table {
            assert_eq!(file_name_of_path(path.as_bytes()), name);
        }
    }

    proptest! {
        #[test]
        fn escaped_paths_come_back(paths in proptest::collection::vec("[a:\\\\/]{1,8}", 1..5)) {
            let text: Vec<String> = paths
                .iter()
                .map(|path| path.replace('\\', r"\\").replace(':', r"\:"))
                .collect();
            let want: Vec<Vec<u8>> = paths.iter().map(|p| p.as_bytes().to_vec()).collect();
            prop_assert_eq!(split(text.join(":").as_bytes(), b':'), want);
        }
    }
}
