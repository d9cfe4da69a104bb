//! Promises that need a disk which is late, slow or odd. In process. Names are sentences of docs/SEMANTICS.md.

mod common;

use std::fs::{self, File, FileTimes, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use common::faulty::{Call, Faults, FaultyDisk};
use common::gate::Gate;
use common::{READ, Rig, disk_id, is};
use kvspan::config::Amount;
use kvspan::volume::attr::{DiskNo, Ino};
use kvspan::volume::disk::real::RealDisk;
use kvspan::volume::disk::{Disk, DiskIo, DiskLimits};
use kvspan::volume::recovery::scan_disk;
use rustix::io::Errno;

const MIB: u64 = 1 << 20;

/// Empty directories for disks.
fn directories(count: usize) -> (tempfile::TempDir, Vec<PathBuf>) {
    let temp = tempfile::tempdir().expect("a directory");
    let dirs: Vec<PathBuf> = (0..count).map(|n| temp.path().join(format!("disk{n}"))).collect();
    dirs.iter().for_each(|dir| fs::create_dir(dir).expect("a disk's directory"));
    (temp, dirs)
}

/// One command over the faults of all disks.
fn faulty(faults: &Arc<Faults>) -> impl Fn(usize, RealDisk) -> Box<dyn DiskIo> + use<> {
    let faults = Arc::clone(faults);
    move |_, real| Box::new(FaultyDisk::new(real, Arc::clone(&faults)))
}

fn modified(path: &std::path::Path, seconds: u64) {
    let time = SystemTime::UNIX_EPOCH + Duration::from_secs(seconds);
    let file = File::open(path).expect("a file");
    file.set_times(FileTimes::new().set_modified(time)).expect("a time");
}

#[test]
fn of_two_copies_with_one_birth_the_later_mtime_is_shown_then_the_owner_s() {
    for (times, shown) in [([1_000, 2_000], 1), ([2_000, 1_000], 0), ([1_500, 1_500], 2)] {
        let (_temp, dirs) = directories(2);
        let faults = Arc::new(Faults::default());
        for (dir, seconds) in dirs.iter().zip(times) {
            let copy = dir.join("k");
            fs::write(&copy, dir.to_string_lossy().as_bytes()).expect("a copy");
            modified(&copy, seconds);
            faults.set_birth(fs::metadata(&copy).expect("a copy").ino(), 77);
        }
        let rig = Rig::with_io(dirs.clone(), faulty(&faults));
        rig.scan();
        let shown = if shown == 2 { rig.owner("k") } else { shown };
        assert_eq!(rig.load("k").expect("a load"), dirs[shown].to_string_lossy().as_bytes(), "{times:?}");
    }
}

#[test]
fn a_directory_has_the_mode_of_its_owner_s_copy_and_the_latest_times() {
    let (_temp, dirs) = directories(3);
    for (n, dir) in dirs.iter().enumerate() {
        fs::create_dir(dir.join("d")).expect("a directory");
        fs::set_permissions(dir.join("d"), Permissions::from_mode(0o700 + n as u32)).expect("a mode");
        modified(&dir.join("d"), 1_000 * (n as u64 + 1));
    }
    let rig = Rig::over(dirs);
    rig.scan();
    let attr = rig.lookup("d").expect("the directory").attr;
    assert_eq!(attr.mode, 0o700 + rig.owner("d") as u16);
    assert_eq!(attr.mtime_ns, 3_000 * 1_000_000_000);
}

#[test]
fn who_has_found_a_file_gets_it_although_its_name_is_replaced_before_the_open() {
    let rig = Rig::new(2);
    rig.write("k", b"the one that was found").expect("a file");
    // Not given back until the end, as by a kernel that remembers the name.
    let found = rig.fs.lookup(Ino::ROOT, b"k").expect("the entry");
    rig.write("k.tmp", b"the new one").expect("a file");
    rig.rename("k.tmp", "k").expect("a rename");
    let opened = rig.fs.open(found.ino, READ).expect("an open");
    let mut buffer = [0; 64];
    let length = rig.fs.read(opened.handle, &mut buffer, 0).expect("a read");
    assert_eq!(&buffer[..length], b"the one that was found");
    rig.fs.close(opened.handle);
    assert_eq!(rig.load("k").expect("a load"), b"the new one");
    rig.fs.forget(found.ino, 1);
}

/// A disk that is full of files which no scan has shown yet.
fn full_and_unscanned(io_timeout: Duration) -> (tempfile::TempDir, Rig) {
    let (temp, dirs) = directories(1);
    (0..200).for_each(|n| fs::write(dirs[0].join(format!("old{n}")), vec![1; 64 << 10]).expect("a file"));
    let root = File::open(&dirs[0]).expect("a directory");
    let io = FaultyDisk::new(RealDisk::new(root.into()), Arc::default()).with_batches_of(10);
    let limits = DiskLimits { limit: Amount::Bytes(4 * MIB), reserve: Amount::Bytes(0) };
    let disk = Disk::new(disk_id(0), dirs[0].clone(), Box::new(io), limits);
    // All that the file system holds is the volume's, as a record would say.
    disk.set_foreign_bytes(0);
    (temp, Rig::of(dirs, vec![disk], io_timeout).expect("a volume"))
}

#[test]
fn a_create_on_a_full_disk_waits_for_the_first_files_of_its_scan() {
    let (_temp, rig) = full_and_unscanned(Duration::from_secs(60));
    let gate = Arc::new(Gate::default());
    std::thread::scope(|scope| {
        let volume = rig.fs.volume();
        scope.spawn(|| gate.guard(|| scan_disk(volume, DiskNo(0), &|| false).expect("a scan")));
        let create = scope.spawn(|| rig.create("new"));
        gate.let_through(1);
        let made = create.join().expect("an answer").expect("a file");
        assert!(!gate.is_done(), "the scan had not come to its end");
        rig.fs.close(made.handle);
        gate.let_through(1_000);
    });
    let (_temp, rig) = full_and_unscanned(Duration::from_millis(20));
    assert!(is(&rig.create("new"), Errno::NOSPC), "and no longer than io_timeout");
}

#[test]
fn a_create_evicts_eight_files_at_most_and_stops_after_five_milliseconds() {
    for (slow, most) in [(false, 8), (true, 1)] {
        let (_temp, dirs) = directories(1);
        let faults = Arc::new(Faults::default());
        let rig = Rig::build(dirs, Amount::Bytes(4 * MIB), faulty(&faults));
        rig.scan();
        // Small files up to the bound, and then one that is large: the next may be so too, and finds no room for that.
        (0..1_000).for_each(|n| rig.write(&format!("k{n}"), &[1; 4096]).expect("a file"));
        rig.write("large", &[1; 512 << 10]).expect("a file");
        let before = rig.fs.volume().evictions().files;
        if slow {
            faults.delay_next(Call::Unlink, Duration::from_millis(6), 100);
        }
        let made = rig.create("new").expect("a file");
        rig.fs.close(made.handle);
        let evicted = rig.fs.volume().evictions().files - before;
        assert!((1..=most).contains(&evicted), "{evicted} files went for one create");
    }
}

#[test]
fn a_last_use_is_written_once_for_all_uses_and_not_beyond_the_deadline() {
    let (_temp, dirs) = directories(1);
    let faults = Arc::new(Faults::default());
    let rig = Rig::with_io(dirs, faulty(&faults));
    rig.scan();
    (0..50).for_each(|n| rig.write(&format!("k{n}"), b"x").expect("a file"));
    for _ in 0..5 {
        (0..50).for_each(|n| _ = rig.load(&format!("k{n}")).expect("a load"));
    }
    faults.delay_next(Call::SetAtime, Duration::from_millis(20), 50);
    let deadline = Instant::now() + Duration::from_millis(60);
    let written = rig.fs.volume().flush_recency(Duration::ZERO, Some(deadline));
    assert!((1..50).contains(&written), "{written} of 50 were written by the deadline");
    faults.heal();
    assert_eq!(rig.fs.volume().flush_recency(Duration::ZERO, None), 50 - written);
    assert_eq!(faults.calls(Call::SetAtime), 50);
}

#[test]
fn no_miss_may_be_remembered_before_the_scan_has_ended_and_for_negative_ttl_after_it() {
    let ttl = Duration::from_millis(50);
    let rig = Rig::unscanned(2);
    assert_eq!(rig.fs.miss_ttl(ttl), Duration::ZERO);
    rig.scan();
    assert_eq!(rig.fs.miss_ttl(ttl), Duration::ZERO);
    rig.fs.monitor().set_recovered(rig.fs.volume());
    assert_eq!(rig.fs.miss_ttl(Duration::from_secs(3600)), Duration::ZERO);
    while rig.fs.miss_ttl(ttl) == Duration::ZERO {
        std::thread::sleep(Duration::from_millis(1));
    }
    assert_eq!(rig.fs.miss_ttl(ttl), ttl);
}
