#!/usr/bin/env bash
# The README's commands, `make demo` or `make test`, on bare systems: root file systems of Debian and Ubuntu that hold git,
# make, ca-certificates, python3-venv and python3-dev, and nothing else. Prints what each case cost.
#
#     ci/bare.sh                               every case on every system; hours
#     ci/bare.sh debian-12                     every case on one system
#     ci/bare.sh debian-12/user ubuntu-24.04/fetched
#     ci/bare.sh --tests debian-12/user        `make test` in its place
#     ci/bare.sh --list                        what there is
#
# Needs root, mmdebstrap, and for Ubuntu its keyring. Exit status: 0 if every case that could be tried passed, 1 if one failed,
# 2 if nothing could be tried.
set -euo pipefail
checkout="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"
make --no-print-directory -C "$checkout" .venv/for-test
cd "$checkout"
PYTHONPATH="$checkout/ci:$checkout" exec .venv/bin/python -m bare "$@"
