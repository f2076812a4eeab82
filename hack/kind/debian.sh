#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# debian.sh SUITE MIRROR PACKAGES FOLDER makes FOLDER a Debian with the packages that the
# file PACKAGES lists. Takes root and debootstrap.
set -euo pipefail
suite=$1 mirror=$2 packages=$3 folder=$4

rm -rf --one-file-system "$folder"
mkdir -p "$folder"
echo "Installing Debian $suite with the packages of $packages"
# What debootstrap mounts ends with it, also when it is killed.
unshare --mount debootstrap --force-check-gpg --variant=minbase --arch="$(go env GOARCH)" \
	--include="$(grep -v '^#' "$packages" | paste -sd,)" "$suite" "$folder" "$mirror" >"$folder.log" 2>&1 ||
	{ echo "debootstrap failed; the end of $folder.log:" >&2; tail "$folder.log" >&2; exit 1; }

# Nobody reads it there, nothing of the machine it was made on belongs there, and who
# needs a machine-id has one made at the first start.
rm -rf "$folder"/var/{cache/apt,lib/apt/lists,log}/* "$folder"/usr/share/{doc,man,locale,info}/* "$folder"/etc/{resolv.conf,hostname,machine-id}
