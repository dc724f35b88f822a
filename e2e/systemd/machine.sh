#!/usr/bin/env bash
# Starts a machine for e2e/systemd.rs: systemd as the first process of a container that sees this
# machine's files, and whose changes to them nobody else sees. Nothing of it is left when it ends.
#
#   machine.sh DIR   with DIR/bin (the executable), DIR/units, DIR/data, DIR/log and DIR/settings
set -euo pipefail
dir=$1

if [[ ${2:-} != inside ]]; then
  # A cgroup to be the container's root.
  cgroups=/sys/fs/cgroup
  [[ -e $cgroups/cgroup.controllers ]] || cgroups=$cgroups/unified
  mkdir "$cgroups/${dir##*/}"
  echo $$ >"$cgroups/${dir##*/}/cgroup.procs"
  exec unshare --cgroup --pid --fork --kill-child --mount --uts --ipc --net bash "$0" "$dir" inside
fi

mount --make-rprivate /
# What is written lies in memory; below it are the files of this machine.
mount -t tmpfs -o mode=755 tmpfs "$dir/machine"
mkdir "$dir/machine/"{upper,work,root}
root=$dir/machine/root
mount -t overlay -o "lowerdir=/,upperdir=$dir/machine/upper,workdir=$dir/machine/work" overlay "$root"
mount -t proc proc "$root/proc"
mount -t sysfs sysfs "$root/sys"
mount -t cgroup2 cgroup2 "$root/sys/fs/cgroup"
# Without what is mounted below: other stories' pools would keep their loop devices busy.
mount --bind /dev "$root/dev"
mount --bind /dev/pts "$root/dev/pts"
mount -t tmpfs tmpfs "$root/dev/shm"
touch "$dir/log/console"
mount --bind "$dir/log/console" "$root/dev/console"
mount -t tmpfs -o mode=755 tmpfs "$root/run"
mount -t tmpfs tmpfs "$root/tmp"
mkdir -p "$root/var/lib/coppice"
mount --bind "$dir/data" "$root/var/lib/coppice"
mount --bind "$dir/bin" "$root/usr/local/bin"
mount --bind "$dir/log" "$root/var/log"

# Nothing but Coppice is started, and nothing that would touch the kernel's settings.
rm -rf "$root"/{lib,etc}/systemd/system/*.wants "$root"/lib/systemd/system-generators
units=$root/etc/systemd/system
cp "$dir/units/"*.service "$units/"
for unit in coppice coppice-branches; do
  # There is no journal.
  mkdir -p "$units/$unit.service.d"
  printf '[Service]\nStandardOutput=append:/var/log/%s.log\nStandardError=inherit\n' $unit >"$units/$unit.service.d/log.conf"
done
printf '[Unit]\nDefaultDependencies=no\nWants=coppice.service\n' >"$units/coppice-story.target"
cp "$dir/settings" "$root/etc/default/coppice"

cd "$root"
pivot_root . tmp
umount --lazy /tmp
mount -t tmpfs tmpfs /tmp
exec env --ignore-environment container=other PATH=/usr/sbin:/usr/bin:/sbin:/bin \
  /lib/systemd/systemd --system --unit=coppice-story.target --log-target=console --show-status=no
