"""Ten times the limit through LMCache's connector. Called by `matrix.py`.

Not one error may reach the connector, no disk may hold more than its limit and the writes in flight (looked at every 100 ms
as `du` does), the files that are left are the last ones stored, and status counts what went.
"""
import re

from client_loops import digest
from volume import FULL, KIB, MIB, MOUNTPOINT, Watch, expect, make_disks, mounted, names_in_mount, row, settled

BATCH = 32  # the client's default: what it has in flight

# size, limit of each of two disks, writers
CI_ROWS = [(64 * KIB, 128 * MIB, 16), (MIB, 128 * MIB, 16), (64 * MIB, 512 * MIB, 2)]
# Bounds as the design promises them: four times the open writers times the largest object.
FULL_ROWS = [(64 * KIB, 256 * MIB, 16), (MIB, 256 * MIB, 16), (64 * MIB, 4096 * MIB, 16)]


def left_of(seed, size, count):
    """The numbers of the objects that are still there."""
    hashes = {match.group() for name in names_in_mount() if (match := re.search(r"[0-9a-f]{64}", name))}
    return [number for number in range(count) if digest(seed, size, number) in hashes]


def fill(client, size, limit, writers, mode, passthrough):
    count, seed = 2 * 10 * limit // size, f"fill {mode} {passthrough}"
    _, disks = make_disks(f"fill-{size}-{mode}-{passthrough}", 2)
    with mounted(disks, passthrough, f"limit={limit}"):
        with Watch(disks) as watch:
            report = client.run("store", MOUNTPOINT, size=size, count=count, seed=seed, mode=mode, workers=writers)
        expect(report["ok"] and report["stored"] == count, f"the connector was refused: {report}")
        in_flight = min(writers, BATCH) * size
        for disk, most in watch.most.items():
            expect(most <= limit + in_flight, f"{disk} held {most}, limit {limit} and {in_flight} in flight")
        left = left_of(seed, size, count)
        room = 2 * limit // size
        expect(len(left) >= room // 2, f"only {len(left)} of {room} objects are left")
        oldest = count - 2 * room - 2 * BATCH
        expect(min(left) >= oldest, f"object {min(left)} of {count} is left, which is not among the last ones")
        client.loaded(MOUNTPOINT, dict(size=size, count=count, seed=seed, mode=mode, workers=writers))
        evicted = settled()["evictions"]
        expect(evicted["files"] >= count - room - BATCH, f"status counts {evicted}")


def rows(client):
    for size, limit, writers in FULL_ROWS if FULL else CI_ROWS:
        for mode, passthrough in [("buffered", "auto"), ("odirect", "auto"), ("buffered", "off")]:
            if passthrough == "off" and size != MIB:
                continue
            name = f"ten times the limit: size={size} limit={limit} writers={writers} mode={mode} passthrough={passthrough}"
            with row(name):
                fill(client, size, limit, writers, mode, passthrough)
