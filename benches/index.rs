//! What placement and the index cost a request: `cargo bench`. Prints nanoseconds for each operation, median of five rounds.

use std::hint::black_box;
use std::time::Instant;

use kvspan::volume::attr::{Attr, DiskNo, Ino, Kind};
use kvspan::volume::index::{Index, NewEntry};
use kvspan::volume::name::PlacementKey;
use kvspan::volume::placement::Placement;
use uuid::Uuid;

const NAMES: usize = 200_000;

fn name(n: usize) -> String {
    let hash = (n as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    format!("meta-llama-SEP-Llama-3.1-70B-Instruct@0x{:08x}@0@{hash:064x}.data", n % 4)
}

fn measure(what: &str, count: usize, mut round: impl FnMut()) {
    let mut nanoseconds: Vec<u128> = (0..5)
        .map(|_| {
            let began = Instant::now();
            round();
            began.elapsed().as_nanos() / count as u128
        })
        .collect();
    nanoseconds.sort_unstable();
    println!("{what:24} {:>6} ns", nanoseconds[2]);
}

fn filled(names: &[String]) -> (Index, Vec<Ino>) {
    let mut index = Index::new(8, Attr::default());
    let insert = |(n, name): (usize, &String)| {
        let disk = DiskNo((n % 8) as u8);
        let new = NewEntry { kind: Kind::File, disk, attr: Attr::default(), writing: false, away: false };
        index.insert(Ino::ROOT, name.as_bytes(), new).expect("a new name")
    };
    let inodes = names.iter().enumerate().map(insert).collect();
    (index, inodes)
}

fn main() {
    let names: Vec<String> = (0..NAMES).map(name).collect();
    for disks in [1u128, 8] {
        let ids: Vec<(Uuid, f64)> = (0..disks).map(|n| (Uuid::from_u128(n + 1), 1.0)).collect();
        let placement = Placement::new(&ids).expect("a placement");
        measure(&format!("owner of {disks} disks"), NAMES, || {
            for name in &names {
                black_box(placement.owner(&PlacementKey::of(name.as_bytes())));
            }
        });
    }
    measure("insert", NAMES, || drop(black_box(filled(&names))));
    let (mut index, inodes) = filled(&names);
    measure("find", NAMES, || {
        for name in &names {
            black_box(index.find(Ino::ROOT, name.as_bytes()));
        }
    });
    measure("touch", NAMES, || {
        for (n, ino) in inodes.iter().enumerate() {
            index.touch(*ino, n as i64);
        }
    });
    measure("coldest", NAMES, || {
        for n in 0..NAMES {
            black_box(index.coldest(DiskNo((n % 8) as u8)).next());
        }
    });
}
