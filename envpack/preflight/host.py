"""What a stub and an environment will run on: this machine, or a release's official container."""

from __future__ import annotations

import os
from dataclasses import dataclass

from envpack.releases import Release
from envpack.stub import this_machine


@dataclass(frozen=True)
class Host:
    """A system that a server runs in.

    Attributes:
        name: what to call it in a sentence.
        glibc: version of its C library, ``""`` if unknown.
        glibcxx: newest symbol version of its libstdc++, ``""`` if unknown.
        machine: such as ``"x86_64"``; ``""`` where it is not settled, as for an image that exists for several.
    """

    name: str
    glibc: str
    glibcxx: str
    machine: str


def host_of_image(release: Release) -> Host:
    """The official container of a release."""
    return Host(f"the image of Triton {release.name}", release.glibc, release.glibcxx, "")


def this_host() -> Host:
    """The system that this process runs in. Where its libstdc++ is, if it has one, is the linker's business."""
    glibc = (os.confstr("CS_GNU_LIBC_VERSION") or "").removeprefix("glibc ")
    return Host("this machine", glibc, "", this_machine())
