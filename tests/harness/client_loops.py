"""The loops of every client of the suites: store, look up, load and delete objects through an engine, and compare every byte.

A client is a program that hands its engine to `main`. Every subcommand prints one JSON object and exits 1 when a byte or an
answer is wrong.

  roundtrip DIR    store, look up, load and delete objects; compare every byte and every answer
  store DIR        store objects and leave them there (--seed names them; the same seed gives the same bytes)
  verify DIR       load what `store` with the same arguments left; report hits, misses and wrong bytes
  persist DIR      store, look up and load again and again until the file --until is there, whatever fails meanwhile
  bench DIR        time store / lookup hit / lookup miss / load / delete, batch by batch

An engine has `key(args, number)` and, for lists of keys, `set(keys, buffers)`, `get(keys, buffers)`, `exists(keys)` and
`delete(keys)`, each of which returns whether all went well, an error, and an answer for each key; `close()` ends it.
"""
import argparse
import hashlib
import json
import mmap
import os
import sys
import time


def digest(seed, size, number):
    """The part of a key that names the object, as 64 hex digits."""
    return hashlib.blake2b(f"{seed}/{size}/{number}".encode(), digest_size=32).hexdigest()


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


def store(args, engine):
    stored, failed, errors, seconds = 0, 0, [], 0.0
    buffers = [aligned_buffer(args.size) for _ in range(min(args.batch, args.count))]
    for numbers in batches(args):
        filled = [payload(args, n, b) for n, b in zip(numbers, buffers)]
        began = time.perf_counter()
        ok, error, _ = engine.set([engine.key(args, n) for n in numbers], filled)
        seconds += time.perf_counter() - began
        if ok:
            stored += len(numbers)
        else:
            failed += len(numbers)
            errors.append(error)
    return {"stored": stored, "failed_in_batches": failed, "errors": errors[:3], "store_s": seconds}


def verify(args, engine):
    """Look up, then load what the look-up found, as the prefetch path does."""
    hits, misses, lost, wrong, seconds = 0, 0, 0, 0, 0.0
    buffers = [aligned_buffer(args.size) for _ in range(min(args.batch, args.count))]
    expected = aligned_buffer(args.size)
    for numbers in batches(args):
        _, _, found = engine.exists([engine.key(args, n) for n in numbers])
        present = [n for n, there in zip(numbers, found) if there]
        misses += len(numbers) - len(present)
        if not present:
            continue
        chosen = buffers[: len(present)]
        began = time.perf_counter()
        _, _, loaded = engine.get([engine.key(args, n) for n in present], chosen)
        seconds += time.perf_counter() - began
        for n, buffer, there in zip(present, chosen, loaded or [False] * len(present)):
            if not there:
                lost += 1  # the look-up said yes and the load said no
                continue
            hits += 1
            if buffer != payload(args, n, expected):
                wrong += 1
    return {"hits": hits, "misses": misses, "lost_after_lookup": lost, "wrong_bytes": wrong, "load_s": seconds}


def roundtrip(args, engine):
    report = store(args, engine)
    report.update(verify(args, engine))
    keys = [engine.key(args, n) for n in range(args.count)]
    _, _, absent = engine.exists([k + "ff" for k in keys])
    report["false_hits"] = sum(absent)
    _, _, deleted = engine.delete(keys)
    report["deleted"] = sum(deleted)
    _, _, still = engine.exists(keys)
    report["left_after_delete"] = sum(still)
    report["ok"] = (
        report["stored"] == report["hits"] == report["deleted"] == args.count
        and not report["wrong_bytes"] + report["false_hits"] + report["left_after_delete"]
    )
    return report


def persist(args, engine):
    """One engine through whatever happens to its directory: failures are counted, a wrong byte is wrong."""
    report = {"hits": 0, "wrong_bytes": 0, "failures": 0, "hits_since_failure": 0}
    while not os.path.exists(args.until):
        stored = store(args, engine)
        loaded = verify(args, engine)
        report["wrong_bytes"] += loaded["wrong_bytes"]
        report["hits"] += loaded["hits"]
        if loaded["hits"] == args.count and not stored["failed_in_batches"]:
            report["hits_since_failure"] += loaded["hits"]
        else:
            report["failures"] += 1
            report["hits_since_failure"] = 0
    report["ok"] = not report["wrong_bytes"] and report["hits_since_failure"] > 0
    return report


def bench(args, engine):
    keys = [engine.key(args, n) for n in range(args.count)]
    report = store(args, engine)

    def timed(call):
        began = time.perf_counter()
        for numbers in batches(args):
            call(numbers)
        return time.perf_counter() - began

    buffers = [aligned_buffer(args.size) for _ in range(min(args.batch, args.count))]
    report["lookup_hit_s"] = timed(lambda ns: engine.exists([keys[n] for n in ns]))
    report["lookup_miss_s"] = timed(lambda ns: engine.exists([keys[n] + "ff" for n in ns]))
    report["load_s"] = timed(lambda ns: engine.get([keys[n] for n in ns], buffers[: len(ns)]))
    report["delete_s"] = timed(lambda ns: engine.delete([keys[n] for n in ns]))
    mib = args.count * args.size / 2**20
    report["store_mib_per_s"] = mib / report["store_s"]
    report["load_mib_per_s"] = mib / report["load_s"]
    for op in ("lookup_hit", "lookup_miss", "delete"):
        report[f"{op}_per_s"] = args.count / report[f"{op}_s"]
    report["ok"] = report["stored"] == args.count
    return report


COMMANDS = {"roundtrip": roundtrip, "store": store, "verify": verify, "persist": persist, "bench": bench}


def main(make_engine, description, more_arguments=lambda parser: None):
    """Runs a client: `make_engine(args)` makes its engine, `more_arguments` adds to the command line what only it knows."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("command", choices=list(COMMANDS))
    parser.add_argument("directory")
    parser.add_argument("--count", type=int, default=64, help="objects")
    parser.add_argument("--size", type=int, default=1 << 20, help="bytes an object")
    parser.add_argument("--batch", type=int, default=32, help="objects a call")
    parser.add_argument("--workers", type=int, default=4, help="the engine's I/O threads")
    parser.add_argument("--mode", choices=["buffered", "odirect"], default="buffered", help="whether it uses O_DIRECT")
    parser.add_argument("--odirect", action="store_const", dest="mode", const="odirect", help="--mode odirect")
    parser.add_argument("--seed", default="1")
    parser.add_argument("--start-at", type=float, default=0, help="wait until this time.time(), to start together with another")
    parser.add_argument("--model", default="meta-llama/Llama-3.1-70B-Instruct")
    parser.add_argument("--expect-hits", type=int, help="verify: fail unless exactly so many objects are loaded")
    parser.add_argument("--until", help="persist: the file that ends it")
    more_arguments(parser)
    args = parser.parse_args()
    engine = make_engine(args)
    time.sleep(max(0, args.start_at - time.time()))
    try:
        report = COMMANDS[args.command](args, engine)
    finally:
        engine.close()
    report.setdefault("ok", not (report.get("failed_in_batches") or report.get("wrong_bytes") or report.get("lost_after_lookup")))
    if args.command == "verify" and args.expect_hits is not None:
        report["ok"] = report["ok"] and report["hits"] == args.expect_hits
    report |= getattr(engine, "report", {})
    print(json.dumps({k: round(v, 4) if isinstance(v, float) else v for k, v in report.items()}))
    sys.exit(0 if report["ok"] else 1)
