//! The plain words that every layer of the volume shares: inode numbers, disk numbers, attributes.
//!
//! Called by everybody from the index up to the FUSE glue; holds no state and takes no lock.

/// Inode number of an entry, as the kernel and every listing see it: `(low 32 bits of the insertion
/// number) << 32 | (slab slot + 1)`. The root is 1, which is what FUSE calls its root.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Ino(pub u64);

impl Ino {
    /// The root directory of the volume.
    pub const ROOT: Ino = Ino(1);
}

/// A disk's place in the volume's configured list: at most [`MAX_DISKS`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct DiskNo(pub u8);

impl DiskNo {
    /// The place as an index into per-disk tables.
    pub fn index(self) -> usize {
        usize::from(self.0)
    }
}

/// Disks in one volume: their presence fits a 64-bit set.
pub const MAX_DISKS: usize = 64;

/// What an entry is. Nothing else is ever shown by a volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// A regular file.
    File,
    /// A directory.
    Dir,
}

/// Attributes of a file or directory as the index keeps them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Attr {
    /// Length in bytes.
    pub size_bytes: u64,
    /// Room taken on the disk, in 512-byte units (`st_blocks`).
    pub blocks_512: u64,
    /// Permission bits, setuid, setgid and sticky: the low 12 bits of `st_mode`.
    pub mode: u16,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Last change of the contents, nanoseconds since the epoch.
    pub mtime_ns: i64,
    /// Last change of the attributes, nanoseconds since the epoch.
    pub ctime_ns: i64,
    /// Last use, nanoseconds since the epoch.
    pub atime_ns: i64,
}

impl Attr {
    /// Bytes taken on the disk, as `du` counts them.
    pub fn bytes_on_disk(&self) -> u64 {
        self.blocks_512.saturating_mul(512)
    }

    /// Whether the disk holds more for the file than its bytes need, beyond some blocks that find them: allocated ahead of
    /// a writer, or reserved.
    pub fn is_swollen(&self) -> bool {
        const TO_FIND_THEM: u64 = 64 << 10;
        self.bytes_on_disk() > self.size_bytes.saturating_add(TO_FIND_THEM)
    }
}
