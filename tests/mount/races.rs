//! Writers that meet: one temp name for two, one key for eight, names that come and go under a reader.

use std::collections::BTreeMap;
use std::fs;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::process::Stdio;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use rustix::fs::OFlags;
use rustix::io::Errno;

use crate::bytes::{assert_same, load, open, opened, pattern, read_at_most, store, write_all};
use crate::rig::{Io, Rig, in_both_io_modes};
use crate::run::{end, python_command, wait_until};

in_both_io_modes! {
    two_writers_that_share_a_temp_name_see_what_ext4_shows_in_every_interleaving,
    parallel_puts_of_one_key_leave_one_whole_file,
    a_reader_of_a_key_that_is_stored_again_and_again_sees_whole_objects_only,
    names_made_and_removed_by_many_threads_never_show_another_files_bytes,
}

/// One writer's steps, as LMCache takes them.
#[derive(Clone, Copy, Debug)]
enum Step {
    Open,
    First,
    Second,
    Close,
    Rename,
}

const STEPS: [Step; 5] = [Step::Open, Step::First, Step::Second, Step::Close, Step::Rename];

struct Writer {
    mark: u8,
    length: usize,
    fd: Option<OwnedFd>,
}

impl Writer {
    fn step(&mut self, dir: &Path, last: &str, step: Step) -> Result<(), Errno> {
        let temp = dir.join("k.tmp");
        let half = vec![self.mark; self.length];
        match step {
            Step::Open => {
                self.fd = Some(open(&temp, OFlags::WRONLY | OFlags::CREATE | OFlags::TRUNC)?);
                Ok(())
            }
            Step::First | Step::Second => self.fd.as_ref().map_or(Ok(()), |fd| write_all(fd, &half)),
            Step::Close => {
                self.fd = None;
                Ok(())
            }
            Step::Rename => rustix::fs::rename(temp, dir.join(last)),
        }
    }
}

/// Which writer goes at each of ten steps.
fn interleavings() -> impl Iterator<Item = [usize; 10]> {
    (0u32..1 << 10).filter(|bits| bits.count_ones() == 5).map(|bits| std::array::from_fn(|n| (bits >> n & 1) as usize))
}

/// The results of all steps, and what lies in the directory after each.
fn play(dir: &Path, last: &str, order: &[usize; 10]) -> Vec<String> {
    let mut writers = [(b'A', 3000), (b'B', 5000)].map(|(mark, length)| Writer { mark, length, fd: None });
    let mut next = [0, 0];
    let mut seen = Vec::new();
    for &who in order {
        let step = STEPS[next[who]];
        next[who] += 1;
        let done = writers[who].step(dir, last, step);
        let contents: BTreeMap<String, String> =
            ["k.tmp", last].iter().map(|name| (name.to_string(), describe(&dir.join(name)))).collect();
        seen.push(format!("{who} {step:?}: {done:?} {contents:?}"));
    }
    for name in ["k.tmp", last] {
        let _ = fs::remove_file(dir.join(name));
    }
    seen
}

/// Runs of equal bytes.
fn describe(path: &Path) -> String {
    let bytes = match fs::read(path) {
        Ok(bytes) => bytes,
        Err(error) => return format!("{:?}", error.kind()),
    };
    let runs = bytes.chunk_by(|a, b| a == b).map(|run| format!("{}x{}", run.len(), char::from(run[0])));
    runs.collect::<Vec<_>>().join("+")
}

fn two_writers_that_share_a_temp_name_see_what_ext4_shows_in_every_interleaving(io: Io) {
    let rig = Rig::mounted(3, io);
    let bare = rig.outside("bare");
    fs::create_dir(&bare).expect("a directory");
    let owner = rig.owner("k.tmp");
    let elsewhere = (0..).map(|n| format!("other{n}.data")).find(|name| rig.owner(name) != owner).expect("a name");
    for last in ["k.data", &elsewhere] {
        for order in interleavings() {
            for dir in [&bare, &rig.mountpoint()] {
                fs::write(dir.join(last), b"old").expect("an older object");
            }
            let (ours, wanted) = (play(&rig.mountpoint(), last, &order), play(&bare, last, &order));
            assert_eq!(ours, wanted, "{order:?}");
        }
        for disk in &rig.disks {
            let left = fs::read_dir(disk).expect("a disk").flatten().filter(|e| e.file_name() != ".kvspan").count();
            assert_eq!(left, 0, "nothing is left on {}", disk.display());
        }
    }
    assert_eq!(rig.status()["files"], 0);
}

const PUT_ONE_KEY: &str = r#"
import os, sys
mnt, rounds = sys.argv[1], int(sys.argv[2])
data = bytes(range(256)) * 1024
lost = 0
for n in range(rounds):
    tmp, last = f'{mnt}/k{n}.tmp', f'{mnt}/k{n}.data'
    fd = os.open(tmp, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
    for at in range(0, len(data), 65536):
        assert os.write(fd, data[at:at + 65536]) == 65536
    os.close(fd)
    try:
        os.rename(tmp, last)
    except FileNotFoundError:
        lost += 1
print(lost)
"#;

fn parallel_puts_of_one_key_leave_one_whole_file(io: Io) {
    const ROUNDS: usize = 40;
    let rig = Rig::mounted(3, io);
    let mountpoint = rig.mountpoint();
    let children: Vec<_> = (0..8)
        .map(|_| {
            let mut command = python_command(PUT_ONE_KEY, &[&mountpoint, ROUNDS.to_string().as_ref()]);
            command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("python3")
        })
        .collect();
    for child in children {
        end(child, "a process that puts").ok();
    }
    let wanted: Vec<u8> = (0..=255).collect::<Vec<u8>>().repeat(1024);
    for n in 0..ROUNDS {
        assert_same(&fs::read(rig.path(format!("k{n}.data"))).expect("a load"), &wanted, "through the mount");
        assert_same(&fs::read(rig.backing(&format!("k{n}.data"))).expect("a load"), &wanted, "on the disk");
        assert!(rig.disks_with(&format!("k{n}.tmp")).is_empty());
    }
    assert_eq!(rig.status()["files"], ROUNDS);
    // RELEASE comes after the close, so the last sizes settle a moment later.
    let du = (ROUNDS * 256 * 1024) as u64;
    wait_until("usage is what du says", || rig.status()["used_bytes"] == du);
}

fn a_reader_of_a_key_that_is_stored_again_and_again_sees_whole_objects_only(io: Io) {
    let rig = Rig::mounted(3, io);
    let mountpoint = rig.mountpoint();
    let objects: Vec<Vec<u8>> = (0..4).map(|n| pattern(n, 10_000 + 30_000 * n as usize)).collect();
    store(&mountpoint, "k", &objects[0], false).expect("a store");
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                while !done.load(Ordering::Relaxed) {
                    let found = load(&mountpoint, "k", 200_000, false).expect("the key is always there");
                    assert!(objects.contains(&found), "{} bytes of no object", found.len());
                }
            });
        }
        let stores = (0..400).try_for_each(|n| store(&mountpoint, "k", &objects[n % 4], false));
        done.store(true, Ordering::Relaxed);
        stores.expect("a store");
    });
}

fn names_made_and_removed_by_many_threads_never_show_another_files_bytes(io: Io) {
    let rig = Rig::mounted(3, io);
    let mountpoint = rig.mountpoint();
    let churn = |seed: u64| {
        for n in 0..300 {
            let name = mountpoint.join(format!("n{}", (n * 7 + seed) % 10));
            let tag = (n * 7 + seed) % 10;
            match n % 3 {
                0 => match open(&name, OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL) {
                    Ok(fd) => write_all(&fd, &[tag as u8; 100]).expect("a write"),
                    Err(errno) => assert_eq!(errno, Errno::EXIST),
                },
                1 => match open(&name, OFlags::RDONLY) {
                    Ok(fd) => {
                        let found = read_at_most(&fd, 200).expect("a read");
                        assert!(found.iter().all(|byte| *byte == tag as u8), "{found:?} is not of {tag}");
                    }
                    Err(errno) => assert_eq!(errno, Errno::NOENT),
                },
                _ => match rustix::fs::unlink(&name) {
                    Ok(()) | Err(Errno::NOENT) => {}
                    Err(errno) => panic!("unlink: {errno}"),
                },
            }
        }
    };
    thread::scope(|scope| (0..8).for_each(|seed| drop(scope.spawn(move || churn(seed)))));
    let fd = opened(&rig.path("after"), OFlags::RDWR | OFlags::CREATE);
    write_all(&fd, b"alive").expect("a write");
}
