# shellcheck shell=bash
# Sourced by the scripts: strict mode, a folder of this run's own, disks on loop images, and a clean-up that always runs.
#
# What makes the clean-up safe: all that a run makes lies below its own folder $work (images, mounts), and all that it
# starts carries $KVSPAN_RUN in its environment. So clean_up finds every mount, loop device and process of the run, also
# those of a child script that was killed, and never another's.
set -euo pipefail
export LC_ALL=C.UTF-8 DEBIAN_FRONTEND=noninteractive

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
# Downloads and tools: outside the clone, so that the next clone finds them.
export KVSPAN_CACHE=${KVSPAN_CACHE:-${XDG_CACHE_HOME:-${HOME:=/root}/.cache}/kvspan}
command -v cargo >/dev/null || PATH=$PATH:$HOME/.cargo/bin

say() { printf '%s\n' "$*" >&2; }
die() { say "${0##*/}: $*"; exit 1; }
need_root() { [ "$(id -u)" = 0 ] || die "run this as root: it mounts file systems"; }

# kvspan_binary: where `cargo build --release` at the root puts kvspan ($KVSPAN names another one).
kvspan_binary() {
  local target=${CARGO_TARGET_DIR:-$root/target}
  printf '%s\n' "${KVSPAN:-$(realpath -m "$target")/release/kvspan}"
}

# quietly CMD...: show CMD's output only when it fails.
quietly() {
  local out status=0
  out=$("$@" 2>&1) || status=$?
  [ "$status" = 0 ] || say "failed ($status): $*" "$out"
  return "$status"
}

# apt_need PACKAGE...: install what dpkg does not have; asks the network only when something is missing.
apt_need() {
  local package missing=()
  for package; do
    [ "$(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null)" = installed ] || missing+=("$package")
  done
  [ ${#missing[@]} -gt 0 ] || return 0
  [ "$(id -u)" = 0 ] || die "packages are missing; as root: apt-get install ${missing[*]}"
  say "installing ${missing[*]}"
  quietly apt-get update -q
  quietly apt-get install -y -q --no-install-recommends "${missing[@]}"
}

# cargo_need CRATE@VERSION: build a program of a crate into $KVSPAN_CACHE/bin, once. Not optimised: all the time goes into
# building it and none into running it.
cargo_need() {
  [[ $("$KVSPAN_CACHE/bin/${1%@*}" --version 2>/dev/null) != *" ${1#*@}"* ]] || return 0
  say "building ${1%@*}"
  CARGO_PROFILE_DEV_DEBUG=0 CARGO_TARGET_DIR=$KVSPAN_CACHE/build \
    quietly cargo install --locked --debug --root "$KVSPAN_CACHE" "$1"
  rm -rf "$KVSPAN_CACHE/build"
}

# make_work: the run's own folder, and the clean-up that ends with it. Child scripts make theirs inside it ($TMPDIR).
# A script that defines last_words STATUS has it called when all is cleaned up; what it returns is the exit code.
make_work() {
  work=$(realpath "$(mktemp -d "${TMPDIR:-/tmp}/kvspan-${0##*/}.XXXXXX")")
  chmod 711 "$work" # tests act as other users below it
  export TMPDIR=$work KVSPAN_RUN=$work
  trap clean_up EXIT
  trap 'exit 129' HUP
  trap 'exit 130' INT
  trap 'exit 143' TERM
}

# defer CMD...: undo at the end something that is not below $work (a sysctl, say); the last deferred runs first.
deferred=()
defer() { deferred=("${*@Q}" "${deferred[@]}"); }

# promptly CMD...: bash handles a signal only when the foreground command has ended; this way it does so at once.
promptly() {
  "$@" &
  wait $!
}

# make_disk NAME SIZE ext4|xfs|btrfs: a file system on a loop device over a sparse image, mounted on $work/NAME.
make_disk() {
  local name=$1 size=$2 type=$3 loop
  case $type in
    ext4) apt_need e2fsprogs ;;
    xfs) apt_need xfsprogs ;;
    btrfs) apt_need btrfs-progs ;;
    *) die "make_disk: no file system called '$type'" ;;
  esac
  mkdir "$work/$name"
  truncate -s "$size" "$work/$name.img"
  quietly "mkfs.$type" -q "$work/$name.img"
  loop=$(losetup --find --show "$work/$name.img")
  # discard: the image gives back what is deleted on the disk
  mount -o discard "$loop" "$work/$name"
}

# This run's mount points, the newest first. Reads the mount table and touches no path: a hung mount must not hang us.
own_mounts() {
  local path
  while read -r _ _ _ _ path _; do
    path=$(printf '%b' "$path")
    case $path in "$work"/*) printf '%s\n' "$path" ;; esac
  done </proc/self/mountinfo | tac
}

own_loops() { losetup --list --noheadings --output NAME,BACK-FILE | awk -v below=" $work/" 'index($0, below) { print $1 }'; }

# Processes that this run or a child script of it started. Not this shell: environ is what a process was started with.
own_processes() (
  unset KVSPAN_RUN # or grep and cut would find themselves
  grep -lzsF "KVSPAN_RUN=$work" /proc/[0-9]*/environ | cut -d/ -f3
)

# stop_own_processes SIGNAL SECONDS: send it and wait for them to go.
stop_own_processes() {
  local pid waited
  for pid in $(own_processes); do kill "-$1" "$pid" 2>/dev/null; done
  for ((waited = 0; waited < $2 * 10; waited++)); do
    [ -n "$(own_processes)" ] || return 0
    sleep 0.1
  done
}

clean_up() {
  local status=$? path loop command
  trap '' HUP INT TERM
  trap - EXIT
  set +e
  for command in "${deferred[@]}"; do eval "$command"; done
  # A kvspan that is told to stop unmounts by itself, lazily if it must; one that does not is killed and its mount removed.
  stop_own_processes TERM 30
  stop_own_processes KILL 5
  while read -r path; do
    umount --no-canonicalize "$path" 2>/dev/null || umount --no-canonicalize --lazy "$path"
  done < <(own_mounts)
  for loop in $(own_loops); do losetup --detach "$loop"; done
  if [ -n "$(own_mounts)" ]; then
    say "could not unmount, left in place: $(own_mounts | tr '\n' ' ')"
    [ "$status" != 0 ] || status=1
  else
    cd / && rm -rf --one-file-system "$work"
  fi
  if declare -F last_words >/dev/null; then
    last_words "$status"
    status=$?
  fi
  exit "$status"
}
