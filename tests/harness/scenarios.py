"""What every engine has to live through on kvspan: round trips on mounts of every kind, a volume's life with disks added and
removed, and several processes that store the same keys.
"""
import itertools
import os
import time

from volume import (
    FILE_SYSTEMS, MOUNTPOINT, Hung, Skip, Wrong, answers, difference, every_file_lies_where_it_says, expect, files_away,
    files_on, finish_client, io_mode_is_as_asked, kinds, kvspan, make_disks, mounted, names_in_mount, objects_of, row, xattr,
)

OF_THE_MOUNT = ("disks", "passthrough")  # the bare directory does not know these
PASSTHROUGH = ("auto", "off")


class RoundTrips:
    """Rows, each a round trip on a mount of its `disks` and `passthrough`, the rest of it options of the client. What a row must
    give is what it gives on a bare directory; one that the client cannot do there is skipped.
    """

    def __init__(self, client, row_bytes, row_objects):
        self.client, self.row_bytes, self.row_objects = client, row_bytes, row_objects
        self.bare, self.bare_reports = os.path.join(FILE_SYSTEMS[0], "bare"), {}

    def on_bare_directory(self, options):
        """Asked once for all mounts."""
        key = tuple(options.items())
        if key not in self.bare_reports:
            self.bare_reports[key] = self.client.run("roundtrip", self.bare, seed="bare", **options)
        return self.bare_reports[key]

    def left(self, directories):
        """Files that are still there, and not on the bare directory."""
        kept = set(files_on(self.bare))
        return [file for directory in directories for file in files_on(directory) if file not in kept]

    def run_row(self, options, seed):
        options = options | {"count": max(1, min(self.row_objects, self.row_bytes // max(options["size"], 1)))}
        bare = self.on_bare_directory(options)
        if not bare["ok"]:
            raise Skip(f"the client cannot do it on a bare directory either: {bare.get('errors')}")
        seen = self.client.run("roundtrip", MOUNTPOINT, seed=seed, **options)
        expect(answers(seen) == answers(bare), difference(answers(seen), answers(bare)))
        expect(not self.left([MOUNTPOINT]), f"left in the mount: {self.left([MOUNTPOINT])[:3]}")

    def run(self, rows):
        def of_the_mount(row):
            return [row[name] for name in OF_THE_MOUNT]

        for (count, passthrough), group in itertools.groupby(sorted(rows, key=of_the_mount), key=of_the_mount):
            todo = {" ".join(f"{k}={'-' if v == '' else v}" for k, v in r.items()): r for r in group}
            try:
                _, disks = make_disks(f"matrix-{count}-{passthrough}", count)
                with mounted(disks, passthrough):
                    for n, name in enumerate(list(todo)):
                        options = {k: v for k, v in todo.pop(name).items() if k not in OF_THE_MOUNT}
                        with row(name):
                            self.run_row(options, seed=f"{count}/{passthrough}/{n}")
                    with row(f"disks={count} passthrough={passthrough}: the disks are empty afterwards"):
                        expect(not self.left(disks), f"left on the disks: {self.left(disks)[:3]}")
            except (Wrong, Hung, OSError) as problem:
                with row(f"disks={count} passthrough={passthrough}: mount and unmount"):
                    raise Wrong(str(problem)) from None
                for name in todo:
                    with row(name):
                        raise Wrong("not run: its mount failed")


def one_volume_through_its_life(client, lots, later, asks_for_files=lambda lot: True):
    """`lots` are stored first, `later` after a disk was added. `asks_for_files`: whether the look-up of a lot asks for what its
    load reads, so that without a disk it is a miss.
    """

    def all_are_hits(of):
        client.all_hits(MOUNTPOINT, of)

    volume, disks = make_disks("life", 3)
    with mounted(disks):
        with row("status names the I/O mode, passthrough=auto"):
            io_mode_is_as_asked("auto")
        with row("store: every object is a hit"):
            client.store(MOUNTPOINT, lots)
            all_are_hits(lots)
        with row("each file lies on the disk that rendezvous picks"):
            expect(every_file_lies_where_it_says(disks), "there is no file")
        with row("kvspan where agrees"):
            name = names_in_mount()[0]
            owner = xattr(os.path.join(MOUNTPOINT, name), "owner_uuid")
            expect(owner in kvspan("where", MOUNTPOINT, name), f"where does not name the owner {owner}")
    with mounted(disks, "off"):
        with row("status names the I/O mode, passthrough=off"):
            io_mode_is_as_asked("off")
        with row("store, unmount, mount, verify: all hits, passthrough=off as well"):
            all_are_hits(lots)
            every_file_lies_where_it_says(disks)
    _, added = make_disks("life", 1, volume, first=3)
    with mounted(disks + added):
        with row("a disk added: every old file is a hit"):
            all_are_hits(lots)
        with row("a disk added: exactly the files that it now owns are away"):
            names = every_file_lies_where_it_says(disks + added, away="any")
            away = sum(xattr(os.path.join(MOUNTPOINT, name), "away") == "yes" for name in names)
            expect(0 < away < len(names) / 2, f"{away} of {len(names)} are away")
            expect(files_away() == away, f"status says {files_away()} away, the files' xattrs {away}")
            expect(not any(files_on(added[0])), "something was moved to the new disk")
        with row("a disk added: nothing stored since is away"):
            old, away = set(names_in_mount()), files_away()
            client.store(MOUNTPOINT, later)
            all_are_hits(lots + later)
            since = [name for name in names_in_mount() if name not in old]
            expect(len(since) >= objects_of(later), f"{len(since)} new names")
            lost = [name for name in since if xattr(os.path.join(MOUNTPOINT, name), "away") != "no"]
            expect(not lost, f"away: {lost[:3]}")
            expect(files_away() == away, f"away_files went from {away} to {files_away()}")
            expect(any(files_on(added[0])), "the new disk got nothing")
    gone, rest = disks[0], disks[1:] + added
    with mounted(rest):
        with row("a disk removed: only its own files are misses"):
            hits, wanted = client.verify(MOUNTPOINT, filter(asks_for_files, lots + later)), client.objects_on(rest)
            expect(hits == wanted, f"{hits} hits instead of {wanted}")
    with mounted([gone] + rest, "off"):
        with row("a disk put back: every file is a hit, the disks named in another order"):
            all_are_hits(lots + later)
            every_file_lies_where_it_says([gone] + rest, away="any")


def the_same_keys_at_once(client, directory, name, lots, processes, allowed):
    """Processes that store the same keys at the same moment; then all keys must be there, whole, and no temp file.

    `allowed` are the errors that a bare directory gives too; any other is a failure.
    """
    with row(f"{processes} processes store the same keys: {name}"):
        for lot in lots:
            all_of_them = [client.start("store", directory, **lot, start_at=time.time() + 0.4) for _ in range(processes)]
            errors = set().union(*(kinds(finish_client(process)) for process in all_of_them))
            expect(errors <= allowed, f"{lot}: {errors - allowed}")
            client.all_hits(directory, [lot])
        left = [file for file in files_on(directory) if "tmp" in file]
        expect(not left, f"left over: {left[:3]}")
