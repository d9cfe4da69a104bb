#!/usr/bin/env python3
"""LMCache's fs_native connector against kvspan. Called by tests/harness/run, which makes the file systems: matrix.py KVSPAN WORK.

First the matrix: round trips in which the client compares every byte. Then the scenarios: a remount, two processes that
store the same keys, disks added and removed, and where each file lies. Then ten times the limit.
"""
import itertools
import os

import fill
from pairwise import pairwise, product
from scenarios import PASSTHROUGH, RoundTrips, one_volume_through_its_life, the_same_keys_at_once
from volume import FILE_SYSTEMS, FULL, KIB, MIB, MOUNTPOINT, Client, main, make_disks, mounted

CLIENT = Client(os.path.join(os.path.dirname(os.path.abspath(__file__)), "client.sh"))

FACTORS = {
    "disks": [1, 2, 3, 8],
    "passthrough": PASSTHROUGH,
    "size": [0, 1, 4095, 4096, 4097, 64 * KIB, MIB + 1, 16 * MIB, 64 * MIB],
    "mode": ["buffered", "odirect"],
    "tmp_dir": ["", "tmp"],
    "salt": ["", "user.alice"],
    "workers": [1, 2, 4, 8, 16] if FULL else [1, 3, 8, 16],
}

# What the scenarios store: names with a salt and without, both modes, with a temp dir and without.
LOTS = [
    dict(seed="small", size=64 * KIB, count=150, workers=8),
    dict(seed="odd", size=4097, count=50, salt="user.alice", tmp_dir="tmp"),
    dict(seed="large", size=4 * MIB, count=32, mode="odirect", workers=4, salt="user.alice"),
    dict(seed="empty", size=0, count=10),
]
LATER = [dict(seed="later", size=16 * KIB, count=150, workers=8), dict(seed="later", size=MIB, count=32, mode="odirect")]


def matrix():
    RoundTrips(CLIENT, row_bytes=256 * MIB, row_objects=64).run(product(FACTORS) if FULL else pairwise(FACTORS))


def two_processes(directory, name):
    """They share a temp name. On a bare directory too the one whose rename comes second is told that its temp file is gone."""
    allowed = {"rename failed: PATH -> PATH: No such file or directory"}
    for n, (mode, tmp_dir) in enumerate(itertools.product(["buffered", "odirect"], ["", "tmp"])):
        lot = dict(seed=f"two{n}", count=16, workers=8, mode=mode, tmp_dir=tmp_dir)
        lots = [lot | {"size": size} for size in (4 * KIB, 64 * KIB, MIB, 8 * MIB)]
        the_same_keys_at_once(CLIENT, directory, f"{name} {mode} tmp_dir={tmp_dir or '-'}", lots, 2, allowed)


def scenarios():
    one_volume_through_its_life(CLIENT, LOTS, LATER)
    bare = os.path.join(FILE_SYSTEMS[0], "bare-two")
    os.mkdir(bare)
    two_processes(bare, "bare directory")
    _, disks = make_disks("two", 2)
    for passthrough in PASSTHROUGH:
        with mounted(disks, passthrough):
            two_processes(MOUNTPOINT, f"passthrough={passthrough}")


def ten_times_the_limit():
    fill.rows(CLIENT)


if __name__ == "__main__":
    main(matrix, scenarios, ten_times_the_limit)
