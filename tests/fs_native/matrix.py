#!/usr/bin/env python3
"""LMCache's fs_native connector against kvspan. Called by `run`, which makes the file systems: matrix.py KVSPAN WORK.

First the matrix: round trips in which the client compares every byte. What a row must give is what the same row gives on a
bare directory in the same run; a row that the connector cannot do there is skipped. Then the scenarios: a remount, two
processes that store the same keys, disks added and removed, and where each file lies.
"""
import collections
import contextlib
import filecmp
import itertools
import json
import os
import platform
import re
import subprocess
import sys
import time

import fill
from pairwise import pairwise, product

KVSPAN, WORK = sys.argv[1:3]
FULL = os.environ.get("KVSPAN_FULL") == "1"
CLIENT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "client.sh")
FILE_SYSTEMS = [os.path.join(WORK, name) for name in ("fs0", "fs1", "fs2")]
MOUNTPOINT = os.path.join(WORK, "mnt")
LOG = os.path.join(WORK, "kvspan.log")
KIB, MIB = 1 << 10, 1 << 20
ROW_BYTES, ROW_OBJECTS = 256 * MIB, 64  # what a row moves at most, and in how many objects
PATIENCE = 120  # seconds for one client run: far more than it needs, so whoever is late hangs

FACTORS = {
    "disks": [1, 2, 3, 8],
    "passthrough": ["auto", "off"],
    "size": [0, 1, 4095, 4096, 4097, 64 * KIB, MIB + 1, 16 * MIB, 64 * MIB],
    "mode": ["buffered", "odirect"],
    "tmp_dir": ["", "tmp"],
    "salt": ["", "user.alice"],
    "workers": [1, 2, 4, 8, 16] if FULL else [1, 3, 8, 16],
}
OF_THE_MOUNT = ("disks", "passthrough")  # the bare directory does not know these
ANSWERS = (
    "stored hits misses lost_after_lookup wrong_bytes false_hits deleted left_after_delete failed_in_batches".split()
)


class Wrong(Exception):
    """The row failed; the text says what was seen."""


class Skip(Exception):
    """The row says nothing about kvspan; the text says why."""


class Hung(Exception):
    """The mount does not answer: the rest of its rows would only wait."""


def expect(true, text):
    if not true:
        raise Wrong(text)


# ---- results -----------------------------------------------------------------------------------------------------------

passed, failed, skipped = [], [], []


@contextlib.contextmanager
def row(name):
    """One line of the report. A mount that hangs fails the row and goes on to whoever made the mount."""
    began = time.monotonic()
    try:
        yield
    except Skip as why:
        skipped.append(name)
        print(f"skip {name}: {why}", flush=True)
    except (Wrong, Hung, OSError, ValueError, KeyError) as problem:
        failed.append(name)
        print(f"FAIL {name}: {problem!r}", flush=True)
        if isinstance(problem, Hung):
            raise
    else:
        passed.append(name)
        print(f"ok   {name} ({time.monotonic() - began:.1f} s)", flush=True)


# ---- the client --------------------------------------------------------------------------------------------------------


def start_client(command, directory, *, size, count, seed, mode="buffered", tmp_dir="", salt="", workers=4, start_at=0):
    arguments = [f"--size={size}", f"--count={count}", f"--seed={seed}", f"--workers={workers}"]
    arguments += [f"--tmp-dir={tmp_dir}", f"--salt={salt}", f"--start-at={start_at}"]
    arguments += ["--odirect"] if mode == "odirect" else []
    return subprocess.Popen(
        [CLIENT, command, directory, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def finish_client(process):
    """Its JSON report; a client that crashed counts as an error with the last thing it said."""
    try:
        out, err = process.communicate(timeout=PATIENCE)
    except subprocess.TimeoutExpired:
        process.kill()  # not waited for: it may be stuck in the mount
        raise Hung(f"the client has not ended after {PATIENCE} s") from None
    try:
        return json.loads(out)
    except ValueError:
        return {"ok": False, "errors": [(err.strip() or out.strip() or f"exit {process.returncode}").splitlines()[-1]]}


def client(command, directory, **options):
    return finish_client(start_client(command, directory, **options))


def kinds(report):
    """The kinds of errors in a report: the connector's messages without the names in them."""
    return {re.sub(r"[^ ]*/[^ :]*", "PATH", error) for error in report.get("errors", [])}


def answers(report):
    return {name: report.get(name) for name in ANSWERS} | {"errors": sorted(kinds(report))}


def difference(seen, wanted):
    return ", ".join(f"{k} {seen.get(k)} instead of {wanted.get(k)}" for k in wanted if seen.get(k) != wanted[k])


# ---- kvspan ------------------------------------------------------------------------------------------------------------


def kvspan(*arguments, may_fail=False):
    try:
        # Through pipes: a daemon that kept its caller's stdout would hang us, and that must be seen.
        done = subprocess.run([KVSPAN, *arguments], capture_output=True, text=True, timeout=PATIENCE)
    except subprocess.TimeoutExpired:
        raise Hung(f"kvspan {arguments[0]} has not ended (or its daemon keeps our stdout) after {PATIENCE} s") from None
    expect(may_fail or done.returncode == 0, f"kvspan {' '.join(arguments)}: exit {done.returncode}: {done.stderr.strip()}")
    return done.stdout.strip()


def make_disks(name, count, volume=None, first=0):
    """`count` labelled disks spread over the file systems. Returns the volume id and the disks."""
    disks = [os.path.join(FILE_SYSTEMS[n % 3], f"{name}-disk{n}") for n in range(first, first + count)]
    for disk in disks:
        os.mkdir(disk)
    return kvspan("init", *(["--volume", volume] if volume else []), *disks).split()[-1], disks


def in_mount_table():
    with open("/proc/mounts") as table:
        return [line.split()[2] for line in table if line.split()[1] == MOUNTPOINT]


def is_alive(pid):
    """A zombie has gone; that nobody has collected it is the matter of the machine's process 1."""
    try:
        with open(f"/proc/{pid}/stat") as stat:
            return stat.read().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def status():
    return json.loads(kvspan("status", MOUNTPOINT, "--json"))


@contextlib.contextmanager
def mounted(disks, passthrough="auto", more=""):
    """The disks as one volume, scanned; unmounted at the end, when its daemon must be gone."""
    kvspan("mount", ":".join(disks), MOUNTPOINT, "-o", f"passthrough={passthrough},log={LOG}" + (more and f",{more}"))
    try:
        expect(in_mount_table() == ["fuse.kvspan"], f"/proc/mounts has {in_mount_table()} on the mount point")
        deadline = time.monotonic() + 30
        while status()["state"] != "ready":
            expect(time.monotonic() < deadline, "still recovering after 30 s")
            time.sleep(0.05)
        pid = status()["pid"]
        yield
    finally:
        if in_mount_table():
            kvspan("umount", MOUNTPOINT)
    expect(not in_mount_table(), "still mounted after kvspan umount")
    expect(not is_alive(pid), "the daemon is still there after kvspan umount")


def xattr(path, name):
    return os.getxattr(path, f"user.kvspan.{name}").decode()


def names_in_mount():
    return sorted(entry.name for entry in os.scandir(MOUNTPOINT) if entry.is_file())


def files_on(disk):
    """All files on a disk, as paths relative to it; kvspan's own folder and ext4's are not the cache's."""
    for folder, folders, files in os.walk(disk):
        if folder == disk:
            folders[:] = [name for name in folders if name not in (".kvspan", "lost+found")]
        yield from (os.path.relpath(os.path.join(folder, file), disk) for file in files)


# ---- the matrix --------------------------------------------------------------------------------------------------------

bare_reports = {}


def on_bare_directory(options):
    """What the row gives on a bare directory: asked once for all mounts."""
    key = tuple(options.items())
    if key not in bare_reports:
        bare_reports[key] = client("roundtrip", os.path.join(FILE_SYSTEMS[0], "bare"), seed="bare", **options)
    return bare_reports[key]


def round_trip(options, seed):
    options = options | {"count": max(1, min(ROW_OBJECTS, ROW_BYTES // max(options["size"], 1)))}
    bare = on_bare_directory(options)
    if not bare["ok"]:
        raise Skip(f"the connector cannot do it on a bare directory either: {bare.get('errors')}")
    seen = client("roundtrip", MOUNTPOINT, seed=seed, **options)
    expect(answers(seen) == answers(bare), difference(answers(seen), answers(bare)))
    left = [os.path.join(folder, file) for folder, _, files in os.walk(MOUNTPOINT) for file in files]
    expect(not left, f"left in the mount: {left[:3]}")


def matrix():
    rows = product(FACTORS) if FULL else pairwise(FACTORS)
    by_mount = sorted(rows, key=lambda r: [FACTORS[name].index(r[name]) for name in OF_THE_MOUNT])
    for (count, passthrough), group in itertools.groupby(by_mount, key=lambda r: (r["disks"], r["passthrough"])):
        todo = {" ".join(f"{k}={'-' if v == '' else v}" for k, v in r.items()): r for r in group}
        try:
            _, disks = make_disks(f"matrix-{count}-{passthrough}", count)
            with mounted(disks, passthrough):
                for n, name in enumerate(list(todo)):
                    options = {k: v for k, v in todo.pop(name).items() if k not in OF_THE_MOUNT}
                    with row(name):
                        round_trip(options, seed=f"{count}/{passthrough}/{n}")
                with row(f"disks={count} passthrough={passthrough}: the disks are empty afterwards"):
                    left = [file for disk in disks for file in files_on(disk)]
                    expect(not left, f"left on the disks: {left[:3]}")
        except (Wrong, Hung, OSError) as problem:
            with row(f"disks={count} passthrough={passthrough}: mount and unmount"):
                raise Wrong(str(problem)) from None
            for name in todo:
                with row(name):
                    raise Wrong("not run: its mount failed")


# ---- scenarios ---------------------------------------------------------------------------------------------------------

# What the scenarios store: names with a salt and without, both modes, with a temp dir and without.
LOTS = [
    dict(seed="small", size=64 * KIB, count=150, workers=8),
    dict(seed="odd", size=4097, count=50, salt="user.alice", tmp_dir="tmp"),
    dict(seed="large", size=4 * MIB, count=32, mode="odirect", workers=4, salt="user.alice"),
    dict(seed="empty", size=0, count=10),
]
LATER = [dict(seed="later", size=16 * KIB, count=150, workers=8), dict(seed="later", size=MIB, count=32, mode="odirect")]
COUNT = sum(lot["count"] for lot in LOTS)


def store(lots):
    for lot in lots:
        report = client("store", MOUNTPOINT, **lot)
        expect(report["ok"] and report["stored"] == lot["count"], f"store {lot['seed']}: {report}")


def verify(lots):
    """Load all of the lots; returns how many were hits. A wrong byte, or a hit that cannot be loaded, is a failure."""
    hits = 0
    for lot in lots:
        report = client("verify", MOUNTPOINT, **lot)
        expect(report["ok"], f"verify {lot['seed']}: {report}")
        hits += report["hits"]
    return hits


def all_hits(lots):
    hits, stored = verify(lots), sum(lot["count"] for lot in lots)
    expect(hits == stored, f"{hits} of {stored} are hits")


def every_file_lies_where_it_says(disks, away="no"):
    """Names, xattrs, status and disks agree, byte for byte; with away="no" each file also lies on its owner."""
    disk_of = {}
    for disk in disks:
        with open(os.path.join(disk, ".kvspan", "label.json")) as label:
            disk_of[json.load(label)["disk_id"]] = disk
    listed = xattr(MOUNTPOINT, "disk_uuids").split(",")
    expect(sorted(listed) == sorted(disk_of), f"disk_uuids {listed} are not the labels' {sorted(disk_of)}")
    names = names_in_mount()
    for name in names:
        path = os.path.join(MOUNTPOINT, name)
        location, owner, backing = (xattr(path, n) for n in ("disk_uuid", "owner_uuid", "backing_path"))
        says = {"away": "no" if location == owner else "yes", "disk_path": disk_of[location]}
        for attribute, value in says.items():
            expect(xattr(path, attribute) == value, f"{name}: {attribute} {xattr(path, attribute)} instead of {value}")
        expect(away == "any" or location == owner, f"{name} lies on {location}, its owner is {owner}")
        expect(backing == os.path.join(disk_of[location], name), f"{name}: backing_path {backing}")
        expect(filecmp.cmp(path, backing, shallow=False), f"{name}: not the bytes of {backing}")
    on_disks = collections.Counter(file for disk in disks for file in files_on(disk))
    expect(on_disks == collections.Counter(names), f"files on the disks and names in the mount differ: {len(on_disks)}, {len(names)}")
    now = status()
    expect(now["files"] == len(names), f"status: {now['files']} files instead of {len(names)}")
    for disk in now["disks"]:
        here = sum(1 for _ in files_on(disk["path"]))
        expect(disk["files"] == here, f"status: {disk['files']} files on {disk['path']} instead of {here}")
    return names


def files_away():
    return sum(disk["away_files"] for disk in status()["disks"])


def io_mode_is_as_asked(passthrough):
    has_passthrough = tuple(map(int, re.findall(r"\d+", platform.release())[:2])) >= (6, 9)
    wanted = "passthrough" if passthrough == "auto" and has_passthrough else "daemon"
    expect(status()["io_mode"] == wanted, f"io_mode {status()['io_mode']} instead of {wanted}")


def one_volume_through_its_life():
    volume, disks = make_disks("life", 3)
    with mounted(disks):
        with row("status names the I/O mode, passthrough=auto"):
            io_mode_is_as_asked("auto")
        with row("store: every object is a hit"):
            store(LOTS)
            all_hits(LOTS)
        with row("each file lies on the disk that rendezvous picks"):
            expect(len(every_file_lies_where_it_says(disks)) == COUNT, "names are missing")
        with row("kvspan where agrees"):
            name = names_in_mount()[0]
            owner = xattr(os.path.join(MOUNTPOINT, name), "owner_uuid")
            expect(owner in kvspan("where", MOUNTPOINT, name), f"where does not name the owner {owner}")
    with mounted(disks, "off"):
        with row("status names the I/O mode, passthrough=off"):
            io_mode_is_as_asked("off")
        with row("store, unmount, mount, verify: all hits, passthrough=off as well"):
            all_hits(LOTS)
            every_file_lies_where_it_says(disks)
    _, added = make_disks("life", 1, volume, first=3)
    with mounted(disks + added):
        with row("a disk added: every old file is a hit"):
            all_hits(LOTS)
        with row("a disk added: exactly the files that it now owns are away"):
            names = every_file_lies_where_it_says(disks + added, away="any")
            away = sum(xattr(os.path.join(MOUNTPOINT, name), "away") == "yes" for name in names)
            expect(0 < away < COUNT / 2, f"{away} of {COUNT} are away")
            expect(files_away() == away, f"status says {files_away()} away, the files' xattrs {away}")
            expect(not any(files_on(added[0])), "something was moved to the new disk")
        with row("a disk added: nothing stored since is away"):
            old, away = set(names_in_mount()), files_away()
            store(LATER)
            all_hits(LOTS + LATER)
            since = [name for name in names_in_mount() if name not in old]
            expect(len(since) == sum(lot["count"] for lot in LATER), f"{len(since)} new names")
            lost = [name for name in since if xattr(os.path.join(MOUNTPOINT, name), "away") != "no"]
            expect(not lost, f"away: {lost[:3]}")
            expect(files_away() == away, f"away_files went from {away} to {files_away()}")
            expect(any(files_on(added[0])), "the new disk got nothing")
    gone, rest = disks[0], disks[1:] + added
    with mounted(rest):
        with row("a disk removed: only its own files are misses"):
            hits, wanted = verify(LOTS + LATER), sum(1 for disk in rest for _ in files_on(disk))
            expect(hits == wanted, f"{hits} hits instead of {wanted}")
    with mounted([gone] + rest, "off"):
        with row("a disk put back: every file is a hit, the disks named in another order"):
            all_hits(LOTS + LATER)
            every_file_lies_where_it_says([gone] + rest, away="any")


def two_processes(directory, passthrough):
    """Two connectors that store the same keys at the same moment, five times over; then all keys must be there, whole.

    They share a temp name. On a bare directory too the one whose rename comes second is told that its temp file is gone, so
    that one error is right, and any other is not.
    """
    allowed = {"rename failed: PATH -> PATH: No such file or directory"}
    for n, (mode, tmp_dir) in enumerate(itertools.product(["buffered", "odirect"], ["", "tmp"])):
        with row(f"two processes store the same keys: {passthrough} {mode} tmp_dir={tmp_dir or '-'}"):
            for size in (4 * KIB, 64 * KIB, MIB, 8 * MIB):
                lot = dict(seed=f"two{n}", size=size, count=16, workers=8, mode=mode, tmp_dir=tmp_dir)
                both = [start_client("store", directory, **lot, start_at=time.time() + 0.4) for _ in range(2)]
                errors = set().union(*(kinds(finish_client(process)) for process in both))
                expect(errors <= allowed, f"size {size}: {errors - allowed}")
                report = client("verify", directory, **lot)
                expect(report["ok"] and report["hits"] == lot["count"], f"size {size}: {report}")
            temp_files = [file for _, _, files in os.walk(directory) for file in files if not file.endswith(".data")]
            expect(not temp_files, f"left over: {temp_files[:3]}")


def scenarios():
    one_volume_through_its_life()
    bare = os.path.join(FILE_SYSTEMS[0], "bare-two")
    os.mkdir(bare)
    two_processes(bare, "bare directory")
    _, disks = make_disks("two", 2)
    for passthrough in FACTORS["passthrough"]:
        with mounted(disks, passthrough):
            two_processes(MOUNTPOINT, f"passthrough={passthrough}")


def ten_times_the_limit():
    fill.rows(sys.modules[__name__])


def main():
    began = time.monotonic()
    os.mkdir(MOUNTPOINT)
    for part in (matrix, scenarios, ten_times_the_limit):
        try:
            part()
        except (Wrong, Hung, OSError) as problem:
            with row(part.__name__):
                raise Wrong(f"ended early: {problem}") from None
    if failed and os.path.exists(LOG):
        with open(LOG, errors="replace") as log:
            print("the end of kvspan's log:\n" + "".join(collections.deque(log, 40)))
    summary = {"kvspan": kvspan("--version", may_fail=True), "full": FULL, "seconds": round(time.monotonic() - began)}
    print(json.dumps(summary | {"passed": len(passed), "skipped": skipped, "failed": failed}))
    print(f"{len(passed)} passed, {len(failed)} failed")
    sys.exit(1 if failed or not passed else 0)


if __name__ == "__main__":
    main()
