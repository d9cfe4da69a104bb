#!/usr/bin/env python3
"""Replays what other engines than LMCache do to their cache directory, call by call, by tests/harness/client_loops.py.

  llm-d            the fs backend of llm-d-kv-cache: nested directories, `<hash>.bin_<digits>.tmp`, renamed before it is closed;
                   an object that is there is marked as used (`utimensat`); its evictor unlinks and removes empty directories
  sglang           HiCacheFile with its metadata cache: one flat directory, listed at start and for each batch of look-ups, temp
                   names with process, thread and UUID, loads by one read
  vllm-fs          vLLM's file system tier: nested directories, exclusive temp files written by one call, loads by one `readv`,
                   and O_DIRECT where a probe finds that it works (not with --mode buffered)
  vllm-example     vLLM's ExampleConnector (once SharedStorageConnector): a directory an object with a `.safetensors` file a
                   layer, written under its final name, loaded through a map; a hit is a directory that is there
"""
import concurrent.futures
import contextlib
import ctypes
import hashlib
import json
import mmap
import os
import random
import shutil
import threading
import uuid

from client_loops import aligned_buffer, digest, main

LIBC = ctypes.CDLL(None, use_errno=True)
AT_FDCWD, AT_EMPTY_PATH, FALLOC_FL_KEEP_SIZE = -100, 0x1000, 1
UTIME_NOW, UTIME_OMIT = (1 << 30) - 1, (1 << 30) - 2
MIB = 1 << 20


class TwoTimes(ctypes.Structure):
    _fields_ = [(name, ctypes.c_long) for name in ("atime_s", "atime_ns", "mtime_s", "mtime_ns")]


def checked(result, path):
    if result == -1:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), path)


def mark_used(path):
    """atime becomes now, mtime stays: os.utime cannot ask for that."""
    times = TwoTimes(0, UTIME_NOW, 0, UTIME_OMIT)
    checked(LIBC.utimensat(AT_FDCWD, os.fsencode(path), ctypes.byref(times), 0), path)


def make_directories(path):
    """As std::filesystem::create_directories: stat upwards until one is there, then mkdir downwards."""
    missing = []
    while not os.path.isdir(path):
        missing.append(path)
        path = os.path.dirname(path)
    for path in reversed(missing):
        with contextlib.suppress(FileExistsError):  # another process was first
            os.mkdir(path)


def whole(done, wanted, path):
    if done != wanted:
        raise OSError(f"{done} of {wanted} bytes of {path}")


class Replay:
    """An engine's calls for one object each, by as many threads as it has workers."""

    def __init__(self, args):
        self.args, self.report = args, {}
        self.thread = threading.local()
        self.pool = concurrent.futures.ThreadPoolExecutor(args.workers)

    def _each(self, call, *columns):
        def answer(*row):
            try:
                return call(*row) is not False, None
            except OSError as error:
                return False, str(error)

        answers = list(self.pool.map(answer, *columns))
        errors = [error for _, error in answers if error]
        return not errors, errors[0] if errors else "", [there for there, _ in answers]

    def set(self, keys, buffers):
        return self._each(self.store, keys, buffers)

    def get(self, keys, buffers):
        return self._each(self.load, keys, buffers)

    def exists(self, keys):
        return self._each(self.look_up, keys)

    def delete(self, keys):
        return self._each(self.remove, keys)

    def close(self):
        self.pool.shutdown()

    @staticmethod
    def key(args, number):
        return digest(args.seed, args.size, number)

    def look_up(self, key):
        return os.path.exists(self.path(key))


class Nested(Replay):
    """What llm-d and vLLM's tier share: a directory for each model and configuration, two levels of directories in it."""

    def __init__(self, args):
        super().__init__(args)
        fields = {"model_name": args.model, "inference_engine": args.engine}
        config = hashlib.sha256(json.dumps(fields, sort_keys=True).encode()).hexdigest()[:12]
        self.base = os.path.join(args.directory, f"{args.model.replace('/', '_')}_{config}")
        os.makedirs(self.base, exist_ok=True)
        path = os.path.join(self.base, "config.json")
        if not os.path.exists(path):
            with open(path, "w") as file:
                json.dump(fields, file, indent=2, sort_keys=True)

    def path(self, key):
        return f"{self.base}_r0/{key[:3]}/{key[3:5]}_g0/{key}.bin"

    def temp_suffix(self):
        """One for each thread: `_<digits>.tmp`."""
        if not hasattr(self.thread, "suffix"):
            self.thread.suffix = f"_{random.randrange(2**63)}.tmp"
        return self.thread.suffix


class LlmD(Nested):
    def store(self, key, buffer):
        path = self.path(key)
        with contextlib.suppress(FileNotFoundError):
            os.close(os.open(path, os.O_RDONLY))
            with contextlib.suppress(FileNotFoundError):  # it does not look at the answer
                mark_used(path)
            return
        make_directories(os.path.dirname(path))
        if self.args.o_tmpfile:
            return self.store_unnamed(path, buffer)
        temp = path + self.temp_suffix()
        fd = os.open(temp, os.O_RDWR | os.O_CREAT, 0o664)
        try:
            self.write(fd, buffer)
            os.rename(temp, path)
        finally:
            os.close(fd)
            with contextlib.suppress(FileNotFoundError):  # it was renamed
                os.unlink(temp)

    def store_unnamed(self, path, buffer):
        fd = os.open(os.path.dirname(path), os.O_RDWR | os.O_TMPFILE, 0o664)
        try:
            self.write(fd, buffer)
            checked(LIBC.linkat(fd, b"", AT_FDCWD, os.fsencode(path), AT_EMPTY_PATH), path)
        finally:
            os.close(fd)

    @staticmethod
    def write(fd, buffer):
        done = 0
        while done < len(buffer):
            done += os.write(fd, buffer[done : done + 4 * MIB])

    def load(self, key, buffer):
        fd = os.open(self.path(key), os.O_RDONLY)
        try:
            size = os.lseek(fd, 0, os.SEEK_END)
            whole(size, len(buffer), self.path(key))
            os.lseek(fd, 0, os.SEEK_SET)
            done = 0
            while done < size:
                read = os.readv(fd, [buffer[done:]])
                whole(bool(read), True, self.path(key))
                done += read
        finally:
            os.close(fd)

    def remove(self, key):
        """The evictor beside it."""
        os.unlink(self.path(key))
        with contextlib.suppress(OSError):  # another file is there
            os.rmdir(os.path.dirname(self.path(key)))


class Sglang(Replay):
    def __init__(self, args):
        super().__init__(args)
        self.suffix = f"_{args.model.replace('/', '-')}_0_1"
        os.makedirs(args.directory, exist_ok=True)
        # Its evictor lists them a second time, for their sizes and times.
        sizes = [os.stat(path).st_size for path in self.list_own()]
        self.known = {os.path.basename(path) for path in self.list_own()}
        self.report = {"found_at_start": len(sizes)}

    def list_own(self):
        ending = self.suffix + ".bin"
        return [os.path.join(self.args.directory, name) for name in os.listdir(self.args.directory) if name.endswith(ending)]

    def path(self, key):
        return os.path.join(self.args.directory, f"{key}{self.suffix}.bin")

    def exists(self, keys):
        """A batch is looked up in one listing; each of them must be what a stat says."""
        with os.scandir(self.args.directory) as entries:
            listed = {entry.name for entry in entries if entry.is_file()}
        ok, error, found = super().exists(keys)
        wrong = [key for key, there in zip(keys, found) if there != (os.path.basename(self.path(key)) in listed)]
        if wrong:
            raise SystemExit(f"listing and stat differ in {len(wrong)} names, {wrong[0]} is the first")
        return ok, error, found

    def store(self, key, buffer):
        path = self.path(key)
        if os.path.basename(path) in self.known or os.path.exists(path):
            return
        temp = f"{path}.tmp.{os.getpid()}.{threading.get_ident()}.{uuid.uuid4().hex}"
        # numpy's tofile: blocks reserved behind the end from 16 MiB on, then stdio.
        with open(temp, "wb") as file:
            if len(buffer) >= 16 * MIB:
                checked(LIBC.fallocate(file.fileno(), FALLOC_FL_KEEP_SIZE, ctypes.c_long(0), ctypes.c_long(len(buffer))), temp)
            file.write(buffer)
        os.replace(temp, path)
        self.known.add(os.path.basename(path))

    def load(self, key, buffer):
        with open(self.path(key), "rb", buffering=0) as file:
            whole(file.readinto(buffer), len(buffer), self.path(key))

    def remove(self, key):
        os.remove(self.path(key))


class VllmFs(Nested):
    def __init__(self, args):
        super().__init__(args)
        self.direct = os.O_DIRECT if args.mode == "odirect" and self.o_direct_works() else 0
        self.report = {"o_direct": bool(self.direct)}

    def o_direct_works(self):
        path = os.path.join(self.base, f".o_direct_probe{self.temp_suffix()}")
        try:
            fd = os.open(path, os.O_CREAT | os.O_WRONLY | os.O_TRUNC | os.O_DIRECT, 0o644)
            try:
                os.write(fd, aligned_buffer(mmap.PAGESIZE))
            finally:
                os.close(fd)
            return True
        except OSError:
            return False
        finally:
            with contextlib.suppress(OSError):
                os.remove(path)

    def store(self, key, buffer):
        path = self.path(key)
        if os.path.exists(path):
            return
        temp = path + self.temp_suffix()
        os.makedirs(os.path.dirname(path), exist_ok=True)
        try:
            fd = os.open(temp, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_TRUNC | self.direct, 0o644)
            try:
                whole(os.write(fd, buffer), len(buffer), temp)
            finally:
                os.close(fd)
            os.replace(temp, path)
        except OSError:
            with contextlib.suppress(OSError):
                os.remove(temp)
            raise

    def load(self, key, buffer):
        fd = os.open(self.path(key), os.O_RDONLY | self.direct)
        try:
            whole(os.readv(fd, [buffer]), len(buffer), self.path(key))
        except OSError:
            os.remove(self.path(key))
            raise
        finally:
            os.close(fd)

    def remove(self, key):
        os.remove(self.path(key))


class VllmExample(Replay):
    LAYERS = [f"model.layers.{n}.self_attn.attn" for n in range(4)]

    def path(self, key):
        return os.path.join(self.args.directory, hashlib.md5(key.encode()).hexdigest())

    def parts(self, key, buffer):
        """Each layer's file with its part of the object."""
        step = len(buffer) // len(self.LAYERS) + 1
        for n, layer in enumerate(self.LAYERS):
            part = buffer[n * step : (n + 1) * step]
            yield os.path.join(self.path(key), f"{layer}.safetensors"), self.header(len(part)), part

    @staticmethod
    def header(size):
        text = json.dumps({"kv_cache": {"dtype": "U8", "shape": [size], "data_offsets": [0, size]}}).encode()
        text += b" " * (-len(text) % 8)
        return len(text).to_bytes(8, "little") + text

    def store(self, key, buffer):
        for path, header, part in self.parts(key, buffer):
            os.makedirs(os.path.dirname(path), exist_ok=True)
            with open(path, "wb") as file:
                file.write(header)
                file.write(part)

    def load(self, key, buffer):
        for path, header, part in self.parts(key, buffer):
            with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) as mapped:
                file.close()  # the map outlives it
                whole(len(mapped), len(header) + len(part), path)
                whole(mapped[: len(header)], header, path)
                part[:] = mapped[len(header) :]

    def remove(self, key):
        shutil.rmtree(self.path(key))


ENGINES = {"llm-d": LlmD, "sglang": Sglang, "vllm-fs": VllmFs, "vllm-example": VllmExample}


def arguments(parser):
    parser.add_argument("--engine", choices=ENGINES, required=True)
    parser.add_argument("--o-tmpfile", type=int, choices=[0, 1], default=0, help="llm-d's option of that name")


if __name__ == "__main__":
    main(lambda args: ENGINES[args.engine](args), __doc__, arguments)
