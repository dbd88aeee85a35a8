"""Conda packages: the engine that resolves and installs them, and this machine's and uv's interpreters as packages."""

from __future__ import annotations

from typing import TYPE_CHECKING

from envpack.support.lazy_imports import lazy_imports

if TYPE_CHECKING:
    from envpack.conda.bytecode import bytecode_path, compile_packages
    from envpack.conda.channels import (
        ChannelPackage,
        add_interpreter,
        default_channel,
        keep_package,
        local_channel,
        read_channel,
    )
    from envpack.conda.choice import NO_INTERPRETER, interpreter_for, interpreter_here, reason_to_fetch
    from envpack.conda.engine import PREFIX_PLACEHOLDER, all_credentials, install_conda, is_locked_file
    from envpack.conda.fetched import FetchError, fetchable
    from envpack.conda.interpreter_package import fingerprint
    from envpack.conda.interpreters import Interpreter, available_interpreters, interpreter_at, unreadable_folders
    from envpack.conda.resolve import resolve_conda, spec_channels
    from envpack.conda.settings import Channels, CondaSettings, Credentials, read_conda_settings
else:
    __getattr__, __all__ = lazy_imports(__name__, __file__)
