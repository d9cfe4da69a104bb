# shellcheck shell=bash disable=SC2016,SC2034,SC2100 # sourced: its users use the variables; not arithmetic but a name
# Assertions inside the lab, a line each: `ok N - WHAT` or `not ok N - WHAT`.
unit=mnt-kvcache.mount
mnt=/mnt/kvcache
number=0
failed=0

# check WHAT COMMAND...: the command, or a line of shell, must succeed.
check() {
  number=$((number + 1))
  if (eval "$2") >/tmp/said 2>&1; then
    echo "ok $number - $1"
  else
    failed=$((failed + 1))
    echo "not ok $number - $1   [$2]"
    tail -n 15 /tmp/said | sed 's/^/#   /'
  fi
}

show() { systemctl show -p "$2" --value "$1"; }
state() { echo "$(show "$1" ActiveState)/$(show "$1" SubState)/$(show "$1" Result)"; }
# Those that have ended and wait to be collected by PID 1 are gone.
daemons() { pgrep -x -r D,R,S,T,t kvspan; }
answers() { timeout 5 sh -c 'mountpoint -q "$1" && stat -f "$1"' - "${1:-$mnt}" >/dev/null 2>&1; }
# journal_of UNIT OPTION...
journal_of() { journalctl --quiet --boot --unit "$1" --output cat --no-pager "${@:2}"; }
# CAP_CHOWN, CAP_DAC_OVERRIDE, CAP_FOWNER, CAP_FSETID, CAP_SETUID and CAP_SYS_ADMIN in every set of every thread, and no way to more.
keeps_little() {
  local status found=0
  for status in /proc/"$(daemons)"/task/*/status; do
    [ "$(sed -nE 's/^(CapPrm|CapEff|CapBnd|NoNewPrivs):\t0*//p' "$status" | tr '\n' ' ')" = "20009b 20009b 20009b 1 " ] || return 1
    found=1
  done
  [ $found = 1 ]
}

# until_true SECONDS CONDITION
until_true() {
  local end=$((SECONDS + $1))
  until eval "$2"; do
    [ $SECONDS -lt $end ] || return 1
    sleep 0.05
  done
}

# A disk as an operator has it: an ext4 on a loop image with a mount unit of its own.
backing() {
  truncate -s 256M "/srv/$1.img"
  mkfs.ext4 -q "/srv/$1.img"
  cat >"/etc/systemd/system/srv-$1.mount" <<UNIT
[Mount]
What=/srv/$1.img
Where=/srv/$1
Type=ext4
Options=loop,noatime
[Install]
WantedBy=multi-user.target
UNIT
}

# volume NAME MOUNTPOINT OPTION...: its description, over a directory on each of the two disks.
volume() {
  {
    echo "mountpoint = \"$2\""
    printf '%s\n' "allow_other = true" "${@:3}"
    for disk in a b; do printf '[[disk]]\npath = "/srv/%s/%s"\n' $disk "$1"; done
  } >"/etc/kvspan/$1.toml"
  mkdir -p "/srv/a/$1" "/srv/b/$1"
}

# The disks come first; consumer.service holds a file of the cache open.
dependencies() {
  mkdir -p /etc/systemd/system/$unit.d
  printf '[Unit]\nRequiresMountsFor=/srv/a /srv/b\n' >/etc/systemd/system/$unit.d/disks.conf
  cat >/etc/systemd/system/consumer.service <<UNIT
[Unit]
RequiresMountsFor=$mnt
[Service]
ExecStart=/bin/sh -c 'exec 3>$mnt/held; exec sleep infinity'
[Install]
WantedBy=multi-user.target
UNIT
  systemctl daemon-reload
}

verdict() {
  echo "1..$number"
  [ "$failed" = 0 ]
}
