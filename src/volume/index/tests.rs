//! Tests of the index: tables, and a random walk beside a plain reference model.

mod model;
mod probation;

use super::affixes::Affixes;
use super::arena::Arena;
use super::names::Names;
use super::order::Order;
use super::owners::Owners;
use super::*;
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};

fn file(disk: u8, atime_ns: i64) -> NewEntry {
    let attr = Attr { size_bytes: 10, blocks_512: 8, atime_ns, ..Attr::default() };
    NewEntry { kind: Kind::File, disk: DiskNo(disk), attr, writing: false, away: false }
}

fn dir() -> NewEntry {
    NewEntry { kind: Kind::Dir, ..file(0, 0) }
}

fn two_disks() -> Index {
    Index::new(2, Attr { mode: 0o755, ..Attr::default() })
}

fn name_of(index: &Index, ino: Ino) -> Vec<u8> {
    let mut out = Vec::new();
    assert!(index.name(ino, &mut out));
    out
}

fn path_of(index: &Index, ino: Ino) -> Option<String> {
    let mut out = Vec::new();
    index.path(ino, &mut out).then(|| String::from_utf8(out).unwrap())
}

fn names_from(index: &Index, dir: Ino, after: u64, count: usize) -> Vec<(u64, Vec<u8>)> {
    let mut out = Vec::new();
    index.list(dir, after, &mut |listed| {
        out.push((listed.cookie, listed.name.to_vec()));
        out.len() < count
    });
    out
}

#[test]
fn the_root_is_there_from_the_start() {
    let index = two_disks();
    let root = index.get(Ino::ROOT).unwrap();
    assert_eq!((root.ino, root.parent, root.kind, root.cookie), (Ino(1), Ino(1), Kind::Dir, 0));
    assert_eq!(root.attr.mode, 0o755);
    assert_eq!(path_of(&index, Ino::ROOT).unwrap(), "");
    assert!(index.is_empty());
    index.check_invariants().unwrap();
}

#[test]
fn insert_finds_and_refuses() {
    let mut index = two_disks();
    let sub = index.insert(Ino::ROOT, b"sub", dir()).unwrap();
    let a = index.insert(sub, b"a", file(1, 5)).unwrap();
    assert_eq!(index.find(sub, b"a"), Some(a));
    assert_eq!(index.find(Ino::ROOT, b"a"), None);
    assert_eq!(path_of(&index, a).unwrap(), "sub/a");
    assert_eq!((index.child_count(Ino::ROOT), index.subdir_count(Ino::ROOT)), (1, 1));
    assert_eq!((index.dir_disks(sub), index.files(DiskNo(1)), index.len()), (1, 1, 2));
    assert_eq!(index.used_bytes(DiskNo(1)), 4096);
    assert_eq!(index.insert(sub, b"a", dir()), Err(InsertError::Exists(a)));
    assert_eq!(index.insert(a, b"b", dir()), Err(InsertError::NotADirectory));
    assert_eq!(index.insert(Ino(99), b"b", dir()), Err(InsertError::NoParent));
    assert_eq!(index.insert(sub, b"b", file(2, 0)), Err(InsertError::NoDisk));
    for bad in [&b""[..], b"x/y", b"x\0", &[b'x'; 256]] {
        assert_eq!(index.insert(sub, bad, dir()), Err(InsertError::BadName));
        assert_eq!(index.rename(a, sub, bad), Err(RenameError::BadName));
    }
    index.check_invariants().unwrap();
}

#[test]
fn an_unlinked_directory_takes_no_entries() {
    let mut index = two_disks();
    let sub = index.insert(Ino::ROOT, b"sub", dir()).unwrap();
    index.set_pinned(sub, true);
    index.unlink(sub);
    assert_eq!(index.insert(sub, b"a", dir()), Err(InsertError::NoParent));
    assert_eq!(index.get(sub).unwrap().parent, sub);
    assert_eq!(path_of(&index, sub), None);
    assert_eq!(name_of(&index, sub), b"sub");
    index.set_pinned(sub, false);
    assert!(index.get(sub).is_none());
    index.check_invariants().unwrap();
}

#[test]
fn a_full_index_says_so_and_changes_nothing() {
    let mut index = two_disks();
    index.slots.max_slots = 2;
    let a = index.insert(Ino::ROOT, b"a", file(0, 0)).unwrap();
    assert_eq!(index.insert(Ino::ROOT, b"b", dir()), Err(InsertError::Full));
    index.check_invariants().unwrap();
    index.unlink(a);
    index.insert(Ino::ROOT, b"b", dir()).unwrap();
    index.check_invariants().unwrap();
}

#[test]
fn a_stale_number_resolves_to_nothing() {
    let mut index = two_disks();
    let a = index.insert(Ino::ROOT, b"a", file(0, 0)).unwrap();
    index.unlink(a);
    let b = index.insert(Ino::ROOT, b"b", file(0, 0)).unwrap();
    assert_eq!(a.0 as u32, b.0 as u32, "the slot is used again");
    assert_ne!(a, b);
    assert!(index.get(a).is_none());
    assert!(!index.name(a, &mut Vec::new()) && !index.path(a, &mut Vec::new()));
    index.touch(a, 1);
    index.set_pinned(a, true);
    index.add_lookups(a, 1);
    index.set_attr(a, Attr::default());
    index.unlink(a);
    assert_eq!(index.rename(a, Ino::ROOT, b"c"), Err(RenameError::NoEntry));
    for ino in [Ino(0), Ino(2 << 32), Ino(u64::MAX), Ino(b.0 ^ 1 << 40)] {
        assert!(index.get(ino).is_none(), "{ino:?}");
    }
    assert_eq!(index.get(b).unwrap().lookups, 0);
    index.check_invariants().unwrap();
}

#[test]
fn an_unlinked_file_lives_while_looked_up_or_pinned() {
    let mut index = two_disks();
    let a = index.insert(Ino::ROOT, b"a", file(0, 0)).unwrap();
    index.add_lookups(a, u32::MAX);
    index.add_lookups(a, 5);
    index.set_pinned(a, true);
    index.unlink(a);
    assert_eq!((index.files(DiskNo(0)), index.used_bytes(DiskNo(0))), (0, 4096));
    index.set_attr(a, Attr { blocks_512: 16, ..Attr::default() });
    assert_eq!(index.used_bytes(DiskNo(0)), 8192);
    index.set_pinned(a, false);
    assert_eq!(index.used_bytes(DiskNo(0)), 0);
    assert_eq!(index.get(a).unwrap().lookups, u32::MAX);
    index.forget(a, u64::MAX);
    assert!(index.get(a).is_none());
    index.check_invariants().unwrap();
}

#[test]
fn rename_replaces_and_keeps_number_and_cookie() {
    let mut index = two_disks();
    let tmp = index.insert(Ino::ROOT, b"k.tmp", file(0, 0)).unwrap();
    let old = index.insert(Ino::ROOT, b"k.data", file(1, 0)).unwrap();
    let cookie = index.get(tmp).unwrap().cookie;
    assert_eq!(index.rename(tmp, Ino::ROOT, b"k.data"), Ok(Some(old)));
    assert!(index.get(old).is_none());
    assert_eq!(index.find(Ino::ROOT, b"k.data"), Some(tmp));
    assert_eq!(index.find(Ino::ROOT, b"k.tmp"), None);
    assert_eq!(index.get(tmp).unwrap().cookie, cookie);
    assert_eq!(index.rename(tmp, Ino::ROOT, b"k.data"), Ok(None));
    assert_eq!(index.files(DiskNo(1)), 0);
    index.check_invariants().unwrap();
}

#[test]
fn rename_and_exchange_refuse_what_posix_refuses() {
    let mut index = two_disks();
    let d = index.insert(Ino::ROOT, b"d", dir()).unwrap();
    let e = index.insert(d, b"e", dir()).unwrap();
    let f = index.insert(Ino::ROOT, b"f", file(0, 0)).unwrap();
    let g = index.insert(Ino::ROOT, b"g", dir()).unwrap();
    assert_eq!(index.rename(d, e, b"x"), Err(RenameError::IntoItself));
    assert_eq!(index.rename(d, d, b"x"), Err(RenameError::IntoItself));
    assert_eq!(index.rename(f, Ino::ROOT, b"d"), Err(RenameError::IsADirectory));
    assert_eq!(index.rename(d, Ino::ROOT, b"f"), Err(RenameError::NotADirectory));
    assert_eq!(index.rename(d, f, b"x"), Err(RenameError::NotADirectory));
    assert_eq!(index.rename(g, Ino::ROOT, b"d"), Err(RenameError::NotEmpty));
    assert_eq!(index.rename(e, Ino::ROOT, b"d"), Err(RenameError::NotEmpty));
    assert_eq!(index.rename(Ino::ROOT, d, b"x"), Err(RenameError::IsRoot));
    assert_eq!(index.rename(f, Ino(77), b"x"), Err(RenameError::NoParent));
    assert_eq!(index.exchange(d, e), Err(RenameError::IntoItself));
    assert_eq!(index.exchange(d, Ino::ROOT), Err(RenameError::IsRoot));
    assert_eq!(index.exchange(e, f), Ok(()));
    assert_eq!(path_of(&index, f).unwrap(), "d/e");
    assert_eq!(path_of(&index, e).unwrap(), "f");
    assert_eq!((index.subdir_count(d), index.subdir_count(Ino::ROOT)), (0, 3));
    assert_eq!(index.rename(g, Ino::ROOT, b"f"), Ok(Some(e)));
    index.check_invariants().unwrap();
}

#[test]
fn used_bytes_follow_the_disk_and_saturate_a_file() {
    let mut index = two_disks();
    let a = index.insert(Ino::ROOT, b"a", file(0, 0)).unwrap();
    index.set_away(a, true);
    index.set_disk(a, DiskNo(1));
    index.set_disk(a, DiskNo(9));
    assert_eq!((index.used_bytes(DiskNo(0)), index.used_bytes(DiskNo(1))), (0, 4096));
    assert_eq!((index.away_files(DiskNo(0)), index.away_files(DiskNo(1))), (0, 1));
    index.set_attr(a, Attr { blocks_512: u64::MAX, ..Attr::default() });
    assert_eq!(index.used_bytes(DiskNo(1)), u64::from(u32::MAX) * 512);
    index.check_invariants().unwrap();
    index.unlink(a);
    assert_eq!(index.used_bytes(DiskNo(1)), 0);
    index.check_invariants().unwrap();
}

#[test]
fn use_orders_the_lru() {
    let mut index = two_disks();
    let [a, b, c] = [b"a", b"b", b"c"].map(|n| index.insert(Ino::ROOT, n, file(0, 10)).unwrap());
    let order = |index: &Index| index.coldest(DiskNo(0)).collect::<Vec<_>>();
    assert_eq!(order(&index), [a, b, c]);
    index.touch(a, 20);
    assert_eq!(order(&index), [b, c, a]);
    index.set_last_use(c, 30);
    assert_eq!(order(&index), [b, a, c]);
    index.set_last_use(a, 5);
    assert_eq!(order(&index), [a, b, c]);
    index.set_last_use(a, 25);
    assert_eq!(order(&index), [b, a, c], "between: behind the head");
    assert_eq!(index.get(a).unwrap().attr.atime_ns, 25);
    index.set_disk(b, DiskNo(1));
    assert_eq!(order(&index), [a, c]);
    index.touch(Ino::ROOT, 7);
    assert_eq!(index.get(Ino::ROOT).unwrap().attr.atime_ns, 7);
    index.check_invariants().unwrap();
}

/// Sorts as recovery does, in batches of `batch`, with `between` called between them.
fn sort_scanned(index: &mut Index, batch: u32, mut between: impl FnMut(&mut Index)) {
    let (mut found, mut from) = (Vec::new(), Some(0));
    while let Some(at) = from {
        from = index.scanned(DiskNo(0), at, batch, &mut found);
        between(index);
    }
    found.sort_unstable();
    for some in found.chunks(batch as usize) {
        for (_, ino) in some {
            index.settle(*ino);
        }
        index.check_invariants().unwrap();
        between(index);
    }
}

#[test]
fn scanned_files_are_sorted_in_steps_while_others_are_used() {
    let mut index = two_disks();
    let mut inos = Vec::new();
    for n in 0..200_u32 {
        let atime = i64::from(n * 7919 % 200);
        let name = format!("f{n}");
        inos.push(index.insert_cold(Ino::ROOT, name.as_bytes(), file(0, atime)).unwrap());
    }
    let (mut step, mut touched, mut gone) = (0, Vec::new(), BTreeSet::new());
    sort_scanned(&mut index, 16, |index| {
        step += 1;
        let (use_it, unlink_it) = (inos[step * 5], inos[step * 5 + 1]);
        index.touch(use_it, 1000 + step as i64);
        touched.push(use_it);
        index.unlink(unlink_it);
        gone.insert(unlink_it);
        let coldest = index.coldest(DiskNo(0)).next().unwrap();
        assert!(!touched.contains(&coldest), "what was used is newer than all that was scanned");
    });
    let order: Vec<_> = index.coldest(DiskNo(0)).collect();
    assert_eq!(order.len(), 200 - gone.len());
    let times: Vec<_> = order.iter().map(|i| index.get(*i).unwrap().attr.atime_ns).collect();
    assert!(times.is_sorted(), "{times:?}");
    assert_eq!(order[order.len() - touched.len()..], touched);

    // A second scan, of a disk that came back, is sorted in among the first.
    for n in 0..50_i64 {
        index.insert_cold(Ino::ROOT, format!("g{n}").as_bytes(), file(0, 199 - n * 4)).unwrap();
    }
    sort_scanned(&mut index, 16, |_| {});
    let times: Vec<_> = index.coldest(DiskNo(0)).map(|i| index.get(i).unwrap().attr.atime_ns).collect();
    assert!(times.is_sorted(), "{times:?}");
}

#[test]
fn a_listing_meets_each_survivor_once() {
    let mut index = two_disks();
    let sub = index.insert(Ino::ROOT, b"sub", dir()).unwrap();
    let other = index.insert(Ino::ROOT, b"other", dir()).unwrap();
    let early = index.insert(other, b"early", file(0, 0)).unwrap();
    let mut inos = Vec::new();
    for n in 0..3000 {
        inos.push(index.insert(sub, format!("f{n}").as_bytes(), file(0, 0)).unwrap());
    }
    let late = index.insert(other, b"late", file(0, 0)).unwrap();
    let (mut seen, mut after, mut step) = (BTreeMap::<Vec<u8>, u32>::new(), 0, 0);
    loop {
        let some = names_from(&index, sub, after, 37);
        let Some((cookie, _)) = some.last() else { break };
        after = *cookie;
        for (cookie, name) in &some {
            *seen.entry(format!("{cookie}").into_bytes()).or_default() += 1;
            assert!(index.find(sub, name).is_some());
        }
        // The entry of the cookie goes, one ahead goes, one behind and one ahead are renamed.
        let last = index.find(sub, &some.last().unwrap().1).unwrap();
        index.unlink(last);
        if step < 60 {
            index.unlink(inos[2999 - step]);
            index.rename(inos[2900 - step], sub, format!("ahead{step}").as_bytes()).unwrap();
            let _ = index.rename(inos[step], sub, format!("behind{step}").as_bytes());
        }
        if step == 10 {
            index.rename(early, sub, b"early").unwrap();
            index.rename(late, sub, b"late").unwrap();
        }
        step += 1;
        index.check_invariants().unwrap();
    }
    assert!(seen.values().all(|n| *n == 1));
    index.list(sub, 0, &mut |listed| {
        let met = seen.contains_key(format!("{}", listed.cookie).as_bytes());
        assert_eq!(met, listed.ino != early, "{:?}", String::from_utf8_lossy(listed.name));
        true
    });
    let first = names_from(&index, sub, 0, 1);
    assert_eq!(first[0].1, b"early", "moved in, it has the place of its own insertion");
}

#[test]
fn the_order_stays_in_bounds_whatever_is_removed() {
    let mut order = Order::new();
    let seq = |slot: u32| u64::from(slot);
    for slot in 1..=20_000 {
        order.insert(seq(slot), slot, seq);
    }
    assert_eq!(order.chunks(), 79);
    for slot in (1..=20_000).filter(|s| s % 10 != 0) {
        assert!(order.remove(seq(slot), slot, seq));
    }
    assert!(order.chunks() <= 40, "{} chunks for 2,000", order.chunks());
    for slot in (1..=20_000).filter(|s| s % 10 != 0).rev() {
        order.insert(seq(slot), slot, seq);
    }
    assert!(order.largest_chunk() <= 256);
    assert!(order.after(0, seq).eq(1..=20_000));
    assert!(order.after(7_777, seq).eq(7_778..=20_000));
    for slot in 1..=20_000 {
        assert!(order.remove(seq(slot), slot, seq));
    }
    assert_eq!((order.chunks(), order.after(0, seq).count()), (1, 0));
}

#[test]
fn owners_stay_exact_for_any_number_of_pairs() {
    let mut owners = Owners::default();
    let numbers: Vec<_> = (0..70_000).map(|n| owners.set(n, None, (n, n + 1))).collect();
    for (n, number) in (0..).zip(&numbers) {
        assert_eq!(owners.get(n, *number), (n, n + 1));
    }
    let number = owners.set(69_999, Some(numbers[69_999]), (5, 6));
    assert_eq!(owners.get(69_999, number), (5, 6));
    assert_eq!(owners.apart(), 70_000 - 65_535 - 1);
    owners.clear(69_998, numbers[69_998]);
    assert_eq!(owners.apart(), 70_000 - 65_535 - 2);
}

#[test]
fn affixes_are_taken_in_when_seen_twice_and_dropped_with_the_last_user() {
    let mut affixes = Affixes::new();
    assert_eq!(affixes.intern(b"abc"), None, "too short to pay");
    assert_eq!(affixes.intern(b"abc"), None);
    assert_eq!(affixes.intern(b"model@"), None);
    let number = affixes.intern(b"model@").unwrap();
    assert_eq!(affixes.intern(b"model@"), Some(number));
    affixes.release(number);
    assert_eq!(affixes.get(number), Some(&b"model@"[..]));
    affixes.release(number);
    assert_eq!(affixes.get(number), None);
    assert_eq!(affixes.len(), 0);
}

#[test]
fn hostile_affixes_are_bounded_and_names_stay_exact() {
    let mut names = Names::new();
    let name = |n: u32| format!("prefix-{n}-zz0123456789abcdefzz-{n}.tail").into_bytes();
    let mut stored = Vec::new();
    for n in 0..80_000 {
        for _ in 0..2 {
            stored.push((n, names.store(&name(n)).unwrap()));
        }
    }
    assert_eq!(names.affixes().len(), 1 << 16);
    assert!(names.affixes().heap_bytes() < 16 << 20);
    assert!(stored.iter().all(|(n, at)| names.is(*at, &name(*n))));
    stored.iter().for_each(|(_, at)| names.free(*at));
    assert_eq!((names.live(), names.affixes().users()), (0, 0));
    assert!(names.heap_bytes() < 12 << 20, "{}", names.heap_bytes());
}

#[test]
fn the_arena_gives_empty_chunks_back() {
    let mut arena = Arena::new();
    for len in [5_usize, 40, 100, 258] {
        let cells: Vec<_> = (0..5000).map(|n: u32| arena.alloc(&vec![n as u8; len]).unwrap()).collect();
        for (n, at) in (0_u32..).zip(&cells) {
            assert!(arena.get(*at).unwrap()[..len].iter().all(|b| *b == n as u8));
        }
        cells.iter().step_by(2).for_each(|at| arena.free(*at));
        cells.iter().skip(1).step_by(2).for_each(|at| arena.free(*at));
        assert_eq!(arena.live(), 0);
    }
    assert!(arena.heap_bytes() < 128 << 10, "{}", arena.heap_bytes());
    assert_eq!(arena.alloc(&[0; 261]), None);
}

#[test]
fn names_of_the_engines_are_packed() {
    let digest = "0123456789abcdef".repeat(4);
    let lmcache = format!("org-SEP-Model-1.0@0x00000003@0@{digest}@user.alice.data");
    let sglang = format!("{digest}_org-Model_3.bin");
    for name in [lmcache, sglang] {
        let mut names = Names::new();
        names.store(name.as_bytes()).unwrap();
        let base = names.heap_bytes();
        for _ in 0..10_000 {
            names.store(name.as_bytes()).unwrap();
        }
        let each = (names.heap_bytes() - base) as f64 / 10_000.0;
        assert!(each < 42.0, "{each} bytes for {name}");
    }
}

fn any_name() -> impl Strategy<Value = Vec<u8>> {
    let byte = any::<u8>().prop_filter("no NUL, no slash", |b| !matches!(b, 0 | b'/'));
    prop_oneof![
        proptest::collection::vec(byte, 1..=255),
        "[0-9a-f]{1,255}".prop_map(String::into_bytes),
        "[a-g@.]{0,40}[0-9a-f]{0,130}[A-Fx@.]{0,40}[0-9a-f]{1,40}".prop_map(String::into_bytes),
    ]
}

proptest! {
    #[test]
    fn any_name_comes_back(all in proptest::collection::vec(any_name(), 1..20)) {
        let mut names = Names::new();
        let twice = || all.iter().chain(&all).chain(&all);
        let stored: Vec<_> = twice().map(|name| names.store(name).unwrap()).collect();
        for (name, at) in twice().zip(&stored) {
            let mut out = b"kept".to_vec();
            prop_assert!(names.append(*at, &mut out));
            prop_assert_eq!(&out[4..], &name[..]);
            prop_assert!(names.is(*at, name));
            for other in &all {
                prop_assert_eq!(names.is(*at, other), other == name);
            }
        }
        stored.iter().for_each(|at| names.free(*at));
        prop_assert_eq!((names.live(), names.affixes().users()), (0, 0));
    }
}

fn cold_to_warm(index: &Index) -> Vec<String> {
    index.coldest(DiskNo(0)).map(|ino| path_of(index, ino).unwrap()).collect()
}

#[test]
fn files_that_a_rescan_found_get_the_places_of_their_last_use() {
    for steps in [1, 2, 100] {
        let mut index = two_disks();
        let cold: Vec<Ino> = [10, 20, 30]
            .map(|ns| index.insert_cold(Ino::ROOT, format!("c{ns}").as_bytes(), file(0, ns)).unwrap())
            .into();
        cold.iter().for_each(|ino| index.settle(*ino));
        for ns in [40, 50] {
            index.insert(Ino::ROOT, format!("w{ns}").as_bytes(), file(0, ns)).unwrap();
        }
        for ns in [5, 15, 25, 35, 45, 55, 50] {
            index.insert_cold(Ino::ROOT, format!("n{ns}").as_bytes(), file(0, ns)).unwrap();
        }
        let used = index.find(Ino::ROOT, b"n25").unwrap();
        let mut found = Vec::new();
        assert_eq!(index.unplaced(DiskNo(0), 0, 1000, &mut found), None);
        found.sort_unstable();
        assert_eq!(found.len(), 7);
        index.touch(used, 60);
        let mut placing = Placing::default();
        while index.place(DiskNo(0), &found, &mut placing, steps) {
            index.check_invariants().unwrap();
        }
        index.check_invariants().unwrap();
        let expected = ["n5", "c10", "n15", "c20", "c30", "n35", "w40", "n45", "w50", "n50", "n55", "n25"];
        // n55 is older than the touch of n25, which happened before it was placed.
        assert_eq!(cold_to_warm(&index), expected);
        let mut left = Vec::new();
        index.unplaced(DiskNo(0), 0, 1000, &mut left);
        assert!(left.is_empty());
    }
}

#[test]
fn placing_goes_on_where_it_was_when_files_come_go_and_are_used() {
    let mut index = two_disks();
    for ns in 0..200 {
        let ino = index.insert_cold(Ino::ROOT, format!("{ns}").as_bytes(), file(0, ns * 10)).unwrap();
        index.settle(ino);
    }
    let mut found = Vec::new();
    for ns in 0..200 {
        let ino = index.insert_cold(Ino::ROOT, format!("n{ns}").as_bytes(), file(0, ns * 10 + 5)).unwrap();
        found.push((ns * 10 + 5, ino));
    }
    let (mut placing, mut round) = (Placing::default(), 0);
    while index.place(DiskNo(0), &found, &mut placing, 7) {
        // What the walk stands on, or has just placed, is used or goes.
        let ino = index.find(Ino::ROOT, format!("{}", round * 3 % 200).as_bytes());
        match (ino, round % 2) {
            (Some(ino), 0) => index.touch(ino, 10_000 + round),
            (Some(ino), _) => index.unlink(ino),
            _ => {}
        }
        round += 1;
        assert!(round < 10_000);
    }
    index.check_invariants().unwrap();
    let times: Vec<i64> = index.coldest(DiskNo(0)).map(|ino| index.get(ino).unwrap().attr.atime_ns).collect();
    assert!(times.is_sorted(), "{times:?}");
}

#[test]
fn a_sweep_meets_what_a_disk_should_hold() {
    let mut index = two_disks();
    let sub = index.insert(Ino::ROOT, b"sub", dir()).unwrap();
    index.set_dir_disks(sub, 0b11);
    let a = index.insert(sub, b"a", file(0, 1)).unwrap();
    let b = index.insert(sub, b"b", file(1, 1)).unwrap();
    let gone = index.insert(sub, b"gone", file(1, 1)).unwrap();
    index.add_lookups(gone, 1);
    index.unlink(gone);
    for (disk, expected) in [(0, [sub, a]), (1, [sub, b])] {
        let (mut met, mut next) = (Vec::new(), Some(0));
        while let Some(from) = next {
            next = index.sweep(DiskNo(disk), from, 2, &mut |ino, _| met.push(ino));
        }
        assert_eq!(met, expected);
    }
}
