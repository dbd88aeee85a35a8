#!/usr/bin/env bash
# Install the Debian packages that the tests of containers, of clones, of stores and of the report use, if they are missing: Docker,
# podman, a browser, shells, XFS, a registry, npm for an emulator of Azure. Nothing else in envpack needs them; without root or
# apt nothing is installed, and those tests skip.
set -euo pipefail
declare -A package_of=(
  [zstd]=zstd [dockerd]=docker.io [podman]=podman [chromium]=chromium [chromedriver]=chromium-driver [pkill]=procps [curl]=curl [zsh]=zsh [fish]=fish
  [mkfs.xfs]=xfsprogs [docker-registry]=docker-registry [npm]=npm
)
missing=()
for program in "${!package_of[@]}"; do
  command -v "$program" > /dev/null || missing+=("${package_of[$program]}")
done
[ ${#missing[@]} -gt 0 ] || exit 0
if [ "$(id -u)" != 0 ] || ! command -v apt-get > /dev/null; then
  echo "not installed, so that their tests skip: ${missing[*]}"
  exit 0
fi
echo "installing ${missing[*]}"
apt-get update -qq
DEBIAN_FRONTEND=noninteractive apt-get install -y -qq "${missing[@]}" > /dev/null
