#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Puts HAProxy at $1: a link to that of the machine, or else the distribution's package and
# what it needs, unpacked next to $1. It installs nothing, and need not be root.
set -euo pipefail
program=$1
root=$program-root
mkdir -p "$(dirname "$program")"

# Programs of the system are not in everybody's path.
if own=$(PATH=$PATH:/usr/local/sbin:/usr/sbin command -v haproxy); then
	ln -sfn "$own" "$program"
	exit
fi
if ! command -v apt-get >/dev/null || ! command -v dpkg-deb >/dev/null; then
	echo 'haproxy: not found, and there is no apt-get to get it with: install HAProxy 2.6 or newer' >&2
	exit 1
fi

tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
mkdir -p "$tmp"/{lists,archives}/partial
# Lists and packages of our own: those of the system may be empty, and are root's.
apt() {
	apt-get -qq -o Debug::NoLocking=1 -o APT::Sandbox::User=root \
		-o Dir::State::lists="$tmp/lists" -o Dir::Cache="$tmp" -o Dir::Cache::archives="$tmp/archives" "$@"
}
if ! { apt update && apt install -y --download-only --no-install-recommends haproxy; } >"$tmp/log" 2>&1; then
	cat "$tmp/log" >&2
	echo 'haproxy: apt-get could not download it: install HAProxy 2.6 or newer' >&2
	exit 1
fi
rm -rf "$root"
for package in "$tmp"/archives/*.deb; do
	dpkg-deb -x "$package" "$root"
done
cat >"$program.tmp" <<'EOF'
#!/bin/sh
root=$(readlink -f "$0")-root
LD_LIBRARY_PATH=$(echo "$root"/usr/lib/*-linux-*) exec "$root/usr/sbin/haproxy" "$@"
EOF
chmod +x "$program.tmp"
mv "$program.tmp" "$program"
version=$("$program" -v)
echo "${version%%$'\n'*}"
