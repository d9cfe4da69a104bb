//! The model test: a whole volume over disks that fail, against a small reference. The reference may forget, never lie.
//!
//! A failing case is printed as a list of operations that can be pasted into a `regression_*` test of
//! `model/regressions.rs`. KVSPAN_FULL=1 runs 25 times as many cases.

#[path = "model/apply.rs"]
mod apply;
#[path = "model/client.rs"]
mod client;
mod common;
#[path = "model/moves.rs"]
mod moves;
#[path = "model/op.rs"]
mod op;
#[path = "model/reference.rs"]
mod reference;
#[path = "model/regressions.rs"]
mod regressions;
#[path = "model/stress.rs"]
mod stress;
#[path = "model/world.rs"]
mod world;

use op::{Mix, Op};
use proptest::test_runner::{Config, RngSeed, TestCaseError, TestError, TestRunner};

/// Cases of all mixes together.
const CASES: u32 = 2_000;
const FULL_CASES: u32 = 50_000;
/// Mixes, each a test of its own, so that they run side by side.
const MIXES: u32 = 5;

fn cases() -> u32 {
    let full = std::env::var_os("KVSPAN_FULL").is_some_and(|full| full == "1");
    let asked = std::env::var("KVSPAN_CASES").ok().and_then(|cases| cases.parse().ok());
    asked.unwrap_or(if full { FULL_CASES } else { CASES } / MIXES)
}

fn check(mix: Mix) {
    // The same cases in every run, so that a red run means a change; a full run looks for new ones.
    let seed = if std::env::var_os("KVSPAN_FULL").is_some() { RngSeed::Random } else { RngSeed::Fixed(1) };
    let config = Config {
        cases: cases(),
        failure_persistence: None,
        max_shrink_iters: 20_000,
        rng_seed: seed,
        ..Config::default()
    };
    let mut runner = TestRunner::new(config);
    let result = runner.run(&op::case(mix), |(disks, ops)| apply::run(disks, &ops).map_err(TestCaseError::fail));
    match result {
        Ok(()) => {}
        Err(TestError::Fail(reason, (disks, ops))) => {
            let ops = format!("{ops:?}").replace("call: ", "call: Call::");
            panic!("{}\nrun({disks}, &{ops});", reason.message());
        }
        Err(error) => panic!("{error}"),
    }
}

#[test]
fn without_faults_every_answer_is_exact() {
    check(Mix { power: 0, faults: 0, disks: 0, restarts: 8 });
}

#[test]
fn restarts_and_scans_half_way_change_no_answer() {
    check(Mix { power: 0, faults: 0, disks: 0, restarts: 60 });
}

#[test]
fn a_disk_that_is_away_takes_its_names_with_it_and_brings_them_back() {
    check(Mix { power: 0, faults: 0, disks: 15, restarts: 15 });
}

#[test]
fn faults_and_crashes_lose_what_they_may_and_never_make_it_wrong() {
    check(Mix { power: 0, faults: 30, disks: 3, restarts: 15 });
}

#[test]
fn a_power_cut_may_cost_files_and_never_leaves_a_torn_one() {
    check(Mix { power: 15, faults: 4, disks: 4, restarts: 20 });
}

/// For pasted cases.
pub fn run(disks: usize, ops: &[Op]) {
    apply::run(disks, ops).expect("a case that has failed once");
}
