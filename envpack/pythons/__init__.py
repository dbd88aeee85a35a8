"""Interpreters of this machine, and conda packages and channels made from them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from envpack.support.lazy_imports import lazy_imports

if TYPE_CHECKING:
    from envpack.pythons.bytecode import compile_packages as compile_packages
    from envpack.pythons.channels import (
        ChannelPackage as ChannelPackage,
        add_interpreter as add_interpreter,
        default_channel as default_channel,
        keep_package as keep_package,
        local_channel as local_channel,
        read_channel as read_channel,
    )
    from envpack.pythons.choice import (
        NO_INTERPRETER as NO_INTERPRETER,
        interpreter_for as interpreter_for,
        interpreter_here as interpreter_here,
        reason_to_fetch as reason_to_fetch,
    )
    from envpack.pythons.fetched import (
        FetchError as FetchError,
        fetchable as fetchable,
        fetching_forbidden as fetching_forbidden,
    )
    from envpack.pythons.interpreter_package import fingerprint as fingerprint
    from envpack.pythons.interpreters import (
        Interpreter as Interpreter,
        available_interpreters as available_interpreters,
        interpreter_at as interpreter_at,
        unreadable_folders as unreadable_folders,
    )
    from envpack.pythons.supported import (
        PYBIND11 as PYBIND11,
        SUPPORTED as SUPPORTED,
        Pybind11 as Pybind11,
        check_minor as check_minor,
        is_fetchable as is_fetchable,
        pybind11_for as pybind11_for,
    )

__getattr__, __all__ = lazy_imports(__name__, __file__)
