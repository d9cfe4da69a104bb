//! The bytes of `.kvspan/removed`: a head, then records one after the other.
//!
//! A record is: length of the path (u32), time in nanoseconds since the epoch (i64), the path, and the first 4 bytes of
//! the BLAKE3 of all these; numbers are little-endian. The path is relative to the disk's root and may hold any bytes.
//! The list ends at the first record that is cut off or does not match: what follows was never synced. Pure: no I/O.

/// What the file begins with.
pub(super) const HEAD: &[u8] = b"kvspan removed 1\n";

/// No path is longer (`PATH_MAX`).
const PATH_BYTES_MAX: usize = 4096;
const NUMBERS_BYTES: usize = 12;
const CHECK_BYTES: usize = 4;

/// One name that was unlinked or replaced.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Record<'a> {
    pub path: &'a [u8],
    pub time_ns: i64,
}

/// Appends a record.
pub(super) fn write(path: &[u8], time_ns: i64, out: &mut Vec<u8>) {
    let start = out.len();
    out.extend_from_slice(&u32::try_from(path.len()).unwrap_or(u32::MAX).to_le_bytes());
    out.extend_from_slice(&time_ns.to_le_bytes());
    out.extend_from_slice(path);
    let check = check(out.get(start..).unwrap_or_default());
    out.extend_from_slice(&check);
}

/// The records of a list, and how many of its bytes are sound; none and 0 for what is not such a list.
pub(super) fn parse(list: &[u8]) -> (Vec<Record<'_>>, usize) {
    let Some(mut rest) = list.strip_prefix(HEAD) else {
        return (Vec::new(), 0);
    };
    let mut records = Vec::new();
    while let Some((record, tail)) = parse_one(rest) {
        records.push(record);
        rest = tail;
    }
    (records, list.len() - rest.len())
}

fn parse_one(rest: &[u8]) -> Option<(Record<'_>, &[u8])> {
    let (length, after) = rest.split_first_chunk::<4>()?;
    let (time, after) = after.split_first_chunk::<8>()?;
    let length = usize::try_from(u32::from_le_bytes(*length)).ok()?;
    if length == 0 || length > PATH_BYTES_MAX {
        return None;
    }
    let (path, after) = after.split_at_checked(length)?;
    let (found, tail) = after.split_first_chunk::<CHECK_BYTES>()?;
    let whole = rest.get(..NUMBERS_BYTES + length)?;
    (*found == check(whole)).then_some((Record { path, time_ns: i64::from_le_bytes(*time) }, tail))
}

fn check(bytes: &[u8]) -> [u8; CHECK_BYTES] {
    let hash = blake3::hash(bytes);
    hash.as_bytes().first_chunk().copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn golden_bytes() {
        let mut list = HEAD.to_vec();
        write(b"d/K.data", 0x0102_0304_0506_0708, &mut list);
        let golden = b"kvspan removed 1\n\x08\0\0\0\x08\x07\x06\x05\x04\x03\x02\x01d/K.data";
        assert_eq!(list[..golden.len()], golden[..]);
        assert_eq!(list[golden.len()..], blake3::hash(&golden[HEAD.len()..]).as_bytes()[..4]);
    }

    #[test]
    fn a_list_ends_where_it_was_cut_or_damaged() {
        let mut list = HEAD.to_vec();
        write(b"a", 1, &mut list);
        let first = list.len();
        write(&[0, b'/', 0xff, b'\n'], -2, &mut list);
        assert_eq!(parse(&list).0.len(), 2);
        assert_eq!(parse(&list).1, list.len());
        for cut in first..list.len() {
            assert_eq!(parse(&list[..cut]), (vec![Record { path: b"a", time_ns: 1 }], first));
        }
        let mut damaged = list.clone();
        damaged[first + 13] ^= 1;
        assert_eq!(parse(&damaged).1, first);
        list.resize(list.len() + 64, 0);
        assert_eq!(parse(&list).0.len(), 2);
        assert_eq!(parse(b"something else"), (Vec::new(), 0));
    }

    proptest! {
        #[test]
        fn what_was_written_is_read(paths in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 1..300), 0..20)) {
            let mut list = HEAD.to_vec();
            for (time, path) in (0i64..).zip(&paths) {
                write(path, time, &mut list);
            }
            let (records, sound) = parse(&list);
            prop_assert_eq!(sound, list.len());
            prop_assert!(records.iter().map(|record| record.path).eq(paths.iter().map(|path| &path[..])));
        }

        #[test]
        fn parsing_never_panics(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = parse(&bytes);
            let _ = parse(&[HEAD, &bytes].concat());
        }
    }
}
