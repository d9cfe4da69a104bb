//! What a power loss may have torn, decided from times and inode numbers alone.
//!
//! Called by the record's keeper; no I/O, no clock, no lock. Times are nanoseconds; wall times count from the epoch.
//!
//! Invariant: a file that is not durable has its birth time or its mtime at or after the safe time, or is listed. Bytes
//! become durable by a `syncfs` that began after their write had ended, so a file whose stamps are older than the
//! beginning of such a sync can only be torn by a handle that was open then: the safe time stays behind the open time
//! of the oldest one, except those that have been open for long, which are listed.

use uuid::Uuid;

/// More than a tick of the clock that file systems take their times from.
const TICK_NS: i64 = 10_000_000;

/// How far safe time stays behind the clock: file systems stamp with a coarser clock, and a step of the clock is
/// noticed within a second.
pub const MARGIN_NS: i64 = 2_000_000_000;
/// Handles that are listed at most; the others hold the safe time back.
pub const LISTED_MAX: usize = 1_024;
/// Where the clock is behind what it was before the boot: how much younger than the record files may be.
const BOOT_SLACK_NS: i64 = 120_000_000_000;
/// Windows that are kept apart; more are taken together, which removes more and never less.
const WINDOWS_MAX: usize = 16;
/// Steps back that are remembered one by one; of more, the oldest are taken together.
const STEPS_MAX: usize = 64;
/// A wall clock that loses more than this against the boot clock was stepped back, not slewed.
const STEP_NS: i64 = 500_000_000;

/// One reading of the two clocks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Clock {
    /// Nanoseconds since the epoch, as files are stamped.
    pub wall_ns: i64,
    /// Nanoseconds since the boot, which nobody can set.
    pub boot_ns: i64,
}

impl Clock {
    fn offset(self) -> i64 {
        self.wall_ns.saturating_sub(self.boot_ns)
    }
}

/// A file for as long as it is on its disk, whatever its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FileId {
    /// Inode number on the disk.
    pub ino: u64,
    /// Birth time, or `i64::MIN` where the disk keeps none.
    pub birth_ns: i64,
}

/// What the rule looks at in a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stamps {
    /// Inode and birth time.
    pub id: FileId,
    /// Last change of the contents, which clients can set.
    pub mtime_ns: i64,
    /// Last change of the attributes: stands in for a birth time that the disk does not keep.
    pub ctime_ns: i64,
}

/// Times from one to another, both included.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Window {
    /// The safe time.
    pub from_ns: i64,
    /// The start of the mount that found the loss.
    pub until_ns: i64,
}

impl Window {
    fn holds(self, ns: i64) -> bool {
        (self.from_ns..=self.until_ns).contains(&ns)
    }
}

/// The files that have to go because bytes of them may be lost.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Removal {
    /// In order, apart from each other.
    pub windows: Vec<Window>,
    /// Files that go whatever their times are, in order.
    pub files: Vec<FileId>,
}

impl Removal {
    /// Whether nothing is to be removed.
    pub fn is_empty(&self) -> bool {
        self.windows.is_empty() && self.files.is_empty()
    }

    /// Whether a file has to go.
    pub fn takes(&self, file: &Stamps) -> bool {
        let birth_ns = if file.id.birth_ns == i64::MIN { file.ctime_ns } else { file.id.birth_ns };
        self.windows.iter().any(|window| window.holds(birth_ns) || window.holds(file.mtime_ns))
            || self.files.binary_search(&file.id).is_ok()
    }

    /// Adds a window and files.
    pub fn add(&mut self, window: Window, files: &[FileId]) {
        self.files.extend_from_slice(files);
        self.files.sort_unstable();
        self.files.dedup();
        self.windows.push(window);
        self.windows.sort_unstable();
        let mut apart: Vec<Window> = Vec::with_capacity(self.windows.len());
        for window in self.windows.drain(..) {
            match apart.last_mut() {
                Some(last) if window.from_ns <= last.until_ns.saturating_add(1) => {
                    last.until_ns = last.until_ns.max(window.until_ns);
                }
                _ => apart.push(window),
            }
        }
        if apart.len() > WINDOWS_MAX
            && let (Some(first), Some(last)) = (apart.first(), apart.last())
        {
            apart = vec![Window { from_ns: first.from_ns, until_ns: last.until_ns }];
        }
        self.windows = apart;
    }

    /// The oldest time in a window: a file that has not changed since is touched by [`Removal::files`] only.
    pub fn oldest_ns(&self) -> Option<i64> {
        self.windows.first().map(|window| window.from_ns)
    }
}

/// One file that is open for writing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Writer {
    /// When the oldest of its handles that write was opened.
    pub opened: Clock,
    /// Given if it has been open for long and so is listed.
    pub listed: Option<FileId>,
}

/// What one mount knows about the durability of a disk's files.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ledger {
    /// What was born and changed before this is durable, but for the listed files.
    pub safe_ns: i64,
    /// The highest wall time that was seen.
    pub latest_ns: i64,
    /// The last one.
    pub seen_ns: i64,
    /// The clock as it was seen after each step back of this mount, in order.
    pub steps: Vec<Clock>,
    /// Files that are open for writing for long, or were at the last sync, in order.
    pub listed: Vec<FileId>,
}

impl Ledger {
    /// As it is after a look at the clock that showed `latest_ns`.
    pub fn new(safe_ns: i64, latest_ns: i64, listed: Vec<FileId>) -> Ledger {
        Ledger { safe_ns, latest_ns, seen_ns: latest_ns, steps: Vec::new(), listed }
    }

    /// Looks at the clock. Returns whether it was set back, which the record must say at once: files are stamped with
    /// less than the safe time from now on, or were stamped with more than the next mount will start at.
    pub fn look(&mut self, now: Clock) -> bool {
        let stepped = now.wall_ns < self.seen_ns;
        self.seen_ns = now.wall_ns;
        if stepped {
            self.note_step(now);
        }
        self.latest_ns = self.latest_ns.max(now.wall_ns);
        self.safe_ns = self.safe_ns.min(now.wall_ns.saturating_sub(MARGIN_NS));
        stepped
    }

    fn note_step(&mut self, now: Clock) {
        self.steps.push(now);
        if self.steps.len() > STEPS_MAX {
            let oldest = self.steps.remove(0);
            if let Some(next) = self.steps.first_mut() {
                next.wall_ns = next.wall_ns.min(next.boot_ns.saturating_add(oldest.offset()));
            }
        }
    }

    /// The earliest stamp that a file can have got from `since` until `now`.
    fn earliest_stamp(&self, since: Clock, now: Clock) -> i64 {
        let steps = self.steps.iter().filter(|step| step.boot_ns >= since.boot_ns).chain([&now]);
        let lowest = steps.map(|clock| clock.offset()).min().unwrap_or(i64::MAX);
        since.wall_ns.saturating_add(lowest.saturating_sub(since.offset()).min(0))
    }

    /// A sync has succeeded. `writers` are the files that were open for writing when it began.
    pub fn synced(&mut self, began: Clock, ended: Clock, writers: &[Writer]) {
        self.look(ended);
        let holding = writers.iter().filter(|writer| writer.listed.is_none());
        let oldest = holding.map(|writer| self.earliest_stamp(writer.opened, ended)).min().unwrap_or(i64::MAX);
        let earliest = self.earliest_stamp(began, ended);
        let safe = earliest.min(oldest).saturating_sub(MARGIN_NS);
        let stepped = earliest < began.wall_ns.saturating_sub(STEP_NS);
        self.safe_ns = if stepped { self.safe_ns.min(safe) } else { self.safe_ns.max(safe) };
        // Those released before it began are durable now.
        self.listed = writers.iter().filter_map(|writer| writer.listed).collect();
        self.listed.sort_unstable();
    }

    /// A sync has failed: what is not durable yet may never become so. `writing` are all files that were open for
    /// writing when it began.
    pub fn failed(&mut self, ended: Clock, writing: &[FileId], removal: &mut Removal) {
        self.look(ended);
        let window = Window { from_ns: self.safe_ns, until_ns: self.latest_ns };
        removal.add(window, &std::mem::take(&mut self.listed));
        removal.add(window, writing);
    }
}

/// One mounted file system: bytes that were written stay there for as long as it lives, durable or not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MountInstance {
    /// `STATX_MNT_ID_UNIQUE`, else `STATX_MNT_ID`, which the kernel gives out again.
    pub id: u64,
    /// Which of the two.
    pub unique: bool,
}

/// The life of a disk's file system; a part that is not known equals nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Life {
    /// The boot id.
    pub boot: Option<Uuid>,
    /// The mount that the disk lies on.
    pub mount: Option<MountInstance>,
}

impl Life {
    fn goes_on_in(&self, now: &Life) -> bool {
        let same_boot = self.boot.is_some() && self.boot == now.boot;
        same_boot && self.mount.is_some() && self.mount == now.mount
    }
}

/// What an earlier mount left: the part of its record that the rule needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Before {
    /// When it was written.
    pub life: Life,
    /// All was durable and no file open for writing.
    pub clean: bool,
    /// Its last state.
    pub ledger: Ledger,
    /// What it had not removed to the end.
    pub removal: Removal,
}

/// Starts a mount at `start`: what holds from now on, and what has to go.
///
/// Without a record files are taken as they are. In the same life the daemon was killed and nothing is lost, but what
/// was not durable then still is not. In another life all that is not durable has to go.
pub fn take_over(before: Option<&Before>, life: &Life, start: Clock) -> (Ledger, Removal) {
    let behind = start.wall_ns.saturating_sub(MARGIN_NS);
    let fresh = Ledger::new(behind, start.wall_ns, Vec::new());
    let Some(before) = before else {
        return (fresh, Removal::default());
    };
    let mut removal = before.removal.clone();
    let old = &before.ledger;
    if before.clean {
        // All that was there at the clean mark is durable, also what was stored a moment before this mount. A clock that
        // has been set back since would give new files older times than that.
        let tick_ago = start.wall_ns.saturating_sub(TICK_NS);
        let safe_ns = if old.latest_ns <= tick_ago { behind.max(old.latest_ns) } else { behind };
        return (Ledger::new(safe_ns, start.wall_ns, Vec::new()), removal);
    }
    if before.life.goes_on_in(life) {
        let mut ledger = Ledger { steps: Vec::new(), ..old.clone() };
        ledger.look(start);
        return (ledger, removal);
    }
    // A machine that started before the record was written has a wrong clock.
    let is_behind = before.life.boot != life.boot && start.offset() < old.latest_ns;
    let slack = if is_behind { BOOT_SLACK_NS } else { MARGIN_NS };
    let until_ns = start.wall_ns.max(old.latest_ns.saturating_add(slack));
    removal.add(Window { from_ns: old.safe_ns, until_ns }, &old.listed);
    (fresh, removal)
}

#[cfg(test)]
mod tests;
