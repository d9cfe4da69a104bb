//! What `df` and `statfs` show.

use std::fs;

use rustix::fs::{StatVfs, statvfs};

use crate::bytes::pattern;
use crate::rig::{Io, Rig, on_a_mount};
use crate::run::{shell, wait_until};

on_a_mount! {
    df_shows_the_same_size_in_every_block_size,
    directories_on_one_file_system_count_its_room_once,
    file_systems_are_added_up,
    what_is_stored_is_used_and_what_is_removed_is_free,
    statfs_cache_counts_what_could_be_evicted_as_free,
    du_of_the_mount_is_du_of_the_disks,
}

fn room(rig: &Rig) -> StatVfs {
    statvfs(rig.mountpoint()).expect("statvfs")
}

/// A volume whose disks are directories of file systems of 256 MiB each.
fn on_tmpfs(file_systems: usize, dirs: usize, options: &str) -> Rig {
    let mut rig = Rig::bare();
    let mounted: Vec<_> = (0..file_systems).map(|n| rig.tmpfs(&format!("t{n}"), "256M")).collect();
    let disks: Vec<_> = mounted.iter().flat_map(|dir| (0..dirs).map(|d| dir.join(format!("d{d}")))).collect();
    rig.use_disks(&disks);
    rig.mount(options);
    rig
}

fn df_shows_the_same_size_in_every_block_size() {
    let rig = on_tmpfs(2, 1, "");
    fs::write(rig.path("f"), pattern(1, 10 << 20)).expect("a file");
    let room = room(&rig);
    assert_eq!((room.f_bsize, room.f_frsize, room.f_namemax), (4096, 4096, 255));
    for unit in [1024, 4096, 65_536] {
        let script = format!("df -B {unit} --output=size,used,avail . | tail -1");
        let said = shell(&rig.mountpoint(), &script);
        let fields: Vec<u64> = said.ok().split_whitespace().map(|field| field.parse().expect("a number")).collect();
        let wanted =
            [room.f_blocks, room.f_blocks - room.f_bfree, room.f_bavail].map(|blocks| (blocks * 4096).div_ceil(unit));
        assert_eq!(fields, wanted, "in units of {unit}");
    }
    let said = shell(&rig.mountpoint(), "stat -f -c '%s %S %l %T' .");
    assert_eq!(
        said.ok(),
        "4096 4096 255 fuseblk\n".replace("fuseblk", said.out.split_whitespace().last().expect("a type"))
    );
}

fn directories_on_one_file_system_count_its_room_once() {
    let size = |dirs| {
        let rig = on_tmpfs(1, dirs, "");
        let room = room(&rig);
        let sums: u64 = rig.status()["limit_bytes"].as_u64().expect("a number");
        (room.f_blocks, room.f_bavail, sums)
    };
    let (one, three) = (size(1), size(3));
    let close = |a: u64, b: u64| a.abs_diff(b) * 100 <= a.max(b);
    assert!(close(one.0, three.0) && close(one.1, three.1) && close(one.2, three.2), "{one:?} and {three:?}");
    assert!(one.0 * 4096 <= 256 << 20, "no more than there is: {one:?}");
    assert!(one.0 * 4096 >= 240 << 20, "95 % of it: {one:?}");
}

fn file_systems_are_added_up() {
    let size = |file_systems| room(&on_tmpfs(file_systems, 1, "")).f_blocks;
    let (one, three) = (size(1), size(3));
    assert!(three.abs_diff(3 * one) <= 3 * 1024, "{one} blocks and {three}");
}

fn what_is_stored_is_used_and_what_is_removed_is_free() {
    let rig = on_tmpfs(2, 1, "");
    let used = || {
        let room = room(&rig);
        (room.f_blocks - room.f_bfree) * 4096
    };
    let empty = used();
    assert!(empty < 1 << 20, "{empty} bytes of nothing");
    for n in 0..16u64 {
        fs::write(rig.path(format!("f{n}")), pattern(n, 2 << 20)).expect("a file");
    }
    wait_until("32 MiB are used", || used() == empty + (32 << 20));
    assert_eq!(room(&rig).f_files - room(&rig).f_ffree, room(&rig).f_files.saturating_sub(room(&rig).f_ffree));
    shell(&rig.mountpoint(), "rm f*").ok();
    wait_until("nothing is used", || used() == empty);
}

fn statfs_cache_counts_what_could_be_evicted_as_free() {
    let rig = on_tmpfs(1, 1, "statfs=cache");
    let before = room(&rig);
    fs::write(rig.path("f"), pattern(1, 32 << 20)).expect("a file");
    let status_used = || rig.status()["used_bytes"].as_u64().expect("a number");
    wait_until("the file is counted", || status_used() == 32 << 20);
    wait_until("it counts as free", || room(&rig).f_bavail.abs_diff(before.f_bavail) < 1024);
}

fn du_of_the_mount_is_du_of_the_disks() {
    let rig = Rig::mounted(3, Io::Passthrough);
    shell(&rig.mountpoint(), "mkdir d; for n in 1 5 4095 4096 4097 100000; do head -c $n /dev/zero > f$n; head -c $n /dev/zero > d/g$n; done; sync").ok();
    let blocks = |script: &str| -> u64 { shell(&rig.outside(""), script).ok().trim().parse().expect("a number") };
    let sum = "find $0 -type f -not -path '*/.kvspan/*' -printf '%b\\n' | awk '{s += $1} END {print s}'";
    let disks = blocks(&sum.replace("$0", "d1 d2 d3"));
    wait_until("the blocks are settled", || blocks(&sum.replace("$0", "mnt")) == disks);
    wait_until("status agrees", || rig.status()["used_bytes"] == disks * 512);
}
