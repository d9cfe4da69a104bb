//! Prints the hit rates that the eviction policies reach under workloads with and without a flood of objects that
//! nobody reads: `cargo run --release --example scan_resistance`.
//!
//! A whole volume of two directories in process, with objects of 16 KiB; every run prints the same.

#[path = "../tests/common/mod.rs"]
mod common;
#[path = "../tests/common/workload.rs"]
mod workload;

use kvspan::config::EvictionPolicy;
use workload::Cache;

const OBJECTS: usize = 2000;

type Workload = fn(&mut Cache) -> f64;

const STEADY: [(&str, Workload); 8] = [
    ("objects wanted once", workload::without_reuse),
    ("popularity 1/n over 4x the cache", workload::by_popularity),
    ("shifting hot set, random order", |c| workload::shifting(c, 6, 20, false)),
    ("shifting hot set, same order", |c| workload::shifting(c, 6, 20, true)),
    ("sliding hot set", |c| workload::sliding(c, 10)),
    ("wanted twice, 10 % of the cache between", |c| workload::twice(c, 10)),
    ("wanted twice, 30 % between", |c| workload::twice(c, 30)),
    ("wanted twice, 60 % between", |c| workload::twice(c, 60)),
];

fn main() {
    println!("hit rates in percent, {OBJECTS} objects of {} KiB fit\n", workload::OBJECT_BYTES >> 10);
    println!("{:<44}{:>8}{:>16}", "", "lru", "scan-resistant");
    for (stores_a_load, what) in [(0, "hot set not read during a flood of 10x"), (10, "hot set read once in 10 stores")]
    {
        let rates = policies(|cache| workload::flooded(cache, stores_a_load));
        for (at, when) in ["before", "during", "after"].into_iter().enumerate() {
            if at != 1 || stores_a_load > 0 {
                print_row(&format!("{what}: {when}"), rates.map(|rates| rates[at]));
            }
        }
    }
    let rates = policies(|cache| {
        workload::twice(cache, 60);
        workload::flooded(cache, 0)
    });
    print_row("hot set after a flood, and chats before that", rates.map(|rates| rates[2]));
    for (what, run) in STEADY {
        print_row(what, policies(run));
    }
}

fn policies<T>(run: impl Fn(&mut Cache) -> T) -> [T; 2] {
    [EvictionPolicy::Lru, EvictionPolicy::ScanResistant].map(|eviction| run(&mut Cache::new(OBJECTS, eviction)))
}

fn print_row(what: &str, [lru, resistant]: [f64; 2]) {
    println!("{what:<50}{lru:>6.1}{resistant:>16.1}");
}
