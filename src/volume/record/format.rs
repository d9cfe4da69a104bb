//! The record as bytes (docs/ON_DISK.md): one line of JSON and one of checksum.
//!
//! Called by `record::file`. Pure. What it decodes may be anything: a record that is not sound in every part is none,
//! because half of it could remove files that are durable, or keep one that is torn.

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::rule::{Before, FileId, Ledger, Life, MountInstance, Removal, Window};

/// The format this kvspan writes, and the highest it reads.
pub const FORMAT: u64 = 1;
/// No record is longer.
pub const RECORD_BYTES_MAX: usize = 1024 * 1024;

/// What is kept between two mounts besides the rule's own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Figures {
    /// Bytes that the volume's files took on the disk.
    pub used_bytes: u64,
    /// Bytes that everything else took on its file system.
    pub foreign_bytes: u64,
    /// The largest object ever published on the volume.
    pub largest_object_bytes: u64,
    /// Objects published on the volume so far.
    pub published_objects: u64,
}

/// All that is in a record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// What the rule needs.
    pub state: Before,
    /// When the mount that wrote it began, for who reads it.
    pub start_ns: i64,
    /// Bytes and objects.
    pub figures: Figures,
}

/// The JSON line. Unknown fields are ignored, missing ones of the figures are zero.
#[derive(Serialize, Deserialize)]
struct Text {
    format: u64,
    boot: Option<Uuid>,
    mount: Option<Mount>,
    clean: bool,
    start_ns: i64,
    safe_ns: i64,
    latest_ns: i64,
    #[serde(default)]
    used_bytes: u64,
    #[serde(default)]
    foreign_bytes: u64,
    #[serde(default)]
    largest_object_bytes: u64,
    #[serde(default)]
    published_objects: u64,
    open: Vec<(u64, i64)>,
    remove: Remove,
}

#[derive(Serialize, Deserialize)]
struct Mount {
    id: u64,
    unique: bool,
}

#[derive(Serialize, Deserialize)]
struct Remove {
    windows: Vec<(i64, i64)>,
    files: Vec<(u64, i64)>,
}

/// The bytes of a record.
///
/// # Errors
/// Why it cannot be written: it would be too long to be read again.
pub fn encode(record: &Record) -> Result<Vec<u8>, String> {
    let Record { state, start_ns, figures } = record;
    let ids = |files: &[FileId]| files.iter().map(|file| (file.ino, file.birth_ns)).collect();
    let text = Text {
        format: FORMAT,
        boot: state.life.boot,
        mount: state.life.mount.map(|mount| Mount { id: mount.id, unique: mount.unique }),
        clean: state.clean,
        start_ns: *start_ns,
        safe_ns: state.ledger.safe_ns,
        latest_ns: state.ledger.latest_ns,
        used_bytes: figures.used_bytes,
        foreign_bytes: figures.foreign_bytes,
        largest_object_bytes: figures.largest_object_bytes,
        published_objects: figures.published_objects,
        open: ids(&state.ledger.listed),
        remove: Remove {
            windows: state.removal.windows.iter().map(|window| (window.from_ns, window.until_ns)).collect(),
            files: ids(&state.removal.files),
        },
    };
    let mut bytes = serde_json::to_vec(&text).map_err(|error| error.to_string())?;
    let check = checksum(&bytes);
    bytes.extend_from_slice(format!("\n{check}\n").as_bytes());
    if bytes.len() > RECORD_BYTES_MAX {
        return Err(format!("it would have {} bytes, more than {RECORD_BYTES_MAX}", bytes.len()));
    }
    Ok(bytes)
}

/// Reads a record.
///
/// # Errors
/// Why the bytes are none, as the end of a sentence.
pub fn decode(bytes: &[u8]) -> Result<Record, String> {
    if bytes.len() > RECORD_BYTES_MAX {
        return Err(format!("it is longer than {RECORD_BYTES_MAX} bytes"));
    }
    if bytes.iter().all(|byte| *byte == 0) {
        return Err("it is empty or holds only zeros".to_string());
    }
    let mut lines = bytes.split(|byte| *byte == b'\n');
    let (Some(json), Some(check), Some([]), None) = (lines.next(), lines.next(), lines.next(), lines.next()) else {
        return Err("it is not two lines".to_string());
    };
    if check != checksum(json).as_bytes() {
        return Err("its checksum is wrong".to_string());
    }
    let value: serde_json::Value = serde_json::from_slice(json).map_err(|error| format!("it is not JSON: {error}"))?;
    match value.get("format").and_then(serde_json::Value::as_u64) {
        Some(FORMAT) => {}
        Some(format) => return Err(format!("it has format {format}, and this kvspan knows only format {FORMAT}")),
        None => return Err("it has no format number".to_string()),
    }
    let text: Text = serde_json::from_value(value).map_err(|error| error.to_string())?;
    sound(text)
}

fn sound(text: Text) -> Result<Record, String> {
    let ids = |pairs: Vec<(u64, i64)>| -> Vec<FileId> {
        let mut files: Vec<FileId> = pairs.into_iter().map(|(ino, birth_ns)| FileId { ino, birth_ns }).collect();
        files.sort_unstable();
        files.dedup();
        files
    };
    if text.remove.windows.iter().any(|(from_ns, until_ns)| from_ns > until_ns) {
        return Err("a window of it ends before it begins".to_string());
    }
    let mut removal = Removal { windows: Vec::new(), files: ids(text.remove.files) };
    for (from_ns, until_ns) in text.remove.windows {
        removal.add(Window { from_ns, until_ns }, &[]);
    }
    let mount = text.mount.map(|mount| MountInstance { id: mount.id, unique: mount.unique });
    let state = Before {
        life: Life { boot: text.boot, mount },
        clean: text.clean,
        ledger: Ledger::new(text.safe_ns, text.latest_ns, ids(text.open)),
        removal,
    };
    let figures = Figures {
        used_bytes: text.used_bytes,
        foreign_bytes: text.foreign_bytes,
        largest_object_bytes: text.largest_object_bytes,
        published_objects: text.published_objects,
    };
    Ok(Record { state, start_ns: text.start_ns, figures })
}

/// The first 8 bytes of BLAKE3 as 16 hexadecimal digits.
fn checksum(bytes: &[u8]) -> String {
    blake3::hash(bytes).to_hex().chars().take(16).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// docs/ON_DISK.md shows these very bytes.
    const GOLDEN: &str = concat!(
        r#"{"format":1,"boot":"6f1c1c64-0f43-4b6e-9a54-0c9a0f1d2e3f","mount":{"id":4294967330,"unique":true},"#,
        r#""clean":false,"start_ns":1796000000000000000,"safe_ns":1796000058000000000,"#,
        r#""latest_ns":1796000060250000000,"used_bytes":1073741824,"foreign_bytes":4096,"#,
        r#""largest_object_bytes":67108864,"published_objects":1234,"open":[[131,1795999000000000000]],"#,
        r#""remove":{"windows":[[1795999970000000000,1796000000000000000]],"files":[[12,1795990000000000000]]}}"#,
        "\nb0afb9b3dbd4c620\n"
    );

    fn golden() -> Record {
        let second = 1_000_000_000;
        let open = vec![FileId { ino: 131, birth_ns: 1_795_999_000 * second }];
        let ledger = Ledger::new(1_796_000_058 * second, 1_796_000_060 * second + second / 4, open);
        let window = Window { from_ns: 1_795_999_970 * second, until_ns: 1_796_000_000 * second };
        let removal =
            Removal { windows: vec![window], files: vec![FileId { ino: 12, birth_ns: 1_795_990_000 * second }] };
        let boot = Uuid::parse_str("6f1c1c64-0f43-4b6e-9a54-0c9a0f1d2e3f").ok();
        let life = Life { boot, mount: Some(MountInstance { id: 4_294_967_330, unique: true }) };
        Record {
            state: Before { life, clean: false, ledger, removal },
            start_ns: 1_796_000_000 * second,
            figures: Figures {
                used_bytes: 1 << 30,
                foreign_bytes: 4096,
                largest_object_bytes: 64 << 20,
                published_objects: 1234,
            },
        }
    }

    fn sealed(json: &str) -> Vec<u8> {
        format!("{json}\n{}\n", checksum(json.as_bytes())).into_bytes()
    }

    #[test]
    fn the_bytes_are_those_of_the_documentation() {
        let bytes = encode(&golden()).unwrap();
        assert_eq!(
            String::from_utf8(bytes).unwrap(),
            GOLDEN,
            "the record has changed: a disk that was cut under another kvspan would be read wrongly; give it a new format number"
        );
        assert_eq!(decode(GOLDEN.as_bytes()), Ok(golden()));
        assert!(include_str!("../../../docs/ON_DISK.md").contains(GOLDEN), "docs/ON_DISK.md shows other bytes");
    }

    #[test]
    fn what_is_not_a_record_is_none() {
        let line = GOLDEN.lines().next().unwrap();
        let other = |from: &str, to: &str| {
            assert!(line.contains(from));
            sealed(&line.replacen(from, to, 1))
        };
        let table: [(Vec<u8>, &str); 12] = [
            (Vec::new(), "only zeros"),
            (vec![0; 700], "only zeros"),
            (vec![b'x'; RECORD_BYTES_MAX + 1], "longer than"),
            (GOLDEN.as_bytes()[..300].to_vec(), "not two lines"),
            (line.as_bytes().to_vec(), "not two lines"),
            (GOLDEN.replace("false", "true ").into_bytes(), "checksum"),
            (sealed("{"), "not JSON"),
            (sealed("[]"), "no format number"),
            (other("\"format\":1", "\"format\":2"), "format 2"),
            (other("\"clean\":false", "\"clean\":0"), "invalid type"),
            (other("\"open\":[[131,", "\"open\":[[-1,"), "invalid value"),
            (other("[[1795999970", "[[1896999970"), "ends before it begins"),
        ];
        for (bytes, part) in table {
            let reason = decode(&bytes).unwrap_err();
            assert!(reason.contains(part), "{reason}");
        }
    }

    #[test]
    fn a_field_of_a_later_kvspan_is_ignored() {
        let line = GOLDEN.lines().next().unwrap();
        let later = sealed(&line.replacen('{', r#"{"colour":"red","#, 1));
        assert_eq!(decode(&later), Ok(golden()));
    }

    proptest! {
        #[test]
        fn decoding_never_panics(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            let _ = decode(&bytes);
        }

        #[test]
        fn a_damaged_record_is_none(at in 0..GOLDEN.len(), byte in any::<u8>()) {
            let mut bytes = GOLDEN.as_bytes().to_vec();
            prop_assume!(bytes[at] != byte);
            bytes[at] = byte;
            prop_assert!(decode(&bytes).is_err());
        }

        #[test]
        fn sealed_nonsense_never_panics(json in "[{}\\[\\]\":,a-z0-9_-]{0,200}") {
            let _ = decode(&sealed(&json));
        }
    }
}
