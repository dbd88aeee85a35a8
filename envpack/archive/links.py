"""Where symbolic links of an environment lead, without following them on a disk."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

_MOST_STEPS = 40  # links that Linux follows in one path, the first one included


def escaping_links(links: Mapping[str, str]) -> Iterator[str]:
    """The links that lead out of an environment, some of them by way of others.

    Yields:
        Paths of links, in the order of ``links``.
    """
    return (path for path, target in links.items() if _escapes(path, target, links))


def _escapes(path: str, target: str, links: Mapping[str, str]) -> bool:
    here = path.split("/")[:-1]
    ahead = target.split("/")[::-1]  # what is still to be walked, the next part last
    if target.startswith("/"):
        return True
    steps = 0
    while ahead:
        part = ahead.pop()
        if part in ("", "."):
            continue
        if part == "..":
            if not here:
                return True
            here.pop()
            continue
        following = links.get("/".join((*here, part)))
        if following is None:
            here.append(part)
        elif following.startswith("/"):
            return True
        elif (steps := steps + 1) >= _MOST_STEPS:
            return False  # the kernel does not follow it either (ELOOP)
        else:
            ahead += following.split("/")[::-1]
    return False
