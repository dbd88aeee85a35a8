"""Conda packages: the engine that resolves and installs them, and this machine's and uv's interpreters as packages."""

from __future__ import annotations

from typing import TYPE_CHECKING

from envpack.support.lazy_imports import lazy_imports

if TYPE_CHECKING:
    from envpack.conda.bytecode import compile_packages as compile_packages
    from envpack.conda.channels import (
        ChannelPackage as ChannelPackage,
        add_interpreter as add_interpreter,
        default_channel as default_channel,
        keep_package as keep_package,
        local_channel as local_channel,
        read_channel as read_channel,
    )
    from envpack.conda.choice import (
        NO_INTERPRETER as NO_INTERPRETER,
        interpreter_for as interpreter_for,
        interpreter_here as interpreter_here,
        reason_to_fetch as reason_to_fetch,
    )
    from envpack.conda.engine import (
        ENGINE_HINT as ENGINE_HINT,
        EngineError as EngineError,
        index_channel as index_channel,
    )
    from envpack.conda.fetched import (
        FetchError as FetchError,
        fetchable as fetchable,
        fetching_forbidden as fetching_forbidden,
    )
    from envpack.conda.install import PREFIX_PLACEHOLDER as PREFIX_PLACEHOLDER, install_conda as install_conda
    from envpack.conda.interpreter_package import fingerprint as fingerprint
    from envpack.conda.interpreters import (
        Interpreter as Interpreter,
        available_interpreters as available_interpreters,
        interpreter_at as interpreter_at,
        unreadable_folders as unreadable_folders,
    )
    from envpack.conda.resolve import resolve_conda as resolve_conda
    from envpack.conda.settings import (
        Channels as Channels,
        CondaSettings as CondaSettings,
        Credentials as Credentials,
        read_conda_settings as read_conda_settings,
    )
    from envpack.conda.specs import spec_channels as spec_channels
    from envpack.conda.supported import (
        PYBIND11 as PYBIND11,
        SUPPORTED as SUPPORTED,
        Pybind11 as Pybind11,
        check_minor as check_minor,
        is_fetchable as is_fetchable,
        pybind11_for as pybind11_for,
    )

__getattr__, __all__ = lazy_imports(__name__, __file__)
