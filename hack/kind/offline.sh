#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# offline.sh check FOLDER          says what this machine lacks, and the way out
# offline.sh run FOLDER [ARG...]   runs the specs on kind in namespaces of their own
#
# FOLDER is where make has put what is run. A Docker or containerd of this machine is not
# seen from within: the namespaces have their own file system, network and processes.
# Of the machine as a whole a run changes settings of the kernel, which it puts back, and
# a control group, which it removes.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
command=$1 folder=$2
shift 2

group=fivespot-kind
# Settings and control group are the machine's, whatever the folder. It ends with the
# machine, as changed settings do.
state=/run/$group
keyring=/usr/share/keyrings/debian-archive-keyring.gpg
gigabytes=10  # of disk, for programs, images, and the containers of one run
instances=1024  # of inotify: systemd and kubelet of three nodes want more than the usual 128
# What is raised here, and what kubelet and systemd of a node set for the whole machine, by
# names below /proc/sys.
settings=(fs/inotify/max_user_instances fs/file-max fs/nr_open vm/overcommit_memory vm/panic_on_oom
	kernel/panic kernel/panic_on_oops kernel/keys/root_maxkeys kernel/keys/root_maxbytes)

fail() { echo "test-e2e-kind-offline: $*" >&2; exit 1; }

# tree prints where control groups of version 2 are mounted, whole or beside version 1.
tree() { findmnt -n -t cgroup2 -o TARGET | head -n 1; }

check() {
	local program kind free
	[ "$(uname)" = Linux ] || fail 'it creates Linux nodes: run it on Linux, or in a virtual machine with it'
	[ "$(id -u)" = 0 ] || fail 'it makes namespaces and mounts: run it as root, in a virtual machine that you can throw away if you like'
	# Most machines lack this one only.
	if ! command -v debootstrap >/dev/null && command -v apt-get >/dev/null; then
		{ apt-get update -qq && apt-get install -qq -y --no-install-recommends debootstrap; } >/dev/null 2>&1 || true
	fi
	for program in unshare setpriv setsid pivot_root findmnt flock pkill debootstrap; do
		command -v $program >/dev/null || fail "there is no $program: install it, on Debian and Ubuntu by apt-get install util-linux procps debootstrap"
	done
	[ -e $keyring ] || fail "there is no $keyring, by which Debian's packages are checked: install debian-archive-keyring"
	[ -n "$(tree)" ] || fail 'no cgroup2 is mounted: mount -t cgroup2 cgroup2 FOLDER'
	mkdir -p $state
	exec 9>$state/lock
	flock -n 9 || fail 'another run is under way on this machine: wait for it'
	mkdir -p "$folder"
	kind=$(stat -f -c %T "$folder")
	case $kind in overlayfs | tmpfs | nfs) fail "$folder is on $kind, where Docker has no layers: clone onto an ordinary disk" ;; esac
	free=$(df --output=avail -BG "$folder" | tail -n 1 | tr -dc 0-9)
	[ -e "$folder/machine/.made" ] || [ "$free" -ge $gigabytes ] || fail "$folder has $free GB free, and $gigabytes GB are needed: free some"
}

# remember notes the settings.
remember() {
	local s
	for s in "${settings[@]}"; do echo "$s $(cat "/proc/sys/$s")"; done >$state/settings.tmp
	mv $state/settings.tmp $state/settings
	[ "$(cat /proc/sys/fs/inotify/max_user_instances)" -ge $instances ] || echo $instances >/proc/sys/fs/inotify/max_user_instances
}

# restore leaves the machine as it was found. Whatever ran is dead by then.
restore() {
	local s value
	if [ -e $state/settings ]; then
		while read -r s value; do
			[ -z "$value" ] || echo "$value" >"/proc/sys/$s" || echo "/proc/sys/$s could not be set back to $value" >&2
		done <$state/settings
		rm $state/settings
	fi
	for _ in $(seq 100); do
		[ -e "$(tree)/$group" ] || return 0
		find "$(tree)/$group" -depth -type d -exec rmdir {} + 2>/dev/null || sleep 0.1
	done
	echo "the control group $(tree)/$group is still in use" >&2
	return 1
}

# stop has the first process within tidy up, and does not wait for ever.
stop() {
	trap - EXIT
	trap '' INT TERM HUP
	if [ -n "${outer:-}" ] && kill -0 "$outer" 2>/dev/null; then
		pkill -TERM -P "$outer" || true
		timeout 60 tail --pid="$outer" -f /dev/null || kill -KILL "$outer" || true
	fi
	restore
}

run() {
	local cgroup status=0
	cgroup=$(tree)/$group
	restore || fail 'end what a run that was killed has left, and try again'
	trap stop EXIT
	trap 'exit 130' INT TERM HUP
	remember
	mkdir -p "$cgroup/machine"
	# It dies with this script, and is in a session of its own: what the terminal sends is
	# for this script alone.
	setsid setpriv --pdeathsig KILL hack/kind/enter.sh group "$cgroup" "$folder" "$PWD" "$@" </dev/null 9>&- &
	outer=$!
	wait "$outer" || status=$?
	exit $status
}

check
[ "$command" = check ] || run "$@"
