//! Prints what placement does to 100,000 names over 8 disks, beside `hash % N`:
//! `cargo run --release --example placement_table`.
//!
//! Both columns use the same names; `hash % N` hashes the whole key with BLAKE3 as well, so that
//! the difference is the method and nothing else. The disk ids are fixed: every run prints the same.

use std::error::Error;

use kvspan::volume::name::PlacementKey;
use kvspan::volume::placement::Placement;
use uuid::Uuid;

const NAMES: u64 = 100_000;
const DISKS: usize = 8;

/// The owner of each name as a place in the list of all disks.
type Owners = Vec<usize>;

fn main() -> Result<(), Box<dyn Error>> {
    let disks: Vec<Uuid> = (0..=DISKS as u64).map(disk_id).collect();
    let names: Vec<String> = (0..NAMES).map(lmcache_name).collect();
    // `hash % N` knows disks only by their place, so the removed one leaves a gap that closes.
    let eight: Vec<usize> = (0..DISKS).collect();
    let nine: Vec<usize> = (0..=DISKS).collect();
    let seven: Vec<usize> = eight.iter().copied().filter(|disk| *disk != 3).collect();

    let rendezvous = |kept: &[usize]| rendezvous_owners(&names, &disks, kept);
    let (r8, r9, r7) = (rendezvous(&eight)?, rendezvous(&nine)?, rendezvous(&seven)?);
    let [m8, m9, m7] = [&eight, &nine, &seven].map(|kept| modulo_owners(&names, kept));

    println!("{NAMES} names over {DISKS} equal disks        rendezvous      hash % N\n");
    for disk in 0..DISKS {
        row(&format!("names on disk {disk}"), count(&r8, disk), count(&m8, disk));
    }
    row("furthest from the mean", furthest(&r8), furthest(&m8));
    println!();
    row("a 9th disk is added: names moved", moved(&r8, &r9, |_, _| true), moved(&m8, &m9, |_, _| true));
    let between_old = |_: usize, new: usize| new != DISKS;
    row("  of these between old disks", moved(&r8, &r9, between_old), moved(&m8, &m9, between_old));
    row("disk 3 is removed: names moved", moved(&r8, &r7, |_, _| true), moved(&m8, &m7, |_, _| true));
    let others = |old: usize, _: usize| old != 3;
    row("  of these not from disk 3", moved(&r8, &r7, others), moved(&m8, &m7, others));
    Ok(())
}

fn row(what: &str, rendezvous: String, modulo: String) {
    println!("{what:<36}{rendezvous:>14}{modulo:>14}");
}

fn count(owners: &Owners, disk: usize) -> String {
    owners.iter().filter(|owner| **owner == disk).count().to_string()
}

/// How far the disk furthest from the mean is from it.
fn furthest(owners: &Owners) -> String {
    let mean = NAMES as f64 / DISKS as f64;
    let off = (0..DISKS).map(|disk| {
        let names = owners.iter().filter(|owner| **owner == disk).count() as f64;
        (names - mean).abs() / mean * 100.0
    });
    format!("{:.2} %", off.fold(0.0, f64::max))
}

/// The share of the names whose owner changed in a way that counts.
fn moved(before: &Owners, after: &Owners, counts: impl Fn(usize, usize) -> bool) -> String {
    let pairs = before.iter().zip(after);
    let moved = pairs.filter(|&(&old, &new)| old != new && counts(old, new)).count();
    format!("{:.2} %", moved as f64 / before.len() as f64 * 100.0)
}

fn rendezvous_owners(names: &[String], disks: &[Uuid], kept: &[usize]) -> Result<Owners, Box<dyn Error>> {
    let weighted: Vec<(Uuid, f64)> = kept.iter().map(|&disk| (disks[disk], 1.0)).collect();
    let placement = Placement::new(&weighted)?;
    let owner = |name: &String| {
        let owner = placement.owner(&PlacementKey::of(name.as_bytes()));
        owner.map(|disk| kept[disk.index()]).ok_or_else(|| "no disk".into())
    };
    names.iter().map(owner).collect()
}

fn modulo_owners(names: &[String], kept: &[usize]) -> Owners {
    let owner = |name: &String| {
        let key = PlacementKey::of(name.as_bytes());
        kept[(leading_u64(key.as_bytes()) % kept.len() as u64) as usize]
    };
    names.iter().map(owner).collect()
}

/// A name as LMCache's `fs_native` gives it.
fn lmcache_name(number: u64) -> String {
    let hash = blake3::hash(&number.to_le_bytes()).to_hex();
    format!("meta-llama-SEP-Llama-3.1-8B-Instruct@0x0@0@{hash}.data")
}

fn disk_id(number: u64) -> Uuid {
    let [low, high] = [number, !number].map(|half| leading_u64(&half.to_le_bytes()));
    Uuid::from_u64_pair(low, high)
}

fn leading_u64(bytes: &[u8]) -> u64 {
    let hash = blake3::hash(bytes);
    hash.as_bytes().iter().take(8).rev().fold(0, |value, byte| value << 8 | u64::from(*byte))
}
