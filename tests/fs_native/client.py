#!/usr/bin/env python3
"""Drives LMCache's own fs_native connector (the C++ extension of its wheel) against a directory.

Run through `client.sh`, which sets the library path. Every subcommand prints one JSON object and exits 1 when a
byte or an answer is wrong.

  roundtrip DIR    store, look up, load and delete objects; compare every byte and every answer
  store DIR        store objects and leave them there (--seed names them; the same seed gives the same bytes)
  verify DIR       load what `store` with the same arguments left; report hits, misses and wrong bytes
  persist DIR      store, look up and load again and again until the file --until is there, whatever fails meanwhile
  bench DIR        time store / lookup hit / lookup miss / load / delete, batch by batch
"""
import argparse
import glob
import hashlib
import importlib.util
import json
import mmap
import os
import select
import sys
import time


def load_extension(library_dir):
    path = glob.glob(os.path.join(library_dir, "lmcache_fs.*.so"))[0]
    spec = importlib.util.spec_from_file_location("lmcache_fs", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.LMCacheFSClient


class Connector:
    """Blocking calls over the connector's submit / event-fd / drain interface."""

    def __init__(self, client_class, directory, workers, tmp_dir, odirect):
        self.client = client_class(directory, workers, tmp_dir, odirect, 0)
        self.poll = select.poll()
        self.poll.register(self.client.event_fd(), select.POLLIN)

    def _wait(self, future):
        deadline = time.monotonic() + 300
        while time.monotonic() < deadline:
            self.poll.poll(1000)
            for done, ok, error, answers in self.client.drain_completions():
                if done == future:
                    return ok, error, answers
        raise TimeoutError("the connector did not answer within 300 s")

    def set(self, keys, buffers):
        return self._wait(self.client.submit_batch_set(keys, list(buffers)))

    def get(self, keys, buffers):
        return self._wait(self.client.submit_batch_get(keys, list(buffers)))

    def exists(self, keys):
        return self._wait(self.client.submit_batch_exists(keys))

    def delete(self, keys):
        return self._wait(self.client.submit_batch_delete(keys))

    def close(self):
        self.client.close()


def key(args, number):
    """A key as LMCache builds it: model@kv_rank@object_group@chunk_hash[@cache_salt]."""
    digest = hashlib.blake2b(f"{args.seed}/{args.size}/{number}".encode(), digest_size=32).hexdigest()
    salt = f"@{args.salt}" if args.salt else ""
    return f"{args.model}@{number % 4:08x}@0@{digest}{salt}"


def aligned_buffer(size):
    """A page-aligned, writable view of `size` bytes: what O_DIRECT needs. `size` may be 0."""
    return memoryview(mmap.mmap(-1, max(size, 1)))[:size]


def payload(args, number, buffer):
    """Fill `buffer` with bytes that depend on the seed, the object's number and the 4 KiB block's place in it."""
    base = hashlib.blake2b(f"{args.seed}:{number}".encode(), digest_size=64).digest() * 64  # 4096 bytes
    for start in range(0, len(buffer), 4096):
        block = (start // 4096).to_bytes(8, "little") + base[8:]
        end = min(start + 4096, len(buffer))
        buffer[start:end] = block[: end - start]
    return buffer


def batches(args):
    for start in range(0, args.count, args.batch):
        yield list(range(start, min(start + args.batch, args.count)))


def store(args, connector):
    stored, failed, errors, seconds = 0, 0, [], 0.0
    buffers = [aligned_buffer(args.size) for _ in range(min(args.batch, args.count))]
    for numbers in batches(args):
        filled = [payload(args, n, b) for n, b in zip(numbers, buffers)]
        began = time.perf_counter()
        ok, error, _ = connector.set([key(args, n) for n in numbers], filled)
        seconds += time.perf_counter() - began
        if ok:
            stored += len(numbers)
        else:
            failed += len(numbers)
            errors.append(error)
    return {"stored": stored, "failed_in_batches": failed, "errors": errors[:3], "store_s": seconds}


def verify(args, connector):
    """Look up, then load what the look-up found, as the prefetch path does."""
    hits, misses, lost, wrong, seconds = 0, 0, 0, 0, 0.0
    buffers = [aligned_buffer(args.size) for _ in range(min(args.batch, args.count))]
    expected = aligned_buffer(args.size)
    for numbers in batches(args):
        _, _, found = connector.exists([key(args, n) for n in numbers])
        present = [n for n, there in zip(numbers, found) if there]
        misses += len(numbers) - len(present)
        if not present:
            continue
        chosen = buffers[: len(present)]
        began = time.perf_counter()
        _, _, loaded = connector.get([key(args, n) for n in present], chosen)
        seconds += time.perf_counter() - began
        for n, buffer, there in zip(present, chosen, loaded or [False] * len(present)):
            if not there:
                lost += 1  # the look-up said yes and the load said no
                continue
            hits += 1
            if buffer != payload(args, n, expected):
                wrong += 1
    return {"hits": hits, "misses": misses, "lost_after_lookup": lost, "wrong_bytes": wrong, "load_s": seconds}


def roundtrip(args, connector):
    report = store(args, connector)
    report.update(verify(args, connector))
    keys = [key(args, n) for n in range(args.count)]
    _, _, absent = connector.exists([k + "ff" for k in keys])
    report["false_hits"] = sum(absent)
    _, _, deleted = connector.delete(keys)
    report["deleted"] = sum(deleted)
    _, _, still = connector.exists(keys)
    report["left_after_delete"] = sum(still)
    report["ok"] = (
        report["stored"] == report["hits"] == report["deleted"] == args.count
        and not report["wrong_bytes"] + report["false_hits"] + report["left_after_delete"]
    )
    return report


def persist(args, connector):
    """One connector through whatever happens to its directory: failures are counted, a wrong byte is wrong."""
    report = {"hits": 0, "wrong_bytes": 0, "failures": 0, "hits_since_failure": 0}
    while not os.path.exists(args.until):
        stored = store(args, connector)
        loaded = verify(args, connector)
        report["wrong_bytes"] += loaded["wrong_bytes"]
        report["hits"] += loaded["hits"]
        if loaded["hits"] == args.count and not stored["failed_in_batches"]:
            report["hits_since_failure"] += loaded["hits"]
        else:
            report["failures"] += 1
            report["hits_since_failure"] = 0
    report["ok"] = not report["wrong_bytes"] and report["hits_since_failure"] > 0
    return report


def bench(args, connector):
    keys = [key(args, n) for n in range(args.count)]
    report = store(args, connector)

    def timed(call):
        began = time.perf_counter()
        for numbers in batches(args):
            call(numbers)
        return time.perf_counter() - began

    buffers = [aligned_buffer(args.size) for _ in range(min(args.batch, args.count))]
    report["lookup_hit_s"] = timed(lambda ns: connector.exists([keys[n] for n in ns]))
    report["lookup_miss_s"] = timed(lambda ns: connector.exists([keys[n] + "ff" for n in ns]))
    report["load_s"] = timed(lambda ns: connector.get([keys[n] for n in ns], buffers[: len(ns)]))
    report["delete_s"] = timed(lambda ns: connector.delete([keys[n] for n in ns]))
    mib = args.count * args.size / 2**20
    report["store_mib_per_s"] = mib / report["store_s"]
    report["load_mib_per_s"] = mib / report["load_s"]
    for op in ("lookup_hit", "lookup_miss", "delete"):
        report[f"{op}_per_s"] = args.count / report[f"{op}_s"]
    report["ok"] = report["stored"] == args.count
    return report


COMMANDS = {"roundtrip": roundtrip, "store": store, "verify": verify, "persist": persist, "bench": bench}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("command", choices=list(COMMANDS))
    parser.add_argument("directory")
    parser.add_argument("--library", default=os.environ.get("FS_NATIVE_DIR", ".fs_native"))
    parser.add_argument("--count", type=int, default=64, help="objects")
    parser.add_argument("--size", type=int, default=1 << 20, help="bytes an object")
    parser.add_argument("--batch", type=int, default=32, help="objects a call")
    parser.add_argument("--workers", type=int, default=4, help="the connector's num_workers")
    parser.add_argument("--tmp-dir", default="", help="the connector's relative_tmp_dir")
    parser.add_argument("--odirect", action="store_true", help="the connector's use_odirect")
    parser.add_argument("--seed", default="1")
    parser.add_argument("--start-at", type=float, default=0, help="wait until this time.time(), to start together with another")
    parser.add_argument("--model", default="meta-llama/Llama-3.1-70B-Instruct")
    parser.add_argument("--salt", default="")
    parser.add_argument("--until", help="persist: the file that ends it")
    parser.add_argument("--expect-hits", type=int, help="verify: fail unless exactly so many objects are loaded")
    args = parser.parse_args()
    connector = Connector(load_extension(args.library), args.directory, args.workers, args.tmp_dir, args.odirect)
    time.sleep(max(0, args.start_at - time.time()))
    try:
        report = COMMANDS[args.command](args, connector)
    finally:
        connector.close()
    report.setdefault("ok", not (report.get("failed_in_batches") or report.get("wrong_bytes") or report.get("lost_after_lookup")))
    if args.command == "verify" and args.expect_hits is not None:
        report["ok"] = report["ok"] and report["hits"] == args.expect_hits
    print(json.dumps({k: round(v, 4) if isinstance(v, float) else v for k, v in report.items()}))
    sys.exit(0 if report["ok"] else 1)


if __name__ == "__main__":
    main()
