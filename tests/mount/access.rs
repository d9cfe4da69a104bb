//! Whose a file is and who may use it.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use crate::rig::{Io, Rig, in_both_io_modes, on_a_mount};
use crate::run::{shell, shell_as, shell_in_groups};

in_both_io_modes! {
    files_and_directories_belong_to_the_caller_with_its_umask,
    a_setgid_directory_gives_its_group_to_what_is_made_in_it,
    chmod_chown_and_utimens_reach_the_disk_and_survive_a_mount,
    a_write_by_another_user_takes_setuid_away,
    two_users_and_a_group_may_do_what_they_may_on_ext4,
    backing_directories_that_are_closed_do_not_matter_to_a_client,
}

on_a_mount! {
    permission_is_denied_where_ext4_denies_it,
    without_allow_other_nobody_else_gets_in,
}

const ALICE: u32 = 12_345;
const BOB: u32 = 12_346;
/// Alice is in it too, Bob is not.
const TEAM: u32 = 12_347;

/// Mounted for all users, the root open to all as `/tmp` is but without the sticky bit.
fn shared(io: Io) -> Rig {
    let mut rig = Rig::new(3);
    rig.mount(&format!("allow_other,{}", io.option()));
    shell(&rig.mountpoint(), "chmod 777 .").ok();
    rig
}

fn owner(path: &Path) -> (u32, u32, u32) {
    let stat = fs::symlink_metadata(path).expect("stat");
    (stat.uid(), stat.gid(), stat.mode() & 0o7777)
}

/// Owner, group and mode, through the mount and on the disk.
#[track_caller]
fn assert_owner(rig: &Rig, name: &str, wanted: (u32, u32, u32)) {
    assert_eq!(owner(&rig.path(name)), wanted, "{name} through the mount");
    for path in rig.disks_with(name) {
        assert_eq!(owner(&path), wanted, "{}", path.display());
    }
}

fn files_and_directories_belong_to_the_caller_with_its_umask(io: Io) {
    let rig = shared(io);
    let script = "umask 022; echo 1 > f; mkdir d; echo 2 > d/g; umask 077; echo 3 > h; mkdir e; umask 0; echo 4 > i";
    shell_as(ALICE, BOB, &rig.mountpoint(), script).ok();
    assert_owner(&rig, "f", (ALICE, BOB, 0o644));
    assert_owner(&rig, "d", (ALICE, BOB, 0o755));
    assert_owner(&rig, "d/g", (ALICE, BOB, 0o644));
    assert_owner(&rig, "h", (ALICE, BOB, 0o600));
    assert_owner(&rig, "e", (ALICE, BOB, 0o700));
    assert_owner(&rig, "i", (ALICE, BOB, 0o666));
    shell(&rig.mountpoint(), "umask 027; echo 5 > root; mkdir rootdir").ok();
    assert_owner(&rig, "root", (0, 0, 0o640));
    assert_owner(&rig, "rootdir", (0, 0, 0o750));
}

fn a_setgid_directory_gives_its_group_to_what_is_made_in_it(io: Io) {
    let rig = shared(io);
    shell(&rig.mountpoint(), &format!("mkdir d; chown {ALICE}:{BOB} d; chmod 2775 d")).ok();
    assert_owner(&rig, "d", (ALICE, BOB, 0o2775));
    shell_as(ALICE, ALICE, &rig.mountpoint(), "umask 022; echo 1 > d/f; mkdir d/e; echo 2 > d/e/g").ok();
    assert_owner(&rig, "d/f", (ALICE, BOB, 0o644));
    assert_owner(&rig, "d/e", (ALICE, BOB, 0o2755));
    assert_owner(&rig, "d/e/g", (ALICE, BOB, 0o644));
    shell(&rig.mountpoint(), "umask 022; echo 3 > d/root").ok();
    assert_owner(&rig, "d/root", (0, BOB, 0o644));
    for n in 0..8 {
        // On whichever disk a file goes: the copies of the directory are alike.
        shell_as(ALICE, ALICE, &rig.mountpoint(), &format!("umask 022; echo x > d/e/{n}")).ok();
        assert_owner(&rig, &format!("d/e/{n}"), (ALICE, BOB, 0o644));
    }
    assert_owner(&rig, "d/e", (ALICE, BOB, 0o2755));
}

fn chmod_chown_and_utimens_reach_the_disk_and_survive_a_mount(io: Io) {
    let mut rig = Rig::mounted(3, io);
    let script = format!(
        "echo x > f; chmod 4751 f; chown {ALICE}:{BOB} f; chmod 4751 f; touch -d @1700000000.123456789 f
        mkdir d; chmod 1770 d; chown {BOB}:{ALICE} d; touch -d @1600000000 d; touch -a -d @1500000000 f"
    );
    // Kvspan's clock is a tick behind this one, and the second may end in between.
    let since = std::time::UNIX_EPOCH.elapsed().expect("a clock").as_secs() as i64 - 1;
    shell(&rig.mountpoint(), &script).ok();
    for round in 0..2 {
        assert_owner(&rig, "f", (ALICE, BOB, 0o4751));
        assert_owner(&rig, "d", (BOB, ALICE, 0o1770));
        let times = |path: &Path| {
            let stat = fs::metadata(path).expect("stat");
            (stat.atime(), stat.mtime(), stat.mtime_nsec())
        };
        let wanted = (1_500_000_000, 1_700_000_000, 123_456_789);
        let shown = times(&rig.path("f"));
        assert_eq!((shown.1, shown.2), (wanted.1, wanted.2));
        // The access time shows the last use, and a look-up that reaches the daemon is one.
        assert!(shown.0 == wanted.0 || shown.0 >= since, "{shown:?} in round {round}");
        if round == 0 {
            assert_eq!(times(&rig.backing("f")), wanted);
        }
        assert_eq!(fs::metadata(rig.path("d")).expect("stat").mtime(), 1_600_000_000);
        rig.umount();
        rig.mount_in(io);
    }
}

fn a_write_by_another_user_takes_setuid_away(io: Io) {
    let rig = shared(io);
    let dirs = [rig.mountpoint(), rig.outside("bare")];
    fs::create_dir(&dirs[1]).expect("a directory");
    let script = "chmod 777 .; echo x > w; echo x > t; echo x > c; chmod 4777 w t; chmod 6777 c";
    for dir in &dirs {
        shell(dir, script).ok();
        shell_as(ALICE, ALICE, dir, "echo y >> w; truncate -s 0 t; echo y >> c").ok();
    }
    for name in ["w", "t", "c"] {
        assert_eq!(owner(&dirs[0].join(name)), owner(&dirs[1].join(name)), "{name}");
        assert_owner(&rig, name, owner(&dirs[1].join(name)));
    }
    for dir in &dirs {
        shell(dir, &format!("chmod 4777 w; chown {BOB} w")).ok();
    }
    assert_eq!(owner(&dirs[0].join("w")), owner(&dirs[1].join("w")), "after chown");
}

fn permission_is_denied_where_ext4_denies_it() {
    let rig = shared(Io::Passthrough);
    let bare = rig.outside("bare");
    fs::create_dir(&bare).expect("a directory");
    let dirs = [rig.mountpoint(), bare];
    let make = "chmod 777 .; echo s > secret; chmod 600 secret; echo r > readable; chmod 644 readable
        mkdir closed sticky own; echo x > closed/f; chmod 700 closed; echo x > own/f; chmod 755 own
        chmod 1777 sticky; echo x > sticky/f; chmod 666 sticky/f";
    for dir in &dirs {
        shell(dir, make).ok();
    }
    let attempts = [
        "cat secret",
        "cat readable",
        "echo x >> readable",
        "echo x > secret",
        "cat closed/f",
        "ls closed",
        "stat closed/f",
        "rm -f own/f",
        "echo x > own/g",
        "mv own/f own/g",
        "rm -f sticky/f",
        "mv sticky/f sticky/g",
        "mv readable sticky/f",
        "echo x >> sticky/f",
        "chmod 777 readable",
        "chown 12345 readable",
        "touch readable",
        "touch -d @5 readable",
        "truncate -s 0 readable",
        "rmdir own",
        "mkdir own/d",
        "mkdir new; rmdir new",
        "mv readable moved; mv moved readable",
        "setfattr -n user.a -v b readable",
        "getfattr -n user.a readable",
        "cd closed",
        "test -w readable",
        "test -r secret",
        "test -x own",
    ];
    for attempt in attempts {
        let [ours, wanted] = [0, 1].map(|n| shell_as(ALICE, ALICE, &dirs[n], attempt));
        assert_eq!((ours.code, &ours.out, &ours.err), (wanted.code, &wanted.out, &wanted.err), "{attempt}");
    }
    assert!(shell_as(ALICE, ALICE, &dirs[0], "cat secret").failed(1).contains("Permission denied"));
}

fn without_allow_other_nobody_else_gets_in() {
    let rig = Rig::mounted(1, Io::Passthrough);
    shell(&rig.mountpoint(), "chmod 777 .; echo x > f; chmod 666 f").ok();
    let outside = rig.outside("");
    assert!(shell_as(ALICE, ALICE, &outside, "cat mnt/f").failed(1).contains("Permission denied"));
    assert_eq!(shell_as(0, 0, &outside, "cat mnt/f").ok(), "x\n");
}

/// Who does what, one after the other: `root`, `alice` or `bob`.
const TWO_USERS: &[(&str, &str)] = &[
    // Sticky: what others have put there stays theirs, whatever its mode.
    ("root", "mkdir sticky; chmod 1777 sticky; echo r > sticky/root; chmod 666 sticky/root"),
    (
        "alice",
        "echo a > sticky/alice; chmod 666 sticky/alice; mkdir sticky/dir; echo a > sticky/dir/f; echo a > sticky/spare",
    ),
    ("bob", "echo b >> sticky/alice"),
    ("bob", "rm -f sticky/alice"),
    ("bob", "mv sticky/alice sticky/taken"),
    ("bob", "echo b > sticky/bob; mv sticky/bob sticky/alice"),
    ("bob", "rmdir sticky/dir"),
    ("bob", "mv sticky/dir sticky/taken"),
    ("bob", "rm -f sticky/root"),
    ("bob", "mv sticky/bob sticky/moved; mv sticky/moved sticky/bob; rm sticky/bob"),
    ("alice", "mv sticky/alice sticky/mine; mv sticky/mine sticky/alice; rm sticky/spare"),
    ("root", "mv sticky/alice sticky/by-root; rm sticky/by-root"),
    ("root", "mkdir owned; chown 12346 owned; chmod 1777 owned"),
    ("alice", "echo a > owned/alice"),
    ("bob", "mv owned/alice owned/renamed; rm -f owned/renamed"),
    // A supplementary group gives what the group may do.
    (
        "root",
        "mkdir team; chgrp 12347 team; chmod 770 team; echo t > team/file; chgrp 12347 team/file; chmod 640 team/file",
    ),
    ("alice", "cat team/file; echo a > team/alice; ls team"),
    ("alice", "echo a >> team/file"),
    ("bob", "cat team/file"),
    ("bob", "echo b > team/bob"),
    ("alice", "echo a > shared; chgrp 12347 shared; chmod 660 shared"),
    ("alice", "chgrp 12346 shared"),
    ("bob", "cat shared"),
    ("bob", "chgrp 12346 shared"),
    ("alice", "chown 12346 shared"),
    // setgid: the directory's group goes down, and only its members make setgid files of it.
    ("root", "mkdir setgid; chown 12346:12347 setgid; chmod 2777 setgid"),
    ("alice", "umask 0; echo a > setgid/alice; mkdir setgid/sub; echo a > setgid/sub/f; chmod 2755 setgid/alice"),
    ("bob", "umask 0; echo b > setgid/bob; mkdir setgid/bobs; chmod 2755 setgid/bob"),
    ("bob", "mkdir -m 2750 setgid/kept; chmod g-s setgid/kept; mkdir setgid/kept/plain"),
    ("alice", "echo a > own; chgrp 12347 own; chmod 6775 own; echo more >> own"),
    ("bob", "touch setgid/alice"),
    ("alice", "touch -d @5 setgid/alice; chmod 600 setgid/alice"),
    ("bob", "cat setgid/alice"),
    // Search without reading, reading without search.
    ("alice", "mkdir search read; echo a > search/f; echo a > read/f; chmod 711 search; chmod 744 read"),
    ("bob", "cat search/f; ls search"),
    ("bob", "ls read; cat read/f"),
    ("alice", "umask 027; echo a > masked; mkdir maskeddir; umask 077; echo a > closed"),
    ("bob", "cat masked || cat closed"),
];

fn two_users_and_a_group_may_do_what_they_may_on_ext4(io: Io) {
    let rig = shared(io);
    let dirs = [rig.mountpoint(), rig.outside("bare")];
    fs::create_dir(&dirs[1]).expect("a directory");
    shell(&dirs[1], "chmod 777 .").ok();
    let mut denied = 0;
    for (who, script) in TWO_USERS {
        let [ours, wanted] = dirs.each_ref().map(|dir| match *who {
            "alice" => shell_in_groups(ALICE, ALICE, &[BOB - 5, TEAM], dir, script),
            "bob" => shell_as(BOB, BOB, dir, script),
            _ => shell(dir, script),
        });
        assert_eq!((ours.code, &ours.out, &ours.err), (wanted.code, &wanted.out, &wanted.err), "{who}: {script}");
        denied += usize::from(wanted.code != Some(0));
        let [ours, wanted] =
            dirs.each_ref().map(|dir| shell(dir, "find . -printf '%p %m %U %G\\n' | sort").ok().to_string());
        assert_eq!(ours, wanted, "after {who}: {script}");
    }
    assert_eq!(denied, 18);
}

fn backing_directories_that_are_closed_do_not_matter_to_a_client(io: Io) {
    let mut rig = Rig::bare();
    let closed = rig.outside("closed");
    rig.use_disks(&[0, 1, 2].map(|n| closed.join(n.to_string())));
    shell(&closed, "chmod 700 . && chown 0:0 .").ok();
    for round in 0..2 {
        rig.mount(&format!("allow_other,{}", io.option()));
        shell(&rig.mountpoint(), "chmod 777 .").ok();
        let script =
            format!("mkdir d{round}; for n in 1 2 3 4 5 6 7 8 9; do echo $n > d{round}/$n; echo $n > {round}-$n; done");
        shell_as(ALICE, ALICE, &rig.mountpoint(), &script).ok();
        let said = shell_as(BOB, BOB, &rig.mountpoint(), &format!("cat d{round}/* {round}-*; ls d{round} | wc -l"));
        assert_eq!(said.ok().split_whitespace().collect::<String>(), "1234567891234567899");
        let below = shell_as(ALICE, ALICE, &rig.outside(""), "ls closed/0");
        assert!(below.failed(2).contains("Permission denied"), "nobody gets in below");
        rig.umount();
    }
}
