#!/usr/bin/env bash
# Our stub on a GPU, end to end under the real server: one line for each check, and a summary. See docs/guides/gpu.md.
#
#     ci/gpu-check.sh              installs what is missing, then checks
#     ci/gpu-check.sh --prepare    installs only; needs no GPU
#     ci/gpu-check.sh --help       all options
#
# Exit status: 0 if nothing failed, 1 if a check failed, 2 if it cannot be prepared, 3 if there is no GPU.
set -euo pipefail

here="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
python="${PYTHON:-python3}"
venv="${ENVPACK_GPU_VENV:-$here/../build/gpu-check/venv}"

needs_gpu=yes
arguments=()
while [ $# -gt 0 ]; do
    case "$1" in
    --venv) venv="${2:?--venv needs a folder}" && shift ;;
    --venv=*) venv="${1#--venv=}" ;;
    --prepare | --help | -h) needs_gpu="" && arguments+=("$1") ;;
    *) arguments+=("$1") ;;
    esac
    shift
done

# Before any installation, so that a machine without a GPU fails at once.
if [ -n "$needs_gpu" ]; then
    "$python" "$here/gpu/driver.py" || exit $?
fi
if ! "$venv/bin/python" -c "import envpack" 2>/dev/null; then
    "$python" "$here/install.py" "$venv" || exit 2
fi
PYTHONPATH="$here${PYTHONPATH:+:$PYTHONPATH}" exec "$venv/bin/python" -m gpu ${arguments[@]+"${arguments[@]}"}
