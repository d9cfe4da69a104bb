//! The rename of a directory over several disks that stops anywhere, in process. Names are sentences of docs/SEMANTICS.md.

mod common;

use std::collections::HashSet;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::PathBuf;
use std::sync::Arc;

use common::faulty::{Call, Effect, Faults, FaultyDisk, Rule, Window};
use common::{Rig, disk_id, is, memory_dir, names_in};
use kvspan::config::Amount;
use kvspan::volume::attr::{DiskNo, Ino};
use kvspan::volume::disk::real::RealDisk;
use kvspan::volume::disk::{Disk, DiskLimits};
use kvspan::volume::files::RenameMode;
use kvspan::volume::rescan::rescan_disk;
use rustix::io::Errno;

const DISKS: usize = 3;
const FILES: usize = 9;
/// More disk calls than a rename or a replay makes.
const CALLS_MAX: u64 = 400;
const RECORD: &str = ".kvspan/renames";

/// Disks whose calls can be cut off, and no volume over them yet.
struct Lab {
    dirs: Vec<PathBuf>,
    faults: Vec<Arc<Faults>>,
    _temp: tempfile::TempDir,
}

/// What a rename is tried on: names, and what is made before.
#[derive(Clone, Copy, Debug)]
struct Case {
    from: &'static str,
    to: &'static str,
    /// The disks that have copies of the source.
    on: &'static [usize],
    /// Directories of the target or above it, each made on this disk.
    made: &'static [(usize, &'static str)],
}

const CASES: [Case; 5] = [
    Case { from: "a", to: "b", on: &[0, 1, 2], made: &[] },
    Case { from: "a", to: "p/q/b", on: &[0, 1, 2], made: &[(1, "p"), (1, "p/q")] },
    Case { from: "x/a", to: "b", on: &[0, 1, 2], made: &[(2, "b"), (0, "b")] },
    Case { from: "a", to: "p/b", on: &[0, 1, 2], made: &[(0, "p"), (0, "p/b"), (2, "p"), (2, "p/b")] },
    // The target is on a disk that has no copy of the source.
    Case { from: "a", to: "b", on: &[1, 2], made: &[(0, "b"), (2, "b")] },
];

/// The mode of the directory that is renamed; another one has the umask's.
const MODE: u32 = 0o750;

impl Case {
    /// The disk that has the n-th file.
    fn disk_of(self, n: usize) -> usize {
        self.on[n % self.on.len()]
    }
}

fn bytes_of(n: usize) -> Vec<u8> {
    format!("object {n}").into_bytes()
}

impl Lab {
    fn new() -> Lab {
        let temp = tempfile::tempdir_in(memory_dir()).expect("a temporary directory");
        let dirs: Vec<PathBuf> = (0..DISKS).map(|n| temp.path().join(format!("disk{n}"))).collect();
        dirs.iter().for_each(|dir| fs::create_dir_all(dir.join(".kvspan")).expect("a disk's directory"));
        Lab { dirs, faults: (0..DISKS).map(|_| Arc::default()).collect(), _temp: temp }
    }

    /// Files at two depths of the source, on its disks in turn, and what the case wants made.
    fn prepared(case: Case) -> Lab {
        let lab = Lab::new();
        for n in 0..FILES {
            let path = lab.dirs[case.disk_of(n)].join(case.from).join(Lab::name(n));
            fs::create_dir_all(path.parent().expect("a directory")).expect("directories");
            fs::write(path, bytes_of(n)).expect("a file");
        }
        for disk in case.on {
            let mode = fs::Permissions::from_mode(MODE);
            fs::set_permissions(lab.dirs[*disk].join(case.from), mode).expect("permissions");
        }
        for (disk, path) in case.made {
            fs::create_dir_all(lab.dirs[*disk].join(path)).expect("a directory");
        }
        lab
    }

    /// A file's path below the directory that is renamed.
    fn name(n: usize) -> String {
        if n < FILES / 3 { format!("k{n}") } else { format!("s/k{n}") }
    }

    /// A volume over these disks, scanned.
    fn mount(&self, present: &[usize]) -> Rig {
        let rig = self.try_mount(present).expect("a volume");
        rig.fs.volume().load_removed(present.len() < DISKS, false);
        rig.scan();
        rig
    }

    fn try_mount(&self, present: &[usize]) -> kvspan::error::Result<Rig> {
        let limits = DiskLimits { limit: Amount::Percent(95.0), reserve: Amount::Percent(2.0) };
        let disk = |n: &usize| {
            let root = fs::File::open(&self.dirs[*n]).expect("a disk's directory");
            let io = FaultyDisk::new(RealDisk::new(root.into()), Arc::clone(&self.faults[*n]));
            Disk::new(disk_id(*n), self.dirs[*n].clone(), Box::new(io), limits)
        };
        let dirs = present.iter().map(|n| self.dirs[*n].clone()).collect();
        Rig::of(dirs, present.iter().map(disk).collect(), std::time::Duration::from_secs(5))
    }

    /// From now on so many calls succeed, on all disks together, and no more: what a kill leaves is what they have done.
    fn cut_after(&self, calls: u64) -> Arc<Window> {
        let window = Window::new(calls, u64::MAX, Errno::IO);
        self.faults.iter().for_each(|faults| faults.set_window(Some(&window)));
        window
    }

    fn heal(&self) {
        self.faults.iter().for_each(|faults| faults.heal());
    }

    /// Renames, and is killed after so many disk calls. False when it was over before.
    fn crash(&self, case: Case, calls: u64) -> bool {
        let rig = self.mount(&[0, 1, 2]);
        self.faults.iter().for_each(|faults| drop(faults.take_dirty()));
        self.cut_after(calls);
        let done = rig.rename(case.from, case.to);
        rig.forget_checks();
        let stopped = done.is_err() || !self.has_no_record();
        assert!(done.is_err() || self.is_at(case, case.to), "{case:?}: it said yes");
        self.heal();
        stopped
    }

    /// The disks that hold a record.
    fn records(&self) -> Vec<usize> {
        (0..DISKS).filter(|n| self.dirs[*n].join(RECORD).exists()).collect()
    }

    fn has_no_record(&self) -> bool {
        self.records().is_empty()
    }

    /// Where the copies of the directory are: below the old name, below the new one.
    fn copies(&self, path: &str) -> Vec<usize> {
        (0..DISKS).filter(|n| self.dirs[*n].join(path).join("s").exists()).collect()
    }

    /// Whether all of it has the old name, or all of it the new one.
    fn is_at(&self, case: Case, path: &str) -> bool {
        self.copies(path) == case.on
    }
}

/// A rename that was killed after 0, `step`, twice `step` disk calls, until it was over before.
fn crashes(case: Case, step: usize) -> impl Iterator<Item = (u64, Lab)> {
    (0..CALLS_MAX).step_by(step).map_while(move |calls| {
        let lab = Lab::prepared(case);
        lab.crash(case, calls).then_some((calls, lab))
    })
}

/// The directory is whole under exactly one of the two names, which is returned.
fn whole_under(rig: &Rig, case: Case, context: &str) -> &'static str {
    let is_at = |path: &str| rig.lookup(&format!("{path}/s")).is_ok();
    let (name, other) = if is_at(case.to) { (case.to, case.from) } else { (case.from, case.to) };
    for n in 0..FILES {
        let path = format!("{name}/{}", Lab::name(n));
        assert_eq!(rig.load(&path).expect(&path), bytes_of(n), "{context}: {path}");
    }
    let mode = u32::from(rig.lookup(name).expect("the directory").attr.mode) & 0o777;
    assert_eq!(mode, MODE, "{context}: the mode of {name}");
    assert_eq!(rig.names(name, 100).len(), FILES / 3 + 1, "{context}");
    assert_eq!(rig.names(&format!("{name}/s"), 100).len(), FILES - FILES / 3, "{context}");
    if rig.lookup(other).is_ok() {
        assert!(other == case.to && !case.made.is_empty(), "{context}: {other} is there too");
        assert!(rig.names(other, 10).is_empty(), "{context}: {other} is not empty");
    }
    name
}

#[test]
fn a_crash_at_any_moment_leaves_a_directory_whole_under_one_name() {
    for case in CASES {
        let (mut old, mut new) = (0, 0);
        for (calls, lab) in crashes(case, 1) {
            let rig = lab.mount(&[0, 1, 2]);
            let context = format!("{case:?} after {calls} calls");
            let name = whole_under(&rig, case, &context);
            *if name == case.from { &mut old } else { &mut new } += 1;
            assert!(lab.has_no_record(), "{context}");
            if calls % 4 == 0 {
                let back = if name == case.from { case.to } else { case.from };
                rig.rename(name, back).expect("the next rename");
                drop(rig);
                assert_eq!(whole_under(&lab.mount(&[0, 1, 2]), case, &context), back);
            }
        }
        assert!(old > 10 && new > 10, "{case:?}: {old} times under the old name and {new} times under the new one");
    }
}

#[test]
fn no_disk_renames_before_every_disk_has_the_record_for_good() {
    for case in CASES {
        let is_half = |(_, lab): &(u64, Lab)| !lab.is_at(case, case.from) && !lab.is_at(case, case.to);
        let mut halves = 0;
        for (calls, lab) in crashes(case, 1).filter(is_half) {
            halves += 1;
            assert_eq!(lab.records(), [0, 1, 2], "{case:?} after {calls} calls");
            for (dir, faults) in lab.dirs.iter().zip(&lab.faults) {
                let written: HashSet<u64> = faults.take_dirty();
                let record = fs::metadata(dir.join(RECORD)).expect("the record").ino();
                assert!(!written.contains(&record), "{case:?} after {calls} calls: a record is not durable");
            }
        }
        assert!(halves > 0, "{case:?}");
    }
}

#[test]
fn a_crash_while_a_mount_finishes_a_rename_changes_nothing() {
    for (case, more) in
        [CASES[1], CASES[2], CASES[4]].into_iter().flat_map(|case| (3..60).step_by(4).map(move |more| (case, more)))
    {
        for (calls, lab) in crashes(case, 5) {
            let is_new = !lab.is_at(case, case.from) && lab.records().len() == DISKS;
            lab.cut_after(more);
            if let Ok(rig) = lab.try_mount(&[0, 1, 2]) {
                rig.forget_checks();
            }
            lab.heal();
            let context = format!("{case:?} after {calls} calls, and {more} of the mount");
            let name = whole_under(&lab.mount(&[0, 1, 2]), case, &context);
            assert!(!is_new || name == case.to, "{context}: it goes forward");
            assert!(lab.has_no_record(), "{context}");
        }
    }
}

#[test]
fn a_disk_that_is_missing_after_a_crash_follows_when_it_is_back() {
    for (case, missing) in
        [CASES[1], CASES[2], CASES[4]].into_iter().flat_map(|case| (0..DISKS).map(move |disk| (case, disk)))
    {
        for (calls, lab) in crashes(case, 2) {
            let present: Vec<usize> = (0..DISKS).filter(|n| *n != missing).collect();
            let rest = lab.mount(&present);
            let context = format!("{case:?} after {calls} calls without disk {missing}");
            let is_at = |path: &str| rest.lookup(&format!("{path}/s")).is_ok();
            assert!(is_at(case.from) != is_at(case.to), "{context}");
            let (name, other) = if is_at(case.to) { (case.to, case.from) } else { (case.from, case.to) };
            for n in (0..FILES).filter(|n| case.disk_of(*n) != missing) {
                let path = format!("{name}/{}", Lab::name(n));
                assert_eq!(rest.load(&path).expect(&path), bytes_of(n), "{context}");
            }
            assert!(is(&rest.rename(name, "elsewhere"), Errno::XDEV), "{context}");
            // Somebody uses the other name meanwhile.
            let used = name == case.to && rest.mkdir(other).is_ok();
            if used {
                rest.write(&format!("{other}/new"), b"new").expect("a file");
            }
            drop(rest);
            let all = lab.mount(&[0, 1, 2]);
            if used {
                assert_eq!(all.load(&format!("{other}/new")).expect("it stays"), b"new", "{context}");
                all.unlink(&format!("{other}/new")).and(all.rmdir(other)).expect("nothing else is there");
            }
            assert_eq!(whole_under(&all, case, &context), name, "{context}");
            assert!(lab.has_no_record(), "{context}");
        }
    }
}

#[test]
fn two_disks_that_come_back_one_after_the_other_follow_too() {
    let case = CASES[0];
    for first in 0..DISKS {
        for (calls, lab) in crashes(case, 2) {
            let context = format!("after {calls} calls, disk {first} first");
            drop(lab.mount(&[first]));
            drop(lab.mount(&[first, (first + 1) % DISKS]));
            whole_under(&lab.mount(&[0, 1, 2]), case, &context);
            assert!(lab.has_no_record(), "{context}");
        }
    }
}

#[test]
fn mounts_without_any_disk_in_any_order_and_killed_themselves_never_split_a_directory() {
    let mut random = 0x9e37_79b9_7f4a_7c15_u64;
    let mut below = |bound: u64| {
        random = random.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
        (random >> 33) % bound
    };
    for (case, _) in [CASES[0], CASES[4]].into_iter().flat_map(|case| (0..3).map(move |round| (case, round))) {
        for (calls, lab) in crashes(case, 3) {
            let mut context = format!("{case:?} after {calls} calls");
            for _ in 0..4 {
                let some = below(7) + 1;
                let present: Vec<usize> = (0..DISKS).filter(|n| some & (1 << n) != 0).collect();
                let cut = below(50);
                context = format!("{context}, {present:?} for {cut}");
                if cut < 40 {
                    lab.cut_after(cut);
                    lab.try_mount(&present).into_iter().for_each(Rig::forget_checks);
                    lab.heal();
                    continue;
                }
                let rig = lab.mount(&present);
                let is_at = |path: &str| rig.lookup(&format!("{path}/s")).is_ok();
                let shows = present.iter().any(|disk| case.on.contains(disk));
                assert_eq!(u32::from(is_at(case.from)) + u32::from(is_at(case.to)), u32::from(shows), "{context}");
            }
            whole_under(&lab.mount(&[0, 1, 2]), case, &context);
            assert!(lab.has_no_record(), "{context}");
        }
    }
}

#[test]
fn a_rename_that_was_finished_without_a_disk_is_not_forgotten_when_its_directory_is_removed() {
    let mut begun = crashes(CASES[0], 1).filter(|(_, lab)| lab.records() == [0, 1]);
    let (_, lab) = begun.next().expect("a record that the last disk has not got");
    let rest = lab.mount(&[0, 1]);
    for n in (0..FILES).filter(|n| n % DISKS != 2) {
        common::pause();
        rest.unlink(&format!("b/{}", Lab::name(n))).expect("an unlink");
    }
    rest.rmdir("b/s").and(rest.rmdir("b")).expect("an empty directory");
    drop(rest);
    let all = lab.mount(&[0, 1, 2]);
    assert!(is(&all.lookup("a"), Errno::NOENT), "the name that was last seen is the new one");
    assert_eq!((lab.copies("a"), lab.copies("b")), (vec![], vec![2]));
    assert!(lab.has_no_record());
}

#[test]
fn a_rename_that_waits_for_a_disk_that_was_taken_out_hinders_no_other() {
    let lab = half_renamed(CASES[0]);
    let rest = lab.try_mount(&[0, 1]).expect("a volume");
    rest.fs.volume().load_removed(false, false);
    rest.scan();
    rest.rename("b", "c").expect("a rename");
    rest.rename("c", "d").expect("a rename");
    drop(rest);
    assert_eq!(lab.records(), [0, 1, 2]);
    let all = lab.mount(&[0, 1, 2]);
    for n in 0..FILES {
        let dir = if n % DISKS == 2 { "b" } else { "d" };
        assert_eq!(all.load(&format!("{dir}/{}", Lab::name(n))).expect("a load"), bytes_of(n));
    }
    assert!(lab.has_no_record());
}

#[test]
fn a_directory_keeps_its_name_until_a_disk_that_is_back_knows_what_was_unlinked_in_it() {
    let lab = Lab::prepared(CASES[0]);
    common::pause();
    let rest = lab.mount(&[0, 1]);
    rest.write("a/k2", b"younger").and(rest.unlink("a/k2")).expect("an unlink of what the missing disk has too");
    rest.fs.volume().flush_removed();
    drop(rest);
    let all = lab.try_mount(&[0, 1, 2]).expect("a volume");
    all.fs.volume().load_removed(false, false);
    assert!(all.lookup("a/s").is_ok());
    assert!(is(&all.rename("a", "b"), Errno::XDEV));
    all.scan();
    all.rename("a", "b").expect("a rename");
    assert!(is(&all.load("b/k2"), Errno::NOENT));
    drop(all);
    assert!(is(&lab.mount(&[0, 1, 2]).load("b/k2"), Errno::NOENT));
}

#[test]
fn a_disk_that_refuses_has_the_others_take_the_rename_back() {
    for case in CASES {
        for refusing in 0..DISKS {
            let lab = Lab::prepared(case);
            let rig = lab.mount(&[0, 1, 2]);
            // The record is renamed into its place first.
            let (call, skip) = if case.on.contains(&refusing) { (Call::Rename, 1) } else { (Call::Rmdir, 0) };
            lab.faults[refusing].add(Rule { call, effect: Effect::Fail(Errno::IO), skip, count: 1 });
            assert!(is(&rig.rename(case.from, case.to), Errno::IO), "{case:?}");
            assert!(lab.is_at(case, case.from) && lab.has_no_record(), "{case:?}");
            assert_eq!(whole_under(&rig, case, "at once"), case.from);
            for (disk, path) in case.made {
                assert!(lab.dirs[*disk].join(path).is_dir(), "{case:?}: {path} is made again");
            }
            rig.rename(case.from, case.to).expect("the disk is well again");
            assert_eq!(whole_under(&lab.mount(&[0, 1, 2]), case, "at the end"), case.to);
        }
    }
}

#[test]
fn a_rename_that_cannot_be_taken_back_is_finished_by_the_next_mount() {
    let case = CASES[0];
    let lab = Lab::prepared(case);
    let rig = lab.mount(&[0, 1, 2]);
    let open = rig.fs.open(rig.lookup("a/k0").expect("the entry").ino, common::READ).expect("an open");
    // Disk 0 renames and then fails, disk 1 has not renamed and refuses.
    lab.faults[0].add(Rule { call: Call::Rename, effect: Effect::Fail(Errno::NXIO), skip: 2, count: u32::MAX });
    lab.faults[1].add(Rule { call: Call::Rename, effect: Effect::Fail(Errno::NOSPC), skip: 1, count: 1 });
    assert!(is(&rig.rename("a", "b"), Errno::IO), "neither done nor undone");
    assert_eq!((lab.copies("a"), lab.copies("b")), (vec![1, 2], vec![0]));
    assert_eq!(lab.records(), [0, 1, 2]);
    for n in 0..FILES {
        let loaded = rig.load(&format!("a/{}", Lab::name(n)));
        if n % DISKS == 0 {
            assert!(is(&loaded, Errno::NOENT), "it is not there any more");
        } else {
            assert_eq!(loaded.expect("a load"), bytes_of(n));
        }
    }
    assert_eq!((rig.names("a", 2).len(), rig.names("a/s", 2).len()), (3, 4));
    let mut bytes = [0; 8];
    assert_eq!(rig.fs.read(open.handle, &mut bytes, 0).expect("who has it open has it"), 8);
    rig.fs.close(open.handle);
    assert!(is(&rig.rename("a", "c"), Errno::XDEV), "no other one before this one is over");
    lab.heal();
    drop(rig);
    assert_eq!(whole_under(&lab.mount(&[0, 1, 2]), case, "the next mount"), "b");
    assert!(lab.has_no_record());
}

#[test]
fn a_record_that_cannot_be_written_stops_the_rename_before_it_begins() {
    let case = CASES[0];
    for disk in 0..DISKS {
        for call in [Call::Create, Call::Write, Call::Fsync, Call::Rename] {
            let lab = Lab::prepared(case);
            let rig = lab.mount(&[0, 1, 2]);
            lab.faults[disk].fail_next(call, Errno::NOSPC, 1);
            assert!(is(&rig.rename("a", "b"), Errno::NOSPC), "{call:?} on disk {disk}");
            assert!(lab.is_at(case, "a") && lab.has_no_record(), "{call:?} on disk {disk}");
            rig.rename("a", "b").expect("the disk is well again");
        }
    }
}

/// The state after a kill in which disk 0 has renamed and the others have not.
fn half_renamed(case: Case) -> Lab {
    let half = crashes(case, 1).find(|(_, lab)| lab.copies(case.to) == [0]);
    half.expect("a rename that one disk has done").1
}

#[test]
fn a_record_that_one_disk_has_lost_or_that_is_damaged_there_is_read_from_the_others() {
    let damage: [fn(&std::path::Path); 5] = [
        |path| fs::write(path, b"kvspan renames 1\n\xff\xff\xff\xff").expect("damaged"),
        |path| {
            let mut bytes = fs::read(path).expect("the record");
            *bytes.last_mut().expect("a byte") ^= 1;
            fs::write(path, bytes).expect("damaged");
        },
        |path| fs::write(path, vec![0; 1 << 20]).expect("too long"),
        |path| fs::remove_file(path).and_then(|()| symlink("/etc/passwd", path)).expect("a symlink"),
        |path| fs::remove_file(path).and_then(|()| fs::create_dir(path)).expect("a directory"),
    ];
    for damage in damage {
        for disk in 0..DISKS {
            let lab = half_renamed(CASES[0]);
            damage(&lab.dirs[disk].join(RECORD));
            assert_eq!(whole_under(&lab.mount(&[0, 1, 2]), CASES[0], "damaged on one disk"), "b");
        }
        // Nothing is known: nothing is touched, and every file is found where it is.
        let lab = half_renamed(CASES[0]);
        lab.dirs.iter().for_each(|dir| damage(&dir.join(RECORD)));
        let rig = lab.mount(&[0, 1, 2]);
        assert_eq!((lab.copies("a"), lab.copies("b")), (vec![1, 2], vec![0]));
        for n in 0..FILES {
            let dir = if n % DISKS == 0 { "b" } else { "a" };
            assert_eq!(rig.load(&format!("{dir}/{}", Lab::name(n))).expect("a load"), bytes_of(n));
        }
    }
}

#[test]
fn a_record_of_names_that_have_changed_since_touches_nothing() {
    // The source is another directory by now, a file, or gone.
    let lab = half_renamed(CASES[0]);
    fs::rename(lab.dirs[1].join("a"), lab.dirs[1].join("kept")).expect("moved");
    fs::create_dir_all(lab.dirs[1].join("a/other")).expect("a directory");
    fs::rename(lab.dirs[2].join("a"), lab.dirs[2].join("kept")).expect("moved");
    fs::write(lab.dirs[2].join("a"), b"a file").expect("a file");
    drop(lab.mount(&[0, 1, 2]));
    assert_eq!(names_in(&lab.dirs[1]), [".kvspan", "a", "kept"]);
    assert_eq!(names_in(&lab.dirs[2]), [".kvspan", "a", "kept"]);
    assert!(lab.has_no_record());
    // Something that is not an empty directory has the target's name: both stay.
    let lab = half_renamed(CASES[0]);
    fs::create_dir(lab.dirs[1].join("b")).expect("a directory");
    fs::write(lab.dirs[1].join("b/mine"), b"mine").expect("a file");
    fs::write(lab.dirs[2].join("b"), b"mine").expect("a file");
    drop(lab.mount(&[0, 1, 2]));
    assert_eq!((lab.copies("a"), lab.copies("b")), (vec![1, 2], vec![0]));
    assert_eq!(fs::read(lab.dirs[1].join("b/mine")).expect("it stays"), b"mine");
    assert_eq!(fs::read(lab.dirs[2].join("b")).expect("it stays"), b"mine");
    assert!(lab.has_no_record(), "a merge is no rename, now or later");
}

#[test]
fn a_record_leads_nothing_out_of_its_disk() {
    let outside = tempfile::tempdir_in(memory_dir()).expect("a directory");
    let lab = half_renamed(CASES[1]);
    // The directories above the target are symlinks on one disk, and the source is one on another.
    fs::remove_dir_all(lab.dirs[1].join("p")).expect("removed");
    symlink(outside.path(), lab.dirs[1].join("p")).expect("a symlink");
    fs::create_dir(outside.path().join("q")).expect("a directory");
    fs::rename(lab.dirs[2].join("a"), outside.path().join("a")).expect("moved");
    symlink(outside.path().join("a"), lab.dirs[2].join("a")).expect("a symlink");
    drop(lab.mount(&[0, 1, 2]));
    assert_eq!(names_in(outside.path()), ["a", "q"]);
    assert!(names_in(&outside.path().join("q")).is_empty());
    assert!(lab.dirs[1].join("a/s").is_dir() && lab.dirs[2].join("a").is_symlink());
}

#[test]
fn a_disk_that_cannot_be_read_at_the_mount_follows_by_a_rescan() {
    let lab = half_renamed(CASES[0]);
    lab.faults[2].fail_next(Call::Stat, Errno::IO, u32::MAX);
    lab.faults[2].fail_next(Call::List, Errno::IO, u32::MAX);
    let rig = lab.try_mount(&[0, 1, 2]).expect("a volume");
    let volume = rig.fs.volume();
    volume.load_removed(false, false);
    for n in 0..DISKS as u8 {
        if kvspan::volume::recovery::scan_disk(volume, DiskNo(n), &|| false).is_err() {
            volume.disk_is_unreadable(DiskNo(n));
        }
    }
    assert_eq!((lab.copies("a"), lab.copies("b")), (vec![2], vec![0, 1]));
    assert!(is(&rig.rename("b", "c"), Errno::XDEV));
    lab.heal();
    rescan_disk(volume, DiskNo(2), &|_| true).expect("a rescan");
    assert_eq!(whole_under(&rig, CASES[0], "after the rescan"), "b");
    assert!(lab.has_no_record());
    rig.rename("b", "c").expect("the next rename");
}

#[test]
fn a_rename_on_one_disk_needs_no_record_and_no_sync() {
    let case = Case { on: &[1], ..CASES[0] };
    let lab = Lab::prepared(case);
    let rig = lab.mount(&[0, 1, 2]);
    let calls = |call| lab.faults.iter().map(|faults| faults.calls(call)).sum::<u64>();
    let before = (calls(Call::Fsync), calls(Call::Write), calls(Call::Rename));
    rig.rename("a", "b").expect("a rename");
    assert_eq!((calls(Call::Fsync), calls(Call::Write), calls(Call::Rename)), (before.0, before.1, before.2 + 1));
    assert_eq!(whole_under(&rig, case, "at once"), "b");
}

#[test]
fn a_mount_without_a_record_asks_each_disk_once() {
    let lab = Lab::new();
    let volume = lab.mount(&[0, 1, 2]);
    let calls = || -> u64 {
        [Call::Stat, Call::Open, Call::OpenDir, Call::Unlink].into_iter().map(|call| lab.faults[1].calls(call)).sum()
    };
    let before = calls();
    volume.fs.volume().replay_renames();
    assert_eq!(calls(), before + 1);
}

#[test]
fn directories_are_swapped_or_replaced_only_where_that_is_promised() {
    let lab = Lab::prepared(CASES[3]);
    let rig = lab.mount(&[0, 1, 2]);
    rig.mkdir("free").expect("a directory");
    let rename = |from: &str, to: &str, mode| {
        let ((a, from), (b, to)) = (rig.dir_of(from), rig.dir_of(to));
        rig.fs.rename((a, from.as_bytes()), (b, to.as_bytes()), mode)
    };
    assert!(is(&rename("a", "p/b", RenameMode::NoReplace), Errno::EXIST));
    assert!(is(&rename("a", "free", RenameMode::Exchange), Errno::INVAL));
    assert!(is(&rename("a", "none", RenameMode::Exchange), Errno::NOENT));
    assert!(is(&rename("p", "a", RenameMode::Replace), Errno::NOTEMPTY));
    assert!(is(&rename("a", "a/s/in", RenameMode::Replace), Errno::INVAL));
    assert!(is(&rename("a", "a/k0", RenameMode::Replace), Errno::INVAL));
    assert!(is(&rename("free", "a/k0", RenameMode::Replace), Errno::NOTDIR));
    assert!(is(&rename("a/k0", "free", RenameMode::Replace), Errno::ISDIR));
    rename("a", "p/c", RenameMode::NoReplace).expect("a free name");
    rename("p/c", "p/b", RenameMode::Replace).expect("an empty directory on two disks");
    assert_eq!(whole_under(&rig, CASES[3], "at the end"), "p/b");
    assert_eq!(rig.lookup("p").expect("the entry").parent, Ino::ROOT);
}
