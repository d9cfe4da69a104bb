"""Ten times the limit through LMCache's connector. Called by `matrix.py`.

Not one error may reach the connector, no disk may hold more than its limit and the writes in flight (looked at every 100 ms
as `du` does), the files that are left are the last ones stored, and status counts what went.
"""
import hashlib
import os
import re
import threading
import time

KIB, MIB = 1 << 10, 1 << 20
BATCH = 32  # the client's default: what it has in flight

# size, limit of each of two disks, writers
CI = [(64 * KIB, 128 * MIB, 16), (MIB, 128 * MIB, 16), (64 * MIB, 512 * MIB, 2)]
# Bounds as the design promises them: four times the open writers times the largest object.
FULL = [(64 * KIB, 256 * MIB, 16), (MIB, 256 * MIB, 16), (64 * MIB, 4096 * MIB, 16)]


def du(disk):
    total = 0
    for folder, folders, files in os.walk(disk):
        if folder == disk:
            folders[:] = [name for name in folders if name not in (".kvspan", "lost+found")]
        for file in files:
            try:
                total += os.lstat(os.path.join(folder, file)).st_blocks * 512
            except FileNotFoundError:
                pass  # evicted in between
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


def digest(seed, size, number):
    """The part of a key that names the object, as client.py makes it."""
    return hashlib.blake2b(f"{seed}/{size}/{number}".encode(), digest_size=32).hexdigest()


def left_of(harness, seed, size, count):
    """The numbers of the objects that are still there."""
    hashes = {match.group() for name in harness.names_in_mount() if (match := re.search(r"[0-9a-f]{64}", name))}
    return [number for number in range(count) if digest(seed, size, number) in hashes]


def fill(harness, size, limit, writers, mode, passthrough):
    expect, count, seed = harness.expect, 2 * 10 * limit // size, f"fill {mode} {passthrough}"
    _, disks = harness.make_disks(f"fill-{size}-{mode}-{passthrough}", 2)
    with harness.mounted(disks, passthrough, f"limit={limit}"):
        with Watch(disks) as watch:
            report = harness.client("store", harness.MOUNTPOINT, size=size, count=count, seed=seed, mode=mode, workers=writers)
        expect(report["ok"] and report["stored"] == count, f"the connector was refused: {report}")
        in_flight = min(writers, BATCH) * size
        for disk, most in watch.most.items():
            expect(most <= limit + in_flight, f"{disk} held {most}, limit {limit} and {in_flight} in flight")
        left = left_of(harness, seed, size, count)
        room = 2 * limit // size
        expect(len(left) >= room // 2, f"only {len(left)} of {room} objects are left")
        oldest = count - 2 * room - 2 * BATCH
        expect(min(left) >= oldest, f"object {min(left)} of {count} is left, which is not among the last ones")
        report = harness.client("verify", harness.MOUNTPOINT, size=size, count=count, seed=seed, mode=mode, workers=writers)
        expect(report["wrong_bytes"] == 0, f"verify: {report}")
        status = harness.status()
        expect(status["evictions"]["files"] >= count - room - BATCH, f"status counts {status['evictions']}")
        usage_is_what_du_counts(harness)


def usage_is_what_du_counts(harness):
    """Once the evictors have come to rest: a victim leaves the index before it leaves its disk."""
    deadline = time.monotonic() + 10
    while True:
        says = {disk["path"]: disk["used_bytes"] for disk in harness.status()["disks"]}
        counted = {path: du(path) for path in says}
        if says == counted:
            return
        harness.expect(time.monotonic() < deadline, f"status says {says}, du {counted}")
        time.sleep(0.05)


def rows(harness):
    for size, limit, writers in FULL if harness.FULL else CI:
        for mode, passthrough in [("buffered", "auto"), ("odirect", "auto"), ("buffered", "off")]:
            if passthrough == "off" and size != MIB:
                continue
            name = f"ten times the limit: size={size} limit={limit} writers={writers} mode={mode} passthrough={passthrough}"
            with harness.row(name):
                fill(harness, size, limit, writers, mode, passthrough)
