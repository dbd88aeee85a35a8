"""The user's conda settings: channels, mirrors of names, proxies, certificates, and passwords, which are kept apart.

The settings come from ``.condarc`` files and ``CONDA_*`` variables. The embedded engine also reads its own settings
(``~/.config/rattler``, ``~/.config/pixi``, ``~/.pixi``: mirrors, certificates, credentials).
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit, urlunsplit

from envpack.support.bounded_reading import read_text
from envpack.support.errors import InputError, UsageError
from envpack.support.folders import expand_home
from envpack.support.redaction import has_secret

DEFAULT_ALIAS = "https://conda.anaconda.org"
_ANACONDA = "https://repo.anaconda.com"
_DEFAULTS = (f"{_ANACONDA}/pkgs/main", f"{_ANACONDA}/pkgs/r")
# Names that do not stand for channels of the alias.
_CUSTOM = {f"pkgs/{name}": _ANACONDA for name in ("main", "r", "pro", "msys2")}
_OF_ANACONDA = re.compile(r"(.+)/(pkgs/[^/]+)")
_TOKEN = re.compile(r"^/t/([^/]+)(/.*)$")
_MOST = 1 << 20  # bytes
_NOT_ENCODED = "cannot be read: encode a password with %2F for a slash, %23 for #, %40 for an at sign"
_NULL = {"", "~", "null", "Null", "NULL"}
_NO_FILE = {"", "none", "true", "false", "yes", "no", "on", "off", "y", "n", "truststore"}  # values of ssl_verify

Credentials = dict[str, dict[str, Any]]  # by host without port, in the form of the engine's credentials file


@dataclass(frozen=True)
class Channels:
    """Channels as addresses."""

    urls: tuple[str, ...]  # addresses in order of preference, without user names, passwords and tokens
    # User names, passwords and tokens of the addresses, by host; never written to a lock, a manifest or a log.
    credentials: Credentials = field(default_factory=dict, repr=False)


@dataclass(frozen=True)
class CondaSettings:
    """The user's settings for conda."""

    channels: tuple[str, ...] = ()  # names or addresses, in order of preference; empty if none are set
    alias: str = DEFAULT_ALIAS  # address that a bare channel name is appended to
    # For some names, the address that they are appended to instead.
    custom: Mapping[str, str] = field(default_factory=lambda: _CUSTOM)
    # For some names, such as ``defaults``, the channels that they stand for.
    multiple: Mapping[str, tuple[str, ...]] = field(default_factory=lambda: {"defaults": _DEFAULTS})
    variables: Mapping[str, str] = field(default_factory=dict)  # environment variables for proxies and certificates

    def resolve(self, names: Iterable[str]) -> Channels:
        """Turn channel names, addresses and paths into addresses and separate their credentials."""
        credentials: Credentials = {}
        addresses = (self._address(part) for name in names for part in self.multiple.get(name, (name,)))
        urls = [_without_credentials(address, credentials) for address in addresses]
        return Channels(tuple(dict.fromkeys(urls)), credentials)

    def _address(self, name: str) -> str:
        if "://" in name:
            return name
        if name.startswith((".", "/", "~")):
            return expand_home(name, "channels").absolute().as_uri()
        if re.search(r"[:@\s]", name):
            raise _channel_error("is neither a name nor an address with ://")
        first = name.partition("/")[0]
        return f"{self.custom.get(name, self.custom.get(first, self.alias)).rstrip('/')}/{name}"


def read_conda_settings() -> CondaSettings:
    """Read ``.condarc`` files, which are merged, and the variables, which override them."""
    settings: dict[str, Any] = {}
    for file in _files():
        # Not of Path, which raise an error where this user may not look, as in another user's HOME.
        if os.path.exists(file) and not os.path.isdir(file):  # noqa: PTH110, PTH112
            settings |= {key: _merged(settings.get(key), value) for key, value in _read(file).items()}
    for key in ("channels", "channel_alias", "ssl_verify"):
        if value := os.environ.get(f"CONDA_{key.upper()}"):
            settings[key] = value.split(",") if key == "channels" else value
    multiple = {name: _texts(members) for name, members in _table(settings, "custom_multichannels").items()}
    custom = {name: _text(address) for name, address in _table(settings, "custom_channels").items()}
    defaults = _texts(settings.get("default_channels")) or _DEFAULTS
    mirrored = {found[2]: found[1] for found in map(_OF_ANACONDA.fullmatch, defaults) if found}
    return CondaSettings(
        channels=_texts(settings.get("channels")),
        alias=_text(settings.get("channel_alias")) or DEFAULT_ALIAS,
        custom=_CUSTOM | mirrored | {name: address for name, address in custom.items() if address},
        multiple={"defaults": defaults} | multiple,
        variables=_variables(settings),
    )


def _merged(general: Any, specific: Any) -> Any:
    """A setting of two files, as conda merges them: what the more specific one says comes first, or replaces."""
    if isinstance(general, dict) and isinstance(specific, dict):
        return general | specific
    if isinstance(general, list) and isinstance(specific, list):
        return [*specific, *(item for item in general if item not in specific)]
    return specific


def _files() -> list[Path]:
    home = Path(os.environ.get("HOME", "/nonexistent"))
    config = Path(os.environ.get("XDG_CONFIG_HOME") or home / ".config")
    files = [Path("/etc/conda/.condarc"), config / "conda/.condarc", home / ".conda/.condarc", home / ".condarc"]
    return [*files, *([Path(os.environ["CONDARC"])] if os.environ.get("CONDARC") else [])]


def _read(file: Path) -> dict[str, Any]:
    import yaml

    # Text alone: other values could be wrong in themselves, such as dates, or grow without bounds, by merged tables.
    # The loader in C would crash if the content is nested deeply.
    try:
        content = yaml.load(os.path.expandvars(read_text(file, most=_MOST)), Loader=yaml.BaseLoader)  # noqa: S506
    except OSError as error:
        raise _condarc_error(file, f"cannot be read: {error.strerror}") from error
    except (UnicodeDecodeError, yaml.YAMLError, RecursionError) as error:
        raise _condarc_error(file, "is not YAML") from error  # its text is not quoted, which can contain passwords
    if content is None or content == "":
        return {}
    if not isinstance(content, dict):
        raise _condarc_error(file, "must be a table")
    return content


def _condarc_error(file: Path, reason: str) -> InputError:
    return InputError("bad-condarc", reason, "correct it, or move it away; CONDARC only adds another file", str(file))


def _text(value: object) -> str:
    """A text; empty if it is another value or one of YAML's words for nothing."""
    text = value.strip() if isinstance(value, str) else ""
    return "" if text in _NULL else text


def _texts(value: object) -> tuple[str, ...]:
    return tuple(text for item in value if (text := _text(item))) if isinstance(value, list) else ()


def _table(settings: dict[str, Any], key: str) -> dict[str, Any]:
    value = settings.get(key)
    return {name: item for name, item in value.items() if isinstance(name, str)} if isinstance(value, dict) else {}


def _variables(settings: dict[str, Any]) -> dict[str, str]:
    found = {}
    for scheme, address in _table(settings, "proxy_servers").items():
        if scheme in {"http", "https"} and _text(address):
            found[f"{scheme.upper()}_PROXY"] = _text(address)
    certificates = _text(settings.get("ssl_verify"))
    if certificates.lower() not in _NO_FILE:
        found["SSL_CERT_FILE"] = str(expand_home(certificates, "ssl_verify"))
    return found


def _without_credentials(address: str, credentials: Credentials) -> str:
    try:
        parts = urlsplit(address)
        host = parts.hostname or ""
        host = f"[{host}]" if ":" in host else host
        port = f":{parts.port}" if parts.port else ""
    except ValueError as error:
        raise _channel_error(_NOT_ENCODED if "@" in address else "cannot be read") from error
    if parts.scheme not in {"http", "https", "file", "s3", "gcs", "oci"}:
        raise _channel_error(f"has an unsupported scheme, {parts.scheme}://")
    path = parts.path
    if parts.username is not None:
        account = {"username": unquote(parts.username), "password": unquote(parts.password or "")}
        credentials[host] = {"BasicHTTP": account}
    if token := _TOKEN.match(path):
        credentials[host] = {"CondaToken": token[1]}
        path = token[2]
    url = urlunsplit((parts.scheme, f"{host}{port}", path.rstrip("/"), "", ""))
    # A password that is not encoded has characters that end the part before the host.
    ambiguous = parts.username is not None and "@" in path
    if ambiguous or has_secret(url) or re.search(":[^/]*@", path):
        raise _channel_error(_NOT_ENCODED)
    return url


def _channel_error(reason: str) -> UsageError:
    # The address can contain a password, so it is not quoted.
    return UsageError("bad-channel", f"the address of a channel {reason}", "use https://…, a path or a name")
