"""What makes a prefix usable by the server: ``bin/activate`` and ``pyvenv.cfg``."""

from __future__ import annotations

from pathlib import Path

from envpack.support.replacement import write_text

ACTIVATE = """\
# Activates the environment that this file lies in. For bash: source it; it always succeeds.
# Servers up to 25.07 source it before they start the model; later ones do by themselves what matters of it.
_envpack_root="${BASH_SOURCE[0]:-}"
case "$_envpack_root" in
*/*) _envpack_root="${_envpack_root%/*}" ;;
*) _envpack_root="." ;;
esac
_envpack_root="$(CDPATH="" builtin cd -P -- "$_envpack_root/.." >/dev/null 2>&1 && builtin pwd -P)"
if [ -n "$_envpack_root" ]; then
    case "${PATH:-}:" in
    "$_envpack_root/bin:"*) ;;
    *) PATH="$_envpack_root/bin${PATH:+:$PATH}" ;;
    esac
    export PATH
    export CONDA_PREFIX="$_envpack_root"
    export PYTHONNOUSERSITE=1
    unset PYTHONHOME
    hash -r 2>/dev/null || true
    for _envpack_script in "$_envpack_root"/etc/conda/activate.d/*.sh; do
        if [ -r "$_envpack_script" ]; then
            builtin source "$_envpack_script" || true
        fi
    done
fi
unset _envpack_root _envpack_script
return 0 2>/dev/null || true
"""

# Keeps the user's site-packages out on servers that never run activate. There is no "home" line on purpose: the
# environment stays its own base, wherever it is moved.
PYVENV_CFG = "include-system-site-packages = false\n"


def write_activation(prefix: Path) -> None:
    """Write ``bin/activate`` and ``pyvenv.cfg`` into an environment, replacing what packages may have put there."""
    write_text(prefix / "bin" / "activate", ACTIVATE)
    write_text(prefix / "pyvenv.cfg", PYVENV_CFG)
