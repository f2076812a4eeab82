#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# machine.sh [ARG...] is the first process of a machine of its own, without a network: it
# starts Docker, has images.sh make the images, and runs the specs.
set -euo pipefail
# Everywhere else, it would remove the containers of whoever has a Docker there.
if [ $$ != 1 ] || ! mountpoint -q /5spot; then
	echo 'machine.sh: not in a machine of its own: call offline.sh' >&2
	exit 1
fi
offline=/5spot/out/kind-offline
start=$SECONDS

say() { echo "[$((SECONDS - start)) s] $*"; }

# tidy leaves the images, from which the next run starts.
tidy() {
	docker ps -aq | xargs -r docker rm -fv
	docker volume prune -af
	docker network prune -f
} >/dev/null

# end is the way out, also of a run that is told to end.
end() {
	status=$?
	trap - EXIT
	[ -z "${step:-}" ] || { kill -KILL "$step" && wait "$step"; } 2>/dev/null || true
	say 'Removing containers, volumes and networks'
	tidy || true
	exit $status # and the kernel ends every process in here
}

# interruptible runs a step so that this shell hears that it is to end.
interruptible() {
	"$@" &
	step=$!
	wait $step
	step=
}

start_docker() {
	ip link set lo up
	hostname fivespot-kind
	rm -rf /tmp/* /var/run/docker.pid
	install "$offline/context/bin/runc" /usr/local/sbin/runc
	dockerd --storage-driver overlay2 --exec-opt native.cgroupdriver=cgroupfs --log-level warn </dev/null >"$offline/dockerd.log" 2>&1 &
	for _ in $(seq 300); do
		! docker version >/dev/null 2>&1 || return 0
		kill -0 $! 2>/dev/null || break
		sleep 0.2
	done
	echo "Docker does not start; the end of out/kind-offline/dockerd.log:" >&2
	tail "$offline/dockerd.log" >&2
	return 1
}

trap 'exit 143' TERM
trap end EXIT
say 'Starting Docker'
start_docker
tidy # what a run that was killed has left
say 'Making images'
interruptible /5spot/hack/kind/images.sh "$offline/context"
say 'Running the specs; logs are in out/e2e'
cd /5spot/test/kind
export CNI=$offline/context/cni.yaml
interruptible "$offline/test" -test.v -test.timeout 90m -test.run '^TestE2E$' \
	-e2e.config=config/offline.yaml -e2e.artifacts-folder=/5spot/out/e2e "$@"
say 'The specs have passed'
