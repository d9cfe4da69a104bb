//! What the index costs: at most 128 bytes a file, name and listing included, and 160 at the peak; up to 8 more a
//! file with `eviction=scan-resistant`.
//!
//! 200,000 LMCache-style names by default, 5 million with KVSPAN_FULL=1.
#![allow(unsafe_code, reason = "a counting global allocator cannot be written without it")]

use kvspan::volume::attr::{Attr, DiskNo, Ino, Kind};
use kvspan::volume::index::{Index, NewEntry};
use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};

struct Counting;
static LIVE: AtomicUsize = AtomicUsize::new(0);
static PEAK: AtomicUsize = AtomicUsize::new(0);

// SAFETY: passes everything on to the system allocator and only counts.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let live = LIVE.fetch_add(layout.size(), Relaxed) + layout.size();
        PEAK.fetch_max(live, Relaxed);
        unsafe { System.alloc(layout) }
    }
    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        LIVE.fetch_sub(layout.size(), Relaxed);
        unsafe { System.dealloc(at, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// 64 hex digits that nothing compresses.
fn digest(n: u64) -> String {
    let mut out = String::with_capacity(64);
    let mut x = n.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    for _ in 0..4 {
        x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9).wrapping_add(n);
        x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        x ^= x >> 31;
        out += &format!("{x:016x}");
    }
    out
}

fn name(n: u64, salt: &str) -> String {
    format!("meta-llama-SEP-Llama-3.1-70B-Instruct@0x00000003@0@{}{salt}.data", digest(n))
}

fn entry(n: u64, now: i64) -> NewEntry {
    let attr = Attr {
        size_bytes: 1 << 20,
        blocks_512: 2048,
        mode: 0o644,
        uid: 1000,
        gid: 1000,
        mtime_ns: now,
        ctime_ns: now,
        atime_ns: now,
    };
    let disk = DiskNo((n % 8) as u8);
    NewEntry { kind: Kind::File, disk, attr, writing: false, away: false }
}

fn measure(files: u64, salt: &str, apart: bool) {
    let base = LIVE.load(Relaxed);
    PEAK.store(base, Relaxed);
    let start = Instant::now();
    let mut longest = Duration::ZERO;
    let mut index = Index::new(8, Attr::default());
    if apart {
        index.keep_scans_apart();
    }
    for n in 0..files {
        let name = name(n, salt);
        let one = Instant::now();
        index.insert(Ino::ROOT, name.as_bytes(), entry(n, n as i64)).unwrap();
        longest = longest.max(one.elapsed());
    }
    let took = start.elapsed();
    let live = (LIVE.load(Relaxed) - base) as f64 / files as f64;
    let peak = (PEAK.load(Relaxed) - base) as f64 / files as f64;
    let estimate = index.memory_bytes() as f64 / files as f64;
    let find = Instant::now();
    for n in (0..files).step_by(7) {
        assert!(index.find(Ino::ROOT, name(n, salt).as_bytes()).is_some());
    }
    let find = find.elapsed() / (files / 7) as u32;
    println!(
        "{files} names{salt}{}: {live:.1} bytes a file, {peak:.1} at the peak, {estimate:.1} estimated; \
         inserted in {took:?}, the longest {longest:?}; {find:?} a find, making the name included",
        if apart { ", scans apart" } else { "" }
    );
    assert_eq!(index.len() as u64, files);
    assert!(live <= 128.0, "{live} bytes a file");
    assert!(peak <= 160.0, "{peak} bytes a file at the peak");
    churn(&mut index, files, salt);
    let churned = (LIVE.load(Relaxed) - base) as f64 / files as f64;
    let peak = (PEAK.load(Relaxed) - base) as f64 / files as f64;
    println!("    {churned:.1} bytes a file after that, {peak:.1} at the peak");
    // Remembered names cost 4 to 8 bytes a file, and only where scans are kept apart.
    let bound = if apart { 136.0 } else { 128.0 };
    assert!(churned <= bound && peak <= 160.0, "{churned} bytes a file, {peak} at the peak");
    assert!((estimate / live - 1.0).abs() < 0.1, "estimated {estimate}, is {live}");
}

/// Evicts and stores as many files as there are, at most a million, with a use of a random one between.
fn churn(index: &mut Index, files: u64, salt: &str) {
    let base = LIVE.load(Relaxed);
    PEAK.store(base, Relaxed);
    let (start, mut longest) = (Instant::now(), Duration::ZERO);
    for n in files..files + files.min(1_000_000) {
        let disk = DiskNo((n % 8) as u8);
        let used = name(n / 2 + digest(n).len() as u64 * n % (files / 4), salt);
        let (new, tmp) = (name(n, salt), name(n, salt).replace(".data", ".tmp"));
        let one = Instant::now();
        if let Some(used) = index.find(Ino::ROOT, used.as_bytes()) {
            index.promote(used);
            index.touch(used, n as i64);
        }
        let victim = index.coldest(disk).next().unwrap();
        index.evict(victim);
        let ino = index.insert(Ino::ROOT, tmp.as_bytes(), entry(n, n as i64)).unwrap();
        assert_eq!(index.rename(ino, Ino::ROOT, new.as_bytes()), Ok(None));
        longest = longest.max(one.elapsed());
    }
    println!("    churned in {:?}, the longest step {longest:?}", start.elapsed());
}

/// One test, so that nothing else is counted.
#[test]
fn a_file_costs_at_most_128_bytes() {
    let full = std::env::var_os("KVSPAN_FULL").is_some_and(|v| v == "1");
    let files = if full { 5_000_000 } else { 200_000 };
    measure(files, "", false);
    measure(files, "@user.alice", false);
    measure(files, "", true);
}
