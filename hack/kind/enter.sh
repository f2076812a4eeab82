#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# enter.sh group GROUP FOLDER REPOSITORY [ARG...] makes the namespaces, with the control group
# GROUP and the Debian in FOLDER as their roots, and goes on there as machine.sh. Of the files
# of the machine it sees the repository, at /5spot, and /dev. The kernel's settings below
# /proc/sys and /sys are the machine's own.
#
# It calls itself with the next stage. Its name is an argument: an exported variable may be
# anybody's, and the last stage must not run in the namespaces of the machine.
set -euo pipefail
stage=$1 group=$2 root=$3/machine repository=$4
shift

case $stage in
group) # the root of a namespace of control groups is the group that one is made in,
	echo $$ >"$group/cgroup.procs"
	exec unshare --cgroup "$0" rest "$@"
	;;
rest) # and a group that delegates its controllers must be empty
	echo $$ >"$group/machine/cgroup.procs"
	exec unshare --mount --net --pid --uts --ipc --fork --kill-child=KILL "$0" root "$@"
	;;
root) [ $$ = 1 ] || { echo 'enter.sh: not in namespaces of its own: call offline.sh' >&2; exit 1; } ;;
*)
	echo "enter.sh: there is no stage $stage: call offline.sh" >&2
	exit 1
	;;
esac

mount --bind "$root" "$root"
mkdir -p "$root"/{proc,sys,dev,run,tmp,5spot}
mount -t proc proc "$root/proc"
mount -t sysfs sysfs "$root/sys"
# Version 2, whatever the machine has, and only the part of this run.
mount -t cgroup2 cgroup2 "$root/sys/fs/cgroup"
mount --rbind /dev "$root/dev"
mount -t tmpfs tmpfs "$root/run"
mount --bind "$repository" "$root/5spot"

cd "$root"
pivot_root . mnt
umount -l /mnt
exec chroot . /usr/bin/env -i PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root \
	/5spot/hack/kind/machine.sh "${@:4}"
