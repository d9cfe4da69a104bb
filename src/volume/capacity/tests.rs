//! Bounds and totals, case by case. Sizes in GiB unless a name says otherwise.

use super::*;
use proptest::prelude::*;

const GIB: u64 = 1 << 30;

/// A disk of 100 GiB on a file system of its own, half free, with the default limit and reserve.
fn reading(disk: u8) -> DiskReading {
    DiskReading {
        disk: DiskNo(disk),
        device: u64::from(disk),
        size_bytes: 100 * GIB,
        available_bytes: 50 * GIB,
        used_bytes: 50 * GIB,
        evictable_bytes: 40 * GIB,
        limit: Amount::Percent(95.0),
        reserve: Amount::Percent(2.0),
        files: 10,
        inodes: 1000,
        inodes_available: 900,
    }
}

fn blocks(gib: u64) -> u64 {
    gib * GIB / STATFS_BLOCK_BYTES
}

struct Case {
    what: &'static str,
    reading: DiskReading,
    bound_gib: u64,
    free_gib: u64,
}

#[test]
fn the_bound_of_one_disk() {
    let disk = reading(0);
    let cases = [
        Case { what: "the defaults", reading: disk, bound_gib: 95, free_gib: 45 },
        Case {
            what: "a limit in bytes",
            reading: DiskReading { limit: Amount::Bytes(60 * GIB), ..disk },
            bound_gib: 60,
            free_gib: 10,
        },
        Case {
            what: "a limit above the disk: the reserve still holds",
            reading: DiskReading { limit: Amount::Bytes(1000 * GIB), ..disk },
            bound_gib: 98,
            free_gib: 48,
        },
        Case {
            what: "a limit of 0",
            reading: DiskReading { limit: Amount::Bytes(0), ..disk },
            bound_gib: 0,
            free_gib: 0,
        },
        Case {
            what: "a reserve larger than the disk",
            reading: DiskReading { reserve: Amount::Bytes(1000 * GIB), ..disk },
            bound_gib: 0,
            free_gib: 0,
        },
        Case {
            what: "used above the bound: a limit that was lowered",
            reading: DiskReading { limit: Amount::Bytes(20 * GIB), ..disk },
            bound_gib: 20,
            free_gib: 0,
        },
        Case {
            what: "foreign files took 30 of the disk",
            reading: DiskReading { available_bytes: 20 * GIB, ..disk },
            bound_gib: 68,
            free_gib: 18,
        },
        Case {
            what: "foreign files eat into the reserve: the bound falls below what is used",
            reading: DiskReading { available_bytes: GIB, ..disk },
            bound_gib: 49,
            free_gib: 0,
        },
        Case {
            what: "a full disk with nothing of ours",
            reading: DiskReading { available_bytes: 0, used_bytes: 0, ..disk },
            bound_gib: 0,
            free_gib: 0,
        },
    ];
    for Case { what, reading, bound_gib, free_gib } in cases {
        let capacity = Capacity::of(&[reading]);
        let bound = capacity.disk(reading.disk).expect(what);
        assert_eq!(bound.bound_bytes, bound_gib * GIB, "{what}");
        assert_eq!(capacity.file_systems()[0].bound_bytes, bound.bound_bytes, "{what}");
        let totals = capacity.totals(StatfsMode::Strict);
        assert_eq!(totals.blocks, blocks(bound_gib), "{what}");
        assert_eq!(totals.blocks_free, blocks(free_gib), "{what}");
    }
}

#[test]
fn disks_on_one_file_system_share_one_bound() {
    let used = [10 * GIB, 20 * GIB, 0];
    let on_one = [0u8, 1, 2].map(|disk| DiskReading {
        device: 7,
        available_bytes: 70 * GIB,
        used_bytes: used[usize::from(disk)],
        evictable_bytes: used[usize::from(disk)],
        ..reading(disk)
    });
    let shared_bound = |readings: &[DiskReading]| {
        let capacity = Capacity::of(readings);
        assert_eq!(capacity.file_systems().len(), 1);
        assert_eq!(capacity.file_systems()[0].used_bytes, 30 * GIB);
        capacity.file_systems()[0].bound_bytes
    };
    assert_eq!(shared_bound(&on_one), 95 * GIB, "three times 95 % is 95 %");

    let limits = |limits: [Amount; 3]| {
        let mut readings = on_one;
        readings.iter_mut().zip(limits).for_each(|(reading, limit)| reading.limit = limit);
        readings
    };
    let small = Amount::Bytes(15 * GIB);
    assert_eq!(shared_bound(&limits([small; 3])), 45 * GIB, "limits in bytes add up");
    let large = Amount::Bytes(40 * GIB);
    assert_eq!(shared_bound(&limits([large; 3])), 98 * GIB, "but never past the reserve");
    let mixed = [small, Amount::Percent(50.0), Amount::Percent(40.0)];
    assert_eq!(shared_bound(&limits(mixed)), 65 * GIB, "15 and the larger of 50 and 40");

    let mut reserves = limits([large; 3]);
    reserves[1].reserve = Amount::Bytes(30 * GIB);
    assert_eq!(shared_bound(&reserves), 70 * GIB, "the largest reserve, once");

    let own: Vec<u64> = Capacity::of(&on_one).disks().iter().map(|bound| bound.bound_bytes / GIB).collect();
    assert_eq!(own, [78, 88, 68], "each: its own and what is free, without the reserve");
    let totals = Capacity::of(&on_one).totals(StatfsMode::Strict);
    assert_eq!((totals.blocks, totals.blocks_free), (blocks(95), blocks(65)));
}

#[test]
fn the_volume_counts_every_file_system_once() {
    let mut readings = [0u8, 1, 2].map(reading);
    readings[2].device = readings[0].device;
    readings[2].used_bytes = 0;
    readings[2].evictable_bytes = 0;
    let capacity = Capacity::of(&readings);
    assert_eq!(capacity.file_systems().len(), 2);
    assert_eq!(capacity.disks().len(), 3);
    let totals = capacity.totals(StatfsMode::Strict);
    assert_eq!((totals.blocks, totals.blocks_free), (blocks(190), blocks(90)));
    assert_eq!((totals.inodes, totals.inodes_free), (30 + 1800, 1800));
    assert_eq!(capacity.disk(DiskNo(3)), None);
}

#[test]
fn a_disk_over_its_bound_takes_no_free_bytes_from_the_others() {
    let over = DiskReading { limit: Amount::Bytes(20 * GIB), ..reading(0) };
    let totals = Capacity::of(&[over, reading(1)]).totals(StatfsMode::Strict);
    assert_eq!((totals.blocks, totals.blocks_free), (blocks(115), blocks(45)));
}

#[test]
fn statfs_cache_counts_what_could_be_evicted_as_free() {
    let free = |reading: DiskReading| Capacity::of(&[reading]).totals(StatfsMode::Cache).blocks_free;
    assert_eq!(free(reading(0)), blocks(85), "95 but for the 10 that are pinned");
    let over = DiskReading { limit: Amount::Bytes(20 * GIB), ..reading(0) };
    assert_eq!(free(over), blocks(10), "never more than the bound without the pinned");
    let all = DiskReading { evictable_bytes: u64::MAX, ..reading(0) };
    assert_eq!(free(all), blocks(95), "never more than the bound");

    let empty = DiskReading { device: 7, used_bytes: 0, ..all };
    let pinned = DiskReading { device: 7, evictable_bytes: 0, ..reading(1) };
    let totals = Capacity::of(&[empty, pinned]).totals(StatfsMode::Cache);
    assert_eq!(totals.blocks_free, blocks(45), "one disk's excess does not unpin its neighbour's files");
}

#[test]
fn a_file_system_without_an_inode_limit_makes_the_volume_unlimited() {
    let btrfs = DiskReading { inodes: 0, inodes_available: 0, ..reading(1) };
    let totals = Capacity::of(&[reading(0), btrfs]).totals(StatfsMode::Strict);
    assert_eq!((totals.inodes, totals.inodes_free), (0, 0));
}

#[test]
fn no_disk_is_an_empty_volume() {
    let totals = Capacity::of(&[]).totals(StatfsMode::Cache);
    assert_eq!(totals, Totals { blocks: 0, blocks_free: 0, inodes: 0, inodes_free: 0 });
}

#[test]
fn size_leaves_out_what_only_root_may_take() {
    assert_eq!(file_system_size_bytes(4096, 1000, 300, 250), 950 * 4096);
    assert_eq!(file_system_size_bytes(4096, 1000, 300, 400), 1000 * 4096, "bavail above bfree");
    assert_eq!(file_system_size_bytes(4096, 10, 300, 0), 0);
    assert_eq!(file_system_size_bytes(u64::MAX, u64::MAX, 0, 0), u64::MAX);
}

#[test]
fn eviction_starts_and_ends_where_the_design_says() {
    // (bound, percent, headroom) -> use
    assert_eq!(start_evicting_at(1000, 95.0, 0), 950);
    assert_eq!(start_evicting_at(1000, 95.0, 40), 950);
    assert_eq!(start_evicting_at(1000, 95.0, 250), 750);
    assert_eq!(start_evicting_at(100, 95.0, 500), 0);
    assert_eq!(evict_down_to(1000, 90.0, 0), 900);
    assert_eq!(evict_down_to(1000, 90.0, 60), 890);
    assert_eq!(evict_down_to(1000, 90.0, 250), 700);
    assert_eq!(evict_down_to(100, 90.0, 98), 0);
    assert_eq!(evict_down_to(u64::MAX, 90.0, u64::MAX), 0);
}

fn any_bytes() -> impl Strategy<Value = u64> {
    prop_oneof![Just(0), Just(u64::MAX), any::<u64>(), 0..1000 * GIB]
}

fn any_amount() -> impl Strategy<Value = Amount> {
    prop_oneof![
        any_bytes().prop_map(Amount::Bytes),
        (1u8..=100).prop_map(|percent| Amount::Percent(f64::from(percent)))
    ]
}

prop_compose! {
    fn any_reading()(
        device in 0u64..3, bytes in [any_bytes(), any_bytes(), any_bytes(), any_bytes()],
        limit in any_amount(), reserve in any_amount(), counts in [any_bytes(), any_bytes(), any_bytes()],
    ) -> DiskReading {
        DiskReading {
            disk: DiskNo(0),
            device,
            size_bytes: bytes[0],
            available_bytes: bytes[1],
            used_bytes: bytes[2],
            evictable_bytes: bytes[3],
            limit,
            reserve,
            files: counts[0],
            inodes: counts[1],
            inodes_available: counts[2],
        }
    }
}

proptest! {
    #[test]
    fn whatever_is_reported_the_invariants_hold(
        mut readings in prop::collection::vec(any_reading(), 0..6),
    ) {
        for (number, reading) in (0u8..).zip(&mut readings) {
            reading.disk = DiskNo(number);
        }
        let capacity = Capacity::of(&readings);
        prop_assert_eq!(capacity.disks().len(), readings.len());
        for reading in &readings {
            let bound = capacity.disk(reading.disk).unwrap();
            prop_assert!(bound.bound_bytes <= reading.limit.of_bytes(reading.size_bytes));
            let room = u128::from(reading.used_bytes) + u128::from(reading.available_bytes);
            let reserve = u128::from(reading.reserve.of_bytes(reading.size_bytes));
            prop_assert!(u128::from(bound.bound_bytes) <= room.saturating_sub(reserve));
        }
        let strict = capacity.totals(StatfsMode::Strict);
        let cache = capacity.totals(StatfsMode::Cache);
        prop_assert_eq!(strict.blocks, cache.blocks);
        prop_assert!(strict.blocks_free <= cache.blocks_free);
        prop_assert!(cache.blocks_free <= cache.blocks);
        prop_assert!(strict.inodes_free <= strict.inodes);
    }

    #[test]
    fn eviction_never_ends_above_where_it_starts(
        bound in any_bytes(), low in 0u8..=100, more in 0u8..=100, headroom in any_bytes(),
    ) {
        let high = low.saturating_add(more).min(100);
        prop_assert!(evict_down_to(bound, f64::from(low), headroom) <= start_evicting_at(bound, f64::from(high), headroom));
    }
}
