//! The names: any 1 to 255 bytes, packed, addressed by a `u32`.
//!
//! Called by the index. A name is split at its longest run of lower-case hex digits (8 at least): the run
//! is kept as bytes, what stands before and after it as the number of an affix, or literally. Record:
//!
//! `tag u8 | prefix: number u16 or length u8 + bytes | suffix: the same | run as bytes | padding 0..=3`
//!
//! with the tag saying which affixes are numbers and how much padding the cell has. Takes no lock.

use super::affixes::Affixes;
use super::arena::Arena;

/// Longest name in bytes.
pub(super) const MAX_NAME_BYTES: usize = 255;
/// Shorter runs of hex digits stay where they are.
const MIN_RUN_DIGITS: usize = 8;

const TAG_PREFIX: u8 = 1;
const TAG_SUFFIX: u8 = 1 << 1;
const TAG_PAD_SHIFT: u32 = 2;

/// All packed names.
#[derive(Debug)]
pub(super) struct Names {
    arena: Arena,
    affixes: Affixes,
    scratch: Vec<u8>,
}

/// One affix as a record has it.
enum Piece<'a> {
    Number(u16),
    Literal(&'a [u8]),
}

/// A record taken apart.
struct Record<'a> {
    prefix: Piece<'a>,
    suffix: Piece<'a>,
    run: &'a [u8],
}

impl Names {
    pub(super) fn new() -> Self {
        Self { arena: Arena::new(), affixes: Affixes::new(), scratch: Vec::new() }
    }

    /// Stores `name`; None when it is too long or the arena is full.
    pub(super) fn store(&mut self, name: &[u8]) -> Option<u32> {
        if name.len() > MAX_NAME_BYTES {
            return None;
        }
        let (prefix, run, suffix) = split(name);
        let mut record = std::mem::take(&mut self.scratch);
        record.clear();
        // A name without a run is one literal: what it shares with others is unknown.
        let share = !run.is_empty();
        let mut numbers = [None, None];
        record.push(0);
        let mut tag = 0;
        for ((piece, bit), number) in [(prefix, TAG_PREFIX), (suffix, TAG_SUFFIX)].into_iter().zip(&mut numbers) {
            *number = if share { self.affixes.intern(piece) } else { None };
            match *number {
                Some(n) => {
                    tag |= bit;
                    record.extend(n.to_le_bytes());
                }
                None => {
                    record.push(piece.len() as u8);
                    record.extend(piece);
                }
            }
        }
        record.extend(run.chunks_exact(2).map(byte_of));
        let padding = Arena::cell_bytes(record.len()) - record.len();
        tag |= (padding as u8) << TAG_PAD_SHIFT;
        if let Some(first) = record.first_mut() {
            *first = tag;
        }
        let at = self.arena.alloc(&record);
        self.scratch = record;
        if at.is_none() {
            numbers.into_iter().flatten().for_each(|n| self.affixes.release(n));
        }
        at
    }

    /// Drops a stored name.
    pub(super) fn free(&mut self, at: u32) {
        let numbers = self.arena.get(at).and_then(parse).map(|r| [r.prefix, r.suffix].map(number_of));
        for number in numbers.into_iter().flatten().flatten() {
            self.affixes.release(number);
        }
        self.arena.free(at);
    }

    /// Appends the name at `at`; false if there is none.
    pub(super) fn append(&self, at: u32, out: &mut Vec<u8>) -> bool {
        let Some((prefix, run, suffix)) = self.parts(at) else { return false };
        out.extend(prefix);
        for byte in run {
            out.extend([digit_of(byte >> 4), digit_of(byte & 15)]);
        }
        out.extend(suffix);
        true
    }

    /// Whether the name at `at` is `name`.
    pub(super) fn is(&self, at: u32, name: &[u8]) -> bool {
        let Some((prefix, run, suffix)) = self.parts(at) else { return false };
        let middle = name.strip_prefix(prefix).and_then(|rest| rest.strip_suffix(suffix));
        middle.is_some_and(|digits| {
            let pairs = digits.chunks_exact(2);
            digits.len() == run.len() * 2
                && pairs.zip(run).all(|(pair, b)| *pair == [digit_of(b >> 4), digit_of(b & 15)])
        })
    }

    /// Names stored.
    pub(super) fn live(&self) -> u64 {
        self.arena.live()
    }

    /// The affix uses of the name at `at`.
    pub(super) fn affix_uses(&self, at: u32) -> u64 {
        let record = self.arena.get(at).and_then(parse);
        record.map_or(0, |r| [r.prefix, r.suffix].map(number_of).into_iter().flatten().count() as u64)
    }

    pub(super) fn affixes(&self) -> &Affixes {
        &self.affixes
    }

    pub(super) fn heap_bytes(&self) -> usize {
        self.arena.heap_bytes() + self.affixes.heap_bytes() + self.scratch.capacity()
    }

    fn parts(&self, at: u32) -> Option<(&[u8], &[u8], &[u8])> {
        let record = parse(self.arena.get(at)?)?;
        Some((self.bytes(record.prefix)?, record.run, self.bytes(record.suffix)?))
    }

    fn bytes<'a>(&'a self, piece: Piece<'a>) -> Option<&'a [u8]> {
        match piece {
            Piece::Number(n) => self.affixes.get(n),
            Piece::Literal(bytes) => Some(bytes),
        }
    }
}

/// Splits a name into what is before, in and after its longest run of lower-case hex digits. The run has
/// an even length; without one of at least [`MIN_RUN_DIGITS`] the first part is everything.
fn split(name: &[u8]) -> (&[u8], &[u8], &[u8]) {
    let (mut best, mut best_len, mut len) = (0, 0, 0);
    for (i, byte) in name.iter().enumerate() {
        len = if matches!(byte, b'0'..=b'9' | b'a'..=b'f') { len + 1 } else { 0 };
        if len > best_len {
            (best, best_len) = (i + 1 - len, len);
        }
    }
    best_len &= !1;
    if best_len < MIN_RUN_DIGITS {
        return (name, &[], &[]);
    }
    let (prefix, rest) = name.split_at_checked(best).unwrap_or((name, &[]));
    let (run, suffix) = rest.split_at_checked(best_len).unwrap_or((&[], rest));
    (prefix, run, suffix)
}

fn parse(cell: &[u8]) -> Option<Record<'_>> {
    let (&tag, rest) = cell.split_first()?;
    let rest = rest.get(..rest.len().checked_sub(usize::from(tag >> TAG_PAD_SHIFT))?)?;
    let (prefix, rest) = take_piece(rest, tag & TAG_PREFIX != 0)?;
    let (suffix, run) = take_piece(rest, tag & TAG_SUFFIX != 0)?;
    Some(Record { prefix, suffix, run })
}

fn take_piece(bytes: &[u8], is_number: bool) -> Option<(Piece<'_>, &[u8])> {
    if is_number {
        let (two, rest) = bytes.split_first_chunk()?;
        return Some((Piece::Number(u16::from_le_bytes(*two)), rest));
    }
    let (&len, rest) = bytes.split_first()?;
    let (literal, rest) = rest.split_at_checked(usize::from(len))?;
    Some((Piece::Literal(literal), rest))
}

fn number_of(piece: Piece<'_>) -> Option<u16> {
    match piece {
        Piece::Number(n) => Some(n),
        Piece::Literal(_) => None,
    }
}

/// The byte that two lower-case hex digits spell.
fn byte_of(digits: &[u8]) -> u8 {
    digits.iter().fold(0, |byte, &digit| {
        byte << 4 | if digit.is_ascii_digit() { digit - b'0' } else { digit.wrapping_sub(b'a') + 10 }
    })
}

/// The lower-case hex digit of a value below 16.
fn digit_of(value: u8) -> u8 {
    if value < 10 { b'0' + value } else { b'a' + (value - 10) }
}
