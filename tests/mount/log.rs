//! What the daemon says, and that nobody waits for it.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::Read;
use std::os::unix::fs::{MetadataExt, symlink};
use std::process::{Command, Stdio};
use std::thread;

use crate::loops::LoopDisk;
use crate::rig::{KVSPAN, Rig, is_mounted, on_a_mount};
use crate::run::{end, run, shell, wait_until};

on_a_mount! {
    a_message_about_a_disk_is_one_line_with_fields_whatever_the_name,
    in_the_journal_a_line_begins_with_its_priority,
    a_disk_that_fails_for_every_request_says_so_a_few_times_and_how_often,
    a_log_that_nobody_reads_holds_up_no_request,
}

/// `kvspan mount` that logs to its standard error.
fn logging_to_stderr(rig: &Rig) -> Command {
    let mut command = Command::new(KVSPAN);
    command.args(["mount", &rig.source()]).arg(rig.mountpoint()).stdin(Stdio::null()).stdout(Stdio::null());
    command
}

fn a_message_about_a_disk_is_one_line_with_fields_whatever_the_name() {
    let mut rig = Rig::new(2);
    fs::create_dir(rig.disks[1].join("d")).expect("a directory");
    symlink("/nowhere", rig.disks[1].join("d/a\n[b] \"c\"\x1b")).expect("a link");
    rig.mount("");
    let status = rig.status();
    let (disk, uuid) = (rig.disks[1].clone(), status["disks"][1]["uuid"].as_str().expect("a uuid"));
    let fields = format!("disk={} uuid={uuid} path=\"d/a\\n[b] \\\"c\\\"\\u{{1b}}\"", disk.display());
    // The end waits for the log.
    rig.umount();
    let log = rig.log();
    let lines: Vec<&str> = log.lines().filter(|line| line.contains("left alone")).collect();
    assert!(lines.len() == 1 && lines[0].ends_with(&format!("is left alone {fields}")), "{fields}\n{log}");
    assert!(log.lines().all(|line| line.starts_with("[20")), "{log}");
}

fn in_the_journal_a_line_begins_with_its_priority() {
    let mut rig = Rig::new(2);
    symlink("/nowhere", rig.disks[0].join("link")).expect("a link");
    let gone = rig.disks[1].clone();
    fs::rename(&gone, rig.outside("elsewhere")).expect("a disk is taken away");
    // As systemd does it: the journal is whatever standard error is opened to, named by device and inode.
    let journal = File::create(rig.outside("journal")).expect("a file");
    let of_journal = journal.metadata().expect("stat");
    let mut command = logging_to_stderr(&rig);
    command.env("JOURNAL_STREAM", format!("{}:{}", of_journal.dev(), of_journal.ino())).stderr(journal);
    assert!(command.status().expect("kvspan").success());
    rig.take_daemon();
    wait_until("all that is there has been scanned", || rig.status()["state"] != "recovering");
    rig.umount();
    let said = fs::read_to_string(rig.outside("journal")).expect("the journal");
    for line in ["<4>the disk is missing: ", "<4>what is neither file nor directory", "<6>mounted ", "<6>unmounted "] {
        assert_eq!(said.lines().filter(|said| said.starts_with(line)).count(), 1, "{line} in {said}");
    }
    assert!(said.lines().all(|line| line.starts_with('<')), "{said}");
}

fn a_disk_that_fails_for_every_request_says_so_a_few_times_and_how_often() {
    const FILES: usize = 20;
    const OPENS: usize = 3000;
    let disk = LoopDisk::ext4("64M", &[]);
    let mut rig = Rig::bare();
    rig.use_disks(&[disk.path()]);
    (0..FILES).for_each(|n| fs::write(disk.path().join(format!("f{n}")), "bytes").expect("a file"));
    rig.mount("sync_interval=0,atime_interval=0");
    run(Command::new("xfs_io").args(["-x", "-c", "shutdown"]).arg(disk.path())).ok();
    for n in 0..OPENS {
        assert!(File::open(rig.path(format!("f{}", n % FILES))).is_err());
    }
    rig.umount();
    let log = rig.log();
    let about = format!("disk={} uuid=", disk.path().display());
    let (counts, lines): (Vec<&str>, Vec<&str>) = log
        .lines()
        .filter(|line| line.contains("a file cannot be opened"))
        .partition(|line| line.contains("suppressed"));
    assert!(lines.iter().all(|line| line.contains(&about) && line.ends_with(" errno=EIO")), "{log}");
    assert!(counts.iter().all(|line| line.contains(&about)), "{log}");
    // Ten in each window of time, and one count at its end.
    assert!(lines.len() >= 10 && lines.len() <= 10 * (counts.len() + 1), "{log}");
    let number = |line: &&str| line.split("] ").nth(1)?.split(' ').next()?.parse::<usize>().ok();
    assert_eq!(counts.iter().filter_map(number).sum::<usize>() + lines.len(), OPENS, "{log}");
}

fn a_log_that_nobody_reads_holds_up_no_request() {
    let mut rig = Rig::new(1);
    let mut command = logging_to_stderr(&rig);
    let mut child =
        command.args(["-f"]).env("RUST_LOG", "info,fuser=debug").stderr(Stdio::piped()).spawn().expect("kvspan");
    let mut stderr = child.stderr.take().expect("a pipe");
    wait_until("the volume is mounted", || is_mounted(&rig.mountpoint()));
    rig.take_daemon();
    // A line for each request, many times what pipe and queue hold.
    shell(&rig.mountpoint(), "n=0; while [ $n -lt 2000 ]; do : >f$n; rm f$n; n=$((n + 1)); done").ok();
    let reader = thread::spawn(move || {
        let mut said = String::new();
        stderr.read_to_string(&mut said).map(|_| said)
    });
    rig.umount();
    assert_eq!(end(child, "kvspan mount -f").code, Some(0));
    let said = reader.join().expect("a reader").expect("its text");
    let mut requests = BTreeMap::new();
    for name in ["CREATE", "UNLINK"] {
        requests.insert(name, said.lines().filter(|line| line.contains(&format!(" {name} "))).count());
    }
    assert!(requests.values().all(|count| (1..2000).contains(count)), "{requests:?}");
    assert!(said.contains(" messages were lost, since the log did not take them in time\n"), "{requests:?}");
    assert!(said.ends_with(&format!("unmounted {}\n", rig.mountpoint().display())), "the last word is there");
}
