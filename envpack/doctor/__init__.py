"""Examines this machine: the tools, servers and folders that envpack uses, and how to provide the missing ones."""

from __future__ import annotations

from typing import TYPE_CHECKING

from envpack.support.lazy_imports import lazy_imports

if TYPE_CHECKING:
    from envpack.doctor.examination import PROBES as PROBES, examine as examine
    from envpack.doctor.observation import Observation as Observation, State as State

__getattr__, __all__ = lazy_imports(__name__, __file__)
