"""The layers of an image with models: one for each execution environment, stub, backend and model.

What several models use lies in a folder that is named after its content, and links in the folders of the models lead
there. So the layer is the same for all models and images that have it.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from envpack.archive.layer import LayerMember, PackedLayer
from envpack.archive.segments import compressor
from envpack.deployment.content import ContentEntry, content_of, content_of_model
from envpack.deployment.folder import MANIFEST_NAME, describe
from envpack.deployment.objects.content import has_settled, stamp_of
from envpack.deployment.plan import SERVER_BACKENDS, Deployment
from envpack.support.bounded_reading import sha256_of
from envpack.support.errors import EnvpackError, InputError, ModelsError
from envpack.support.folders import cache_folder
from envpack.support.memory import remember, remembered
from envpack.support.placed_files import STUB_NAME
from envpack.support.processes import raise_if_stopped

SHARED = "opt/envpack"
CONTENT = "io.github.envpack.content"  # annotation of a layer: what is in it
_SCHEMA = 2
_DIGITS = 12  # of the SHA-256 in the name of a shared folder
_MOST_REMEMBERED = 5000  # layers and contents


@dataclass(frozen=True)
class ImageLayer:
    """A layer of an image."""

    title: str  # for people
    members: tuple[LayerMember, ...]

    @property
    def size(self) -> int:
        return sum(member.size for member in self.members)


class LayerMemory:
    """What was computed from files that did not change since, by the stamp of each.

    It is made before the files are read: what is computed from one that changed shortly before or since is not kept.
    """

    def __init__(self) -> None:
        self._since = time.time_ns()
        self._file = cache_folder("publications") / "images.json"
        self._known = remembered(self._file)
        self._found: dict[str, Any] = {}

    def content_of(self, members: Sequence[LayerMember]) -> str:
        """A digest of some files, links and folders by their content."""
        found = self._known.get(_fingerprint("content", members))
        if found is None:
            digest = hashlib.sha256()
            for member in members:
                raise_if_stopped()
                content = sha256_of(member.source) if member.source is not None else ""
                digest.update(json.dumps([member.path, member.kind, member.target, content]).encode())
            found = digest.hexdigest()
        self._note("content", members, found)
        return found

    def packed(self, layer: ImageLayer) -> PackedLayer | None:
        key = _fingerprint(compressor(), layer.members)
        if key not in self._known:
            return None
        self._found[key] = self._known[key]
        return PackedLayer(*self._known[key])

    def remember(self, layer: ImageLayer, packed: PackedLayer) -> None:
        self._note(compressor(), layer.members, [packed.sha256, packed.size, packed.content_sha256])

    def save(self) -> None:
        entries = {name: entry for name, entry in self._known.items() if name not in self._found} | self._found
        if entries != self._known:
            remember(self._file, dict(list(entries.items())[-_MOST_REMEMBERED:]))

    def _note(self, purpose: str, members: Sequence[LayerMember], value: Any) -> None:
        sources = (member.source for member in members if member.source is not None)
        if all(has_settled(source.stat(), self._since) for source in sources):
            self._found[_fingerprint(purpose, members)] = value


def image_layers(deployment: Deployment, memory: LayerMemory, *, based: bool) -> tuple[ImageLayer, ...]:
    """The layers of a deployment's image: environments, stubs, backends, models, and the manifest last."""
    models = deployment.served_from.strip("/") if based else "models"
    backends = SERVER_BACKENDS.strip("/") if based else "backends"
    shared: dict[str, ImageLayer] = {}
    own: list[ImageLayer] = []
    contents: dict[str, list[ContentEntry]] = {}
    errors: dict[str, EnvpackError] = {}
    for model in deployment.models:
        try:
            contents[model.name] = [*content_of_model(model)]
        except InputError as error:
            errors[model.name] = error
    ModelsError.raise_any(errors, len(deployment.models))
    for model in deployment.models:
        raise_if_stopped()
        entries = contents[model.name]
        entries += [ContentEntry(model.missing_version, "folder", model.folder)] if model.missing_version else []
        parts = _parts_of(entries, memory)
        shared |= {part.folder: part.layer for part in parts}
        own.append(_model_layer(model.name, entries, models, parts))
    own += [
        ImageLayer(f"backend {backend.name}", _below(f"{backends}/{backend.name}", content_of(backend.folder)))
        for backend in deployment.backends
    ]
    layers = (*(shared[folder] for folder in sorted(shared)), *sorted(own, key=lambda layer: layer.title))
    return (*layers, _description(deployment, layers, SHARED if based else ""))


@dataclass(frozen=True)
class _Part:
    """A part of a model that other models may have as well."""

    path: str  # in the model's folder
    folder: str  # in the image
    layer: ImageLayer


def _parts_of(entries: Sequence[ContentEntry], memory: LayerMemory) -> list[_Part]:
    parts = []
    environment = [entry for entry in entries if entry.in_environment]
    root = next((entry.path for entry in environment if entry.kind != "link"), None)  # it may be named by a link
    if root is not None:
        environment = [entry for entry in environment if f"{entry.path}/".startswith(f"{root}/")]
        parts.append(_part(environment, "environments", f"environment {Path(root).name}", memory))
    stub = [entry for entry in entries if entry.path == STUB_NAME and entry.kind == "file"]
    if stub:
        parts.append(_part(stub, "stubs", "stub", memory))
    return parts


def _part(entries: Sequence[ContentEntry], kind: str, title: str, memory: LayerMemory) -> _Part:
    root = entries[0].path
    name = Path(root).name
    members = [_member(replace(entry, path=name + entry.path[len(root) :])) for entry in entries]
    digest = memory.content_of(members)[:_DIGITS]
    folder = f"{SHARED}/{kind}/{digest}"
    members = [replace(member, path=f"{folder}/{member.path}") for member in members]
    return _Part(root, f"{folder}/{name}", ImageLayer(f"{title} {digest}", _with_parents(members)))


def _model_layer(model: str, entries: Sequence[ContentEntry], models: str, parts: Sequence[_Part]) -> ImageLayer:
    """The rest of a model, with links to its parts."""
    folder = f"{models}/{model}"
    elsewhere = {part.path: part.folder for part in parts}
    members = []
    for entry in entries:
        path = f"{folder}/{entry.path}".rstrip("/")
        if entry.path in elsewhere:
            target = os.path.relpath(elsewhere[entry.path], os.path.dirname(path))  # noqa: PTH120
            members.append(LayerMember(path, "link", target=target))
        elif not any(entry.path.startswith(f"{part}/") for part in elsewhere):
            members.append(_member(replace(entry, path=path)))
    return ImageLayer(f"model {model}", _with_parents(members))


def _description(deployment: Deployment, layers: Sequence[ImageLayer], folder: str) -> ImageLayer:
    files = [member for layer in layers for member in layer.members if member.kind != "folder"]
    manifest = describe(deployment, len(files), sum(member.size for member in files))
    content = f"{json.dumps(manifest, indent=1, sort_keys=True)}\n".encode()
    path = f"{folder}/{MANIFEST_NAME}".lstrip("/")
    return ImageLayer("manifest", _with_parents([LayerMember(path, "file", len(content), content=content)]))


def _below(folder: str, entries: Iterator[ContentEntry]) -> tuple[LayerMember, ...]:
    return _with_parents([_member(replace(entry, path=f"{folder}/{entry.path}".rstrip("/"))) for entry in entries])


def _with_parents(members: Sequence[LayerMember]) -> tuple[LayerMember, ...]:
    """Members, after the folders that lead to the first of them."""
    parts = members[0].path.split("/")[:-1]
    parents = ["/".join(parts[: number + 1]) for number in range(len(parts))]
    return (*(LayerMember(path, "folder") for path in parents), *members)


def _member(entry: ContentEntry) -> LayerMember:
    if entry.kind == "folder":
        return LayerMember(entry.path, "folder")
    if entry.kind == "link":
        return LayerMember(entry.path, "link", target=entry.target)
    size = entry.source.stat().st_size
    return LayerMember(entry.path, "program" if entry.is_program else "file", size, entry.source)


def _fingerprint(purpose: str, members: Sequence[LayerMember]) -> str:
    digest = hashlib.sha256(f"{_SCHEMA} {purpose}".encode())
    for member in members:
        stamp: list[Any] = [hashlib.sha256(member.content).hexdigest()]
        if member.source is not None:
            stamp = list(stamp_of(member.source.stat()))
        digest.update(json.dumps([member.path, member.kind, member.size, member.target, *stamp]).encode())
    return digest.hexdigest()
