//! A volume described in a TOML file.
//!
//! `mountpoint`, `[[disk]]` with `path`, `limit` and `reserve`, and every option by its name. The file is walked
//! with the spans of its parser, so that every complaint names the line. Called by `Config::load`.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::units::{self, Amount};
use super::{DiskConfig, Options, options, source, suggest};
use crate::error::{Origin, SetupError};

/// No volume needs more.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// What a file says; what it leaves out has its default.
#[derive(Debug)]
pub struct Volume {
    /// Absolute.
    pub mountpoint: Option<PathBuf>,
    pub disks: Vec<DiskConfig>,
    pub options: Options,
}

/// Reads and checks the file at `path`.
pub fn read(path: &Path) -> Result<Volume, SetupError> {
    let mut text = String::new();
    File::open(path)
        .and_then(|file| file.take(FILE_BYTES_MAX + 1).read_to_string(&mut text))
        .map_err(|source| SetupError::io("read", path, source))?;
    if text.len() as u64 > FILE_BYTES_MAX {
        return Err(SetupError::Usage(format!(
            "'{}' is longer than {FILE_BYTES_MAX} bytes; it cannot be the description of a volume",
            path.display()
        )));
    }
    parse(path, &text)
}

/// Parses `text`, which was read from `path`.
pub fn parse(path: &Path, text: &str) -> Result<Volume, SetupError> {
    let reader = Reader { path, text };
    let table = DeTable::parse(text).map_err(|error| reader.syntax(&error))?;
    let mut volume = Volume { mountpoint: None, disks: Vec::new(), options: Options::default() };
    for (key, value) in table.get_ref() {
        match key.get_ref().as_ref() {
            "mountpoint" => {
                let given = reader.path_value("mountpoint", value)?;
                volume.mountpoint = Some(reader.absolute(&given)?);
            }
            "disk" => volume.disks = reader.disks(value)?,
            name => reader.option(&mut volume.options, name, key, value)?,
        }
    }
    Ok(volume)
}

struct Reader<'a> {
    path: &'a Path,
    text: &'a str,
}

impl Reader<'_> {
    /// The line, counted from 1, at a byte of the text.
    fn line(&self, offset: usize) -> usize {
        let before = self.text.as_bytes().iter().take(offset);
        1 + before.filter(|byte| **byte == b'\n').count()
    }

    fn complaint(&self, offset: usize, reason: String) -> SetupError {
        SetupError::ConfigFile { path: self.path.to_path_buf(), line: self.line(offset), reason }
    }

    fn syntax(&self, error: &toml::de::Error) -> SetupError {
        let offset = error.span().map_or(0, |span| span.start);
        self.complaint(offset, error.message().trim().replace('\n', ", "))
    }

    fn origin<T>(&self, at: &Spanned<T>) -> Origin {
        Origin::File { path: self.path.to_path_buf(), line: self.line(at.span().start) }
    }

    fn option(
        &self,
        options: &mut Options,
        name: &str,
        key: &Spanned<std::borrow::Cow<'_, str>>,
        value: &Spanned<DeValue<'_>>,
    ) -> Result<(), SetupError> {
        let known = options::names().any(|known| known == name);
        if !known {
            let keys = options::names().chain(["mountpoint", "disk"]);
            return Err(SetupError::UnknownOption {
                name: name.to_string(),
                origin: self.origin(key),
                hint: suggest::hint(name, keys),
            });
        }
        match value.get_ref() {
            DeValue::Boolean(on) => options.set_flag(name, *on, self.origin(value)),
            other => options.set(name, &self.scalar(name, other, value)?, self.origin(value)),
        }
    }

    /// A string or a number as the text that the command line would have.
    fn scalar(&self, name: &str, value: &DeValue<'_>, at: &Spanned<DeValue<'_>>) -> Result<String, SetupError> {
        match value {
            DeValue::String(text) => Ok(text.to_string()),
            DeValue::Integer(integer) => {
                let digits = integer.as_str().replace('_', "");
                u64::from_str_radix(digits.trim_start_matches('+'), integer.radix())
                    .map(|number| number.to_string())
                    .or(Ok(digits))
            }
            DeValue::Float(float) => Ok(float.as_str().to_string()),
            other => Err(self.complaint(
                at.span().start,
                format!("'{name}' is {} {}; write a string or a number", article(other.type_str()), other.type_str()),
            )),
        }
    }

    fn path_value(&self, name: &str, value: &Spanned<DeValue<'_>>) -> Result<PathBuf, SetupError> {
        match value.get_ref().as_str() {
            Some(text) if !text.is_empty() && !text.contains('\0') => Ok(PathBuf::from(text)),
            _ => Err(self.complaint(value.span().start, format!("'{name}' must be a path in quotes"))),
        }
    }

    fn absolute(&self, path: &Path) -> Result<PathBuf, SetupError> {
        options::absolute(path).map_err(|source| SetupError::io("make absolute", path, source))
    }

    fn disks(&self, value: &Spanned<DeValue<'_>>) -> Result<Vec<DiskConfig>, SetupError> {
        let form =
            || self.complaint(value.span().start, "'disk' must be written as [[disk]], once for each disk".to_string());
        let tables = value.get_ref().as_array().ok_or_else(form)?;
        let mut disks = Vec::new();
        for table in tables.iter() {
            let fields = table.get_ref().as_table().ok_or_else(form)?;
            disks.push(self.disk(fields, table.span().start)?);
        }
        Ok(disks)
    }

    fn disk(&self, fields: &DeTable<'_>, offset: usize) -> Result<DiskConfig, SetupError> {
        let mut path = None;
        let (mut limit, mut reserve) = (None, None);
        for (key, value) in fields {
            match key.get_ref().as_ref() {
                "path" => path = Some(self.path_value("path", value)?),
                "limit" => {
                    limit = Some(self.amount("limit", value, units::parse_amount_above_zero)?);
                }
                "reserve" => reserve = Some(self.amount("reserve", value, units::parse_amount)?),
                name => {
                    let hint = suggest::hint(name, ["path", "limit", "reserve"]);
                    let reason = format!("key '{name}' of a disk is not known{hint}");
                    return Err(self.complaint(key.span().start, reason));
                }
            }
        }
        let path = path.ok_or_else(|| self.complaint(offset, "a [[disk]] has no 'path'; give it one".to_string()))?;
        let disk = source::disk_at(&path)?;
        Ok(DiskConfig { limit, reserve, ..disk })
    }

    fn amount(
        &self,
        name: &str,
        value: &Spanned<DeValue<'_>>,
        parse: fn(&str) -> Result<Amount, String>,
    ) -> Result<Amount, SetupError> {
        let text = self.scalar(name, value.get_ref(), value)?;
        parse(&text).map_err(|reason| SetupError::BadValue {
            name: name.to_string(),
            value: text,
            origin: self.origin(value),
            reason,
        })
    }
}

fn article(noun: &str) -> &'static str {
    if noun.starts_with(['a', 'e', 'i', 'o', 'u']) { "an" } else { "a" }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::time::Duration;

    fn parse_text(text: &str) -> Result<Volume, String> {
        parse(Path::new("kv.toml"), text).map_err(|error| error.to_string())
    }

    #[test]
    fn a_whole_file() {
        let volume = parse_text(
            "mountpoint = \"/mnt/kv\"\nlimit = \"90%\"\nreserve = 1_000\nthreads = 4\n\
             allow_other = true\nro = false\nentry_ttl = 7\nnegative_ttl = \"500ms\"\nrequire = \"all\"\nhigh = 92.5\n\
             [[disk]]\npath = \"/a\"\n[[disk]]\npath = \"/b/\"\nlimit = 1073741824\nreserve = \"1GiB\"\n",
        )
        .unwrap();
        assert_eq!(volume.mountpoint, Some("/mnt/kv".into()));
        assert_eq!(volume.options.limit, Amount::Percent(90.0));
        assert_eq!(volume.options.reserve, Amount::Bytes(1000));
        assert_eq!(volume.options.threads, 4);
        assert_eq!(volume.options.high, 92.5);
        assert!(volume.options.allow_other && !volume.options.read_only);
        assert_eq!(volume.options.entry_ttl, Duration::from_secs(7));
        assert_eq!(volume.options.negative_ttl, Duration::from_millis(500));
        assert_eq!(volume.disks.len(), 2);
        assert_eq!(volume.disks[1].path, Path::new("/b"));
        assert_eq!(volume.disks[1].limit, Some(Amount::Bytes(1 << 30)));
        assert_eq!(volume.disks[1].reserve, Some(Amount::Bytes(1 << 30)));
    }

    #[test]
    fn mistakes_name_file_and_line() {
        let table = [
            ("\nhihg = 5\n", "option 'hihg' in 'kv.toml', line 2, is not known; did you mean 'high'?"),
            ("mountpint = \"/a\"", "option 'mountpint' in 'kv.toml', line 1, is not known; did you mean 'mountpoint'?"),
            (
                "\n\nthreads = -4",
                "option 'threads' in 'kv.toml', line 3, cannot be '-4': write an integer from 2 to 1024",
            ),
            (
                "threads = true",
                "option 'threads' in 'kv.toml', line 1, cannot be 'true': write an integer from 2 to 1024",
            ),
            ("ro = \"yes\"", "option 'ro' in 'kv.toml', line 1, cannot be 'yes': write true or false, without quotes"),
            ("limit = [1]", "'kv.toml', line 1: 'limit' is an array; write a string or a number"),
            ("mountpoint = 5", "'kv.toml', line 1: 'mountpoint' must be a path in quotes"),
            ("disk = 5", "'kv.toml', line 1: 'disk' must be written as [[disk]], once for each disk"),
            ("[disk]\npath = \"/a\"", "'kv.toml', line 1: 'disk' must be written as [[disk]], once for each disk"),
            ("[[disk]]\nlimit = 5", "'kv.toml', line 1: a [[disk]] has no 'path'; give it one"),
            (
                "[[disk]]\npath=\"/a\"\npth = 5",
                "'kv.toml', line 3: key 'pth' of a disk is not known; did you mean 'path'?",
            ),
        ];
        for (text, sentence) in table {
            assert_eq!(parse_text(text).err().as_deref(), Some(sentence), "{text}");
        }
        let broken = parse_text("a = 1\nb = = 2").err().unwrap_or_default();
        assert!(broken.starts_with("'kv.toml', line 2: "), "{broken}");
        let amount = parse_text("[[disk]]\npath=\"/a\"\nlimit=1.5").err().unwrap_or_default();
        assert!(amount.starts_with("option 'limit' in 'kv.toml', line 3, cannot be '1.5': "), "{amount}");
    }

    proptest! {
        #[test]
        fn files_never_panic(text in "\\PC*") {
            let _ = parse_text(&text);
        }

        #[test]
        fn near_files_never_panic(text in "((mountpoint|disk|limit|ro|\\[\\[disk\\]\\]|path) ?(= ?(\"[a-z/]*\"|[0-9_.x-]{0,5}|true|\\[\\]|\\{\\}))?\n){0,6}") {
            let _ = parse_text(&text);
        }
    }
}
