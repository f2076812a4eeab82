#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# images.sh CONTEXT makes the images that kind, the nodes and Cluster API name, by the names
# that they use. Docker keeps what it made before.
set -euo pipefail
mountpoint -q /5spot || { echo 'images.sh: not in a machine of its own: call offline.sh' >&2; exit 1; }
context=$1
here=$(dirname "${BASH_SOURCE[0]}")

# image TARGET NAME [ARG...]
image() {
	local target=$1 name=$2
	shift 2
	docker buildx build --quiet --load --network none -f "$here/Dockerfile" --target "$target" -t "$name" "$@" "$context" >/dev/null
}

# What a node brings along: what kubeadm and kind's configuration of containerd name. That
# there is no network is nothing to warn of.
version=$("$context/bin/kubeadm" version -o short)
names=$("$context/bin/kubeadm" config images list --kubernetes-version "$version" 2> >(grep -v 'bind address' >&2))
names+=" $(grep -oE 'registry.k8s.io/pause:[0-9.]+' "$context/kind/etc/containerd/config.toml")"
kubernetes=()
for name in $names; do
	case $name in
	*/kube-proxy:*) image kube-proxy "$name" ;;
	*/kube-*:* | */etcd:*) image kube "$name" ;;
	*/pause:*) image pause "$name" ;;
	*/coredns:*)
		image coredns "$name"
		[ "${name##*:}" = "v$("$context/bin/coredns" -version | sed -n 's/^CoreDNS-//p')" ] ||
			{ echo "kubeadm asks for $name: give hack/kind/images/go.mod this version" >&2; exit 1; }
		;;
	*) echo "kubeadm asks for $name, and images.sh does not know what that is" >&2; exit 1 ;;
	esac
	kubernetes+=("$name")
done
network=docker.io/$(sed -n 's/^ *image: //p' "$context/cni.yaml")
image network "$network"
image certificates docker.io/5spot/certificates:offline
kubernetes+=("$network" docker.io/5spot/certificates:offline)

# What is pulled by Docker or loaded by Cluster API's tests.
image haproxy "$(cat "$context/haproxy.image")"
for manager in capi-core:cluster-api capi-kubeadm-bootstrap:kubeadm-bootstrap capi-kubeadm-control-plane:kubeadm-control-plane; do
	image manager "gcr.io/k8s-staging-cluster-api/${manager#*:}-controller:main" --build-arg PROGRAM="${manager%:*}"
done
image manager gcr.io/k8s-staging-cluster-api/capd-manager:main --build-arg PROGRAM=capd
docker buildx build --quiet --load --network none -f /5spot/Dockerfile -t ghcr.io/finos/cluster-api-addon-provider-5spot:dev /5spot/out/kind/image >/dev/null

# The node, as `kind build node-image` makes it: a container of the base takes the images
# into its containerd, and is made an image. The label says of what.
image node 5spot/node:base
node=kindest/node:$version
made=$(docker image inspect -f '{{.Id}}' 5spot/node:base "${kubernetes[@]}" | sha256sum | cut -c1-64)
[ "$(docker image inspect -f '{{.Config.Labels.made}}' "$node" 2>/dev/null)" != "$made" ] || exit 0
container=$(docker run -d --privileged --network none --entrypoint sleep 5spot/node:base infinity)
docker exec -d "$container" containerd
for _ in $(seq 100); do ! docker exec "$container" ctr version >/dev/null 2>&1 || break; sleep 0.1; done
docker save "${kubernetes[@]}" |
	docker exec -i "$container" ctr -n k8s.io images import --label io.cri-containerd.image=managed --no-unpack - >/dev/null
docker commit -c "LABEL made=$made" -c 'ENTRYPOINT ["/usr/local/bin/entrypoint", "/sbin/init"]' -c 'CMD []' "$container" "$node" >/dev/null
docker rm -fv "$container" >/dev/null
