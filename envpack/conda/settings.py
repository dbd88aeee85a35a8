"""What the user has told conda: channels, mirrors of names, proxies, certificates, and passwords, which stay apart.

Read from ``.condarc`` files and ``CONDA_*`` variables. The engine reads its own settings (``~/.config/rattler``,
``~/.config/pixi``, ``~/.pixi``: mirrors, certificates, credentials) by itself.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit, urlunsplit

from envpack.support.errors import InputError, UsageError

DEFAULT_ALIAS = "https://conda.anaconda.org"
_DEFAULTS = ("https://repo.anaconda.com/pkgs/main", "https://repo.anaconda.com/pkgs/r")
_TOKEN = re.compile(r"^/t/([^/]+)(/.*)$")
_NONE = {"", "none", "null", "false"}

Credentials = dict[str, dict[str, Any]]  # by host without port, in the form of the engine's credentials file


@dataclass(frozen=True)
class Channels:
    """Channels as the engine takes them.

    Attributes:
        urls: addresses in order of preference, without user names, passwords and tokens.
        credentials: what was taken out of the addresses, by host; never written to a lock, a manifest or a log.

    """

    urls: tuple[str, ...]
    credentials: Credentials = field(default_factory=dict, repr=False)


@dataclass(frozen=True)
class CondaSettings:
    """The user's settings for conda.

    Attributes:
        channels: names or addresses, in order of preference; empty if none are set.
        alias: what a bare channel name is appended to.
        custom: the address that some names are appended to instead.
        multiple: the channels that one name stands for, such as ``defaults``.
        variables: variables that tell programs about proxies and certificates.

    """

    channels: tuple[str, ...] = ()
    alias: str = DEFAULT_ALIAS
    custom: Mapping[str, str] = field(default_factory=dict)
    multiple: Mapping[str, tuple[str, ...]] = field(default_factory=lambda: {"defaults": _DEFAULTS})
    variables: Mapping[str, str] = field(default_factory=dict)

    def resolve(self, names: Iterable[str]) -> Channels:
        """Turn channel names, addresses and paths into addresses; secrets are taken out of them.

        Raises:
            UsageError: kind ``bad-channel``: an address of a kind that no engine knows.

        """
        credentials: Credentials = {}
        addresses = (self._address(one) for name in names for one in self.multiple.get(name, (name,)))
        urls = [_without_secrets(address, credentials) for address in addresses]
        return Channels(tuple(dict.fromkeys(urls)), credentials)

    def _address(self, name: str) -> str:
        if "://" in name:
            return name
        if name.startswith((".", "/", "~")):
            return Path(name).expanduser().absolute().as_uri()
        first = name.partition("/")[0]
        return f"{self.custom.get(name, self.custom.get(first, self.alias)).rstrip('/')}/{name}"


def read_conda_settings(host: Mapping[str, str] | None = None) -> CondaSettings:
    """Read ``.condarc`` files, the more particular last, and the variables that stand above them.

    Args:
        host: the variables, by default those of this process.

    Raises:
        InputError: kind ``bad-condarc``: a file is no YAML table.

    """
    host = os.environ if host is None else host
    told: dict[str, Any] = {}
    for file in _files(host):
        if file.is_file():
            told |= _read(file, host)
    for key in ("channels", "channel_alias", "ssl_verify"):
        if host.get(f"CONDA_{key.upper()}"):
            value = host[f"CONDA_{key.upper()}"]
            told[key] = value.split(",") if key == "channels" else value
    multiple = {str(name): _texts(members) for name, members in _table(told, "custom_multichannels").items()}
    return CondaSettings(
        channels=_texts(told.get("channels")),
        alias=str(told.get("channel_alias") or DEFAULT_ALIAS),
        custom={str(name): str(address) for name, address in _table(told, "custom_channels").items()},
        multiple={"defaults": _texts(told.get("default_channels")) or _DEFAULTS} | multiple,
        variables=_variables(told),
    )


def _files(host: Mapping[str, str]) -> list[Path]:
    home = Path(host.get("HOME", "/nonexistent"))
    settings = Path(host.get("XDG_CONFIG_HOME") or home / ".config")
    files = [Path("/etc/conda/.condarc"), settings / "conda/.condarc", home / ".conda/.condarc", home / ".condarc"]
    return [*files, *([Path(host["CONDARC"])] if host.get("CONDARC") else [])]


def _read(file: Path, host: Mapping[str, str]) -> dict[str, Any]:
    import yaml

    try:
        content = yaml.safe_load(_expanded(file.read_text(encoding="utf-8"), host))
    except (OSError, UnicodeDecodeError, yaml.YAMLError, RecursionError) as error:
        raise _bad(file, "cannot be read as YAML") from error  # the text may hold passwords, so it is not quoted
    if content is None:
        return {}
    if not isinstance(content, dict):
        raise _bad(file, "must be a table")
    return content


def _expanded(text: str, host: Mapping[str, str]) -> str:
    return re.sub(r"\$\{(\w+)\}|\$(\w+)", lambda match: host.get(match[1] or match[2], match[0]), text)


def _bad(file: Path, reason: str) -> InputError:
    return InputError(reason, kind="bad-condarc", where=str(file), hint="correct it, or name another with CONDARC")


def _texts(value: object) -> tuple[str, ...]:
    return tuple(str(one).strip() for one in value) if isinstance(value, list) else ()


def _table(told: dict[str, Any], key: str) -> dict[Any, Any]:
    value = told.get(key)
    return value if isinstance(value, dict) else {}


def _variables(told: dict[str, Any]) -> dict[str, str]:
    found = {}
    for scheme, address in _table(told, "proxy_servers").items():
        if str(scheme) in {"http", "https"} and address:
            found[f"{str(scheme).upper()}_PROXY"] = str(address)
    certificates = str(told.get("ssl_verify", "")).strip()
    if certificates.lower() not in _NONE | {"true", "truststore"}:
        found["SSL_CERT_FILE"] = str(Path(certificates).expanduser())
    return found


def _without_secrets(address: str, credentials: Credentials) -> str:
    try:
        parts = urlsplit(address)
        host = parts.hostname or ""
        port = f":{parts.port}" if parts.port else ""
    except ValueError as error:
        raise _bad_channel("cannot be read") from error
    if parts.scheme not in {"http", "https", "file", "s3", "gcs", "oci"}:
        raise _bad_channel(f"is of an unknown kind, {parts.scheme}://")
    path = parts.path
    if parts.username is not None:
        known = {"username": unquote(parts.username), "password": unquote(parts.password or "")}
        credentials[host] = {"BasicHTTP": known}
    token = _TOKEN.match(path)
    if token:
        credentials[host] = {"CondaToken": token[1]}
        path = token[2]
    return urlunsplit((parts.scheme, f"{host}{port}", path.rstrip("/"), "", ""))


def _bad_channel(reason: str) -> UsageError:
    # The address may hold a password, so it is not quoted.
    return UsageError(f"the address of a channel {reason}", kind="bad-channel", hint="give https://…, a path or a name")
