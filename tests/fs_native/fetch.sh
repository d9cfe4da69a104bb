#!/usr/bin/env bash
# Brings LMCache's real fs_native connector into the cache and makes it loadable without PyTorch; prints its folder.
# Needs python3 with pip, and gcc. Asks the network once for each version of the wheel and of python3.
# shellcheck source=scripts/lib.sh
. "$(dirname "$0")/../../scripts/lib.sh"

version=0.5.6
here=$root/tests/fs_native
abi=$(python3 -c 'import sys; print("cp%d%d" % sys.version_info[:2])') # an extension loads in its own python only
dir=$KVSPAN_CACHE/fs_native-$version-$abi

if ! [ -d "$dir" ]; then
  make_work
  quietly python3 -m pip download --disable-pip-version-check --no-deps --only-binary :all: --dest "$work" "lmcache==$version"
  mkdir -p "$KVSPAN_CACHE" "$work/lib"
  python3 -m zipfile -e "$work"/lmcache-*.whl "$work/wheel"
  cp "$work"/wheel/lmcache/lmcache_fs.*.so "$work/lib"
  for lib in torch torch_cpu torch_python; do
    echo | gcc -shared -fPIC -x c - -o "$work/lib/lib$lib.so"
  done
  gcc -shared -fPIC -O2 "$here/runtime_stub.c" -o "$work/lib/libc10.so"
  # One rename at the end: an interrupted run leaves no half-filled cache. (mv: the cache may be on another file system.)
  cp -r "$work/lib" "$dir.$$" && mv -T "$dir.$$" "$dir"
fi
echo "$dir"
