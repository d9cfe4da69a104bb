//! Names and paths, checked once at the border, and the placement key that a name reduces to.
//!
//! Called by everybody who takes a name from the kernel, from a listing of a disk or from a command
//! line; `placement` hashes what [`PlacementKey`] leaves. Names are bytes, not text: nothing here
//! assumes UTF-8. Invariants: an [`EntryName`] is one component that a disk accepts, a [`RelPath`]
//! never leaves the disk it is used on, and a [`PlacementKey`] is a part of the name it was made
//! from. Pure: no I/O, no state, no locks; only `RelPath::join` and `RelPath::into_owned` allocate.

use std::borrow::Cow;
use std::fmt;

/// Longest name in bytes that one directory entry may have: `NAME_MAX` of `<linux/limits.h>`.
pub const NAME_MAX_BYTES: usize = 255;

/// The directory on every disk that belongs to kvspan itself: label, lock, record.
pub const PRIVATE_DIR: &[u8] = b".kvspan";

/// The directory that `mkfs.ext4` puts into the root of a file system.
const LOST_AND_FOUND: &[u8] = b"lost+found";

/// Final extensions that every volume knows (DESIGN.md section 4, step 2).
const FINAL_EXTENSIONS: [&[u8]; 5] = [b".data", b".bin", b".pt", b".kv", b".safetensors"];

/// Random characters that rsync ends its temp names with (`.XXXXXX` of `mkstemp`, rsync(1)).
const RSYNC_RANDOM_BYTES: usize = 6;

/// The UUID that SGLang ends its temp names with, in hex digits.
const UUID_HEX_BYTES: usize = 32;

/// Why bytes are not a name or a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NameError {
    /// A component is longer than [`NAME_MAX_BYTES`].
    TooLong,
    /// A component is empty, `.` or `..`, or holds `/` or NUL; an absolute path is all of these.
    Invalid,
}

impl fmt::Display for NameError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            NameError::TooLong => "a name is longer than 255 bytes",
            NameError::Invalid => "a name is empty, '.' or '..', or holds '/' or NUL",
        })
    }
}

impl std::error::Error for NameError {}

/// One directory entry's name: 1 to 255 bytes, no `/`, no NUL, neither `.` nor `..`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct EntryName<'a>(&'a [u8]);

impl<'a> EntryName<'a> {
    /// Checks `bytes`, once; whoever holds an `EntryName` need not look again.
    pub fn new(bytes: &'a [u8]) -> Result<EntryName<'a>, NameError> {
        if bytes.len() > NAME_MAX_BYTES {
            return Err(NameError::TooLong);
        }
        let dots = matches!(bytes, b"" | b"." | b"..");
        if dots || bytes.iter().any(|byte| matches!(byte, b'/' | 0)) {
            return Err(NameError::Invalid);
        }
        Ok(EntryName(bytes))
    }

    /// The bytes of the name.
    pub fn as_bytes(self) -> &'a [u8] {
        self.0
    }

    /// What placement hashes of this name, by the final extensions that every volume knows.
    pub fn placement_key(self) -> PlacementKey<'a> {
        PlacementKey::of(self.0)
    }
}

impl fmt::Debug for EntryName<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "EntryName(\"{}\")", self.0.escape_ascii())
    }
}

/// For messages: bytes that are not UTF-8 are replaced.
impl fmt::Display for EntryName<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        String::from_utf8_lossy(self.0).fmt(f)
    }
}

/// A path below the root of a disk, as the mount shows it: names joined by `/`. Never absolute, no
/// `.` or `..`, no empty component; the root itself is the empty path.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct RelPath<'a>(Cow<'a, [u8]>);

impl<'a> RelPath<'a> {
    /// The root of a disk, depth 0.
    pub const ROOT: RelPath<'static> = RelPath(Cow::Borrowed(b""));

    /// Checks every component of `bytes`; the empty path is the root.
    pub fn new(bytes: &'a [u8]) -> Result<RelPath<'a>, NameError> {
        if !bytes.is_empty() {
            for component in bytes.split(|&byte| byte == b'/') {
                EntryName::new(component)?;
            }
        }
        Ok(RelPath(Cow::Borrowed(bytes)))
    }

    /// The bytes of the path, without a leading or trailing `/`.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// Whether this is the root of the disk.
    pub fn is_root(&self) -> bool {
        self.0.is_empty()
    }

    /// Number of components; 0 for the root.
    pub fn depth(&self) -> usize {
        self.components().count()
    }

    /// The components, outermost first.
    pub fn components(&self) -> impl Iterator<Item = EntryName<'_>> {
        let names = self.0.split(|&byte| byte == b'/');
        names.filter(|name| !name.is_empty()).map(EntryName)
    }

    /// The directory that holds this entry; none for the root.
    pub fn parent(&self) -> Option<RelPath<'_>> {
        let end = self.0.len() - self.file_name()?.0.len();
        let dir = self.0.get(..end)?;
        Some(RelPath(Cow::Borrowed(dir.strip_suffix(b"/").unwrap_or(dir))))
    }

    /// The last component; none for the root.
    pub fn file_name(&self) -> Option<EntryName<'_>> {
        let last = self.0.rsplit(|&byte| byte == b'/').next()?;
        (!last.is_empty()).then_some(EntryName(last))
    }

    /// The entry `name` of this directory.
    pub fn join(&self, name: EntryName<'_>) -> RelPath<'static> {
        let mut bytes = Vec::with_capacity(self.0.len() + 1 + name.0.len());
        if !self.is_root() {
            bytes.extend_from_slice(&self.0);
            bytes.push(b'/');
        }
        bytes.extend_from_slice(name.0);
        RelPath(Cow::Owned(bytes))
    }

    /// The same path with bytes of its own.
    pub fn into_owned(self) -> RelPath<'static> {
        RelPath(Cow::Owned(self.0.into_owned()))
    }

    /// Whether the path lies in a part of the disk that no mount shows; see [`is_hidden`].
    pub fn is_hidden(&self) -> bool {
        self.components().next().is_some_and(|first| is_hidden(first.0))
    }
}

impl fmt::Debug for RelPath<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RelPath(\"{}\")", self.0.escape_ascii())
    }
}

/// For messages: bytes that are not UTF-8 are replaced.
impl fmt::Display for RelPath<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        String::from_utf8_lossy(&self.0).fmt(f)
    }
}

/// Whether `name` in the root of a disk belongs to kvspan (`.kvspan`) or to the file system
/// (`lost+found`). Deeper down both are names like any other.
pub fn is_hidden(name: &[u8]) -> bool {
    name == PRIVATE_DIR || name == LOST_AND_FOUND
}

/// What is hashed of a name, so that a temp file and the file it becomes have the same owner
/// (DESIGN.md section 4, "Key"). It is part of the format: another rule moves everybody's cache.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct PlacementKey<'a>(&'a [u8]);

impl<'a> PlacementKey<'a> {
    /// The key of `name` (a file name, not a path) by the final extensions that every volume knows.
    pub fn of(name: &'a [u8]) -> PlacementKey<'a> {
        PlacementKey::of_with::<&[u8]>(name, &[])
    }

    /// The same with the volume's own `extra_extensions` (with or without their dot) counted among
    /// the final extensions.
    ///
    /// 1. One temp suffix is stripped, SGLang's `.tmp.<digits>.<digits>.<32 hex digits>` among them, and,
    ///    when llm-d's `_<digits>` follows a final extension, that too; rsync's
    ///    `.<name>.<6 alphanumerics>` has the key of `<name>`.
    /// 2. Final extensions are stripped, repeatedly.
    /// 3. If nothing is left, the whole name is the key.
    pub fn of_with<E: AsRef<[u8]>>(name: &'a [u8], extra_extensions: &[E]) -> PlacementKey<'a> {
        let named = rsync_target(name).unwrap_or(name);
        let mut key = match strip_temp_suffix(named) {
            Some(rest) => strip_writer_number(rest, extra_extensions).unwrap_or(rest),
            None => named,
        };
        while let Some(rest) = strip_final_extension(key, extra_extensions) {
            key = rest;
        }
        PlacementKey(if key.is_empty() { name } else { key })
    }

    /// The bytes that are hashed.
    pub fn as_bytes(self) -> &'a [u8] {
        self.0
    }
}

impl fmt::Debug for PlacementKey<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PlacementKey(\"{}\")", self.0.escape_ascii())
    }
}

/// Whether `name` is one that a writer gives a file until it publishes it: a temp suffix of step 1
/// of the key behind at least one byte, or rsync's form. Says nothing about the file's age or kind.
pub fn is_temp_name(name: &[u8]) -> bool {
    strip_temp_suffix(name).is_some_and(|rest| !rest.is_empty()) || rsync_target(name).is_some()
}

/// Whether a file with this name may be taken for one that was never published. `K.tmp.data` is a temp name, and also
/// what a client publishes whose K ends in `.tmp`: with a final extension it is not.
pub fn is_unpublished_name(name: &[u8]) -> bool {
    is_temp_name(name) && strip_final_extension::<&[u8]>(name, &[]).is_none()
}

/// `name` without its temp suffix, the longest that matches; none if it has none. The longest, so
/// that K = `a.tmp` has one key as `K.tmp` and as `K.data` (`.tmp.<anything>` takes both).
fn strip_temp_suffix(name: &[u8]) -> Option<&[u8]> {
    let tmp_and_digits = || {
        let end = name.len() - trailing_digits(name);
        name.get(..end)?.strip_suffix(b".tmp")
    };
    strip_tmp_and_rest(name)
        .or_else(|| strip_tmp_and_ids(name))
        .or_else(|| name.strip_suffix(b".partial"))
        .or_else(|| name.strip_suffix(b".part"))
        .or_else(tmp_and_digits)
}

/// `name` without `.tmp.<anything without a dot>`; the anything is not empty.
fn strip_tmp_and_rest(name: &[u8]) -> Option<&[u8]> {
    let dot = name.iter().rposition(|&byte| byte == b'.')?;
    let (front, rest) = name.split_at_checked(dot)?;
    (rest.len() > 1).then_some(front)?.strip_suffix(b".tmp")
}

/// `name` without SGLang's `.tmp.<pid>.<thread>.<UUID as 32 hex digits>`.
fn strip_tmp_and_ids(name: &[u8]) -> Option<&[u8]> {
    let (rest, uuid) = name.split_at_checked(name.len().checked_sub(UUID_HEX_BYTES)?)?;
    let thread = strip_number(rest.strip_suffix(b".")?)?;
    let pid = strip_number(thread.strip_suffix(b".")?)?;
    uuid.iter().all(u8::is_ascii_hexdigit).then_some(pid)?.strip_suffix(b".tmp.")
}

/// `name` without the digits that it ends in, at least one.
fn strip_number(name: &[u8]) -> Option<&[u8]> {
    let digits = trailing_digits(name);
    (digits > 0).then(|| name.get(..name.len() - digits))?
}

/// `name` without the `_<digits>` that llm-d puts between a final extension and `.tmp`.
fn strip_writer_number<'a, E: AsRef<[u8]>>(name: &'a [u8], extra: &[E]) -> Option<&'a [u8]> {
    let rest = strip_number(name)?.strip_suffix(b"_")?;
    strip_final_extension(rest, extra).map(|_| rest)
}

/// `name` without one final extension; none if it ends in none.
fn strip_final_extension<'a, E: AsRef<[u8]>>(name: &'a [u8], extra: &[E]) -> Option<&'a [u8]> {
    let known = FINAL_EXTENSIONS.into_iter();
    let mut extensions = known.chain(extra.iter().map(AsRef::as_ref));
    extensions.find_map(|extension| {
        let word = extension.strip_prefix(b".").unwrap_or(extension);
        let rest = name.strip_suffix(word)?.strip_suffix(b".")?;
        (!word.is_empty()).then_some(rest)
    })
}

/// The name that rsync is going to rename `name` to: `<name>` of `.<name>.<6 alphanumerics>`.
fn rsync_target(name: &[u8]) -> Option<&[u8]> {
    let (rest, random) = name.split_at_checked(name.len().checked_sub(RSYNC_RANDOM_BYTES)?)?;
    let target = rest.strip_prefix(b".")?.strip_suffix(b".")?;
    (!target.is_empty() && random.iter().all(u8::is_ascii_alphanumeric)).then_some(target)
}

/// Number of ASCII digits that `name` ends in.
fn trailing_digits(name: &[u8]) -> usize {
    name.iter().rev().take_while(|byte| byte.is_ascii_digit()).count()
}

#[cfg(test)]
mod tests;
