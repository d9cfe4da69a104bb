//! Eight threads on few names while a disk dies and comes back: no wrong byte, and at the end all agree.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use kvspan::volume::files::RenameMode;
use rustix::io::Errno;

use crate::common::faulty::{Call, Effect, Faults, FaultyDisk, Rule};
use crate::common::invariants::{self, Found, Known};
use crate::common::{READ, Rig, WRITE, me};
use kvspan::volume::attr::{Ino, Kind};

const THREADS: u64 = 8;
const NAMES: u64 = 6;
const DISKS: usize = 3;

/// A small generator of its own (SplitMix64), so that a seed is a run.
struct Random(u64);

impl Random {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        (mixed ^ (mixed >> 31)) % end
    }
}

/// A file says in every 8 bytes which store made it, and in its length how long it is.
fn bytes_of(store: u64) -> Vec<u8> {
    store.to_le_bytes().repeat((store % 700 + 1) as usize)
}

/// The mistakes that the threads have seen.
#[derive(Default)]
struct Seen {
    stores: AtomicU64,
    wrong: Mutex<Vec<String>>,
}

impl Seen {
    fn report(&self, what: String) {
        self.wrong.lock().expect("the list").push(what);
    }
}

fn store(rig: &Rig, random: &mut Random, thread: u64, seen: &Seen) {
    let number = seen.stores.fetch_add(1, Ordering::Relaxed) + 1;
    let (temp, name) = (format!("t{thread}.tmp"), format!("n{}", random.below(NAMES)));
    let exclusive = kvspan::fs::OpenIntent { truncate: true, ..WRITE };
    let Ok(opened) = rig.fs.create(Ino::ROOT, temp.as_bytes(), me(), exclusive) else {
        return;
    };
    rig.fs.forget(opened.entry.ino, 1);
    let written = rig.fs.write(opened.handle, &bytes_of(number), 0);
    let early = random.below(2) == 0;
    if early {
        rig.fs.close(opened.handle);
    }
    if written.is_ok() {
        let _ = rig.fs.rename((Ino::ROOT, temp.as_bytes()), (Ino::ROOT, name.as_bytes()), RenameMode::Replace);
    }
    if !early {
        rig.fs.close(opened.handle);
    }
}

fn load(rig: &Rig, random: &mut Random, seen: &Seen) {
    let name = format!("n{}", random.below(NAMES));
    let Ok(entry) = rig.fs.lookup(Ino::ROOT, name.as_bytes()) else {
        return;
    };
    if let Ok(opened) = rig.fs.open(entry.ino, READ) {
        let mut bytes = vec![0; 8192];
        if let Ok(length) = rig.fs.read(opened.handle, &mut bytes, 0) {
            bytes.truncate(length);
            let number = bytes.first_chunk().map(|first| u64::from_le_bytes(*first));
            let cut = entry.attr.size_bytes != length as u64;
            if cut || number.is_none_or(|number| bytes != bytes_of(number)) {
                seen.report(format!("{name} has {length} bytes that nobody stored"));
            }
        }
        rig.fs.close(opened.handle);
    }
    rig.fs.forget(entry.ino, 1);
}

fn work(rig: &Rig, thread: u64, until: Instant, seen: &Seen) {
    let mut random = Random(thread);
    while Instant::now() < until {
        let name = |random: &mut Random| format!("n{}", random.below(NAMES));
        match random.below(10) {
            0..=3 => store(rig, &mut random, thread, seen),
            4..=6 => load(rig, &mut random, seen),
            7 => drop(rig.fs.unlink(Ino::ROOT, name(&mut random).as_bytes())),
            8 => {
                let (from, to) = (name(&mut random), name(&mut random));
                let mode = if random.below(3) == 0 { RenameMode::Exchange } else { RenameMode::Replace };
                drop(rig.fs.rename((Ino::ROOT, from.as_bytes()), (Ino::ROOT, to.as_bytes()), mode));
            }
            _ => {
                let no = kvspan::volume::attr::DiskNo(random.below(DISKS as u64) as u8);
                rig.fs.volume().evict_bytes(no, 4096);
            }
        }
    }
}

/// A disk that dies, and calls here and there that fail or take longer.
fn trouble(faults: &[Arc<Faults>], until: Instant) {
    let mut random = Random(99);
    while Instant::now() < until {
        let disk = &faults[random.below(DISKS as u64) as usize];
        let calls = [Call::Open, Call::Create, Call::Rename, Call::Unlink, Call::StatFd, Call::Write, Call::Stat];
        let call = calls[random.below(calls.len() as u64) as usize];
        match random.below(6) {
            0 => disk.fail_all(Errno::IO),
            1 => disk.delay_next(call, Duration::from_millis(3), 4),
            2 | 3 => disk.add(Rule { call, effect: Effect::Fail(Errno::IO), skip: 1, count: 2 }),
            _ => disk.heal(),
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    faults.iter().for_each(|faults| faults.heal());
}

#[test]
fn eight_threads_on_few_names_over_a_dying_disk_leave_all_in_agreement() {
    let temp = tempfile::tempdir().expect("a temporary directory");
    let dirs: Vec<_> = (0..DISKS).map(|n| temp.path().join(format!("disk{n}"))).collect();
    dirs.iter().for_each(|dir| std::fs::create_dir(dir).expect("a disk's directory"));
    let faults: Vec<Arc<Faults>> = (0..DISKS).map(|_| Arc::default()).collect();
    let rig = Rig::with_io(dirs.clone(), |n, real| Box::new(FaultyDisk::new(real, Arc::clone(&faults[n]))));
    rig.scan();
    let (seen, until) = (Seen::default(), Instant::now() + Duration::from_secs(4));
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let (rig, seen) = (&rig, &seen);
            scope.spawn(move || work(rig, thread, until, seen));
        }
        scope.spawn(|| trouble(&faults, until));
    });
    assert_eq!(*seen.wrong.lock().expect("the list"), Vec::<String>::new());
    assert_eq!(rig.fs.open_handles(), 0);
    settle(&rig);
    check(&rig, true);
    rig.forget_checks();
    let rig = Rig::over(dirs);
    rig.scan();
    check(&rig, true);
    for (name, _) in invariants::entries(rig.fs.volume()) {
        load_exactly(&rig, &name);
    }
}

/// Sizes that a failing disk could not say are asked for by a look-up.
fn settle(rig: &Rig) {
    for (name, entry) in invariants::entries(rig.fs.volume()) {
        if entry.kind == Kind::File {
            rig.lookup(&name).expect("a file that is there");
        }
    }
}

fn load_exactly(rig: &Rig, name: &str) {
    let bytes = rig.load(name).expect("a load");
    let number = bytes.first_chunk().map(|first| u64::from_le_bytes(*first));
    let is_temp = name.ends_with(".tmp");
    assert!(is_temp || number.is_some_and(|number| bytes == bytes_of(number)), "{name} has {} bytes", bytes.len());
}

fn check(rig: &Rig, shadows: bool) {
    // A copy that its disk refused to unlink stays; half-made files are temp files.
    let known = Known {
        handles: &HashMap::new(),
        in_doubt: &|_| false,
        dirs_in_doubt: false,
        size_in_doubt: &|_| false,
        shadows: &|found: &Found| shadows && !found.is_dir,
    };
    invariants::check(rig.fs.volume(), &invariants::walk(&rig.dirs), &known).expect("agreement");
}
