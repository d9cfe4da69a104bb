//! What a message is about: the fields at the end of its line, as logfmt has them.
//!
//! Built by whoever says something about a disk. Takes no lock.

use std::error::Error as StdError;
use std::fmt::Write as _;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use log::kv::{Source, VisitSource};
use rustix::io::Errno;
use uuid::Uuid;

use crate::error::{Error, io_text};

/// The field of a disk's directory.
pub(super) const DISK: &str = "disk";
/// The field of a disk's id.
pub(super) const UUID: &str = "uuid";

/// Fields in the order in which they are added, their values as they are written.
#[derive(Clone, Debug, Default)]
pub struct About {
    fields: Vec<(&'static str, String)>,
}

impl About {
    /// A disk.
    pub fn disk(path: &Path, id: Uuid) -> About {
        About::disk_at(path).with(UUID, id.to_string())
    }

    /// A disk whose id is not known.
    pub fn disk_at(path: &Path) -> About {
        About::default().with(DISK, written(path.as_os_str().as_bytes()))
    }

    /// A file or directory, relative to its disk.
    pub fn path(self, path: &[u8]) -> About {
        self.with("path", written(path))
    }

    /// What the path becomes, or was to become.
    pub fn to(self, path: &[u8]) -> About {
        self.with("to", written(path))
    }

    /// Why: `errno=NAME` for what the system said, else `error="..."`.
    pub fn error(self, error: &(dyn StdError + 'static)) -> About {
        let of_system = match error.downcast_ref::<Error>() {
            Some(Error::Disk { error, .. }) => Some(error),
            _ => error.downcast_ref::<io::Error>(),
        };
        match (of_system.and_then(io::Error::raw_os_error), of_system) {
            (Some(code), _) => self.with("errno", errno_name(code)),
            (None, Some(error)) => self.with("error", written(io_text(error).as_bytes())),
            (None, None) => self.with("error", written(error.to_string().as_bytes())),
        }
    }

    fn with(mut self, key: &'static str, value: String) -> About {
        self.fields.push((key, value));
        self
    }
}

impl Source for About {
    fn visit<'kvs>(&'kvs self, visitor: &mut dyn VisitSource<'kvs>) -> Result<(), log::kv::Error> {
        self.fields.iter().try_for_each(|(key, value)| visitor.visit_pair((*key).into(), value.as_str().into()))
    }
}

/// A value: as it is where that is one plain word, else in quotes, escaped as in Rust. Bytes that are no UTF-8 are `\xNN`.
fn written(bytes: &[u8]) -> String {
    let mut text = String::new();
    let mut plain = !bytes.is_empty();
    for chunk in bytes.utf8_chunks() {
        let valid = chunk.valid();
        let escaped = format!("{valid:?}");
        let escaped = escaped.get(1..escaped.len() - 1).unwrap_or_default();
        plain &= escaped == valid && !valid.contains([' ', '=']) && chunk.invalid().is_empty();
        text.push_str(escaped);
        for byte in chunk.invalid() {
            let _ = write!(text, "\\x{byte:02x}");
        }
    }
    if plain { text } else { format!("\"{text}\"") }
}

/// The name that manuals have, or the number of one that no disk is known to say.
fn errno_name(code: i32) -> String {
    let name = match Errno::from_raw_os_error(code) {
        Errno::ACCESS => "EACCES",
        Errno::AGAIN => "EAGAIN",
        Errno::BADF => "EBADF",
        Errno::BADMSG => "EBADMSG",
        Errno::BUSY => "EBUSY",
        Errno::CANCELED => "ECANCELED",
        Errno::CONNABORTED => "ECONNABORTED",
        Errno::DQUOT => "EDQUOT",
        Errno::EXIST => "EEXIST",
        Errno::FBIG => "EFBIG",
        Errno::INTR => "EINTR",
        Errno::INVAL => "EINVAL",
        Errno::IO => "EIO",
        Errno::ISDIR => "EISDIR",
        Errno::LOOP => "ELOOP",
        Errno::MFILE => "EMFILE",
        Errno::MLINK => "EMLINK",
        Errno::NAMETOOLONG => "ENAMETOOLONG",
        Errno::NFILE => "ENFILE",
        Errno::NODATA => "ENODATA",
        Errno::NODEV => "ENODEV",
        Errno::NOENT => "ENOENT",
        Errno::NOMEM => "ENOMEM",
        Errno::NOSPC => "ENOSPC",
        Errno::NOSYS => "ENOSYS",
        Errno::NOTCONN => "ENOTCONN",
        Errno::NOTDIR => "ENOTDIR",
        Errno::NOTEMPTY => "ENOTEMPTY",
        Errno::NXIO => "ENXIO",
        Errno::OPNOTSUPP => "EOPNOTSUPP",
        Errno::OVERFLOW => "EOVERFLOW",
        Errno::PERM => "EPERM",
        Errno::RANGE => "ERANGE",
        Errno::REMOTEIO => "EREMOTEIO",
        Errno::ROFS => "EROFS",
        Errno::SHUTDOWN => "ESHUTDOWN",
        Errno::STALE => "ESTALE",
        Errno::TIMEDOUT => "ETIMEDOUT",
        Errno::TXTBSY => "ETXTBSY",
        Errno::UCLEAN => "EUCLEAN",
        Errno::XDEV => "EXDEV",
        _ => return code.to_string(),
    };
    name.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::volume::attr::DiskNo;
    use proptest::prelude::*;

    #[test]
    fn a_value_is_one_word_or_in_quotes() {
        let table: [(&[u8], &str); 9] = [
            (b"/disks/a-1/K@0x00.data", "/disks/a-1/K@0x00.data"),
            ("é".as_bytes(), "é"),
            (b"", r#""""#),
            (b"a b", r#""a b""#),
            (b"a=b", r#""a=b""#),
            (br#"a"b\c"#, r#""a\"b\\c""#),
            (b"a\nb\x1b\x7f", r#""a\nb\u{1b}\u{7f}""#),
            (b"a\xff\xfe'b", r#""a\xff\xfe'b""#),
            ("\u{202e}\u{2028}".as_bytes(), r#""\u{202e}\u{2028}""#),
        ];
        for (bytes, wanted) in table {
            assert_eq!(written(bytes), wanted);
        }
    }

    #[test]
    fn an_error_of_the_system_has_its_name() {
        let said = |error: &(dyn StdError + 'static)| About::default().error(error).fields[0].clone();
        let io = |errno: Errno| io::Error::from(errno);
        assert_eq!(said(&io(Errno::IO)), ("errno", "EIO".to_string()));
        assert_eq!(said(&io(Errno::from_raw_os_error(4000))), ("errno", "4000".to_string()));
        assert_eq!(said(&Error::disk(DiskNo(1), io(Errno::NOSPC))), ("errno", "ENOSPC".to_string()));
        assert_eq!(said(&Error::Busy), ("error", "\"the name is busy\"".to_string()));
        assert_eq!(said(&io::Error::other("no luck")), ("error", "\"no luck\"".to_string()));
    }

    proptest! {
        #[test]
        fn no_name_breaks_a_line_or_a_field(bytes in prop::collection::vec(any::<u8>(), 0..40)) {
            let value = written(&bytes);
            prop_assert!(!value.contains(char::is_control));
            match value.strip_prefix('"').and_then(|rest| rest.strip_suffix('"')) {
                // Every quote inside is escaped, so the field ends at the last one.
                Some(inner) => prop_assert!(!inner.replace("\\\\", "").replace("\\\"", "").contains('"')),
                None => prop_assert!(!value.is_empty() && !value.contains([' ', '=', '"', '\\'])),
            }
        }
    }
}
