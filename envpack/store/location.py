"""Where a store is, and connecting to it with the credentials that the cloud's own tools use."""

from __future__ import annotations

import configparser
import os
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import Any, Literal, cast, get_args
from urllib.parse import unquote, urlsplit

from envpack.support.certificates import check_authorities
from envpack.support.connection_faults import proxy_of
from envpack.support.errors import UsageError
from envpack.support.folders import shell_fault
from envpack.support.installation import install_command
from envpack.support.redaction import has_secret, is_readable, public_url
from envpack.support.text import printable_line

Scheme = Literal["file", "s3", "gs", "az"]
SCHEMES: tuple[Scheme, ...] = get_args(Scheme)
_EXAMPLES = "file:///mnt/store, s3://bucket/folder, gs://bucket/folder or az://container/folder"
# Triton's notation for a server other than Amazon's: s3://http://127.0.0.1:9000/bucket/folder
_ENDPOINT = re.compile(r"s3://(?P<endpoint>https?://[^/\s@]+)/(?P<rest>.+)", re.IGNORECASE)
_SERVICE = re.compile(r"https?://[\w.~%@:\[\]-]+(/[!-~]*)?", re.ASCII | re.IGNORECASE)
# What a server reads in that notation. It waits without an end for another address, and leaves other folders out.
_READ_BY_SERVERS = re.compile(r"s3://https?://[0-9A-Za-z.-]+:[0-9]+/[0-9a-z.-]+(/[0-9A-Za-z._-]+)*")
_PORT = re.compile(r":[0-9]+$")
_BUCKET = re.compile(r"[A-Za-z0-9$][A-Za-z0-9._-]{0,254}")
_MOST_PATH = 800  # bytes; S3 allows 1024 for all of a key
_SEGMENT = re.compile(r"[^\x00-\x1f\x7f]{1,255}")
_ALTERED = {
    "az": re.compile(r"\\|\.(?=/|$)"),  # it takes a backslash for a slash, and leaves out a dot at the end of a name
    "file": re.compile(r"(?:^|/)[^/#]*#[0-9]+$"),  # names that the library gives to incomplete files
}


@dataclass(frozen=True)
class Location:
    """A folder of an object store, or of a file system.

    Attributes:
        url: the address as the user wrote it, without a slash at its end.
        scheme: ``"file"``, ``"s3"``, ``"gs"`` or ``"az"``.
        bucket: bucket or container; ``""`` of ``file``.
        prefix: path in the bucket, without slashes around it; of ``file`` the absolute path of the folder.
        endpoint: address of the S3 service, ``""`` for the one that the environment names.
    """

    url: str
    scheme: Scheme
    bucket: str
    prefix: str
    endpoint: str = ""

    @property
    def folder(self) -> Path | None:
        return Path(self.prefix) if self.scheme == "file" else None

    @property
    def name(self) -> str:
        """The address without the service that is asked for it, as signatures name it."""
        path = "/".join(part for part in (self.bucket, self.prefix) if part)
        return f"{self.scheme}://{path}"

    def around(self) -> Iterator[Location]:
        """The folders that it is in, the nearest first."""
        url, prefix = self.url, self.prefix
        while prefix:
            url, prefix = url.rpartition("/")[0], prefix.rpartition("/")[0]
            if prefix or self.bucket:
                yield replace(self, url=url, prefix=prefix)

    def __str__(self) -> str:
        return self.url


def parse_location(url: str) -> Location:
    """Read an address.

    Args:
        url: ``file:///folder``, ``s3://bucket/prefix``, ``gs://bucket/prefix``, ``az://container/prefix``, or with the
            address of an S3 service ``s3://http://host:port/bucket/prefix``.

    Raises:
        UsageError: kind ``bad-store-address``: it has another form, or contains credentials.
    """
    if has_secret(url):
        raise _bad("it contains credentials", url, "remove them; the usual variables and files of the cloud hold them")
    if "{digest}" in url:
        raise _bad("it names no publication", url, "write the address that `envpack publish` printed")
    match = _ENDPOINT.fullmatch(url)
    endpoint = match["endpoint"] if match else ""
    try:
        parts = urlsplit(f"s3://{match['rest']}" if match else url)
    except ValueError as error:  # brackets that are no IPv6 address
        raise _bad("it is not the address of a store", url, f"write {_EXAMPLES}") from error
    scheme = parts.scheme.lower()
    if scheme not in SCHEMES or parts.query or parts.fragment:
        raise _bad("it is not the address of a store", url, f"write {_EXAMPLES}")
    if scheme == "file":
        return _folder(url, parts.netloc, parts.path)
    prefix = parts.path.strip("/")
    if not _BUCKET.fullmatch(parts.netloc):
        raise _bad("it names no bucket or container", url, f"write {_EXAMPLES}")
    if prefix and not all(_is_name(segment) for segment in prefix.split("/")):
        raise _bad("its path has an empty part, '.' or '..'", url, f"write {_EXAMPLES}")
    if is_altered(prefix, cast("Scheme", scheme)):
        raise _bad("Azure alters names with a backslash or with '.' at the end", url, "give another folder")
    return Location(url.rstrip("/"), cast("Scheme", scheme), parts.netloc, prefix, endpoint)


def server_address(location: Location) -> str:
    """The address of a location as Triton reads it; a service has its port, without which a server waits for ever."""
    path = "/".join(part for part in (location.bucket, location.prefix) if part)
    if location.scheme == "file":
        return location.prefix
    if location.scheme == "az":
        return f"as://{os.environ.get('AZURE_STORAGE_ACCOUNT_NAME') or 'ACCOUNT'}/{path}"
    if location.scheme == "s3" and (service := public_url(_endpoint(location)).rstrip("/")):
        port = "" if _PORT.search(service) else ":443" if service.startswith("https:") else ":80"
        return f"s3://{service}{port}/{path}"
    return f"{location.scheme}://{path}"


def folder_fault(folder: str) -> tuple[str, str] | None:
    """Why no server serves what is in a folder, and what to do; None if one may."""
    unfit = shell_fault(folder)
    return (f"no server starts a Python model from {folder}, which {unfit}", "choose another folder") if unfit else None


def server_fault(location: Location, folders: Iterable[str] = ()) -> tuple[str, str] | None:
    """Why no server serves what is at a location, with these folders there, and what to do; None if one may."""
    address = server_address(location)
    if location.folder is not None:
        return folder_fault(address)
    if not address.startswith(("s3://http:", "s3://https:")):
        return None
    for place in (address, *(f"{address}/{folder}" for folder in sorted(folders))):
        if not _READ_BY_SERVERS.fullmatch(place) or urlsplit(_endpoint(location)).path.strip("/"):
            takes = "HOST:PORT/BUCKET/FOLDER of a-z, 0-9, '.' and '-', in folders also A-Z and '_'"
            return (
                f"no server reads {place}: it takes {takes}",
                "choose other names, or serve what `envpack fetch` copies",
            )
    return None


def _folder(url: str, host: str, path: str) -> Location:
    folder = unquote(path)
    if host not in ("", "localhost") or not folder.startswith("/") or folder.strip("/") == "":
        raise _bad("it names no folder by its absolute path", url, "write file:///mnt/store, with three slashes")
    if not all(_is_name(segment) for segment in folder.strip("/").split("/")):
        raise _bad("its path has an empty part, '.' or '..'", url, "write file:///mnt/store")
    return Location(url.rstrip("/"), "file", "", folder.rstrip("/"))


def is_object_path(path: str) -> bool:
    """Whether all stores can hold an object of this path, below an address of usual length."""
    try:
        length = len(path.encode())
    except UnicodeEncodeError:
        return False
    return length <= _MOST_PATH and all(_is_name(segment) for segment in path.split("/"))


def is_altered(path: str, scheme: Scheme) -> bool:
    """Whether stores of a kind keep an object of this path under another one, or not at all."""
    return scheme in _ALTERED and _ALTERED[scheme].search(path) is not None


def _is_name(segment: str) -> bool:
    return segment not in (".", "..") and _SEGMENT.fullmatch(segment) is not None


def _bad(reason: str, url: str, hint: str) -> UsageError:
    return UsageError("bad-store-address", f"{printable_line(url)} cannot be used: {reason}", hint)


_NOWHERE = "127.0.0.1:0"  # nothing can listen there
# Amazon's own services, and those of its machines and containers that hand out credentials.
_AMAZON = ("amazonaws.com", "amazonaws.com.cn", "169.254.169.254", "169.254.170.2", "169.254.170.23", "fd00:ec2::254")
_AWS_SERVICES = ("AWS_ENDPOINT_URL_STS", "AWS_CONTAINER_CREDENTIALS_FULL_URI", "AWS_METADATA_ENDPOINT")
_ENDPOINTS = {
    "s3": ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT"),
    "az": ("AZURE_STORAGE_ENDPOINT",),
    "gs": ("GOOGLE_BASE_URL",),
}
_CLOUDS = {
    "s3": "https://s3.amazonaws.com",
    "gs": "https://storage.googleapis.com",
    "az": "https://blob.core.windows.net",
}
_AWS_FILES = {"AWS_SHARED_CREDENTIALS_FILE": "credentials", "AWS_CONFIG_FILE": "config"}
_AWS_VARIABLES = (
    "AWS_ACCESS_KEY_ID",
    "AWS_WEB_IDENTITY_TOKEN_FILE",
    "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
    "AWS_CONTAINER_CREDENTIALS_FULL_URI",
    "AWS_SKIP_SIGNATURE",
)


def obstore_for(location: Location | str) -> Any:
    try:
        import obstore
        import obstore.exceptions
        import obstore.store
    except ImportError:
        what = f"{location} needs obstore, which is not installed"
        raise UsageError("obstore-missing", what, install_command("store")) from None
    return obstore


_first_user = 0  # the process in which obstore has started its threads


def refuse_forked() -> None:
    """Refuse a request in a process that was forked after the first: threads are not, and nothing would answer it."""
    global _first_user  # noqa: PLW0603
    _first_user = _first_user or os.getpid()
    if _first_user != os.getpid():
        what = "this process was forked from one that has used a store, and can use none"
        fix = 'let workers be started by "spawn" or "forkserver", or before the first use of a store'
        raise UsageError("usage", what, fix)


def connect(location: Location, timeout: float, retries: int) -> Any:
    """The object store of a location. Nothing is sent yet."""
    obstore = obstore_for(location)
    stores = obstore.store
    if location.folder is not None:
        if not location.folder.is_dir():
            raise FileNotFoundError(location.prefix)
        # A server takes the empty folder of a removed model for a model.
        return stores.LocalStore(location.prefix, automatic_cleanup=True)
    endpoint = _endpoint(location)
    if not all(_SERVICE.fullmatch(service) and is_readable(service) for service in _services(location)):
        # The library would panic.
        what = f"{location} cannot be used: the address of a service is not like https://HOST:PORT"
        names = (*_ENDPOINTS[location.scheme], *_other_services(location))
        fix = f"correct it where it is named, such as in {', '.join(names)}"
        raise UsageError("bad-store-address", what, fix)
    check_authorities(os.environ)
    allow_http = endpoint.startswith("http:") or _plain_endpoint()
    common: dict[str, Any] = {
        "prefix": location.prefix or None,
        "client_options": {
            "timeout": timedelta(seconds=timeout),
            "connect_timeout": timedelta(seconds=min(timeout, 10)),
            "allow_http": allow_http,
            **_only_to(location),
        },
        "retry_config": {"max_retries": retries, "retry_timeout": timedelta(seconds=timeout)},
    }
    try:
        if location.scheme == "s3":
            return stores.S3Store(location.bucket, **common, **_s3_settings(location))
        store = {"gs": stores.GCSStore, "az": stores.AzureStore}[location.scheme]
        return store(location.bucket, **common)
    except obstore.exceptions.BaseError as error:
        reason = str(error).split("\n", maxsplit=1)[0]
        fix = "set the variables that docs/guides/shared-store.md lists"
        raise UsageError("bad-store-address", f"{location} cannot be used: {reason}", fix) from error


def _only_to(location: Location) -> dict[str, str]:
    """Settings that keep a redirection from taking the token of an S3 account to another host.

    The library follows redirections and sends the token along. So all other hosts are reached through a proxy that
    nothing can be. Where the user has a proxy, that one decides which hosts are reached.
    """
    from urllib.request import getproxies  # with HTTP and TLS, which most commands do not need

    if location.scheme != "s3" or getproxies().keys() - {"no"}:
        return {}
    hosts = [host for service in _services(location) if (host := urlsplit(service).hostname)]
    return {"proxy_url": f"http://{_NOWHERE}", "proxy_excludes": ",".join((*hosts, *_AMAZON))}


def was_redirected(text: str) -> bool:
    return re.search(rf"\b{re.escape(_NOWHERE)}\b", text) is not None


def proxy_to(location: Location) -> str:
    """The proxy that the user's environment names for a store, without secrets; ``""`` if there is none."""
    return proxy_of(_endpoint(location) or _CLOUDS.get(location.scheme, ""))


def _endpoint(location: Location) -> str:
    """The address of the service of a location if the user names one; for S3 also in a profile."""
    names = _ENDPOINTS.get(location.scheme, ())
    named = location.endpoint or next((value for name in names if (value := os.environ.get(name))), "")
    return named or (_profile("config").get("endpoint_url", "") if location.scheme == "s3" else "")


def _services(location: Location) -> list[str]:
    """The addresses that the user gives for the service of a location, and for those that hand out its credentials."""
    others = (os.environ.get(name, "") for name in _other_services(location))
    return [service for service in (_endpoint(location), *others) if service]


def _other_services(location: Location) -> tuple[str, ...]:
    return _AWS_SERVICES if location.scheme == "s3" else ()


def _plain_endpoint() -> bool:
    """Whether the user's environment names a service without encryption, as one on this machine is."""
    names = (name for of_scheme in _ENDPOINTS.values() for name in of_scheme)
    emulated = os.environ.get("AZURE_STORAGE_USE_EMULATOR", "").lower() in ("1", "true")
    return emulated or any(os.environ.get(name, "").startswith("http:") for name in names)


def _s3_settings(location: Location) -> dict[str, Any]:
    settings: dict[str, Any] = {}
    if endpoint := _endpoint(location):
        settings |= {"endpoint": endpoint, "aws_endpoint_url_s3": endpoint}
    if not any(os.environ.get(name) for name in ("AWS_REGION", "AWS_DEFAULT_REGION")):
        settings["region"] = _profile("config").get("region", "us-east-1")
    if not any(os.environ.get(name) for name in _AWS_VARIABLES):
        settings |= _from_files()
    return settings


def _from_files() -> dict[str, Any]:
    """The credentials in ``~/.aws``: keys are read here; roles and single sign-on need boto3, which is used if present.

    Nothing is returned on machines of the cloud without such files: their own service then answers.
    """
    found = _profile("credentials") | _profile("config")
    if found.get("aws_access_key_id") and found.get("aws_secret_access_key"):
        keys = {
            "access_key_id": found["aws_access_key_id"],
            "secret_access_key": found["aws_secret_access_key"],
            "session_token": found.get("aws_session_token"),
        }
        return {name: value for name, value in keys.items() if value}
    if found or os.environ.get("AWS_PROFILE"):
        try:
            from obstore.auth.boto3 import Boto3CredentialProvider
        except ImportError:
            return {}
        return {"credential_provider": Boto3CredentialProvider()}
    return {}


def _profile(kind: str) -> dict[str, str]:
    """The user's profile in one of Amazon's two files; empty if there is none."""
    variable = next(name for name, file in _AWS_FILES.items() if file == kind)
    file = os.environ.get(variable) or str(Path("~/.aws", kind))
    name = os.environ.get("AWS_PROFILE") or "default"
    parser = configparser.RawConfigParser()
    try:
        parser.read(Path(file).expanduser(), encoding="utf-8")
    except (configparser.Error, OSError, RuntimeError, UnicodeDecodeError):
        return {}
    for section in (name, f"profile {name}"):
        if parser.has_section(section):
            return dict(parser.items(section))
    return {}
