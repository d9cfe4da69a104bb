//! The bytes of `.kvspan/renames`: a head, then the renames of directories that not every disk has followed.
//!
//! A rename is: length of what follows but for the check (u32), id (16 bytes), time in nanoseconds since the epoch (i64),
//! length of a path and the path (u16 each time) twice, the disks, and the first 8 bytes of the BLAKE3 of all these,
//! the length included. A disk is: its id (16 bytes), what it does (u8), whether it has (u8), inode number (u64) and
//! birth time (i64) of its directory. Numbers are little-endian. A file is sound as a whole or not at all. Pure: no I/O.

use uuid::Uuid;

use crate::volume::name::RelPath;
use crate::volume::record::rule::FileId;

/// What the file begins with.
pub const HEAD: &[u8] = b"kvspan renames 1\n";
/// A file is not longer.
pub const FILE_BYTES_MAX: usize = 256 << 10;

const DISKS_MAX: usize = 64;
const CHECK_BYTES: usize = 8;

/// The rename of a directory on several disks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Intent {
    pub id: Uuid,
    /// When it began: renames are followed in their order.
    pub time_ns: i64,
    pub from: Vec<u8>,
    pub to: Vec<u8>,
    pub members: Vec<Member>,
}

/// A disk that takes part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Member {
    pub disk: Uuid,
    pub task: Task,
    /// It has followed, while another one could not.
    pub done: bool,
    /// The directory that goes: no other one is touched, whatever its name.
    pub dir: FileId,
}

/// What a disk does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Task {
    /// Its copy of the directory is renamed.
    Rename,
    /// It has none, and its copy of the empty directory that is replaced goes.
    Clear,
}

/// The bytes of a file.
pub fn encode(intents: &[Intent]) -> Vec<u8> {
    let mut out = HEAD.to_vec();
    for intent in intents {
        let body = body_of(intent);
        let start = out.len();
        out.extend_from_slice(&u32::try_from(body.len()).unwrap_or(u32::MAX).to_le_bytes());
        out.extend_from_slice(&body);
        let check = check(out.get(start..).unwrap_or_default());
        out.extend_from_slice(&check);
    }
    out
}

fn body_of(intent: &Intent) -> Vec<u8> {
    let mut body = intent.id.as_bytes().to_vec();
    body.extend_from_slice(&intent.time_ns.to_le_bytes());
    for path in [&intent.from, &intent.to] {
        body.extend_from_slice(&u16::try_from(path.len()).unwrap_or(u16::MAX).to_le_bytes());
        body.extend_from_slice(path);
    }
    for member in &intent.members {
        body.extend_from_slice(member.disk.as_bytes());
        body.push(u8::from(member.task == Task::Clear));
        body.push(u8::from(member.done));
        body.extend_from_slice(&member.dir.ino.to_le_bytes());
        body.extend_from_slice(&member.dir.birth_ns.to_le_bytes());
    }
    body
}

/// The renames of a file; none if one byte of it is not as it was written, or one path leaves what clients may name.
pub fn decode(file: &[u8]) -> Option<Vec<Intent>> {
    let mut rest = Bytes(file.strip_prefix(HEAD)?);
    let mut intents = Vec::new();
    while !rest.0.is_empty() {
        let whole = rest.0;
        let length = usize::try_from(rest.u32()?).ok()?;
        let body = rest.take(length)?;
        let checked = whole.get(..4 + length)?;
        if rest.take(CHECK_BYTES)? != check(checked) {
            return None;
        }
        intents.push(decode_one(Bytes(body))?);
    }
    Some(intents)
}

fn decode_one(mut body: Bytes<'_>) -> Option<Intent> {
    let id = body.uuid()?;
    let time_ns = body.i64()?;
    let from = body.path()?;
    let to = body.path()?;
    let mut members: Vec<Member> = Vec::new();
    while !body.0.is_empty() {
        let disk = body.uuid()?;
        let task = if body.flag()? { Task::Clear } else { Task::Rename };
        let done = body.flag()?;
        let dir = FileId { ino: body.u64()?, birth_ns: body.i64()? };
        if members.len() == DISKS_MAX || members.iter().any(|member| member.disk == disk) {
            return None;
        }
        members.push(Member { disk, task, done, dir });
    }
    let apart = !is_at_or_below(&from, &to) && !is_at_or_below(&to, &from);
    (apart && members.len() > 1).then_some(Intent { id, time_ns, from, to, members })
}

fn is_at_or_below(path: &[u8], dir: &[u8]) -> bool {
    path.strip_prefix(dir).is_some_and(|rest| rest.first().is_none_or(|&byte| byte == b'/'))
}

/// What is left to read.
struct Bytes<'a>(&'a [u8]);

impl<'a> Bytes<'a> {
    fn take(&mut self, length: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(taken)
    }

    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        self.take(N)?.try_into().ok()
    }

    fn flag(&mut self) -> Option<bool> {
        match self.array()? {
            [0] => Some(false),
            [1] => Some(true),
            _ => None,
        }
    }

    fn u16(&mut self) -> Option<u16> {
        self.array().map(u16::from_le_bytes)
    }

    fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_le_bytes)
    }

    fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_le_bytes)
    }

    fn i64(&mut self) -> Option<i64> {
        self.array().map(i64::from_le_bytes)
    }

    fn uuid(&mut self) -> Option<Uuid> {
        self.array().map(Uuid::from_bytes)
    }

    fn path(&mut self) -> Option<Vec<u8>> {
        let length = usize::from(self.u16()?);
        let path = RelPath::new(self.take(length)?).ok()?;
        (!path.is_root() && !path.is_hidden()).then(|| path.as_bytes().to_vec())
    }
}

fn check(bytes: &[u8]) -> [u8; CHECK_BYTES] {
    let hash = blake3::hash(bytes);
    hash.as_bytes().first_chunk().copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn intent(from: &[u8], to: &[u8]) -> Intent {
        let member = |n: u128, task, done| Member {
            disk: Uuid::from_u128(n),
            task,
            done,
            dir: FileId { ino: 0x1122, birth_ns: -2 },
        };
        let members = vec![member(1, Task::Rename, true), member(2, Task::Clear, false)];
        Intent { id: Uuid::from_u128(7), time_ns: 0x0102_0304_0506_0708, from: from.to_vec(), to: to.to_vec(), members }
    }

    #[test]
    fn golden_bytes() {
        let list = encode(&[intent(b"a/b", b"c")]);
        let golden = b"kvspan renames 1\n\x64\0\0\0\
            \0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\x07\x08\x07\x06\x05\x04\x03\x02\x01\x03\0a/b\x01\0c\
            \0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\x01\0\x01\x22\x11\0\0\0\0\0\0\xfe\xff\xff\xff\xff\xff\xff\xff\
            \0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\x02\x01\0\x22\x11\0\0\0\0\0\0\xfe\xff\xff\xff\xff\xff\xff\xff";
        assert_eq!(list[..golden.len()], golden[..]);
        assert_eq!(list[golden.len()..], blake3::hash(&golden[HEAD.len()..]).as_bytes()[..8]);
    }

    #[test]
    fn a_file_that_was_cut_or_damaged_anywhere_holds_nothing() {
        let list = encode(&[intent(b"a", b"b"), intent(b"c", b"d")]);
        assert_eq!(decode(&list).map(|intents| intents.len()), Some(2));
        let ends = [HEAD.len(), encode(&[intent(b"a", b"b")]).len()];
        for at in 0..list.len() {
            assert!(decode(&list[..at]).is_none() || ends.contains(&at), "cut at {at}");
            let mut damaged = list.clone();
            damaged[at] ^= 1;
            assert!(decode(&damaged).is_none(), "damaged at {at}");
        }
        assert!(decode(&[&list[..], b"\0"].concat()).is_none());
    }

    #[test]
    fn the_longest_path_that_a_disk_can_be_asked_for_is_read() {
        // The directory above is opened by its path, of at most PATH_MAX, and the name is looked up in it.
        let deep = vec!["x".repeat(254); 17].join("/");
        let list = [intent(b"a", deep.as_bytes())];
        assert!(deep.len() > 4096 + 200);
        assert_eq!(decode(&encode(&list)), Some(list.to_vec()));
    }

    #[test]
    fn paths_that_no_client_could_have_named_are_refused() {
        let table: [(&[u8], &[u8]); 12] = [
            (b"a", b"../b"),
            (b"/a", b"b"),
            (b"a", b""),
            (b"", b"a"),
            (b"a//b", b"c"),
            (b"a", b"."),
            (b"a", b"b/"),
            (b".kvspan", b"b"),
            (b"a", b".kvspan/label.json"),
            (b"lost+found", b"b"),
            (b"a", b"a"),
            (b"a", b"a/b"),
        ];
        for (from, to) in table {
            assert_eq!(decode(&encode(&[intent(from, to)])), None, "{from:?} to {to:?}");
            assert_eq!(decode(&encode(&[intent(to, from)])), None, "{to:?} to {from:?}");
        }
        assert!(decode(&encode(&[intent(b"a", b"ab/.kvspan")])).is_some());
        let mut twice = intent(b"a", b"b");
        twice.members[1].disk = twice.members[0].disk;
        assert_eq!(decode(&encode(&[twice])), None);
        let mut alone = intent(b"a", b"b");
        alone.members.truncate(1);
        assert_eq!(decode(&encode(&[alone])), None);
    }

    proptest! {
        #[test]
        fn what_was_written_is_read(from in "a[^/\\x00]{1,80}", to in "b[^/\\x00]{1,50}/[^/\\x00.]{1,60}") {
            let list = [intent(from.as_bytes(), to.as_bytes())];
            prop_assert_eq!(decode(&encode(&list)), Some(list.to_vec()));
        }

        #[test]
        fn decoding_never_panics(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            let _ = decode(&bytes);
            let mut framed = [HEAD, &u32::try_from(bytes.len()).unwrap().to_le_bytes()[..], &bytes].concat();
            let check = check(&framed[HEAD.len()..]);
            framed.extend_from_slice(&check);
            let _ = decode(&framed);
        }
    }
}
