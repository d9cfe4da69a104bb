#!/usr/bin/env python3
"""llm-d, SGLang and vLLM, as replay.py has their calls, against kvspan. Called by tests/harness/run: matrix.py KVSPAN WORK.

Round trips in which every byte is compared; a volume's life with all of them on it; processes that store the same keys; what
llm-d's nested directories, marks of use and unnamed files meet.
"""
import errno
import itertools
import os
import sys

from scenarios import PASSTHROUGH, RoundTrips, one_volume_through_its_life, the_same_keys_at_once
from volume import (
    FILE_SYSTEMS, FULL, KIB, MIB, MOUNTPOINT, Client, Watch, expect, files_on, kinds, main, make_disks, mounted, row, settled,
)

REPLAY = os.path.join(os.path.dirname(os.path.abspath(__file__)), "replay.py")
ENGINES = ["llm-d", "sglang", "vllm-fs", "vllm-example"]
SIZES = [0, 4096, 64 * KIB + 1, MIB, 17 * MIB] + ([64 * MIB] if FULL else [])


class Replays(Client):
    def objects_on(self, disks):
        """The objects of those engines that look a file up. Nothing else of theirs ends so."""
        return sum(file.endswith(".bin") for disk in disks for file in files_on(disk))


CLIENT = Replays(sys.executable, REPLAY)


def round_trips():
    def can(row):
        """O_DIRECT is vLLM's alone, which stores whole blocks only. One disk is asked for one size if time is short."""
        if not FULL and row["disks"] == 1 and row["size"] != MIB:
            return False
        return row["mode"] == "buffered" or (row["engine"] == "vllm-fs" and row["size"] % 4096 == 0)

    factors = {"disks": [1, 3], "passthrough": PASSTHROUGH, "engine": ENGINES, "size": SIZES, "mode": ["buffered", "odirect"]}
    rows = [dict(zip(factors, values)) for values in itertools.product(*factors.values())]
    RoundTrips(CLIENT, row_bytes=64 * MIB, row_objects=64 if FULL else 24).run(filter(can, rows))


def lots_of(seed, engines, **options):
    return [dict(engine=engine, seed=seed, **options) for engine in engines]


def life():
    lots = lots_of("first", ENGINES, size=16 * KIB, count=60) + lots_of("odd", ENGINES, size=5001, count=20)
    lots += lots_of("direct", ["vllm-fs"], size=MIB, count=16, mode="odirect")
    later = lots_of("later", ENGINES, size=16 * KIB, count=40)
    one_volume_through_its_life(CLIENT, lots, later, asks_for_files=lambda lot: lot["engine"] != "vllm-example")


def a_restart():
    _, disks = make_disks("restart", 3)
    lot = dict(engine="sglang", seed="restart", size=4096, count=300 if FULL else 120)
    for passthrough in PASSTHROUGH:
        with row(f"SGLang finds at its start what it stored before: passthrough={passthrough}"):
            with mounted(disks, passthrough):
                CLIENT.store(MOUNTPOINT, [lot])
                report = CLIENT.run("verify", MOUNTPOINT, **lot)
                expect(report["found_at_start"] == report["hits"] == lot["count"], f"{report}")


def same_keys():
    bare = os.path.join(FILE_SYSTEMS[0], "bare-same")
    os.mkdir(bare)
    _, disks = make_disks("same", 3)

    def all_engines(directory, name):
        for engine in ENGINES:
            lots = [dict(engine=engine, seed="same", size=size, count=16) for size in (4 * KIB, MIB)]
            the_same_keys_at_once(CLIENT, directory, f"{name} {engine}", lots, 3, allowed=set())

    all_engines(bare, "bare directory")
    for passthrough in PASSTHROUGH:
        with mounted(disks, passthrough):
            all_engines(MOUNTPOINT, f"passthrough={passthrough}")


# ---- llm-d -------------------------------------------------------------------------------------------------------------

LIMIT = 32 * MIB  # of each of two disks
ROOM = 2 * LIMIT // (64 * KIB)  # objects of 64 KiB
FOUR_WRITERS = dict(engine="llm-d", size=64 * KIB, workers=4)


def directories_of(directory):
    return {os.path.relpath(os.path.join(folder, name), directory) for folder, names, _ in os.walk(directory) for name in names}


def eviction_in_nested_directories():
    lot = FOUR_WRITERS | dict(seed="flood", count=3 * ROOM)
    for passthrough in PASSTHROUGH:
        _, disks = make_disks(f"nested-{passthrough}", 2)
        with row(f"three times the limit in nested directories: passthrough={passthrough}"):
            with mounted(disks, passthrough, f"limit={LIMIT}"):
                with Watch(disks) as watch:
                    CLIENT.store(MOUNTPOINT, [lot])
                for disk, most in watch.most.items():
                    expect(most <= LIMIT + lot["workers"] * lot["size"], f"{disk} held {most} of {LIMIT}")
                settled()
                report = CLIENT.loaded(MOUNTPOINT, lot)
                left = report["hits"]
                expect(ROOM // 2 <= left <= ROOM, f"{left} objects are left where {ROOM} have room")
                expect(left == CLIENT.objects_on(disks), f"{CLIENT.objects_on(disks)} files on the disks, {report}")
                folders = directories_of(MOUNTPOINT)
                expect(len(folders) > 2 * left, f"{len(folders)} directories for {left} files: evicted ones take theirs along")
            with mounted(disks, passthrough, f"limit={LIMIT}"):
                expect(directories_of(MOUNTPOINT) == folders, "a mount shows other directories")
                CLIENT.store(MOUNTPOINT, [lot])  # into directories whose files have gone
                settled()


def marks_of_use():
    marked = FOUR_WRITERS | dict(seed="marked", count=ROOM // 5)
    unmarked = FOUR_WRITERS | dict(seed="unmarked", count=ROOM // 2)
    flood = FOUR_WRITERS | dict(seed="flood", count=ROOM * 3 // 5)
    for remount in (False, True):
        _, disks = make_disks(f"marks-{remount}", 2)
        with row("a mark of use outlives a flood" + (" after a remount" if remount else "")):
            with mounted(disks, more=f"limit={LIMIT}"):
                CLIENT.store(MOUNTPOINT, [marked, unmarked])  # the marked ones are the older ones
                CLIENT.store(MOUNTPOINT, [marked])  # is there: marked as used and not written
                if not remount:
                    CLIENT.store(MOUNTPOINT, [flood])
            with mounted(disks, more=f"limit={LIMIT}"):
                if remount:
                    CLIENT.store(MOUNTPOINT, [flood])
                CLIENT.all_hits(MOUNTPOINT, [marked])
                left = CLIENT.loaded(MOUNTPOINT, unmarked)["hits"]
                expect(left < unmarked["count"] / 2, f"{left} of {unmarked['count']} unmarked ones are left as well")


def unnamed_files():
    _, disks = make_disks("unnamed", 2)
    lot = dict(engine="llm-d", seed="unnamed", size=64 * KIB, count=8)
    bare = os.path.join(FILE_SYSTEMS[0], "bare-unnamed")
    with row("O_TMPFILE is refused and leaves nothing, and llm-d stores without it"), mounted(disks):
        expect(CLIENT.run("store", bare, **lot, o_tmpfile=1)["ok"], "a bare directory refuses it too")
        report = CLIENT.run("store", MOUNTPOINT, **lot, o_tmpfile=1)
        refused = {f"[Errno {errno.EOPNOTSUPP}] {os.strerror(errno.EOPNOTSUPP)}: PATH"}
        expect(report["stored"] == 0 and kinds(report) == refused, f"{report}")
        expect(CLIENT.objects_on([MOUNTPOINT, *disks]) == 0, "something was made")
        CLIENT.store(MOUNTPOINT, [lot])
        CLIENT.all_hits(MOUNTPOINT, [lot])


if __name__ == "__main__":
    main(round_trips, life, a_restart, same_keys, eviction_in_nested_directories, marks_of_use, unnamed_files)
