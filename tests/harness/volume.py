"""A volume and its clients, for the suites that run engines against kvspan: mounts, client processes, rows of a report.

A suite is a program that `run` starts as SUITE KVSPAN WORK, with file systems mounted in WORK. It hands its parts to `main`;
each part reports rows. What a row must give is what the same client gives on a bare directory in the same run.
"""
import collections
import contextlib
import filecmp
import json
import os
import platform
import re
import subprocess
import sys
import threading
import time

KVSPAN, WORK = sys.argv[1:3]
FULL = os.environ.get("KVSPAN_FULL") == "1"
FILE_SYSTEMS = [os.path.join(WORK, name) for name in ("fs0", "fs1", "fs2")]
MOUNTPOINT = os.path.join(WORK, "mnt")
LOG = os.path.join(WORK, "kvspan.log")
KIB, MIB = 1 << 10, 1 << 20
PATIENCE = 120  # seconds for one client run: far more than it needs, so whoever is late hangs

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


# ---- clients -----------------------------------------------------------------------------------------------------------


class Client:
    """A client program (see client_loops.py); `options` become its `--name=value`."""

    def __init__(self, *program):
        self.program = program

    def start(self, command, directory, **options):
        arguments = [f"--{name.replace('_', '-')}={value}" for name, value in options.items()]
        return subprocess.Popen(
            [*self.program, command, directory, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )

    def run(self, command, directory, **options):
        return finish_client(self.start(command, directory, **options))

    def store(self, directory, lots):
        for lot in lots:
            report = self.run("store", directory, **lot)
            expect(report["ok"] and report["stored"] == lot["count"], f"store {lot}: {report}")

    def verify(self, directory, lots):
        """Load all of the lots; returns how many were hits. A wrong byte, or a hit that cannot be loaded, is a failure."""
        hits = 0
        for lot in lots:
            report = self.run("verify", directory, **lot)
            expect(report["ok"], f"verify {lot}: {report}")
            hits += report["hits"]
        return hits

    def loaded(self, directory, lot):
        """The report of loading a lot that was evicted in part: the kernel may believe a look-up for `entry_ttl`."""
        report = self.run("verify", directory, **lot)
        expect(report["wrong_bytes"] == 0, f"verify {lot}: {report}")
        return report

    def objects_on(self, disks):
        """How many objects lie on some disks whole."""
        return sum(1 for disk in disks for _ in files_on(disk))

    def all_hits(self, directory, lots):
        hits, stored = self.verify(directory, lots), objects_of(lots)
        expect(hits == stored, f"{hits} of {stored} are hits")


def objects_of(lots):
    return sum(lot["count"] for lot in lots)


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
    return sorted(files_on(MOUNTPOINT))


def files_on(disk):
    """All files on a disk, as paths relative to it; kvspan's own folder and ext4's are not the cache's."""
    for folder, folders, files in os.walk(disk):
        if folder == disk:
            folders[:] = [name for name in folders if name not in (".kvspan", "lost+found")]
        yield from (os.path.relpath(os.path.join(folder, file), disk) for file in files)


def du(disk):
    total = 0
    for file in files_on(disk):
        with contextlib.suppress(FileNotFoundError):  # evicted in between
            total += os.lstat(os.path.join(disk, file)).st_blocks * 512
    return total


class Watch(threading.Thread):
    """The most that each disk ever held."""

    def __init__(self, disks):
        super().__init__()
        self.most = {disk: 0 for disk in disks}
        self.ended = threading.Event()

    def run(self):
        while not self.ended.wait(0.1):
            for disk in self.most:
                self.most[disk] = max(self.most[disk], du(disk))

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, *_):
        self.ended.set()
        self.join()


def settled():
    """The status once the evictors have come to rest, below `high`; then it must count what du counts."""
    # Less than a sync interval: a wrong count must not be put right by the next sync.
    seen, deadline = None, time.monotonic() + 15
    while True:
        before, seen = seen, status()
        wrong = [disk["path"] for disk in seen["disks"] if disk["used_bytes"] != du(disk["path"])]
        full = [disk["path"] for disk in seen["disks"] if disk["used_bytes"] > 0.95 * disk["limit_bytes"]]
        if before and before["evictions"] == seen["evictions"] and not wrong and not full:
            return seen
        expect(time.monotonic() < deadline, f"status does not count what du counts on {wrong}, or {full} stay full: {seen}")
        time.sleep(0.1)


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


# ---- a suite -----------------------------------------------------------------------------------------------------------


def main(*parts):
    began = time.monotonic()
    os.mkdir(MOUNTPOINT)
    for part in parts:
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
