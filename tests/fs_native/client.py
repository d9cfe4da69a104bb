#!/usr/bin/env python3
"""Drives LMCache's own fs_native connector (the C++ extension of its wheel) against a directory, by the loops of
tests/harness/client_loops.py.

Run through `client.sh`, which sets the library path and Python's.
"""
import glob
import importlib.util
import os
import select
import time

from client_loops import digest, main


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

    @staticmethod
    def key(args, number):
        """A key as LMCache builds it: model@kv_rank@object_group@chunk_hash[@cache_salt]."""
        salt = f"@{args.salt}" if args.salt else ""
        return f"{args.model}@{number % 4:08x}@0@{digest(args.seed, args.size, number)}{salt}"


def arguments(parser):
    parser.add_argument("--library", default=os.environ.get("FS_NATIVE_DIR", ".fs_native"))
    parser.add_argument("--tmp-dir", default="", help="the connector's relative_tmp_dir")
    parser.add_argument("--salt", default="")


def connect(args):
    return Connector(load_extension(args.library), args.directory, args.workers, args.tmp_dir, args.mode == "odirect")


if __name__ == "__main__":
    main(connect, __doc__, arguments)
