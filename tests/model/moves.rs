//! Renames and crashes: the operations that can stop half-way.

use kvspan::volume::files::RenameMode;
use rustix::io::Errno;
use std::sync::Arc;

use super::apply::Outcome;
use super::client::Answer;
use super::op::{DISKS, Op};
use super::reference::{Node, OnDisks, Reading, is_below};
use super::world::World;
use crate::common::faulty::Window;

impl World {
    /// What a rename between settled paths must answer.
    fn want_rename(&self, from: &str, to: &str, mode: RenameMode) -> Answer<()> {
        self.want_parents(from, to)?;
        let (source, target) = (self.reference.must(from), self.reference.must(to));
        match (source, target) {
            (Node::Absent, _) => Err(Errno::NOENT),
            (_, Node::Absent) if mode == RenameMode::Exchange => Err(Errno::NOENT),
            (_, target) if target != Node::Absent && mode == RenameMode::NoReplace => Err(Errno::EXIST),
            _ if is_below(to, from) => Err(Errno::INVAL),
            _ if is_below(from, to) && mode == RenameMode::Exchange => Err(Errno::INVAL),
            _ if is_below(from, to) => Err(Errno::NOTEMPTY),
            _ if from == to => Ok(()),
            (Node::File(a), Node::File(b)) if mode == RenameMode::Exchange => {
                if self.disk_of(from, a) == self.disk_of(to, b) { Ok(()) } else { Err(Errno::INVAL) }
            }
            _ if mode == RenameMode::Exchange => Err(Errno::INVAL),
            // The copy on the disk that is away could not follow.
            (Node::Dir, _) if self.misses_a_disk() || self.is_between_two_names() => Err(Errno::XDEV),
            (Node::Dir, Node::File(_)) => Err(Errno::NOTDIR),
            (Node::Dir, Node::Dir) if self.reference.has_children(to) => Err(Errno::NOTEMPTY),
            (Node::File(_), Node::Dir) => Err(Errno::ISDIR),
            _ => Ok(()),
        }
    }

    /// Whether the disks have still to be told of a rename, or of names that were taken away without them.
    fn is_between_two_names(&self) -> bool {
        let volume = self.fs().volume();
        volume.has_unsettled_rename() || volume.awaits_removed_names()
    }

    fn want_parents(&self, from: &str, to: &str) -> Answer<()> {
        self.want_parent(from).and_then(|()| self.want_parent(to))
    }

    fn disk_of(&self, path: &str, id: usize) -> Option<usize> {
        let found = self.found();
        let same = |found: &&crate::common::invariants::Found| {
            found.path == path && self.reference.id_of(found.inode) == Some(id)
        };
        found.iter().find(same).map(|found| found.disk)
    }

    /// Whether it was done.
    pub fn rename(&mut self, from: &str, to: &str, mode: RenameMode) -> Result<bool, String> {
        let strict = self.is_strict(&[from, to]);
        let want = self.want_rename(from, to, mode);
        let got = self.do_rename(from, to, mode);
        self.expect(strict, &got, want)?;
        if from == to {
            return Ok(got.is_ok());
        }
        let nodes = self.unharmed(|world| world.nodes_now())?;
        match (&got, mode) {
            (Err(_), _) => {}
            (Ok(()), RenameMode::Exchange) => self.exchanged(from, to, &nodes)?,
            (Ok(()), _) => self.renamed(from, to, &nodes)?,
        }
        if !strict {
            self.note_moves(from, to, &nodes);
            self.reread(&[from, to])?;
            self.half_moves.push((from.to_string(), to.to_string()));
        }
        Ok(got.is_ok())
    }

    /// The answer was yes: one of the files that could be at `from` is at `to`.
    fn renamed(&mut self, from: &str, to: &str, nodes: &OnDisks) -> Outcome {
        let there = nodes.get(to).cloned().unwrap_or_default();
        let moved = self.reference.allowed(from).into_iter().filter(|node| *node != Node::Absent);
        let Some(moved) = moved.filter(|node| there.contains(node)).max() else {
            return Err(format!("the answer is yes, and what was at {from:?} is not at {to:?}: {there:?}"));
        };
        if moved == Node::Dir && self.reference.must(from) == Node::Dir {
            self.note_moves(from, to, nodes);
            self.reference.rename(from, to);
        } else {
            self.reference.put(from, Node::Absent);
            self.reference.put(to, moved);
        }
        Ok(())
    }

    fn exchanged(&mut self, a: &str, b: &str, nodes: &OnDisks) -> Outcome {
        let candidates = |path| self.reference.allowed(path).into_iter().filter(|node| matches!(node, Node::File(_)));
        let at = |path, node| nodes.get(path).is_some_and(|nodes| nodes.contains(&node));
        let (to_b, to_a) = (candidates(a).find(|node| at(b, *node)), candidates(b).find(|node| at(a, *node)));
        let (Some(to_a), Some(to_b)) = (to_a, to_b) else {
            return Err(format!("the answer is yes, and {a:?} and {b:?} are not exchanged"));
        };
        self.reference.put(a, to_a);
        self.reference.put(b, to_b);
        Ok(())
    }

    /// Files of a directory that was moved, or half moved, have had names below both paths.
    pub fn note_moves(&mut self, from: &str, to: &str, nodes: &OnDisks) {
        for (a, b) in [(from, to), (to, from)] {
            for (path, there) in nodes.iter().filter(|(path, _)| *path == b || is_below(path, b)) {
                for node in there {
                    let was = format!("{a}{}", &path[b.len()..]);
                    if let Node::File(id) = node
                        && self.reference.has_had(&was, *id)
                    {
                        self.reference.note_had(path, *id);
                    }
                }
            }
        }
    }

    /// Every disk call fails in the middle of an operation, then the daemon is killed: what is there then is either as
    /// it was or as it would be.
    pub fn crash_in(&mut self, calls: u64, op: &Op) -> Outcome {
        let window = Window::new(calls, u64::MAX, Errno::IO);
        (0..DISKS).for_each(|disk| self.faults(disk).set_window(Some(&window)));
        self.troubled = true;
        let done = self.apply_client(op);
        self.troubled = false;
        done?;
        self.unharmed(|world| {
            let nodes = world.crashed_nodes()?;
            world.reference.read(&nodes, Reading::HalfDone, &|_| true)
        })?;
        self.kill(true)
    }

    /// A few disk calls in the middle of an operation fail, whichever disk they are for; then all is well again.
    pub fn fail_in(&mut self, window: &Arc<Window>, op: &Op) -> Outcome {
        (0..DISKS).for_each(|disk| self.faults(disk).set_window(Some(window)));
        self.troubled = true;
        let done = self.apply_client(op);
        (0..DISKS).for_each(|disk| self.faults(disk).set_window(None));
        done
    }

    fn crashed_nodes(&mut self) -> Result<OnDisks, String> {
        let found = self.found();
        self.on_disks(&found, true)
    }

    /// Loads every path and lists every directory.
    pub fn look_at_everything(&mut self) -> Outcome {
        self.troubled = self.is_troubled();
        let others: Vec<String> = self.reference.paths().map(String::from).collect();
        for path in super::op::PATHS.iter().copied().chain(others.iter().map(String::as_str)) {
            self.load(path)?;
        }
        for dir in ["", "a", "b", "a/s", "b/s"] {
            self.list(dir, 3)?;
        }
        Ok(())
    }
}
