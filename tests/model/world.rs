//! A volume over disks that can fail, beside the reference: mounts, kills, scans and the disk set.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use kvspan::config::Amount;
use kvspan::fs::CacheFs;
use kvspan::volume::attr::{DiskNo, Ino};
use kvspan::volume::disk::real::RealDisk;
use kvspan::volume::disk::{Disk, DiskLimits};
use kvspan::volume::record::RecordSettings;
use kvspan::volume::{recovery, rescan};
use rustix::io::Errno;
use uuid::Uuid;

use super::op::DISKS;
use super::reference::{Id, Node, OnDisks, Reading, Reference};
use crate::common::faulty::{Faults, FaultyDisk};
use crate::common::gate::Gate;
use crate::common::invariants::{self, Found, Handles, Known};
use crate::common::{Rig, disk_id, memory_dir};

/// Names that a listing of a disk returns at a time.
const BATCH: usize = 2;

/// How long a create waits for the first files of a scan: nobody scans meanwhile.
const IO_TIMEOUT: Duration = Duration::from_millis(20);

/// A handle that a client has open.
pub struct Open {
    pub handle: u64,
    pub ino: Ino,
    pub id: Id,
    pub writer: bool,
}

struct Scan {
    gate: Arc<Gate>,
    thread: Option<JoinHandle<()>>,
}

pub struct World {
    pub reference: Reference,
    pub handles: Vec<Open>,
    dirs: Vec<PathBuf>,
    faults: Vec<Arc<Faults>>,
    present: Vec<usize>,
    /// Disks that are, or were, in the volume.
    known: BTreeSet<usize>,
    rig: Option<Rig>,
    scans: HashMap<usize, Scan>,
    /// This mount's scan met no fault and has ended.
    clean: bool,
    pub dirs_in_doubt: bool,
    /// Files whose disk could not say how large they are when they were closed; the next look-up asks again.
    pub sizes_in_doubt: BTreeSet<Id>,
    /// Renames that may have stopped half-way: a mount may finish them.
    pub half_moves: Vec<(String, String)>,
    /// Faults could hit the operation that runs.
    pub troubled: bool,
    stored: u64,
    /// Files that were not durable when power went, or when a sync failed, are removed by this mount or a later one.
    files_may_go: bool,
    /// The boot that this is.
    boot: u128,
    _temp: tempfile::TempDir,
}

impl World {
    pub fn new(disks: usize) -> Result<World, String> {
        let temp = tempfile::tempdir_in(memory_dir()).expect("a temporary directory");
        let dirs: Vec<PathBuf> = (0..DISKS).map(|n| temp.path().join(format!("disk{n}"))).collect();
        for dir in &dirs {
            std::fs::create_dir_all(dir.join(".kvspan")).expect("a disk's directory");
        }
        let mut world = World {
            reference: Reference::default(),
            handles: Vec::new(),
            dirs,
            faults: (0..DISKS).map(|_| Arc::default()).collect(),
            present: (0..disks).collect(),
            known: (0..disks).collect(),
            rig: None,
            scans: HashMap::new(),
            clean: true,
            dirs_in_doubt: false,
            sizes_in_doubt: BTreeSet::new(),
            half_moves: Vec::new(),
            troubled: false,
            stored: 0,
            files_may_go: false,
            boot: 1,
            _temp: temp,
        };
        world.mount(true)?;
        Ok(world)
    }

    pub fn fs(&self) -> &CacheFs {
        &self.rig.as_ref().expect("a mounted volume").fs
    }

    pub fn faults(&self, disk: usize) -> &Faults {
        &self.faults[disk]
    }

    pub fn is_troubled(&self) -> bool {
        self.present.iter().any(|disk| self.faults[*disk].is_armed())
    }

    /// The place in the volume of a disk, if it is in it.
    pub fn position(&self, disk: usize) -> Option<DiskNo> {
        self.present.iter().position(|present| *present == disk).map(|at| DiskNo(at as u8))
    }

    /// Whether a store must succeed: faults are whole disks that are dead, and one is not.
    pub fn has_healthy_disk(&self) -> bool {
        let dead = self.present.iter().filter(|disk| self.faults[**disk].is_dead()).count();
        let armed = self.present.iter().filter(|disk| self.faults[**disk].is_armed()).count();
        dead == armed && dead < self.present.len()
    }

    /// Bytes that were never stored before.
    pub fn new_bytes(&mut self, len: usize) -> Vec<u8> {
        self.stored += 1;
        let stamp = self.stored.to_le_bytes();
        stamp.iter().cycle().zip(0..len).map(|(byte, at)| byte ^ (at / 8) as u8).collect()
    }

    fn disks(&self) -> Vec<Disk> {
        let limits = DiskLimits { limit: Amount::Percent(95.0), reserve: Amount::Percent(2.0) };
        let disk = |n: &usize| {
            let root = std::fs::File::open(&self.dirs[*n]).expect("a disk's directory");
            let io = FaultyDisk::new(RealDisk::new(root.into()), Arc::clone(&self.faults[*n]));
            Disk::new(disk_id(*n), self.dirs[*n].clone(), Box::new(io.with_batches_of(BATCH)), limits)
        };
        self.present.iter().map(disk).collect()
    }

    fn mount(&mut self, scan: bool) -> Result<(), String> {
        let trouble = self.is_troubled();
        let dirs: Vec<PathBuf> = self.present.iter().map(|n| self.dirs[*n].clone()).collect();
        let rig = match Rig::of(dirs.clone(), self.disks(), IO_TIMEOUT) {
            Err(_) if trouble => {
                self.heal();
                Rig::of(dirs, self.disks(), IO_TIMEOUT)
            }
            rig => rig,
        };
        self.rig = Some(rig.map_err(|e| format!("a mount without a fault: {e}"))?);
        let settings =
            RecordSettings { boot: Some(Uuid::from_u128(self.boot)), sync_interval: Duration::from_secs(30) };
        self.fs().volume().open_records(settings);
        self.fs().volume().load_removed(self.misses_a_disk(), false);
        if !trouble && self.fs().volume().has_unsettled_rename() {
            return Err("a mount without a fault has not finished a rename".into());
        }
        self.clean = scan && !trouble;
        self.dirs_in_doubt = false;
        self.sizes_in_doubt.clear();
        if scan {
            self.finish_scan(trouble)?;
        }
        let reading = match self.clean {
            true => Reading::CleanStart,
            false if self.files_may_go => Reading::AfterCut,
            false => Reading::UncleanStart,
        };
        self.read_disks(reading)
    }

    /// The volume goes: after an orderly unmount, or as if the daemon had been killed.
    fn drop_volume(&mut self, orderly: bool) {
        for (_, mut scan) in self.scans.drain() {
            scan.gate.cancel();
            scan.thread.take().expect("a scan's thread").join().expect("a scan that ends");
        }
        let handles = std::mem::take(&mut self.handles);
        if orderly {
            for open in handles {
                self.fs().close(open.handle);
            }
            self.fs().volume().flush_recency(std::time::Duration::ZERO, None);
            // The sync at the end may fail.
            self.files_may_go |= self.is_troubled();
            (0..self.present.len()).for_each(|no| self.fs().volume().close_record(DiskNo(no as u8)));
        } else {
            // What a killed daemon would still do at its end must not reach a disk.
            self.faults.iter().for_each(|faults| faults.fail_all(Errno::IO));
        }
        if let Some(rig) = self.rig.take() {
            rig.forget_checks();
        }
    }

    pub fn remount(&mut self, scan: bool) -> Result<(), String> {
        self.drop_volume(true);
        self.mount(scan)
    }

    pub fn kill(&mut self, scan: bool) -> Result<(), String> {
        self.drop_volume(false);
        self.heal();
        self.mount(scan)
    }

    /// Whether a disk that was in the volume is not there now.
    pub fn misses_a_disk(&self) -> bool {
        self.known.iter().any(|disk| !self.present.contains(disk))
    }

    pub fn rescan(&mut self, disk: usize) -> Result<(), String> {
        let Some(no) = self.position(disk) else {
            return Ok(());
        };
        // Not beside a scan that a gate holds: it would wait for it.
        if self.scans.is_empty()
            && let Err(error) = rescan::rescan_disk(self.fs().volume(), no, &|_| true)
            && !self.troubled
        {
            return Err(format!("a rescan without a fault: {error}"));
        }
        Ok(())
    }

    pub fn sync_disk(&mut self, disk: usize) {
        let Some(no) = self.position(disk) else {
            return;
        };
        if !self.fs().volume().sync_disk(no) && self.troubled {
            self.files_may_go = true;
            self.reference.doubt_files();
        }
    }

    /// Every file whose bytes are not durable loses some of them; its name, size and times may have reached the disk.
    pub fn power_cut(&mut self, scan: bool, zeroes: bool) -> Result<(), String> {
        self.drop_volume(false);
        self.heal();
        let dirty: Vec<HashSet<u64>> = self.faults.iter().map(|faults| faults.take_dirty()).collect();
        for found in invariants::walk(&self.dirs) {
            if !found.is_dir && dirty[found.disk].contains(&found.inode) {
                tear(&self.dirs[found.disk].join(&found.path), found.size_bytes, zeroes);
                self.reference.torn(found.inode);
            }
        }
        self.boot += 1;
        self.files_may_go = true;
        self.mount(scan)
    }

    pub fn change_disks(&mut self, change: impl FnOnce(&mut BTreeSet<usize>)) -> Result<(), String> {
        let mut present: BTreeSet<usize> = self.present.iter().copied().collect();
        change(&mut present);
        if present.is_empty() || present.iter().eq(self.present.iter()) {
            return Ok(());
        }
        self.drop_volume(true);
        self.known.extend(present.iter().copied());
        self.present = present.into_iter().collect();
        self.mount(true)
    }

    /// Whether files that were not durable may go now: a scan or a probe has met them.
    pub fn may_remove(&self) -> bool {
        self.files_may_go && self.fs().volume().is_recovering()
    }

    /// Whether files that were not durable may go at a start.
    pub fn may_remove_at_start(&self) -> bool {
        self.files_may_go
    }

    pub fn heal(&mut self) {
        self.faults.iter().for_each(|faults| faults.heal());
        // As the evictors do every second.
        if let Some(rig) = &self.rig {
            (0..rig.dirs.len()).for_each(|no| rig.fs.volume().refresh_room(DiskNo(no as u8)));
        }
    }

    /// The scan of one disk goes on by `batches`.
    pub fn scan_some(&mut self, disk: usize, batches: u64) {
        let Some(no) = self.position(disk) else {
            return;
        };
        let volume = Arc::clone(self.fs().volume());
        let is_scanned = volume.disk(no).is_ok_and(|disk| disk.is_scanned());
        let scan = self.scans.entry(disk).or_insert_with(|| {
            let gate = Arc::new(Gate::default());
            let behind = Arc::clone(&gate);
            let work = move || behind.guard(|| is_scanned || recovery::scan_disk(&volume, no, &|| false).is_ok());
            Scan { gate, thread: Some(std::thread::spawn(move || _ = work())) }
        });
        scan.gate.let_through(batches);
        if scan.gate.is_done()
            && let Some(mut scan) = self.scans.remove(&disk)
        {
            scan.thread.take().expect("a scan's thread").join().expect("a scan that ends");
        }
    }

    /// All disks are scanned to their end, if no fault forbids it.
    pub fn finish_scan(&mut self, trouble: bool) -> Result<(), String> {
        for disk in self.scans.keys().copied().collect::<Vec<_>>() {
            self.scan_some(disk, u64::MAX / 2);
        }
        let volume = Arc::clone(self.fs().volume());
        for (no, disk) in (0u8..).map(DiskNo).zip(volume.disks()) {
            if disk.is_scanned() {
                continue;
            }
            let report = recovery::scan_disk(&volume, no, &|| false);
            match report {
                Ok(report) if report.unreadable == 0 => {}
                Ok(_) | Err(_) if trouble => self.clean = false,
                other => return Err(format!("a scan without a fault: {other:?}")),
            }
        }
        if !volume.is_recovering() {
            self.fs().monitor().set_recovered(&volume);
        }
        Ok(())
    }

    /// Everything on the disks of the volume.
    pub fn found(&self) -> Vec<Found> {
        let dirs: Vec<PathBuf> = self.present.iter().map(|n| self.dirs[*n].clone()).collect();
        invariants::walk(&dirs)
    }

    /// The same by path. A file that no client made is taken for one that a failed create has left, if that can be.
    pub fn on_disks(&mut self, found: &[Found], ghosts: bool) -> Result<OnDisks, String> {
        let mut nodes = OnDisks::new();
        for found in found {
            let node = match (found.is_dir, self.reference.id_of(found.inode)) {
                (true, _) => Node::Dir,
                (false, Some(id)) => Node::File(id),
                (false, None) if ghosts && found.size_bytes == 0 => {
                    let id = self.reference.new_file(found.inode);
                    self.reference.note_had(&found.path, id);
                    Node::File(id)
                }
                (false, None) => return Err(format!("nobody has made the file {:?}", found.path)),
            };
            nodes.entry(found.path.clone()).or_default().insert(node);
        }
        Ok(nodes)
    }

    /// Files on disks that a fault may keep from being asked about a name.
    pub fn unreadable_files(&self, in_window: bool) -> BTreeSet<Id> {
        let volume = self.fs().volume();
        let unreadable = |found: &Found| {
            let scanned = volume.disks().get(found.disk).is_some_and(Disk::is_scanned);
            self.faults[self.present[found.disk]].is_armed() || (in_window && !scanned)
        };
        self.found().into_iter().filter(unreadable).filter_map(|found| self.reference.id_of(found.inode)).collect()
    }

    fn read_disks(&mut self, reading: Reading) -> Result<(), String> {
        let found = self.found();
        let nodes = self.on_disks(&found, false)?;
        for (from, to) in self.half_moves.clone() {
            self.note_moves(&from, &to, &nodes);
        }
        self.reference.read(&nodes, reading, &|_| true)
    }

    /// Runs `look` while no fault can hit it.
    pub fn unharmed<T>(&mut self, look: impl FnOnce(&mut Self) -> T) -> T {
        self.faults.iter().for_each(|faults| faults.pause(true));
        let seen = look(self);
        self.faults.iter().for_each(|faults| faults.pause(false));
        seen
    }

    /// Checks volume, disks and reference against each other.
    pub fn check(&mut self, found: &[Found], nodes: &OnDisks) -> Result<(), String> {
        let mut handles: HashMap<Ino, Handles> = HashMap::new();
        for open in &self.handles {
            let counts = handles.entry(open.ino).or_default();
            counts.all += 1;
            counts.writers += u32::from(open.writer);
        }
        let reference = &self.reference;
        let known = Known {
            handles: &handles,
            in_doubt: &|path| !reference.is_settled(path),
            dirs_in_doubt: self.dirs_in_doubt,
            size_in_doubt: &|found| reference.id_of(found.inode).is_some_and(|id| self.sizes_in_doubt.contains(&id)),
            shadows: &|found| {
                let node = reference.id_of(found.inode).map_or(Node::Dir, Node::File);
                reference.is_retired(&found.path, node)
            },
        };
        invariants::check(self.fs().volume(), found, &known)?;
        self.check_places(nodes)
    }

    /// What must be at a path is on a disk, and nothing else is, except copies that were replaced.
    fn check_places(&self, nodes: &OnDisks) -> Result<(), String> {
        let none = BTreeSet::new();
        let paths: BTreeSet<&str> = self.reference.paths().chain(nodes.keys().map(String::as_str)).collect();
        for path in paths.into_iter().filter(|path| self.reference.is_settled(path)) {
            let (must, there) = (self.reference.must(path), nodes.get(path).unwrap_or(&none));
            if must != Node::Absent && !there.contains(&must) {
                return Err(format!("{path:?} should be {must:?}, and on the disks is {there:?}"));
            }
            let others = there.iter().filter(|node| **node != must && !self.reference.is_retired(path, **node));
            if let Some(other) = others.into_iter().next() {
                return Err(format!("{path:?} should be {must:?}, and on a disk is {other:?}"));
            }
        }
        Ok(())
    }
}

impl Drop for World {
    fn drop(&mut self) {
        self.heal();
        for (_, mut scan) in self.scans.drain() {
            scan.gate.cancel();
            drop(scan.thread.take().map(JoinHandle::join));
        }
        if let Some(rig) = self.rig.take() {
            rig.forget_checks();
        }
    }
}

/// Makes a file what a power cut would.
fn tear(path: &std::path::Path, size_bytes: u64, zeroes: bool) {
    let file = std::fs::File::options().write(true).open(path).expect("a file");
    let times = file.metadata().and_then(|meta| meta.modified()).expect("its times");
    file.set_len(if zeroes { 0 } else { size_bytes / 2 }).expect("a shorter file");
    if zeroes {
        file.set_len(size_bytes).expect("a hole");
    }
    file.set_modified(times).expect("its old times");
}
