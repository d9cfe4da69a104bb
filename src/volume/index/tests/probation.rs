//! Tables of what starts on probation, what ends it, and where the next victim comes from.

use super::*;
use crate::volume::index::ghosts::{Ghosts, Origin};

const SECOND_NS: i64 = 1_000_000_000;

fn apart() -> Index {
    let mut index = two_disks();
    index.keep_scans_apart();
    index
}

fn insert(index: &mut Index, name: &str) -> Ino {
    index.insert(Ino::ROOT, name.as_bytes(), file(0, 0)).unwrap()
}

fn coldest(index: &Index) -> Ino {
    index.coldest(DiskNo(0)).next().unwrap()
}

#[test]
fn without_the_policy_nothing_is_on_probation() {
    let mut index = two_disks();
    let a = insert(&mut index, "a");
    let b = index.insert_cold(Ino::ROOT, b"b", file(0, 0)).unwrap();
    assert!(!index.is_on_probation(a) && !index.is_on_probation(b) && !index.probation_is_over(DiskNo(0)));
    index.evict(a);
    insert(&mut index, "a");
    assert_eq!(coldest(&index), b);
    index.check_invariants().unwrap();
}

#[test]
fn a_scanned_file_was_used_if_its_atime_is_later_than_its_last_write() {
    let (hour, s) = (3600 * SECOND_NS, SECOND_NS);
    let table =
        [(hour, hour, true), (hour - s, hour, true), (hour + 2 * s, hour, true), (hour + 2 * s + 1, hour, false)];
    for (atime_ns, mtime_ns, waits) in table {
        let mut index = apart();
        let new = file(0, atime_ns);
        let new = NewEntry { attr: Attr { mtime_ns, ..new.attr }, ..new };
        let ino = index.insert_cold(Ino::ROOT, b"a", new).unwrap();
        assert_eq!(index.is_on_probation(ino), waits, "{atime_ns} {mtime_ns}");
        index.check_invariants().unwrap();
    }
}

#[test]
fn victims_come_from_probation_down_to_its_share_of_files_and_bytes() {
    let mut index = apart();
    let used: Vec<Ino> = (0..8).map(|n| insert(&mut index, &format!("used{n}"))).collect();
    used.iter().for_each(|ino| index.promote(*ino));
    let new: Vec<Ino> = (0..3).map(|n| insert(&mut index, &format!("new{n}"))).collect();
    assert_eq!(coldest(&index), new[0], "3 of 11");
    index.touch(new[0], 5);
    assert_eq!(coldest(&index), new[1], "a look-up keeps it there, as the warmest");
    index.evict(new[1]);
    assert_eq!(coldest(&index), used[0], "2 of 10");
    let order: Vec<Ino> = index.coldest(DiskNo(0)).collect();
    assert_eq!(order, [&used[..], &[new[2], new[0]]].concat(), "and then the rest");
    index.set_attr(new[2], Attr { blocks_512: 16, ..Attr::default() });
    assert_eq!(coldest(&index), new[2], "2 of 10 files, 3 of 11 of the bytes");
    index.promote(new[2]);
    assert_eq!(coldest(&index), used[0]);
    index.set_disk(new[0], DiskNo(1));
    assert!(index.is_on_probation(new[0]) && index.probation_is_over(DiskNo(1)));
    index.check_invariants().unwrap();
}

#[test]
fn a_name_that_was_used_or_evicted_hands_that_on() {
    let mut index = apart();
    let hot = insert(&mut index, "hot");
    index.promote(hot);
    let tmp = insert(&mut index, "hot.tmp");
    index.rename(tmp, Ino::ROOT, b"hot").unwrap();
    assert!(!index.is_on_probation(tmp), "it replaced a used one");
    let once = insert(&mut index, "once");
    let tmp = insert(&mut index, "once.tmp");
    index.rename(tmp, Ino::ROOT, b"once").unwrap();
    assert!(index.is_on_probation(tmp) && index.get(once).is_none());
    index.evict(tmp);
    let tmp = insert(&mut index, "once.tmp");
    assert!(index.is_on_probation(tmp), "the temp name was not evicted");
    index.rename(tmp, Ino::ROOT, b"once").unwrap();
    assert!(!index.is_on_probation(tmp), "its ghost was there");
    index.unlink(tmp);
    let once = insert(&mut index, "once");
    assert!(index.is_on_probation(once), "and is gone; an unlink by a client leaves none");
    index.check_invariants().unwrap();
}

#[test]
fn the_share_grows_with_late_reuse_and_shrinks_with_that_of_the_used() {
    let mut index = apart();
    let over = |index: &mut Index, waiting: u32| {
        let mut fresh = Vec::new();
        for n in 0..10 {
            let ino = insert(index, &format!("fill{n}"));
            if n >= waiting {
                index.promote(ino);
            }
            fresh.push(ino);
        }
        let over = index.probation_is_over(DiskNo(0));
        fresh.into_iter().for_each(|ino| index.unlink(ino));
        over
    };
    assert!(over(&mut index, 3) && !over(&mut index, 2));
    let again = |index: &mut Index, used: bool| {
        let ino = insert(index, "x");
        if used {
            index.promote(ino)
        } else {
            assert!(index.is_on_probation(ino))
        }
        index.evict(ino);
        let ino = insert(index, "x");
        assert!(!index.is_on_probation(ino));
        index.unlink(ino);
    };
    again(&mut index, false);
    assert!(over(&mut index, 7) && !over(&mut index, 6), "the most, after the only file's ghost");
    again(&mut index, true);
    assert!(over(&mut index, 3) && !over(&mut index, 2));
}

#[test]
fn ghosts_are_as_many_as_files_and_the_oldest_go_first() {
    let hash = |n: u64| n.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let mut ghosts = Ghosts::default();
    assert_eq!((ghosts.take(hash(1)), ghosts.heap_bytes()), (None, 0));
    let files = 10_000_usize;
    for n in 0..3 * files as u64 {
        ghosts.add(hash(n), if n % 2 == 0 { Origin::Main } else { Origin::Probation }, files);
    }
    assert_eq!(ghosts.heap_bytes(), files.next_power_of_two() * 4);
    ghosts.add(hash(29_999), Origin::Main, files);
    assert_eq!(ghosts.take(hash(29_999)), Some(Origin::Main), "the latest origin counts");
    assert_eq!(ghosts.take(hash(29_999)), None, "once");
    let young = (25_000..29_998).filter(|n| ghosts.take(hash(*n)).is_some()).count();
    let old = (0..5_000).filter(|n| ghosts.take(hash(*n)).is_some()).count();
    assert!(young > 4_900 && old < 500, "{young} of the youngest, {old} of the oldest");
    ghosts.add(hash(1), Origin::Main, 10 * files);
    assert_eq!(ghosts.heap_bytes(), (10 * files).next_power_of_two() * 4, "more files, more ghosts");
}
