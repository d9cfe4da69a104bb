//! Bytes that tell where they came from, buffers for O_DIRECT, and LMCache's own sequences of system calls.

use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

/// What O_DIRECT wants: LMCache takes it from `f_bsize`.
pub const BLOCK: usize = 4096;

/// `length` bytes that differ between seeds and between offsets.
pub fn pattern(seed: u64, length: usize) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(length + 8);
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    while bytes.len() < length {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        bytes.extend_from_slice(&state.to_le_bytes());
    }
    bytes.truncate(length);
    bytes
}

/// A buffer whose address is a multiple of a block.
pub struct Aligned {
    space: Vec<u8>,
    start: usize,
    length: usize,
}

impl Aligned {
    /// Zeros.
    pub fn new(length: usize) -> Aligned {
        let space = vec![0; length + BLOCK];
        let start = space.as_ptr().align_offset(BLOCK);
        Aligned { space, start, length }
    }

    /// A copy of bytes.
    pub fn of(bytes: &[u8]) -> Aligned {
        let mut aligned = Aligned::new(bytes.len());
        aligned.bytes_mut().copy_from_slice(bytes);
        aligned
    }

    pub fn bytes(&self) -> &[u8] {
        &self.space[self.start..self.start + self.length]
    }

    pub fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.space[self.start..self.start + self.length]
    }
}

/// Opens with `flags`, mode 0644.
pub fn open(path: &Path, flags: OFlags) -> Result<OwnedFd, Errno> {
    rustix::fs::open(path, flags | OFlags::CLOEXEC, Mode::from_raw_mode(0o644))
}

/// Opens what must open.
#[track_caller]
pub fn opened(path: &Path, flags: OFlags) -> OwnedFd {
    open(path, flags).unwrap_or_else(|errno| panic!("open {}: {errno}", path.display()))
}

/// Writes until done, as LMCache does.
pub fn write_all(fd: impl AsFd, mut bytes: &[u8]) -> Result<(), Errno> {
    while !bytes.is_empty() {
        let written = rustix::io::write(&fd, bytes)?;
        assert!(written > 0, "a write of {} bytes wrote none", bytes.len());
        bytes = &bytes[written..];
    }
    Ok(())
}

/// Reads `length` bytes from the start, fewer at the end of the file.
pub fn read_at_most(fd: impl AsFd, length: usize) -> Result<Vec<u8>, Errno> {
    let mut buffer = Aligned::new(length.next_multiple_of(BLOCK));
    let mut at = 0;
    while at < length {
        let read = rustix::io::pread(&fd, &mut buffer.bytes_mut()[at..], at as u64)?;
        if read == 0 {
            break;
        }
        at += read;
    }
    Ok(buffer.bytes()[..at.min(length)].to_vec())
}

/// LMCache's store: look, write a temp file, publish it. `direct` is taken for whole blocks, as LMCache does.
pub fn store(dir: &Path, key: &str, bytes: &[u8], direct: bool) -> Result<(), Errno> {
    let (temp, last) = (dir.join(format!("{key}.tmp")), dir.join(format!("{key}.data")));
    let _ = rustix::fs::stat(&last);
    let mut flags = OFlags::WRONLY | OFlags::CREATE | OFlags::TRUNC;
    flags.set(OFlags::DIRECT, direct && bytes.len().is_multiple_of(BLOCK));
    let fd = open(&temp, flags)?;
    write_all(&fd, Aligned::of(bytes).bytes())?;
    drop(fd);
    rustix::fs::rename(&temp, &last)
}

/// LMCache's load of as many bytes as it expects.
pub fn load(dir: &Path, key: &str, length: usize, direct: bool) -> Result<Vec<u8>, Errno> {
    let mut flags = OFlags::RDONLY;
    flags.set(OFlags::DIRECT, direct && length.is_multiple_of(BLOCK));
    let fd = open(&dir.join(format!("{key}.data")), flags)?;
    read_at_most(&fd, length)
}

/// A key as LMCache writes it.
pub fn key(n: u64) -> String {
    format!("meta-llama-SEP-Llama-3.1-8B@0x00000000@0@{n:064x}@user.alice")
}

/// Compares without printing megabytes.
#[track_caller]
pub fn assert_same(found: &[u8], wanted: &[u8], what: &str) {
    if found == wanted {
        return;
    }
    assert_eq!(found.len(), wanted.len(), "{what}: length");
    if let Some(at) = found.iter().zip(wanted).position(|(a, b)| a != b) {
        panic!("{what}: byte {at} of {} is {:#x}, not {:#x}", wanted.len(), found[at], wanted[at]);
    }
}
