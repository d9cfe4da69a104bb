//! The rule against tables, and against histories of stores, syncs, clock steps and power cuts.

use proptest::prelude::*;

use super::*;

const S: i64 = 1_000_000_000;
/// A wall time far from zero.
const T: i64 = 1_796_000_000 * S;

fn clock(wall_s: i64, boot_s: i64) -> Clock {
    Clock { wall_ns: T + wall_s * S, boot_ns: boot_s * S }
}

/// A clock that was never set.
fn at(s: i64) -> Clock {
    clock(s, 1_000 + s)
}

fn life(boot: u128, mount: u64) -> Life {
    Life { boot: Some(Uuid::from_u128(boot)), mount: Some(MountInstance { id: mount, unique: true }) }
}

fn id(ino: u64, birth_s: i64) -> FileId {
    FileId { ino, birth_ns: T + birth_s * S }
}

fn stamps(birth_s: i64, mtime_s: i64) -> Stamps {
    Stamps { id: id(7, birth_s), mtime_ns: T + mtime_s * S, ctime_ns: T + mtime_s * S }
}

fn ledger(safe_s: i64, latest_s: i64) -> Ledger {
    Ledger::new(T + safe_s * S, T + latest_s * S, Vec::new())
}

fn before(clean: bool) -> Before {
    let ledger = Ledger { listed: vec![id(3, 1)], ..ledger(100, 130) };
    Before { life: life(1, 1), clean, ledger, removal: Removal::default() }
}

fn windows(removal: &Removal) -> Vec<(i64, i64)> {
    removal.windows.iter().map(|w| ((w.from_ns - T) / S, (w.until_ns - T) / S)).collect()
}

#[test]
fn a_mount_removes_what_the_one_before_may_have_lost() {
    let carried = Window { from_ns: T + 10 * S, until_ns: T + 20 * S };
    let unfinished = |mut before: Before| {
        before.removal.add(carried, &[id(4, 2)]);
        before
    };
    let none = |_: &mut Life| {};
    type Change = fn(&mut Life);
    type Row = (&'static str, Option<Before>, Change, Clock, &'static [(i64, i64)], Vec<FileId>, i64);
    #[rustfmt::skip]
    let table: [Row; 14] = [
        ("no record", None, none, at(200), &[], vec![], 198),
        ("clean", Some(before(true)), none, at(200), &[], vec![], 198),
        ("clean, another boot", Some(before(true)), |l| *l = life(2, 9), at(200), &[], vec![], 198),
        ("the daemon was killed", Some(before(false)), none, at(200), &[], vec![], 100),
        ("killed, and the clock is behind", Some(before(false)), none, at(50), &[], vec![], 48),
        ("another mount instance", Some(before(false)), |l| *l = life(1, 2), at(200), &[(100, 200)], vec![id(3, 1)], 198),
        ("another boot", Some(before(false)), |l| *l = life(2, 1), at(900), &[(100, 900)], vec![id(3, 1)], 898),
        ("another boot soon after", Some(before(false)), |l| *l = life(2, 1), clock(140, 5), &[(100, 140)], vec![id(3, 1)], 138),
        ("another boot, and it seems to be older than the record", Some(before(false)), |l| *l = life(2, 1), clock(140, 15), &[(100, 250)], vec![id(3, 1)], 138),
        ("another boot, and the clock is behind", Some(before(false)), |l| *l = life(2, 1), at(-5000), &[(100, 250)], vec![id(3, 1)], -5002),
        ("the boot is not known", Some(before(false)), |l| l.boot = None, at(900), &[(100, 900)], vec![id(3, 1)], 898),
        ("the mount is not known", Some(before(false)), |l| l.mount = None, at(200), &[(100, 200)], vec![id(3, 1)], 198),
        ("killed in the recovery scan", Some(unfinished(before(false))), none, at(200), &[(10, 20)], vec![id(4, 2)], 100),
        ("and cut again", Some(unfinished(before(false))), |l| *l = life(1, 2), at(200), &[(10, 20), (100, 200)], vec![id(3, 1), id(4, 2)], 198),
    ];
    for (what, before, change, start, expected, files, safe_s) in table {
        let mut now = life(1, 1);
        change(&mut now);
        let (ledger, removal) = take_over(before.as_ref(), &now, start);
        assert_eq!(windows(&removal), expected, "{what}");
        assert_eq!(removal.files, files, "{what}");
        assert_eq!((ledger.safe_ns - T) / S, safe_s, "{what}");
        let kept = before.is_some_and(|before| !before.clean && before.life == now);
        assert_eq!(ledger.listed.len(), usize::from(kept), "{what}");
    }
}

#[test]
fn a_boot_or_a_mount_that_nobody_knows_equals_nothing() {
    let unknown = Life { boot: None, mount: None };
    let before = Before { life: unknown, ..before(false) };
    assert!(!take_over(Some(&before), &unknown, at(200)).1.is_empty());
}

#[test]
fn birth_time_mtime_or_inode_takes_a_file() {
    let mut removal = Removal::default();
    removal.add(Window { from_ns: T + 100 * S, until_ns: T + 200 * S }, &[id(3, 1)]);
    #[rustfmt::skip]
    let table = [
        ("older", stamps(50, 99), false),
        ("born in it", stamps(100, 50), true),
        ("changed in it", stamps(50, 200), true),
        ("of this mount", stamps(201, 201), false),
        ("around it", stamps(50, 201), false),
        ("listed", Stamps { id: id(3, 1), ..stamps(0, 2) }, true),
        ("another file with a listed inode number", Stamps { id: id(3, 2), ..stamps(0, 2) }, false),
        ("no birth time, attributes changed in it", Stamps { id: FileId { ino: 9, birth_ns: i64::MIN }, mtime_ns: T, ctime_ns: T + 150 * S }, true),
        ("no birth time", Stamps { id: FileId { ino: 9, birth_ns: i64::MIN }, mtime_ns: T, ctime_ns: T + 50 * S }, false),
    ];
    for (what, file, taken) in table {
        assert_eq!(removal.takes(&file), taken, "{what}");
    }
}

#[test]
fn a_sync_moves_the_safe_time_up_to_its_start_or_the_oldest_writer() {
    let long = Some(id(3, 1));
    let writer = |opened, listed| Writer { opened, listed };
    #[rustfmt::skip]
    let table: [(&str, Clock, Clock, &[Writer], i64); 9] = [
        ("nobody writes", at(200), at(210), &[], 198),
        ("somebody does", at(200), at(210), &[writer(at(150), None), writer(at(180), None)], 148),
        ("opened when it began", at(200), at(210), &[writer(at(200), None)], 198),
        ("never backwards", at(200), at(210), &[writer(at(20), None)], 100),
        ("a listed one holds nothing back", at(200), at(210), &[writer(at(20), long)], 198),
        ("set back during it", at(200), clock(110, 1_210), &[], 98),
        ("set back before it, during the write", clock(110, 1_210), clock(120, 1_220), &[writer(at(150), None)], 100),
        ("set forward during the write", clock(900, 1_200), clock(910, 1_210), &[writer(at(150), None)], 148),
        ("slewed", at(200), Clock { wall_ns: T + 210 * S - S / 10, ..at(210) }, &[], 197),
    ];
    for (what, began, ended, writers, safe_s) in table {
        let mut ledger = ledger(100, 130);
        ledger.listed = vec![id(9, 1)];
        ledger.synced(began, ended, writers);
        assert_eq!((ledger.safe_ns - T).div_euclid(S), safe_s, "{what}");
        let listed: Vec<FileId> = writers.iter().filter_map(|writer| writer.listed).collect();
        assert_eq!(ledger.listed, listed, "{what}: what was released before it is durable");
    }
}

#[test]
fn a_step_back_lowers_the_safe_time_at_once() {
    let mut ledger = ledger(100, 130);
    assert!(!ledger.look(at(150)));
    assert!(ledger.look(clock(110, 1_151)), "the next mount may start at less than files were stamped with");
    assert_eq!(ledger.safe_ns, T + 100 * S, "files are still stamped after it");
    assert!(!ledger.look(clock(111, 1_152)));
    assert!(ledger.look(clock(60, 1_152)));
    assert_eq!((ledger.safe_ns, ledger.latest_ns), (T + 58 * S, T + 150 * S));
    let before = Before { ledger, ..before(false) };
    let (_, removal) = take_over(Some(&before), &life(1, 2), clock(70, 1_160));
    assert!(removal.takes(&stamps(149, 149)), "stamped before the step, after the start of the mount");
}

#[test]
fn a_failed_sync_takes_all_that_was_not_durable() {
    let mut ledger = Ledger { listed: vec![id(3, 1)], ..ledger(100, 130) };
    let mut removal = Removal::default();
    ledger.failed(at(200), &[id(8, 2)], &mut removal);
    assert_eq!((windows(&removal), removal.files.clone()), (vec![(100, 200)], vec![id(3, 1), id(8, 2)]));
    assert_eq!(ledger.safe_ns, T + 100 * S);
    ledger.failed(at(230), &[], &mut removal);
    assert_eq!(windows(&removal), [(100, 230)]);
}

#[test]
fn windows_are_kept_apart_and_their_number_is_bounded() {
    let mut removal = Removal::default();
    let mut add = |from: i64, until: i64| {
        removal.add(Window { from_ns: from, until_ns: until }, &[]);
        removal.windows.iter().map(|w| (w.from_ns, w.until_ns)).collect::<Vec<_>>()
    };
    assert_eq!(add(10, 20), [(10, 20)]);
    assert_eq!(add(30, 40), [(10, 20), (30, 40)]);
    assert_eq!(add(1, 2), [(1, 2), (10, 20), (30, 40)]);
    assert_eq!(add(15, 35), [(1, 2), (10, 40)]);
    assert_eq!(add(3, 9), [(1, 40)]);
    for n in 0..64 {
        let windows = add(1_000 * n + 100, 1_000 * n + 200);
        assert!(windows.len() <= WINDOWS_MAX);
    }
}

/// What happens on one disk, with a second or more between two events.
#[derive(Clone, Debug)]
enum Event {
    Open,
    /// One long write of the n-th file begins.
    Write(usize),
    /// A client sets the mtime of the n-th file back.
    Backdate(usize),
    Close(usize),
    /// Takes so many seconds, in which writes go on.
    Sync(u8, bool),
    Step(i16),
    Pause(u8),
    Kill,
}

struct File {
    stamps: Stamps,
    opened: Option<Clock>,
    /// When bytes that may not be durable were last written, on the boot clock.
    dirty: Option<i64>,
    writing: bool,
}

/// A disk as the kernel has it, and a daemon that keeps its record.
struct World {
    boot_s: i64,
    offset_s: i64,
    files: Vec<File>,
    ledger: Ledger,
    removal: Removal,
    record: Before,
}

impl World {
    fn new() -> World {
        let mut world = World {
            boot_s: 1_000,
            offset_s: 0,
            files: Vec::new(),
            ledger: Ledger::default(),
            removal: Removal::default(),
            record: before(true),
        };
        (world.ledger, world.removal) = take_over(None, &life(1, 1), world.now());
        world.write_record();
        world
    }

    fn now(&self) -> Clock {
        clock(self.offset_s + self.boot_s, self.boot_s)
    }

    fn write_record(&mut self) {
        self.record =
            Before { life: life(1, 1), clean: false, ledger: self.ledger.clone(), removal: self.removal.clone() };
    }

    /// A second goes by: writers write, the daemon looks at the clock.
    fn tick(&mut self, seconds: i64) {
        for _ in 0..seconds {
            self.boot_s += 1;
            for file in self.files.iter_mut().filter(|file| file.writing) {
                file.dirty = Some(self.boot_s);
            }
            if self.ledger.look(self.now()) {
                self.write_record();
            }
        }
    }

    fn sync(&mut self, seconds: i64, fails: bool) {
        const LONG_S: i64 = 60;
        let began = self.now();
        let open = self.files.iter().filter_map(|file| Some((file.opened?, file.stamps.id)));
        let writers: Vec<Writer> = open
            .map(|(opened, id)| {
                let long = began.boot_ns - opened.boot_ns > LONG_S * S;
                Writer { opened, listed: long.then_some(id) }
            })
            .collect();
        let writing: Vec<FileId> = self.files.iter().filter(|f| f.opened.is_some()).map(|f| f.stamps.id).collect();
        self.tick(seconds);
        if fails {
            self.ledger.failed(self.now(), &writing, &mut self.removal);
            self.write_record();
            let removal = self.removal.clone();
            self.files.retain(|file| !removal.takes(&file.stamps));
            return;
        }
        for file in &mut self.files {
            file.dirty = file.dirty.filter(|last| last * S >= began.boot_ns);
        }
        self.ledger.synced(began, self.now(), &writers);
        self.removal = Removal::default();
        self.write_record();
    }

    fn apply(&mut self, event: &Event) {
        let count = self.files.len().max(1);
        let now = self.now();
        match *event {
            Event::Open => {
                let birth_ns = now.wall_ns;
                let id = FileId { ino: self.files.len() as u64, birth_ns };
                let stamps = Stamps { id, mtime_ns: birth_ns, ctime_ns: birth_ns };
                self.files.push(File { stamps, opened: Some(now), dirty: None, writing: false });
            }
            Event::Write(n) => {
                if let Some(file) = self.files.get_mut(n % count) {
                    // An existing file is opened again.
                    file.opened = file.opened.or(Some(now));
                    file.stamps.mtime_ns = now.wall_ns;
                    (file.dirty, file.writing) = (Some(now.boot_ns / S), true);
                }
            }
            Event::Backdate(n) => {
                // Of a file that was there before this mount only its mtime would tell: see docs/SEMANTICS.md.
                if let Some(file) = self.files.get_mut(n % count) {
                    file.stamps.mtime_ns = T - 500_000 * S;
                }
            }
            Event::Close(n) => {
                if let Some(file) = self.files.get_mut(n % count) {
                    (file.opened, file.writing) = (None, false);
                }
            }
            Event::Sync(seconds, fails) => self.sync(i64::from(seconds % 40), fails),
            Event::Step(by) => self.offset_s += i64::from(by),
            Event::Pause(seconds) => self.tick(i64::from(seconds)),
            Event::Kill => {
                for file in &mut self.files {
                    (file.opened, file.writing) = (None, false);
                }
                (self.ledger, self.removal) = take_over(Some(&self.record), &life(1, 1), self.now());
                // What a failed sync has left to remove may take files that got older times from a clock set back.
                let loses = self.files.iter().any(|file| self.removal.takes(&file.stamps));
                assert!(!loses || !self.removal.is_empty(), "a kill loses nothing");
                let removal = self.removal.clone();
                self.files.retain(|file| !removal.takes(&file.stamps));
                self.write_record();
            }
        }
        self.tick(1);
    }
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        4 => Just(Event::Open),
        4 => (0..64usize).prop_map(Event::Write),
        4 => (0..64usize).prop_map(Event::Close),
        4 => (0..50u8).prop_map(|s| Event::Sync(s, false)),
        1 => (0..50u8).prop_map(|s| Event::Sync(s, true)),
        3 => (0..90u8).prop_map(Event::Pause),
        1 => Just(Event::Kill),
    ]
}

fn with_steps() -> impl Strategy<Value = Event> {
    prop_oneof![8 => event(), 1 => (-2_000..2_000i16).prop_map(Event::Step)]
}

/// A write on a file older than the safe time whose mtime a client sets back is seen by nobody, so only new files are
/// backdated here.
fn backdated() -> impl Strategy<Value = Vec<Event>> {
    let one = prop_oneof![
        3 => Just(Event::Open),
        2 => (0..64usize).prop_map(Event::Close),
        3 => (0..64usize).prop_map(Event::Backdate),
        3 => (0..50u8).prop_map(|s| Event::Sync(s, false)),
        2 => (0..90u8).prop_map(Event::Pause),
    ];
    proptest::collection::vec(one, 0..60)
}

fn assert_no_torn_file_stays(world: &World) {
    for (boot, mount) in [(1, 2), (2, 1)] {
        let (_, removal) = take_over(Some(&world.record), &life(boot, mount), world.now());
        for file in world.files.iter().filter(|file| file.dirty.is_some()) {
            assert!(removal.takes(&file.stamps), "{:?} is torn and stays", file.stamps);
        }
    }
}

proptest! {
    #[test]
    fn a_cut_at_any_time_leaves_no_torn_file(events in proptest::collection::vec(with_steps(), 0..80)) {
        let mut world = World::new();
        for event in &events {
            world.apply(event);
            assert_no_torn_file_stays(&world);
        }
    }

    #[test]
    fn a_client_that_sets_mtime_back_changes_nothing(events in backdated()) {
        let mut world = World::new();
        for event in &events {
            world.apply(event);
            // A file is written from its birth on.
            for file in world.files.iter_mut().filter(|file| file.opened.is_some()) {
                (file.dirty, file.writing) = (Some(world.boot_s), true);
            }
            assert_no_torn_file_stays(&world);
        }
    }

    #[test]
    fn a_cut_costs_no_more_than_the_last_interval(events in proptest::collection::vec(event(), 0..80)) {
        let mut world = World::new();
        for event in &events {
            world.apply(event);
        }
        // All closed, and then one sync that nothing overlaps.
        for n in 0..world.files.len() {
            world.apply(&Event::Close(n));
        }
        world.tick(3);
        world.sync(0, false);
        let (_, removal) = take_over(Some(&world.record), &life(2, 1), world.now());
        for file in &world.files {
            prop_assert!(!removal.takes(&file.stamps), "{:?} was durable and goes", file.stamps);
        }
    }
}
