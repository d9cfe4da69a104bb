#!/bin/bash
# Runs inside the lab: the units under a real systemd. $1 is the clone, $2 the folder of LMCache's connector, $3 the package.
# shellcheck disable=SC2016,SC2034,SC2119 # conditions are evaluated later, and name what only they use
# shellcheck source=tests/systemd/lib.sh
. "$1/tests/systemd/lib.sh"
clone=$1
export FS_NATIVE_DIR=$2
package=$3

check "install puts everything in place" "$clone/scripts/install && [ -x /sbin/mount.fuse.kvspan ] && systemctl cat $unit"
[ "$failed" = 0 ] || exit 1
for disk in a b; do backing $disk; done
systemctl daemon-reload
systemctl start srv-a.mount srv-b.mount
volume kvcache $mnt
kvspan init /srv/a/kvcache /srv/b/kvcache >/dev/null
dependencies

check "the units verify" 'systemd-analyze verify /usr/lib/systemd/system/mnt-kvcache.* /usr/lib/systemd/system/kvspan-health@.* kvspan@kvcache.service consumer.service'
check "it is ordered after its disks" 'for d in a b; do show $unit After | grep -qw srv-$d.mount && show $unit Requires | grep -qw srv-$d.mount || exit 1; done'
systemctl stop srv-a.mount srv-b.mount
check "start returns when the mount answers, and brings the disks" 'systemctl start $unit && answers && [ "$(state $unit) $(state srv-a.mount)" = "active/mounted/success active/mounted/success" ]'
check "the source is what the unit says" 'grep -q "^kvspan:kvcache $mnt fuse.kvspan" /proc/mounts'
check "the daemon is in the unit's cgroup" 'grep -qx "$(daemons)" /sys/fs/cgroup$(show $unit ControlGroup)/cgroup.procs'
check "it has no more than it needs" 'keeps_little'
check "its messages are in the unit's journal" 'until_true 5 "journal_of $unit | grep -q \"mounted kvspan:kvcache\""'
check "systemctl status shows the daemon and what it said" 'systemctl status $unit --no-pager | grep -q kvspan'
check "files lie on the disks" 'echo hit >$mnt/k && [ "$(cat /srv/[ab]/kvcache/k)" = hit ]'
check "stop returns when the daemon has gone" 'systemctl stop $unit && ! daemons && [ "$(state $unit)" = inactive/dead/success ]'
check "restarts in a row have one daemon at a time" 'for n in 1 2 3 4 5; do systemctl restart $unit && [ "$(daemons | wc -l)" = 1 ] && [ "$(cat $mnt/k)" = hit ] || exit 1; done'
check "reload keeps the daemon" 'pid=$(daemons); systemctl reload $unit && [ "$(daemons)" = "$pid" ] && echo more >$mnt/l'
check "remount takes the right to write away and gives it back, without a second daemon" \
  'pid=$(daemons); mount -o remount,ro $mnt && ! touch $mnt/m && mount -o remount,rw $mnt && touch $mnt/m && [ "$(daemons)" = "$pid" ]'
check "daemon-reload and daemon-reexec leave the mount alone" 'pid=$(daemons); systemctl daemon-reload && systemctl daemon-reexec && answers && [ "$(daemons)" = "$pid" ]'
check "stopping a disk's mount stops the cache first" 'systemctl stop srv-a.mount && [ "$(state $unit) $(state srv-a.mount)" = "inactive/dead/success inactive/dead/success" ] && ! daemons'

check "a consumer brings everything" 'systemctl start consumer.service && answers && until_true 5 "[ -e $mnt/held ]"'
systemctl stop consumer.service
check "a stop while a file is open is refused, and the journal names the holder" \
  '(exec 8>$mnt/foreign; ! systemctl stop $unit && answers) && journal_of $unit | grep -q "is busy" && journal_of $unit | grep -q bash'
check "and then it stops and starts" 'systemctl stop $unit; systemctl reset-failed $unit; systemctl start $unit && answers'

kill_daemon() { kill -9 "$(daemons)" && until_true 5 '! daemons'; }
check "after kill -9 restart repairs it, with every file" 'kill_daemon; ! answers; [ "$(state $unit)" = active/mounted/success ] && systemctl restart $unit && [ "$(cat $mnt/k)" = hit ]'
health=kvspan-health@mnt-kvcache
check "after kill -9 the health check repairs it" 'kill_daemon; systemctl start $health.service && [ "$(cat $mnt/k)" = hit ]'
check "also while somebody holds a file of the dead mount" '(exec 8<$mnt/k; kill_daemon; systemctl start $health.service && [ "$(cat $mnt/k)" = hit ])'
check "a daemon that hangs is replaced by the health check" 'kill -STOP $(daemons); systemctl start $health.service && [ "$(cat $mnt/k)" = hit ] && [ "$(daemons | wc -l)" = 1 ]'
check "a cache that answers is left alone, and so is one that was stopped" \
  'pid=$(daemons); systemctl start $health.service && [ "$(daemons)" = "$pid" ] && systemctl stop $unit && systemctl start $health.service && ! daemons'
check "the health timer does it by itself" 'systemctl start $unit $health.timer && kill_daemon; until_true 30 answers; rc=$?; systemctl stop $health.timer $health.service; exit $rc'
# umount(8) by a path asks no helper: it returns at once, and systemd may see the daemon a moment longer than the mount.
by_hand() { logger "by hand: begin"; umount $mnt && until_true 5 "! daemons"; rc=$?; logger "by hand: end"; return $rc; }
check "umount by hand ends the daemon and the unit is inactive, not failed" 'by_hand && until_true 5 "[ \"\$(state $unit)\" = inactive/dead/success ]"'

# ---- mount(8) by hand --------------------------------------------------------------------------------------------------
check "mount by hand takes an fstab line's words" 'mount -t fuse.kvspan kvspan:kvcache $mnt -o rw,_netdev,nofail,noatime,x-systemd.requires=/srv/a,user,sync && answers && by_hand'
check "a colon list is mounted too" 'mount -t fuse.kvspan /srv/a/kvcache:/srv/b/kvcache $mnt -o allow_other && answers && by_hand'
code() { "$@" >/tmp/code 2>&1; echo $?; }
check "a fake mount starts nothing" '[ "$(code mount -f -t fuse.kvspan kvspan:kvcache $mnt)" = 0 ] && ! daemons && [ "$(code mount.fuse.kvspan kvspan:kvcache $mnt -f)" = 0 ] && ! daemons'
check "an unknown option is exit 1 and named" '[ "$(code mount.fuse.kvspan kvspan:kvcache $mnt -o rw,limt=1G)" = 1 ] && grep -q limt /tmp/code'
check "with -s it is ignored" '[ "$(code mount.fuse.kvspan kvspan:kvcache $mnt -f -s -n -v -o rw,splat)" = 0 ] && grep -q splat /tmp/code'
check "an unknown name is exit 1 and named" '[ "$(code mount.fuse.kvspan kvspan:nobody $mnt -o rw)" = 1 ] && grep -q /etc/kvspan/nobody.toml /tmp/code'
check "umount of what is not mounted is exit 32" '[ "$(code umount.fuse.kvspan $mnt)" = 32 ]'

# ---- two volumes, missing and late disks -------------------------------------------------------------------------------
systemctl start $unit
check "a second instance on the same disks is refused with the first one's pid" \
  'mkdir -p /mnt/second; [ "$(code mount.fuse.kvspan kvspan:kvcache /mnt/second -o rw)" = 32 ] && grep -qw "$(daemons)" /tmp/code && answers'
volume other /mnt/other
kvspan init /srv/a/other /srv/b/other >/dev/null
sed 's/kvcache/other/g' /usr/lib/systemd/system/$unit >/etc/systemd/system/mnt-other.mount
systemctl daemon-reload
check "two volumes at once" 'systemctl start mnt-other.mount && answers /mnt/other && answers && echo 2 >/mnt/other/k && [ "$(cat $mnt/k)" = hit ] && [ "$(daemons | wc -l)" = 2 ] && systemctl stop mnt-other.mount && answers'
rm /etc/systemd/system/mnt-other.mount
echo 'kvspan:other /mnt/other fuse.kvspan nofail,noatime,x-systemd.requires-mounts-for=/srv/a,x-systemd.requires-mounts-for=/srv/b 0 0' >>/etc/fstab
systemctl daemon-reload
check "a line in fstab is a unit that comes after its disks" \
  'for d in a b; do show mnt-other.mount After | grep -qw srv-$d.mount || exit 1; done; systemctl start mnt-other.mount && [ "$(cat /mnt/other/k)" = 2 ]'
check "mount -a finds it mounted" 'pids=$(daemons); mount -a && [ "$(daemons)" = "$pids" ] && systemctl stop mnt-other.mount'
sed -i /kvspan:other/d /etc/fstab
systemctl daemon-reload
systemctl stop $unit
umount /srv/b
printf '[Unit]\nRequiresMountsFor=/srv/a\nAfter=srv-b.mount\n' >/etc/systemd/system/$unit.d/disks.conf
systemctl daemon-reload
check "without a disk it starts with require=any and says so" 'systemctl start $unit && journal_of $unit | grep -q "the disk is missing.*disk=/srv/b/kvcache" && systemctl stop $unit'
check "what is a warning is one in the journal, what is none is not" \
  'journal_of $unit --priority warning..warning | grep -q "the disk is missing" && ! journal_of $unit --priority warning | grep "mounted kvspan:" && journal_of $unit --priority info..info | grep -q "^mounted kvspan:"'
volume kvcache $mnt 'require = "all"'
rmdir /srv/b/kvcache # made below the mount point, where the disk is not
check "without a disk it does not start with require=all, and the unit says why" '! systemctl start $unit && journal_of $unit | grep -q "/srv/b/kvcache" && [ "$(show $unit Result)" = exit-code ] && ! daemons'
systemctl reset-failed $unit
printf '[Unit]\nBefore=srv-b.mount\n[Service]\nType=oneshot\nExecStart=/bin/sleep 2\n' >/etc/systemd/system/late.service
mkdir -p /etc/systemd/system/srv-b.mount.d
printf '[Unit]\nRequires=late.service\nAfter=late.service\n' >/etc/systemd/system/srv-b.mount.d/late.conf
dependencies
check "a disk that comes late is waited for" 'systemctl start $unit && [ "$(cat $mnt/k)" = hit ] && [ "$(kvspan status $mnt --json | grep -o online | wc -l)" = 2 ]'
rm -r /etc/systemd/system/srv-b.mount.d
volume kvcache $mnt
systemctl daemon-reload

# ---- namespaces, automount, service ------------------------------------------------------------------------------------
private() { systemd-run --quiet --collect --unit "$1" -p PrivateTmp=yes -p ProtectSystem=strict -p "ReadWritePaths=$mnt" sleep infinity; }
inside() { nsenter --mount --target "$(show "$1" MainPID)" "${@:2}"; }
check "a consumer in a namespace of its own sees the cache, its end, and its return" \
  'private away; until_true 5 "inside away cat $mnt/k"; systemctl restart $unit; until_true 5 "inside away cat $mnt/k"; rc=$?; systemctl stop away; exit $rc'
systemctl stop $unit
mkdir -p /etc/systemd/system/mnt-kvcache.automount.d
printf '[Automount]\nTimeoutIdleSec=1s\n' >/etc/systemd/system/mnt-kvcache.automount.d/idle.conf
systemctl daemon-reload
check "an automount mounts at the first use" 'systemctl start mnt-kvcache.automount && ! daemons && [ "$(cat $mnt/k)" = hit ] && [ "$(state $unit)" = active/mounted/success ]'
check "and unmounts when idle, with the daemon gone" 'until_true 20 "! daemons" && [ "$(show $unit ActiveState)" = inactive ] && [ "$(cat $mnt/k)" = hit ]'
# In this order: stopping an automount detaches what is mounted on it, and waits for no daemon.
systemctl stop $unit
systemctl stop mnt-kvcache.automount

service=kvspan@kvcache.service
mkdir -p /etc/systemd/system/kvspan@.service.d
printf '[Service]\nWatchdogSec=2s\n' >/etc/systemd/system/kvspan@.service.d/quick.conf
systemctl daemon-reload
main() { show $service MainPID; }
# replaced PID: another one serves.
replaced() { local now; now=$(main) && [ "$now" != 0 ] && [ "$now" != "$1" ] && answers; }
check "the service is started when the mount answers, and others see it" 'systemctl start $service && answers && [ "$(cat $mnt/k)" = hit ] && echo s >$mnt/s'
check "the service's daemon has no more than it needs" 'keeps_little'
check "it comes back after kill -9" 'pid=$(main); kill -9 $pid; until_true 20 "replaced $pid" && [ "$(cat $mnt/k)" = hit ]'
check "the watchdog replaces one that hangs" 'pid=$(main); [ $pid != 0 ] && kill -STOP $pid; until_true 30 "replaced $pid" && [ "$(cat $mnt/k)" = hit ]'
check "a busy mount does not stop its stop" '(exec 8<$mnt/k; systemctl stop $service) && ! daemons && ! mountpoint -q $mnt'
check "its exposure is as low as a mount allows" 'systemd-analyze security --offline=true --threshold=45 $service'

# ---- the real client ---------------------------------------------------------------------------------------------------
check "LMCache's connector goes on through restarts of the unit, without a wrong byte" \
  'systemctl start $unit; rm -f /tmp/stop; systemd-run --quiet --unit client --property=Type=exec --remain-after-exit --setenv=FS_NATIVE_DIR=$FS_NATIVE_DIR \
     sh -c "exec $clone/tests/fs_native/client.sh persist $mnt/lm --until /tmp/stop --count 32 --size 65536 >/tmp/report"
   for n in 1 2 3; do until_true 10 "ls $mnt/lm/*.data"; systemctl restart $unit || { systemctl reset-failed $unit; sleep 0.2; }; done
   answers || systemctl start $unit; until_true 20 "ls $mnt/lm/*.data"; sleep 1; touch /tmp/stop; until_true 60 "[ -s /tmp/report ]"; cat /tmp/report; grep -q "\"ok\": true" /tmp/report'
systemctl stop client.service $unit

check "uninstall takes everything away again" "$clone/scripts/uninstall && [ ! -e /usr/bin/kvspan ] && [ ! -e /sbin/mount.fuse.kvspan ] && [ ! -e /usr/lib/systemd/system/$unit ] && [ -e /etc/kvspan/kvcache.toml ]"

# ---- the package -------------------------------------------------------------------------------------------------------
check "the package installs, and the unit starts from it" 'dpkg -i $package && systemctl start $unit && [ "$(cat $mnt/k)" = hit ]'
check "an upgrade leaves the mounted volume alone, and a restart takes the new program" \
  'pid=$(daemons); dpkg -i $package && [ "$(daemons)" = "$pid" ] && [ "$(cat $mnt/k)" = hit ] && systemctl restart $unit && [ "$(cat $mnt/k)" = hit ]'
check "a removal is refused while somebody has a file open, and the holder is named" '(exec 8<$mnt/k; ! dpkg -r kvspan) && answers && grep -q bash /tmp/said'
check "a removal unmounts and leaves what the operator wrote" \
  'dpkg -r kvspan && ! daemons && ! mountpoint -q $mnt && [ ! -e /usr/bin/kvspan ] && [ ! -e /usr/sbin/mount.fuse.kvspan ] && [ -e /etc/kvspan/kvcache.toml ] && [ -e /srv/a/kvcache/.kvspan/label.json ]'
check "a purge leaves nothing but the disks" 'dpkg -P kvspan && [ ! -e /etc/kvspan/kvcache.toml ]'
verdict
