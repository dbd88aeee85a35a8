"""Models that cannot be verified, because this server does not have their backend, and models that need them."""

from __future__ import annotations

import re
from collections.abc import Sequence

from envpack.repository import Model, called_models
from envpack.verification.verdict import Check, ModelVerdict, unchecked

# The releases have four forms: a library, a library or a model.py, a model.py, and the backend's name.
_MISSING = re.compile(r"unable to find (?:backend library for backend '|'[^']*' (?:or '[^']*' )?for model ')")
_FIX = "verify with a server that has this backend: --image IMAGE, or --server FOLDER"


class MissingBackends:
    """Collects the backends that a server does not have, and what cannot be verified without them."""

    def __init__(self) -> None:
        self._unloaded: dict[str, str] = {}  # the backend that each unverified model needs
        self._callers: dict[str, str] = {}  # the unverified model that each loaded model may send requests to

    def verdict_on_load(self, model: Model, error: str) -> ModelVerdict | None:
        """The verdict on a model that the server refused to load, if the reason is that it lacks the backend."""
        if not model.is_foreign or not _MISSING.search(error):
            return None
        return self._unverified(model, model.backend, f'this server has no backend "{model.backend}"')

    def verdict_on_steps(self, model: Model) -> ModelVerdict | None:
        """The verdict on an ensemble that cannot be loaded, because a step of it is not verified."""
        step = next((step for step in model.steps if step in self._unloaded), None)
        if step is None:
            return None
        backend = self._unloaded[step]
        return self._unverified(
            model, backend, f'its step {step} needs the backend "{backend}", which this server does not have'
        )

    def check_of_answer(self, model: Model, error: str) -> Check | None:
        """The check in place of requests that a model answers with an error, if it may need an unverified one."""
        called = self._called_by(model, error) if error else ""
        if not called:
            return None
        self._callers[model.name] = called
        why = f'it runs or calls {called}, and this server has no backend "{self._unloaded[called]}"'
        return unchecked("infer", f"not verified: {why}; its answer: {error.splitlines()[0]}", _FIX)

    def _called_by(self, model: Model, error: str) -> str:
        """An unverified model that a loaded model may need for an answer, ``""`` if there is none."""
        needed: Sequence[str] = (*model.steps, *called_models(model.folder))
        for name in needed:
            if name in self._unloaded or name in self._callers:
                return self._callers.get(name, name)
        named = (name for name in self._unloaded if re.search(rf"\b{re.escape(name)}\b", error))
        return next(named, "") if model.sends_requests else ""

    def _unverified(self, model: Model, backend: str, why: str) -> ModelVerdict:
        self._unloaded[model.name] = backend
        check = unchecked("load", f"not verified: {why}", _FIX)
        return ModelVerdict(name=model.name, ok=True, load_seconds=0.0, checks=(check,))
