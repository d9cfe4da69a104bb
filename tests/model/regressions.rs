//! Cases that have failed once, as the model test printed them.

use kvspan::volume::files::RenameMode::*;

use super::op::Op::*;
use super::op::Trouble::*;
use super::run;
use crate::common::faulty::Call;

#[test]
fn regression_a_size_is_live_between_publish_and_release() {
    run(1, &[StoreUnreleased { key: "k1", len: 1 }, Exists { path: "k1.data" }, Load { path: "k1.data" }]);
}

#[test]
fn regression_a_size_that_close_could_not_read_is_asked_for_again() {
    let fault = FailNext { disk: 0, call: Call::StatFd, error: Io, skip: 0, count: 9 };
    run(1, &[fault, Store { key: "k1", len: 1 }, Heal, Load { path: "k1.data" }]);
}

#[test]
fn regression_a_file_that_is_not_unlinked_keeps_its_writer() {
    let fault = FailNext { disk: 0, call: Call::Unlink, error: Io, skip: 0, count: 1 };
    let (write, close) = (WritePart { slot: 0, len: 10 }, Close { slot: 0 });
    let file = "k0.data";
    run(
        1,
        &[
            Create { path: file, exclusive: false },
            fault,
            Unlink { path: file },
            write,
            close,
            Load { path: file },
            Unlink { path: file },
        ],
    );
}

#[test]
fn regression_a_directory_that_a_scan_could_not_read_is_not_taken_for_empty() {
    let fault = FailNext { disk: 0, call: Call::List, error: Io, skip: 1, count: 1 };
    let store = Store { key: "a/k0", len: 10 };
    let looks = [Load { path: "a/k0.data" }, List { dir: "a", batch: 3 }];
    let mut ops = vec![Mkdir { path: "a" }, store, fault, Remount { scan: true }, Heal];
    ops.extend(looks);
    run(1, &ops);
}

#[test]
fn regression_a_directory_renamed_during_the_scan_takes_all_its_copies_along() {
    let create = Create { path: "a/k1.data", exclusive: false };
    let rename = Rename { from: "a", to: "b", mode: Replace };
    let scan = Scan { disk: 0, batches: 1 };
    run(1, &[Mkdir { path: "a" }, AddDisk { disk: 1 }, create, Kill { scan: false }, scan, rename]);
}

#[test]
fn regression_a_copy_of_a_directory_that_was_made_for_nothing_is_renamed_too() {
    let create = Create { path: "a/k1.data", exclusive: false };
    for calls in 0..4 {
        for count in 1..4 {
            let fault = FailIn { calls, count, error: Io, op: Box::new(create.clone()) };
            let rename = Rename { from: "a", to: "b", mode: Replace };
            run(2, &[Mkdir { path: "a" }, fault, Mkdir { path: "b" }, rename, Kill { scan: true }]);
        }
    }
}

#[test]
fn regression_a_replaced_copy_that_is_younger_never_comes_back() {
    // The owners of the two names are two disks; a disk refuses once, at every point of the rename.
    let make = |path| [Create { path, exclusive: false }, Close { slot: 0 }];
    for (from, to) in [("k1.data", "b"), ("a", "b"), ("k0.data", "a"), ("k1.data", "k2.data")] {
        for calls in 0..6 {
            let rename = Rename { from, to, mode: Replace };
            let fault = FailIn { calls, count: 1, error: Io, op: Box::new(rename) };
            let mut ops = make(from).to_vec();
            ops.extend(make(to));
            ops.extend([fault, Kill { scan: true }, Load { path: to }]);
            run(2, &ops);
        }
    }
}

#[test]
fn regression_a_directory_that_is_not_replaced_after_all_keeps_its_copies() {
    let ops = [
        Mkdir { path: "b" },
        Mkdir { path: "b/s" },
        Store { key: "b/s/k1", len: 1 },
        Mkdir { path: "a" },
        Remount { scan: false },
        Rename { from: "a", to: "b/s", mode: Replace },
        Create { path: "b/s/k0.data", exclusive: true },
    ];
    (1..=4).for_each(|disks| run(disks, &ops));
}

#[test]
fn regression_a_file_that_is_being_written_on_a_disk_that_cannot_say_its_size_is_a_miss() {
    for calls in 0..3 {
        let load = Box::new(Load { path: "k0.data" });
        let fault = FailIn { calls, count: 1, error: Io, op: load };
        let (store, more) = (StoreUnreleased { key: "k0", len: 9 }, WritePart { slot: 0, len: 9 });
        run(1, &[store, more, fault, Close { slot: 0 }, Load { path: "k0.data" }]);
    }
}

#[test]
fn regression_a_store_over_a_name_on_a_dead_disk_succeeds() {
    let store = Store { key: "k1", len: 1 };
    for disk in 0..2 {
        run(2, &[store.clone(), FailAll { disk, error: Io }, store.clone(), Load { path: "k1.data" }]);
    }
}

#[test]
fn regression_a_directory_that_lost_a_copy_takes_new_files() {
    for calls in 0..16 {
        let rename = Box::new(Rename { from: "a", to: "b/s", mode: Replace });
        let fault = FailIn { calls, count: 2, error: Io, op: rename };
        let stores = [StoreUnreleased { key: "a/k0", len: 1 }, Store { key: "a/k1", len: 1 }];
        let mut ops = vec![Mkdir { path: "a" }, Mkdir { path: "b" }];
        ops.extend(stores.clone());
        ops.push(fault);
        ops.extend(stores);
        run(3, &ops);
    }
}

#[test]
fn regression_a_crash_in_a_rename_over_another_name_costs_at_most_what_it_replaced() {
    run(
        2,
        &[
            Store { key: "k0", len: 1 },
            Store { key: "k0", len: 1 },
            Store { key: "k1", len: 1 },
            CrashIn { calls: 3, op: Box::new(Rename { from: "k1.data", to: "k0.data", mode: Replace }) },
            Rename { from: "k0.data", to: "k0.tmp", mode: Replace },
        ],
    );
}

#[test]
fn regression_a_name_that_the_first_walk_of_a_disk_could_not_read_is_asked_for() {
    let fault = FailNext { disk: 0, call: Call::Stat, error: Io, skip: 0, count: 1 };
    let create = Create { path: "k0.data", exclusive: false };
    run(1, &[create, Remount { scan: false }, fault, Rescan { disk: 0 }, Load { path: "k0.data" }]);
}

#[test]
fn regression_a_rescan_that_fails_half_way_after_a_power_cut_may_take_files_too() {
    let fault = FailIn { calls: 5, count: 1, error: Io, op: Box::new(Rescan { disk: 0 }) };
    run(1, &[Store { key: "k0", len: 1 }, PowerCut { scan: false, zeroes: false }, fault]);
}
