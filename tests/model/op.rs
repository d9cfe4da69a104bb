//! The operations of the model test, and how they are chosen. `Debug` prints them so that a failing list can be pasted.

use kvspan::volume::files::RenameMode;
use proptest::prelude::*;
use proptest::sample::select;
use rustix::io::Errno;

use crate::common::faulty::Call;

/// Disks that a case has directories for; `disks` of them are in the volume at first.
pub const DISKS: usize = 4;

/// Every place where something may be.
pub const PATHS: [&str; 20] = [
    "k0.data",
    "k0.tmp",
    "k1.data",
    "k1.tmp",
    "k2.data",
    "k2.tmp",
    "a",
    "b",
    "a/k0.data",
    "a/k0.tmp",
    "a/k1.data",
    "a/k1.tmp",
    "b/k0.data",
    "b/k0.tmp",
    "a/s",
    "b/s",
    "a/s/k0.data",
    "a/s/k1.data",
    "b/s/k0.data",
    "b/s/k1.data",
];
/// Those that clients make directories of.
pub const DIRS: [&str; 4] = ["a", "b", "a/s", "b/s"];
/// Keys that clients store.
pub const KEYS: [&str; 7] = ["k0", "k1", "a/k0", "a/k1", "b/k0", "a/s/k0", "b/s/k1"];

#[derive(Clone, Debug)]
pub enum Op {
    /// As LMCache stores: a temp file, written, closed, renamed.
    Store {
        key: &'static str,
        len: usize,
    },
    /// The same, but the handle is released after the rename, as the kernel does, by a later `Close`.
    StoreUnreleased {
        key: &'static str,
        len: usize,
    },
    Create {
        path: &'static str,
        exclusive: bool,
    },
    WritePart {
        slot: usize,
        len: usize,
    },
    Close {
        slot: usize,
    },
    OpenRead {
        path: &'static str,
    },
    ReadOpen {
        slot: usize,
    },
    Load {
        path: &'static str,
    },
    Exists {
        path: &'static str,
    },
    Unlink {
        path: &'static str,
    },
    Rename {
        from: &'static str,
        to: &'static str,
        mode: RenameMode,
    },
    Mkdir {
        path: &'static str,
    },
    Rmdir {
        path: &'static str,
    },
    List {
        dir: &'static str,
        batch: usize,
    },
    /// The coldest files of a disk go.
    EvictTo {
        disk: usize,
        bytes: u64,
    },
    FlushRecency,
    /// What the daemon does in the background with second copies of a name.
    RemoveShadows,
    /// Looks at a disk again, without losing anything.
    Rescan {
        disk: usize,
    },
    /// An orderly unmount and a mount; without `scan` the volume serves before the scan has begun.
    Remount {
        scan: bool,
    },
    /// The daemon ends without any clean-up, whatever is open.
    Kill {
        scan: bool,
    },
    /// Every disk call fails after so many more of them, in the middle of an operation; then the daemon is killed.
    CrashIn {
        calls: u64,
        op: Box<Op>,
    },
    /// After `calls` disk calls within the operation, `count` of them fail.
    FailIn {
        calls: u64,
        count: u64,
        error: Trouble,
        op: Box<Op>,
    },
    /// Power goes: what was not durable is cut short or zeroes, then a mount in another boot. Without `scan` the volume
    /// serves before the scan has begun.
    PowerCut {
        scan: bool,
        zeroes: bool,
    },
    /// All that a disk holds is made durable, and its record says so.
    SyncDisk {
        disk: usize,
    },
    /// The scan of a disk goes on by so many batches.
    Scan {
        disk: usize,
        batches: u64,
    },
    FinishScan,
    AddDisk {
        disk: usize,
    },
    RemoveDisk {
        disk: usize,
    },
    FailNext {
        disk: usize,
        call: Call,
        error: Trouble,
        skip: u32,
        count: u32,
    },
    FailAll {
        disk: usize,
        error: Trouble,
    },
    Heal,
}

/// What a disk says when it fails.
#[derive(Clone, Copy, Debug)]
pub enum Trouble {
    Io,
    Gone,
    ReadOnly,
    Full,
    Stale,
    TooManyFiles,
}

impl Trouble {
    pub fn errno(self) -> Errno {
        match self {
            Trouble::Io => Errno::IO,
            Trouble::Gone => Errno::NXIO,
            Trouble::ReadOnly => Errno::ROFS,
            Trouble::Full => Errno::NOSPC,
            Trouble::Stale => Errno::STALE,
            Trouble::TooManyFiles => Errno::MFILE,
        }
    }
}

/// Which operations a case is made of.
#[derive(Clone, Copy, Debug)]
pub struct Mix {
    pub power: u32,
    pub faults: u32,
    pub disks: u32,
    pub restarts: u32,
}

/// Mostly a few paths, so that operations meet.
fn path() -> impl Strategy<Value = &'static str> {
    prop_oneof![3 => select(&["k0.data", "k1.data", "a", "a/k0.data", "a/k1.data", "b"][..]), 2 => select(&PATHS[..])]
}

fn length() -> impl Strategy<Value = usize> {
    prop_oneof![2 => 1..200_usize, 1 => Just(0), 2 => 3_000..9_000_usize]
}

fn trouble() -> impl Strategy<Value = Trouble> {
    use Trouble::*;
    select(&[Io, Gone, ReadOnly, Full, Stale, TooManyFiles][..])
}

fn call() -> impl Strategy<Value = Call> {
    use Call::*;
    let calls =
        [Open, Create, Stat, StatFd, Rename, Unlink, Mkdir, Rmdir, List, ListNext, SetAttr, OpenDir, Read, Write];
    select(calls.to_vec())
}

fn mode() -> impl Strategy<Value = RenameMode> {
    prop_oneof![
        6 => Just(RenameMode::Replace),
        1 => Just(RenameMode::NoReplace),
        1 => Just(RenameMode::Exchange)
    ]
}

/// What a client does.
fn client_op() -> impl Strategy<Value = Op> {
    let (key, slot) = (|| select(&KEYS[..]), 0..8_usize);
    let dir = || select(&DIRS[..]);
    prop_oneof![
        8 => (key(), length()).prop_map(|(key, len)| Op::Store { key, len }),
        2 => (key(), length()).prop_map(|(key, len)| Op::StoreUnreleased { key, len }),
        4 => (path(), any::<bool>()).prop_map(|(path, exclusive)| Op::Create { path, exclusive }),
        4 => (slot.clone(), length()).prop_map(|(slot, len)| Op::WritePart { slot, len }),
        3 => slot.clone().prop_map(|slot| Op::Close { slot }),
        2 => path().prop_map(|path| Op::OpenRead { path }),
        2 => slot.prop_map(|slot| Op::ReadOpen { slot }),
        5 => path().prop_map(|path| Op::Load { path }),
        2 => path().prop_map(|path| Op::Exists { path }),
        4 => path().prop_map(|path| Op::Unlink { path }),
        6 => (path(), path(), mode()).prop_map(|(from, to, mode)| Op::Rename { from, to, mode }),
        2 => rename_dir(),
        5 => dir().prop_map(|path| Op::Mkdir { path }),
        1 => path().prop_map(|path| Op::Mkdir { path }),
        3 => dir().prop_map(|path| Op::Rmdir { path }),
        2 => (select(&["", "a", "b", "a/s"][..]), 1..5_usize).prop_map(|(dir, batch)| Op::List { dir, batch }),
        1 => (0..DISKS, 0..20_000_u64).prop_map(|(disk, bytes)| Op::EvictTo { disk, bytes }),
        1 => Just(Op::FlushRecency),
        1 => Just(Op::RemoveShadows),
        1 => (0..DISKS).prop_map(|disk| Op::Rescan { disk }),
    ]
}

fn rename_dir() -> impl Strategy<Value = Op> {
    (select(&DIRS[..]), select(&DIRS[..])).prop_map(|(from, to)| Op::Rename { from, to, mode: RenameMode::Replace })
}

fn fault_op() -> impl Strategy<Value = Op> {
    prop_oneof![
        6 => (0..DISKS, call(), trouble(), 0..3_u32, 1..4_u32)
            .prop_map(|(disk, call, error, skip, count)| Op::FailNext { disk, call, error, skip, count }),
        2 => (0..DISKS, select(&[Trouble::Io, Trouble::Gone, Trouble::ReadOnly, Trouble::Stale][..])).prop_map(|(disk, error)| Op::FailAll { disk, error }),
        5 => Just(Op::Heal),
        10 => (0..12_u64, 1..4_u64, trouble(), client_op())
            .prop_map(|(calls, count, error, op)| Op::FailIn { calls, count, error, op: Box::new(op) }),
        6 => (0..12_u64, client_op()).prop_map(|(calls, op)| Op::CrashIn { calls, op: Box::new(op) }),
        4 => (0..80_u64, rename_dir()).prop_map(|(calls, op)| Op::CrashIn { calls, op: Box::new(op) }),
        4 => (0..80_u64, 1..9_u64, trouble(), rename_dir())
            .prop_map(|(calls, count, error, op)| Op::FailIn { calls, count, error, op: Box::new(op) }),
    ]
}

fn restart_op() -> impl Strategy<Value = Op> {
    prop_oneof![
        3 => any::<bool>().prop_map(|scan| Op::Remount { scan }),
        3 => any::<bool>().prop_map(|scan| Op::Kill { scan }),
        4 => (0..DISKS, 1..4_u64).prop_map(|(disk, batches)| Op::Scan { disk, batches }),
        2 => Just(Op::FinishScan),
    ]
}

fn power_op() -> impl Strategy<Value = Op> {
    prop_oneof![
        3 => (any::<bool>(), any::<bool>()).prop_map(|(scan, zeroes)| Op::PowerCut { scan, zeroes }),
        2 => (0..DISKS).prop_map(|disk| Op::SyncDisk { disk }),
    ]
}

fn disk_op() -> impl Strategy<Value = Op> {
    let disk = 0..DISKS;
    prop_oneof![disk.clone().prop_map(|disk| Op::AddDisk { disk }), disk.prop_map(|disk| Op::RemoveDisk { disk }),]
}

/// A case: the disks at first, and the operations.
pub fn case(mix: Mix) -> impl Strategy<Value = (usize, Vec<Op>)> {
    // A weight of 0 is refused.
    let weight = |weight: u32| weight.max(1);
    let Mix { power, faults, disks, restarts } = mix;
    let op = prop_oneof![
        100 => client_op().boxed(),
        weight(restarts) => restart_op().boxed(),
        weight(faults) => if faults > 0 { fault_op().boxed() } else { client_op().boxed() },
        weight(power) => if power > 0 { power_op().boxed() } else { client_op().boxed() },
        weight(disks) => if disks > 0 { disk_op().boxed() } else { client_op().boxed() },
    ];
    (1..=DISKS, proptest::collection::vec(op, 1..60))
}
