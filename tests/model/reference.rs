//! The reference: what every path may be, in a few maps. It may forget, never lie.
//!
//! A path is settled when only one answer is right. It is unsettled after an operation that failed half-way, while a
//! disk keeps a copy that was replaced without it, and below such a path; then each of a few answers is right, and
//! none but those.

use std::collections::{BTreeMap, BTreeSet, HashMap};

/// A file that some client has made; its number says when.
pub type Id = usize;

/// What may be at a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Node {
    Absent,
    Dir,
    File(Id),
}

/// The right answer, and those that are not wrong either.
#[derive(Clone, Debug)]
pub struct View {
    pub must: Node,
    pub may: BTreeSet<Node>,
}

impl View {
    fn settled(must: Node) -> View {
        View { must, may: BTreeSet::new() }
    }
}

/// What lies on the disks of the volume at each path.
pub type OnDisks = BTreeMap<String, BTreeSet<Node>>;

/// How the disks are to be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reading {
    /// After an operation that failed half-way: what came or went may be shown or not.
    HalfDone,
    /// After a start whose scan met no fault: what is there is shown.
    CleanStart,
    /// After a start that follows a power cut and whose scan has not ended: every file may have to go.
    AfterCut,
    /// After any other start: a copy that was replaced may be met first.
    UncleanStart,
}

#[derive(Default)]
pub struct Reference {
    views: BTreeMap<String, View>,
    /// The bytes of every file.
    pub bytes: Vec<Vec<u8>>,
    by_inode: HashMap<u64, Id>,
    /// The file that was stored last under a path and not unlinked, also while its disk is away.
    live: BTreeMap<String, Id>,
    /// Files on disks that could not be asked about them during this operation.
    pub unreadable: BTreeSet<Id>,
    /// Files that lost a path while their disk did not answer: they may come back with it.
    excused: BTreeSet<(String, Id)>,
    /// Every file that has had the path.
    ever: BTreeMap<String, BTreeSet<Id>>,
}

impl Reference {
    pub fn new_file(&mut self, inode: u64) -> Id {
        let id = self.bytes.len();
        self.bytes.push(Vec::new());
        self.by_inode.insert(inode, id);
        id
    }

    /// A power cut has taken bytes of a file: nothing that it holds was ever stored.
    pub fn torn(&mut self, inode: u64) {
        if let Some(id) = self.id_of(inode)
            && !self.bytes[id].is_empty()
        {
            self.bytes[id] = format!("torn: {id}").into_bytes();
        }
    }

    /// Every file may have gone.
    pub fn doubt_files(&mut self) {
        for view in self.views.values_mut().filter(|view| matches!(view.must, Node::File(_))) {
            view.may.insert(Node::Absent);
        }
    }

    pub fn id_of(&self, inode: u64) -> Option<Id> {
        self.by_inode.get(&inode).copied()
    }

    pub fn view(&self, path: &str) -> View {
        if path.is_empty() {
            return View::settled(Node::Dir);
        }
        self.views.get(path).cloned().unwrap_or(View::settled(Node::Absent))
    }

    pub fn must(&self, path: &str) -> Node {
        self.view(path).must
    }

    /// Whether only one answer is right for the path and all above it.
    pub fn is_settled(&self, path: &str) -> bool {
        with_ancestors(path).all(|at| self.views.get(at).is_none_or(|view| view.may.is_empty()))
    }

    /// The same for all that lies below the path too.
    pub fn is_tree_settled(&self, path: &str) -> bool {
        self.is_settled(path) && self.below(path).all(|(_, view)| view.may.is_empty())
    }

    /// Everything that is not wrong for a path.
    pub fn allowed(&self, path: &str) -> BTreeSet<Node> {
        let View { must, mut may } = self.view(path);
        may.insert(must);
        if !self.is_settled(path) {
            may.insert(Node::Absent);
        }
        may
    }

    fn below<'a>(&'a self, dir: &'a str) -> impl Iterator<Item = (&'a String, &'a View)> {
        self.views.iter().filter(move |(path, _)| is_below(path, dir))
    }

    /// Whether something is, for certain, in a directory.
    pub fn has_children(&self, dir: &str) -> bool {
        self.below(dir).any(|(_, view)| view.must != Node::Absent)
    }

    /// What must be in a directory, by name.
    pub fn children(&self, dir: &str) -> BTreeMap<String, Node> {
        let prefix = if dir.is_empty() { String::new() } else { format!("{dir}/") };
        let child = |(path, view): (&String, &View)| {
            let name = path.strip_prefix(&prefix).filter(|name| !name.contains('/') && self.is_settled(path))?;
            (view.must != Node::Absent).then(|| (name.to_string(), view.must))
        };
        self.views.iter().filter_map(child).collect()
    }

    /// Every file that must be somewhere.
    pub fn files(&self) -> Vec<(String, Id)> {
        let file = |(path, view): (&String, &View)| match view.must {
            Node::File(id) => Some((path.clone(), id)),
            _ => None,
        };
        self.views.iter().filter_map(file).collect()
    }

    /// Every path where something is or may be.
    pub fn paths(&self) -> impl Iterator<Item = &str> {
        self.views.keys().map(String::as_str)
    }

    /// Something is at a path now, whatever was there before.
    pub fn put(&mut self, path: &str, node: Node) {
        let others = self.ever.get(path).into_iter().flatten().filter(|id| Node::File(**id) != node);
        // A temp name is not worth a record: what a missing disk has under it is an orphan.
        let excused = others
            .filter(|id| self.unreadable.contains(id) || path.ends_with(".tmp"))
            .map(|id| (path.to_string(), *id));
        self.excused.extend(excused.collect::<Vec<_>>());
        match node {
            Node::File(id) => {
                self.live.insert(path.to_string(), id);
                self.ever.entry(path.to_string()).or_default().insert(id);
            }
            // A directory takes no file's name away: a file there is on a disk that is away, and in conflict with it.
            Node::Dir => {}
            Node::Absent if self.must(path) == Node::Dir => {}
            Node::Absent => drop(self.live.remove(path)),
        }
        if node == Node::Absent {
            self.views.remove(path);
        } else {
            self.views.insert(path.to_string(), View::settled(node));
        }
    }

    /// Moves what is at a path, and all below it, over what is at another.
    pub fn rename(&mut self, from: &str, to: &str) {
        let node = self.must(from);
        let below: Vec<(String, View)> =
            self.below(from).map(|(path, view)| (path[from.len()..].to_string(), view.clone())).collect();
        for path in self.below(to).map(|(path, _)| path.clone()).collect::<Vec<_>>() {
            self.put(&path, Node::Absent);
        }
        for (rest, _) in &below {
            self.put(&format!("{from}{rest}"), Node::Absent);
        }
        self.put(from, Node::Absent);
        self.put(to, node);
        for (rest, view) in below {
            let path = format!("{to}{rest}");
            self.put(&path, view.must);
            // What was in doubt still is.
            if !view.may.is_empty() {
                self.views.insert(path, view);
            }
        }
    }

    /// Files that may lie at a path on a disk although they no longer have the name.
    pub fn is_retired(&self, path: &str, node: Node) -> bool {
        matches!(node, Node::File(id) if self.live.get(path) != Some(&id) && self.has_had(path, id))
    }

    pub fn has_had(&self, path: &str, id: Id) -> bool {
        self.ever.get(path).is_some_and(|ids| ids.contains(&id))
    }

    /// A file has come to a path by an operation that failed half-way.
    pub fn note_had(&mut self, path: &str, id: Id) {
        self.ever.entry(path.to_string()).or_default().insert(id);
        self.live.entry(path.to_string()).or_insert(id);
    }

    /// Reads the disks: what is there decides, within what can have come there.
    ///
    /// # Errors
    /// A file under a name that it never had.
    pub fn read(&mut self, on_disks: &OnDisks, reading: Reading, only: &dyn Fn(&str) -> bool) -> Result<(), String> {
        let mut paths: BTreeSet<String> = self.views.keys().cloned().collect();
        paths.extend(on_disks.keys().cloned());
        for path in paths.iter().filter(|path| only(path)) {
            let nodes = on_disks.get(path).cloned().unwrap_or_default();
            for node in &nodes {
                if let Node::File(id) = node
                    && !self.has_had(path, *id)
                {
                    return Err(format!("file {id} is at {path:?}, a name that it never had"));
                }
            }
            let view = self.read_one(path, &nodes, reading);
            if view.must == Node::Absent && view.may.is_empty() {
                self.views.remove(path);
            } else {
                self.views.insert(path.clone(), view);
            }
        }
        Ok(())
    }

    fn read_one(&self, path: &str, nodes: &BTreeSet<Node>, reading: Reading) -> View {
        let old = self.view(path);
        let (retired, live): (Vec<Node>, Vec<Node>) = nodes.iter().partition(|node| self.is_retired(path, **node));
        let newest = live.iter().copied().max();
        if reading == Reading::HalfDone {
            // A directory and a file of one name: one of them was made while the other's disk could not be asked.
            let odd = live.iter().any(|node| *node != old.must);
            if !odd && (nodes.contains(&old.must) || (nodes.is_empty() && old.must == Node::Absent)) {
                return old;
            }
            if nodes.contains(&old.must) {
                let may = old.may.iter().chain(&live).copied().filter(|node| *node != old.must).collect();
                return View { must: old.must, may };
            }
            let mut may: BTreeSet<Node> = nodes.iter().copied().collect();
            may.extend([Node::Absent, old.must]);
            may.extend(old.may);
            return View { must: newest.unwrap_or(Node::Absent), may };
        }
        if reading == Reading::AfterCut && newest != Some(Node::Dir) {
            return View { must: Node::Absent, may: nodes.clone() };
        }
        let must = newest.unwrap_or(Node::Absent);
        let mut may: BTreeSet<Node> = live.into_iter().filter(|node| *node != must).collect();
        let excused = |node: &Node| matches!(node, Node::File(id) if self.excused.contains(&(path.to_string(), *id)));
        // Of two copies the younger is shown.
        // The younger one is away with its disk: that the older one was replaced is not recorded for every store.
        let younger_is_away = must == Node::Absent && self.live.contains_key(path);
        let returns = |node: &Node| younger_is_away || (excused(node) && (must == Node::Absent || *node > must));
        let outlives = |node: &&Node| reading == Reading::UncleanStart || returns(node);
        // A directory against a file is a conflict, which is left alone: either may be shown.
        let conflict = nodes.contains(&Node::Dir) && nodes.len() > 1;
        may.extend(retired.iter().filter(|node| conflict || outlives(node)));
        if conflict {
            may.insert(Node::Dir);
        }
        View { must, may }
    }
}

/// Whether a path lies in a directory or deeper.
pub fn is_below(path: &str, dir: &str) -> bool {
    dir.is_empty() || path.strip_prefix(dir).is_some_and(|rest| rest.starts_with('/'))
}

/// A path and every directory above it but the root.
pub fn with_ancestors(path: &str) -> impl Iterator<Item = &str> {
    std::iter::successors(Some(path), |path| path.rsplit_once('/').map(|(dir, _)| dir)).filter(|path| !path.is_empty())
}
