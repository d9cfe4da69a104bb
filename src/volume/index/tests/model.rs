//! A random walk: each operation is done to the index and to a plain model of it, then both are compared.

use super::*;
use crate::volume::index::probation::{SHARE_MAX, SHARE_MIN};
use std::collections::HashMap;

#[derive(Clone, Debug)]
enum Op {
    Insert { parent: usize, name: u8, kind: Kind, disk: u8, cold: bool, atime: i64 },
    Rename { who: usize, parent: usize, name: u8 },
    Exchange { a: usize, b: usize },
    Unlink { who: usize },
    Lookups { who: usize, n: u32 },
    Forget { who: usize, n: u64 },
    Pin { who: usize, on: bool },
    Attr { who: usize, blocks: u64, uid: u32, atime: i64 },
    Away { who: usize, on: bool },
    Writing { who: usize, on: bool },
    Disk { who: usize, disk: u8 },
    Touch { who: usize },
    LastUse { who: usize, ns: i64 },
    DirDisks { who: usize, set: u64 },
    Sort { disk: u8 },
    Promote { who: usize },
    Evict { disk: u8 },
}

fn any_op() -> impl Strategy<Value = Op> {
    let who = 0..24_usize;
    let name = 0..12_u8;
    let kind = prop_oneof![3 => Just(Kind::File), 1 => Just(Kind::Dir)];
    prop_oneof![
        6 => (who.clone(), name.clone(), kind, 0..3_u8, any::<bool>(), prop_oneof![0..100_i64, 3_000_000_000..3_000_000_100_i64]).prop_map(
            |(parent, name, kind, disk, cold, atime)|
                Op::Insert { parent, name, kind, disk, cold, atime }),
        4 => (who.clone(), who.clone(), name)
            .prop_map(|(who, parent, name)| Op::Rename { who, parent, name }),
        1 => (who.clone(), who.clone()).prop_map(|(a, b)| Op::Exchange { a, b }),
        3 => who.clone().prop_map(|who| Op::Unlink { who }),
        1 => (who.clone(), 0..4_u32).prop_map(|(who, n)| Op::Lookups { who, n }),
        1 => (who.clone(), 0..6_u64).prop_map(|(who, n)| Op::Forget { who, n }),
        2 => (who.clone(), any::<bool>()).prop_map(|(who, on)| Op::Pin { who, on }),
        1 => (who.clone(), 0..99_u64, 0..5_u32, 0..100_i64)
            .prop_map(|(who, blocks, uid, atime)| Op::Attr { who, blocks, uid, atime }),
        1 => (who.clone(), any::<bool>()).prop_map(|(who, on)| Op::Away { who, on }),
        1 => (who.clone(), any::<bool>()).prop_map(|(who, on)| Op::Writing { who, on }),
        1 => (who.clone(), 0..3_u8).prop_map(|(who, disk)| Op::Disk { who, disk }),
        2 => who.clone().prop_map(|who| Op::Touch { who }),
        1 => (who.clone(), 0..300_i64).prop_map(|(who, ns)| Op::LastUse { who, ns }),
        1 => (who.clone(), 0..8_u64).prop_map(|(who, set)| Op::DirDisks { who, set }),
        1 => (0..3_u8).prop_map(|disk| Op::Sort { disk }),
        2 => who.prop_map(|who| Op::Promote { who }),
        3 => (0..3_u8).prop_map(|disk| Op::Evict { disk }),
    ]
}

#[derive(Clone, Debug)]
struct Node {
    entry: Entry,
    name: Vec<u8>,
    dir_disks: u64,
    probation: bool,
}

/// A disk's LRU: vectors from the cold end.
#[derive(Clone, Debug, Default)]
struct ModelLru {
    ordered: Vec<Ino>,
    unordered: Vec<Ino>,
    warm: Vec<Ino>,
}

impl ModelLru {
    fn all(&self) -> Vec<Ino> {
        [&self.ordered[..], &self.unordered[..], &self.warm[..]].concat()
    }

    fn remove(&mut self, ino: Ino) {
        for list in [&mut self.ordered, &mut self.unordered, &mut self.warm] {
            list.retain(|i| *i != ino);
        }
    }

    fn add_by_last_use(&mut self, ino: Ino, ns: i64, at: impl Fn(Ino) -> i64) {
        if self.warm.last().is_none_or(|head| ns >= at(*head)) {
            return self.warm.push(ino);
        }
        let end =
            [&mut self.ordered, &mut self.unordered, &mut self.warm].into_iter().find(|list| !list.is_empty()).unwrap();
        if ns <= at(end[0]) {
            end.insert(0, ino);
        } else {
            self.warm.insert(self.warm.len() - 1, ino);
        }
    }
}

/// The reference: maps and vectors.
struct Model {
    nodes: HashMap<Ino, Node>,
    by_name: BTreeMap<(Ino, Vec<u8>), Ino>,
    lru: Vec<ModelLru>,
    /// Of each disk the files that were never used, if scans are kept apart.
    probation: Vec<ModelLru>,
    /// Whether they are.
    apart: bool,
    /// Evicted names, with the directory's slot: was it on probation?
    ghosts: HashMap<(u32, Vec<u8>), bool>,
    share_percent: f64,
    /// Every number ever given, in the order of insertion: what operations choose from.
    known: Vec<Ino>,
    clock: i64,
}

/// Names that share parts, and names that share nothing.
fn name(n: u8) -> Vec<u8> {
    match n % 4 {
        0 => format!("model@0@{}.data", format!("{n:02x}").repeat(32)),
        1 => format!("model@0@{}.tmp", format!("{n:02x}").repeat(32)),
        2 => format!("n{n}"),
        _ => format!("{}-{n}", "x".repeat(usize::from(n) * 20)),
    }
    .into_bytes()
}

impl Model {
    fn new(index: &Index, apart: bool) -> Self {
        let root = index.get(Ino::ROOT).unwrap();
        let root = Node { entry: root, name: Vec::new(), dir_disks: 0, probation: false };
        Self {
            nodes: HashMap::from([(Ino::ROOT, root)]),
            by_name: BTreeMap::new(),
            lru: vec![ModelLru::default(); 3],
            probation: vec![ModelLru::default(); 3],
            apart,
            ghosts: HashMap::new(),
            share_percent: SHARE_MIN,
            known: vec![Ino::ROOT],
            clock: 100,
        }
    }

    fn choose(&self, n: usize) -> Ino {
        let recent = self.known.len().saturating_sub(23);
        *self.known[recent..].iter().chain([&Ino::ROOT]).cycle().nth(n).unwrap()
    }

    fn linked_dir(&self, ino: Ino) -> bool {
        self.nodes.get(&ino).is_some_and(|n| n.entry.linked && n.entry.kind == Kind::Dir)
    }

    fn linked(&self, ino: Ino) -> bool {
        ino != Ino::ROOT && self.nodes.get(&ino).is_some_and(|n| n.entry.linked)
    }

    fn within(&self, mut ino: Ino, top: Ino) -> bool {
        while ino != top && ino != Ino::ROOT {
            ino = self.nodes[&ino].entry.parent;
        }
        ino == top
    }

    fn is_empty(&self, dir: Ino) -> bool {
        !self.by_name.keys().any(|(parent, _)| *parent == dir)
    }

    fn unlink(&mut self, ino: Ino) {
        let node = self.nodes.get_mut(&ino).unwrap();
        self.by_name.remove(&(node.entry.parent, node.name.clone()));
        for lru in [&mut self.lru, &mut self.probation] {
            lru[node.entry.disk.index()].remove(ino);
        }
        node.entry.linked = false;
        node.entry.parent = ino;
        self.reap(ino);
    }

    fn reap(&mut self, ino: Ino) {
        let entry = &self.nodes[&ino].entry;
        if !entry.linked && !entry.pinned && entry.lookups == 0 {
            self.nodes.remove(&ino);
        }
    }

    fn in_lru(&self, ino: Ino) -> bool {
        self.linked(ino) && self.nodes[&ino].entry.kind == Kind::File
    }

    fn may_rename(&self, who: Ino, parent: Ino, name: &[u8]) -> bool {
        if !self.linked(who) || !self.linked_dir(parent) || self.within(parent, who) {
            return false;
        }
        match self.by_name.get(&(parent, name.to_vec())) {
            Some(target) if *target != who => {
                let kind = self.nodes[target].entry.kind;
                kind == self.nodes[&who].entry.kind && self.is_empty(*target)
            }
            _ => true,
        }
    }

    fn place(&mut self, ino: Ino, parent: Ino, name: Vec<u8>) {
        let node = self.nodes.get_mut(&ino).unwrap();
        node.entry.parent = parent;
        node.name = name.clone();
        self.by_name.insert((parent, name), ino);
    }

    fn use_at(&mut self, ino: Ino, ns: i64, warmest: bool) {
        let Some(node) = self.nodes.get_mut(&ino) else { return };
        node.entry.attr.atime_ns = ns;
        let disk = node.entry.disk.index();
        if self.in_lru(ino) {
            self.lru_of(ino, disk).remove(ino);
            if warmest {
                self.lru_of(ino, disk).warm.push(ino);
            } else {
                self.add_by_last_use(ino, disk);
            }
        }
    }

    fn add_by_last_use(&mut self, ino: Ino, disk: usize) {
        let nodes = &self.nodes;
        let at = |ino: Ino| nodes[&ino].entry.attr.atime_ns;
        let lrus = if nodes[&ino].probation { &mut self.probation } else { &mut self.lru };
        lrus[disk].add_by_last_use(ino, at(ino), at);
    }

    fn lru_of(&mut self, ino: Ino, disk: usize) -> &mut ModelLru {
        let lrus = if self.nodes[&ino].probation { &mut self.probation } else { &mut self.lru };
        &mut lrus[disk]
    }

    /// The order of eviction: probation first if it is over its share of the files or of the bytes.
    fn coldest(&self, disk: usize) -> Vec<Ino> {
        let files = |of: &[Ino]| of.len() as f64;
        let bytes = |of: &[Ino]| of.iter().map(|i| self.nodes[i].entry.attr.blocks_512).sum::<u64>() as f64;
        let (main, probation) = (self.lru[disk].all(), self.probation[disk].all());
        let on_disk = |n: &&Node| n.entry.disk.index() == disk && n.entry.kind == Kind::File;
        let open = self.nodes.values().filter(on_disk).filter(|n| !n.entry.linked && n.entry.pinned);
        let open: u64 = open.map(|n| n.entry.attr.blocks_512).sum();
        let (all, share) = ([&main[..], &probation].concat(), self.share_percent / 100.0);
        let over = files(&probation) > files(&all) * share || bytes(&probation) > (bytes(&all) + open as f64) * share;
        if self.apart && over { [&probation[..], &main].concat() } else { all }
    }

    fn promote(&mut self, ino: Ino) {
        let in_lru = self.in_lru(ino);
        let Some(node) = self.nodes.get_mut(&ino) else { return };
        let disk = node.entry.disk.index();
        if std::mem::take(&mut node.probation) && in_lru {
            self.probation[disk].remove(ino);
            self.lru[disk].warm.push(ino);
        }
    }

    /// Whether a file that takes this name starts on probation.
    fn starts_on_probation(&mut self, parent: Ino, name: &[u8]) -> bool {
        let Some(unused) = self.ghosts.remove(&(parent.0 as u32, name.to_vec())) else { return self.apart };
        let step = 100.0 / self.by_name.len().max(1) as f64;
        let moved = self.share_percent + if unused { step } else { -step };
        self.share_percent = moved.clamp(SHARE_MIN, SHARE_MAX);
        false
    }
}

fn insert(index: &mut Index, model: &mut Model, op: &Op) {
    let Op::Insert { parent, name: n, kind, disk, cold, atime } = *op else { return };
    let (parent, name) = (model.choose(parent), name(n));
    let new = NewEntry { kind, away: n % 5 == 0, writing: n % 2 == 0, ..file(disk, atime) };
    let done = if cold { index.insert_cold(parent, &name, new) } else { index.insert(parent, &name, new) };
    if !model.linked_dir(parent) {
        let file = model.nodes.get(&parent).is_some_and(|n| n.entry.kind == Kind::File);
        let error = if file { InsertError::NotADirectory } else { InsertError::NoParent };
        return assert_eq!(done, Err(error));
    }
    if let Some(there) = model.by_name.get(&(parent, name.clone())) {
        return assert_eq!(done, Err(InsertError::Exists(*there)));
    }
    let ino = done.unwrap();
    let entry = Entry {
        ino,
        parent,
        kind,
        disk: DiskNo(disk),
        attr: new.attr,
        writing: new.writing,
        away: new.away,
        linked: true,
        pinned: false,
        lookups: 0,
        cookie: model.known.len() as u64,
    };
    assert!(!model.known.contains(&ino), "a number is never given twice");
    let dir_disks = if kind == Kind::Dir { 1 << disk } else { 0 };
    model.known.push(ino);
    model.nodes.insert(ino, Node { entry, name: name.clone(), dir_disks, probation: false });
    model.place(ino, parent, name.clone());
    let probation = match (kind, cold) {
        (Kind::Dir, _) => false,
        // The time of the last write is 0 in this test.
        (_, true) => model.apart && atime <= 2_000_000_000,
        (_, false) => model.starts_on_probation(parent, &name),
    };
    model.nodes.get_mut(&ino).unwrap().probation = probation;
    assert_eq!(index.is_on_probation(ino), probation);
    let lru = model.lru_of(ino, usize::from(disk));
    match (kind, cold) {
        (Kind::Dir, _) => {}
        (_, true) => lru.unordered.insert(0, ino),
        (_, false) => lru.warm.push(ino),
    }
}

fn rename(index: &mut Index, model: &mut Model, who: Ino, parent: Ino, name: Vec<u8>) {
    let may = model.may_rename(who, parent, &name);
    let done = index.rename(who, parent, &name);
    assert_eq!(done.is_ok(), may, "{done:?}");
    let Ok(replaced) = done else { return };
    let target = model.by_name.get(&(parent, name.clone())).copied().filter(|t| *t != who);
    assert_eq!(replaced, target);
    let replaces_used = target.is_some_and(|target| !model.nodes[&target].probation);
    if let Some(target) = target {
        model.unlink(target);
    }
    let renamed = (model.nodes[&who].entry.parent, &model.nodes[&who].name) != (parent, &name);
    let node = &model.nodes[&who];
    model.by_name.remove(&(node.entry.parent, node.name.clone()));
    model.place(who, parent, name.clone());
    if renamed && model.nodes[&who].probation && (!model.starts_on_probation(parent, &name) || replaces_used) {
        model.promote(who);
    }
}

fn evict(index: &mut Index, model: &mut Model, disk: u8) {
    let Some(victim) = index.coldest(DiskNo(disk)).next() else { return };
    let node = &model.nodes[&victim];
    if model.apart {
        model.ghosts.insert((node.entry.parent.0 as u32, node.name.clone()), node.probation);
    }
    index.evict(victim);
    model.unlink(victim);
}

fn exchange(index: &mut Index, model: &mut Model, a: Ino, b: Ino) {
    let both = model.linked(a) && model.linked(b);
    let may = both && (a == b || (!model.within(a, b) && !model.within(b, a)));
    let done = index.exchange(a, b);
    assert_eq!(done.is_ok(), may, "{done:?}");
    if may {
        let place = |ino| (model.nodes[&ino].entry.parent, model.nodes[&ino].name.clone());
        let (at_a, at_b) = (place(a), place(b));
        model.place(a, at_b.0, at_b.1);
        model.place(b, at_a.0, at_a.1);
    }
}

fn sort(index: &mut Index, model: &mut Model, disk: u8) {
    let (mut found, mut from) = (Vec::new(), Some(0));
    while let Some(at) = from {
        from = index.scanned(DiskNo(disk), at, 3, &mut found);
    }
    found.sort_unstable();
    let mut all = Vec::new();
    for lru in [&mut model.lru, &mut model.probation] {
        let lru = &mut lru[usize::from(disk)];
        let mut scanned = [lru.ordered.clone(), lru.unordered.clone()].concat();
        scanned.sort_unstable_by_key(|ino| (model.nodes[ino].entry.attr.atime_ns, *ino));
        all.extend(scanned.iter().map(|ino| (model.nodes[ino].entry.attr.atime_ns, *ino)));
        (lru.ordered, lru.unordered) = (scanned, Vec::new());
    }
    all.sort_unstable();
    assert_eq!(found, all);
    found.iter().for_each(|(_, ino)| index.settle(*ino));
}

fn apply(index: &mut Index, model: &mut Model, op: &Op) {
    match *op {
        Op::Insert { .. } => insert(index, model, op),
        Op::Rename { who, parent, name: n } => {
            rename(index, model, model.choose(who), model.choose(parent), name(n));
        }
        Op::Exchange { a, b } => exchange(index, model, model.choose(a), model.choose(b)),
        Op::Sort { disk } => sort(index, model, disk),
        Op::Unlink { who } => {
            let who = model.choose(who);
            if !model.is_empty(who) {
                return;
            }
            index.unlink(who);
            if model.linked(who) {
                model.unlink(who);
            }
        }
        Op::Disk { who, disk } => {
            let who = model.choose(who);
            index.set_disk(who, DiskNo(disk));
            let in_lru = model.in_lru(who);
            let Some(node) = model.nodes.get_mut(&who) else { return };
            let from = std::mem::replace(&mut node.entry.disk, DiskNo(disk)).index();
            if in_lru && from != usize::from(disk) {
                model.lru_of(who, from).remove(who);
                model.add_by_last_use(who, usize::from(disk));
            }
        }
        Op::Promote { who } => {
            index.promote(model.choose(who));
            model.promote(model.choose(who));
        }
        Op::Evict { disk } => evict(index, model, disk),
        Op::Touch { who } => {
            model.clock += 1;
            index.touch(model.choose(who), model.clock);
            model.use_at(model.choose(who), model.clock, true);
        }
        Op::LastUse { who, ns } => {
            index.set_last_use(model.choose(who), ns);
            model.use_at(model.choose(who), ns, false);
        }
        Op::Lookups { .. }
        | Op::Forget { .. }
        | Op::Pin { .. }
        | Op::Attr { .. }
        | Op::Away { .. }
        | Op::Writing { .. }
        | Op::DirDisks { .. } => apply_to_one(index, model, op),
    }
}

fn apply_to_one(index: &mut Index, model: &mut Model, op: &Op) {
    let (Op::Lookups { who, .. }
    | Op::Forget { who, .. }
    | Op::Pin { who, .. }
    | Op::Attr { who, .. }
    | Op::Away { who, .. }
    | Op::Writing { who, .. }
    | Op::DirDisks { who, .. }) = *op
    else {
        return;
    };
    let who = model.choose(who);
    let mut nothing = model.nodes[&Ino::ROOT].clone();
    let there = model.nodes.contains_key(&who);
    let node = model.nodes.get_mut(&who).unwrap_or(&mut nothing);
    match *op {
        Op::Lookups { n, .. } => {
            index.add_lookups(who, n);
            node.entry.lookups += n;
        }
        Op::Forget { n, .. } => {
            index.forget(who, n);
            node.entry.lookups = u64::from(node.entry.lookups).saturating_sub(n) as u32;
        }
        Op::Pin { on, .. } => {
            index.set_pinned(who, on);
            node.entry.pinned = on;
        }
        Op::Attr { blocks, uid, atime, .. } => {
            let attr = Attr { blocks_512: blocks, uid, atime_ns: atime, ..node.entry.attr };
            index.set_attr(who, attr);
            node.entry.attr = attr;
        }
        Op::Away { on, .. } => {
            index.set_away(who, on);
            node.entry.away = on;
        }
        Op::Writing { on, .. } => {
            index.set_writing(who, on);
            node.entry.writing = on;
        }
        Op::DirDisks { set, .. } => {
            index.set_dir_disks(who, set);
            if node.entry.kind == Kind::Dir {
                node.dir_disks = set;
            }
        }
        _ => {}
    }
    if there {
        model.reap(who);
    }
}

fn compare(index: &Index, model: &Model) {
    index.check_invariants().unwrap();
    for ino in &model.known {
        let node = model.nodes.get(ino);
        assert_eq!(index.get(*ino), node.map(|n| n.entry), "{ino:?}");
        assert_eq!(index.is_on_probation(*ino), node.is_some_and(|n| n.probation), "{ino:?}");
        let Some(node) = node else { continue };
        assert_eq!(name_of(index, *ino), node.name);
        assert_eq!(index.dir_disks(*ino), node.dir_disks);
        if node.entry.kind == Kind::Dir {
            let mut listed = Vec::new();
            index.list(*ino, 0, &mut |l| {
                listed.push((l.cookie, l.ino, l.name.to_vec()));
                true
            });
            let mut there: Vec<_> = model.by_name.iter().filter(|((p, _), _)| p == ino).collect();
            there.sort_by_key(|(_, child)| model.nodes[child].entry.cookie);
            let there =
                there.into_iter().map(|((_, name), child)| (model.nodes[child].entry.cookie, *child, name.clone()));
            assert!(there.eq(listed.iter().cloned()));
            assert_eq!(index.child_count(*ino), listed.len());
        }
    }
    for ((parent, name), ino) in &model.by_name {
        assert_eq!(index.find(*parent, name), Some(*ino));
    }
    assert_eq!(index.len(), model.by_name.len());
    for n in 0..3 {
        assert!(index.coldest(DiskNo(n)).eq(model.coldest(usize::from(n))), "the LRU of disk {n}");
        let on = |e: &&Entry| e.kind == Kind::File && e.disk == DiskNo(n);
        let files = || model.nodes.values().map(|n| &n.entry).filter(on);
        let held = files().filter(|e| e.linked || e.pinned);
        assert_eq!(index.used_bytes(DiskNo(n)), held.map(|e| e.attr.bytes_on_disk()).sum::<u64>());
        assert_eq!(index.files(DiskNo(n)), files().filter(|e| e.linked).count() as u64);
        let away = files().filter(|e| e.linked && e.away).count() as u64;
        assert_eq!(index.away_files(DiskNo(n)), away);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    #[test]
    fn the_index_does_what_the_model_does(
        ops in proptest::collection::vec(any_op(), 1..120),
        apart in any::<bool>(),
    ) {
        let mut index = Index::new(3, Attr::default());
        if apart {
            index.keep_scans_apart();
        }
        let mut model = Model::new(&index, apart);
        for op in &ops {
            apply(&mut index, &mut model, op);
            compare(&index, &model);
        }
    }
}
