"""Connects to an object store with the credentials that the cloud's own tools use."""

from __future__ import annotations

import configparser
import os
from datetime import timedelta
from pathlib import Path
from typing import Any

from envpack.store.location import Location
from envpack.support.errors import UsageError
from envpack.support.installation import install_command

_RETRIES = 3
_AWS_FILES = {"AWS_SHARED_CREDENTIALS_FILE": "credentials", "AWS_CONFIG_FILE": "config"}
_AWS_VARIABLES = (
    "AWS_ACCESS_KEY_ID",
    "AWS_WEB_IDENTITY_TOKEN_FILE",
    "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
    "AWS_CONTAINER_CREDENTIALS_FULL_URI",
    "AWS_SKIP_SIGNATURE",
)


def obstore_for(location: Location) -> Any:
    """The module obstore."""
    try:
        import obstore
        import obstore.exceptions
        import obstore.store
    except ImportError:
        raise UsageError(
            f"{location} needs obstore, which is not installed", kind="obstore-missing", hint=install_command("store")
        ) from None
    return obstore


def connect(location: Location, timeout: float) -> Any:
    """The object store of a location. Nothing is sent yet."""
    obstore = obstore_for(location)
    stores = obstore.store
    if location.scheme == "file":
        return stores.LocalStore(location.prefix, mkdir=True)
    allow_http = location.endpoint.startswith("http:") or _plain_endpoint()
    common: dict[str, Any] = {
        "prefix": location.prefix or None,
        "client_options": {
            "timeout": timedelta(seconds=timeout),
            "connect_timeout": timedelta(seconds=min(timeout, 10)),
            "allow_http": allow_http,
        },
        "retry_config": {"max_retries": _RETRIES, "retry_timeout": timedelta(seconds=timeout)},
    }
    try:
        if location.scheme == "s3":
            return stores.S3Store(location.bucket, **common, **_s3_settings(location))
        if location.scheme == "gs":
            return stores.GCSStore(location.bucket, **common)
        return stores.AzureStore(location.bucket, **common)
    except obstore.exceptions.BaseError as error:
        reason = str(error).split("\n", maxsplit=1)[0]
        raise UsageError(
            f"{location} cannot be used: {reason}",
            kind="bad-store-address",
            hint="set the variables that the cloud's own tools use; docs/guides/shared-store.md lists them",
        ) from error


def server_variables() -> dict[str, str]:
    """The variables of this process that let a server on this machine use the same account."""
    prefixes = ("AWS_", "AZURE_", "GOOGLE_", "CLOUD_STORAGE_")
    found = {name: value for name, value in os.environ.items() if name.startswith(prefixes)}
    for variable, kind in _AWS_FILES.items():  # the server has another home
        file = Path("~/.aws", kind).expanduser()
        if variable not in found and file.is_file():
            found[variable] = str(file)
    return found


def _plain_endpoint() -> bool:
    """Whether the user's environment names a service without encryption, as one on this machine is."""
    names = ("AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT", "AZURE_STORAGE_ENDPOINT", "GOOGLE_BASE_URL")
    emulated = os.environ.get("AZURE_STORAGE_USE_EMULATOR", "").lower() in ("1", "true")
    return emulated or any(os.environ.get(name, "").startswith("http:") for name in names)


def _s3_settings(location: Location) -> dict[str, Any]:
    settings: dict[str, Any] = {}
    if location.endpoint:
        settings |= {"endpoint": location.endpoint, "aws_endpoint_url_s3": location.endpoint}
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
