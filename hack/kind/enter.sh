#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# enter.sh GROUP FOLDER REPOSITORY [ARG...] makes the namespaces, with the control group
# GROUP and the Debian in FOLDER as their roots, so that nothing of the machine is seen but
# the repository, at /5spot. There it goes on as machine.sh.
set -euo pipefail
group=$1 root=$2/machine repository=$3

case ${STAGE:-group} in
group) # the root of a namespace of control groups is the group that one is made in,
	echo $$ >"$group/cgroup.procs"
	STAGE=rest exec unshare --cgroup "$0" "$@"
	;;
rest) # and a group that delegates its controllers must be empty
	echo $$ >"$group/machine/cgroup.procs"
	STAGE=root exec unshare --mount --net --pid --uts --ipc --fork --kill-child=KILL "$0" "$@"
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
