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
	for program in unshare setpriv setsid pivot_root findmnt flock pkill debootstrap; do
		command -v $program >/dev/null || fail "there is no $program: install it, on Debian and Ubuntu by apt-get install util-linux procps debootstrap"
	done
	[ -n "$(tree)" ] || fail 'no cgroup2 is mounted: mount -t cgroup2 cgroup2 FOLDER'
	mkdir -p "$folder"
	kind=$(stat -f -c %T "$folder")
	case $kind in overlayfs | tmpfs | nfs) fail "$folder is on $kind, where Docker has no layers: clone onto an ordinary disk" ;; esac
	free=$(df --output=avail -BG "$folder" | tail -n 1 | tr -dc 0-9)
	[ -e "$folder/machine/.made" ] || [ "$free" -ge $gigabytes ] || fail "$folder has $free GB free, and $gigabytes GB are needed: free some"
}

# remember notes the settings.
remember() {
	local s
	for s in "${settings[@]}"; do echo "$s $(cat "/proc/sys/$s")"; done >"$folder/settings.tmp"
	mv "$folder/settings.tmp" "$folder/settings"
	[ "$(cat /proc/sys/fs/inotify/max_user_instances)" -ge $instances ] || echo $instances >/proc/sys/fs/inotify/max_user_instances
}

# restore leaves the machine as it was found. Whatever ran is dead by then.
restore() {
	local s value
	if [ -e "$folder/settings" ]; then
		while read -r s value; do echo "$value" >"/proc/sys/$s"; done <"$folder/settings"
		rm "$folder/settings"
	fi
	for _ in $(seq 100); do
		[ -e "$(tree)/$group" ] || return 0
		find "$(tree)/$group" -depth -type d -exec rmdir {} + 2>/dev/null || sleep 0.1
	done
	echo "the control group $(tree)/$group is still in use" >&2
}

# stop has the first process within tidy up, and does not wait for ever.
stop() {
	trap - EXIT
	trap '' INT TERM HUP
	if [ -n "${outer:-}" ] && kill -0 "$outer" 2>/dev/null; then
		pkill -TERM -P "$outer" || true
		timeout 60 tail --pid="$outer" -f /dev/null || kill -KILL "$outer"
	fi
	restore
}

run() {
	local cgroup status=0
	cgroup=$(tree)/$group
	exec 9>"$folder/lock"
	flock -n 9 || fail "another run uses $folder: wait for it"
	restore # what a run that was killed has left
	trap stop EXIT
	trap 'exit 130' INT TERM HUP
	remember
	mkdir -p "$cgroup/machine"
	# It dies with this script, and is in a session of its own: what the terminal sends is
	# for this script alone.
	setsid setpriv --pdeathsig KILL hack/kind/enter.sh "$cgroup" "$folder" "$PWD" "$@" </dev/null 9>&- &
	outer=$!
	wait "$outer" || status=$?
	exit $status
}

check
[ "$command" = check ] || run "$@"
