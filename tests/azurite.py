"""A real Azure Blob service on 127.0.0.1: azurite, Microsoft's emulator, from npm."""

import base64
import contextlib
import datetime
import hashlib
import hmac
import shutil
import subprocess
import urllib.request

from filelock import FileLock

from tests.cache import kept_cache
from tests.object_stores import free_port, running

VERSION = "3.35.0"
MISSING = "needs npm"
ACCOUNT = "devstoreaccount1"
# Every azurite has this key; it is in its documentation.
KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="


def is_installable():
    return shutil.which("npm") is not None


@contextlib.contextmanager
def azurite(folder, container):
    """Run azurite during the block; yields the variables that lead to it. It has an empty container."""
    port = free_port()
    options = ["--blobPort", str(port), "--inMemoryPersistence", "--skipApiVersionCheck", "--disableTelemetry"]
    with running([_program(), "--silent", *options], port, folder / "azurite.log") as address:
        endpoint = f"{address}/{ACCOUNT}"
        _create(endpoint, container)
        names = {"ACCOUNT_NAME": ACCOUNT, "ACCOUNT_KEY": KEY, "ENDPOINT": endpoint}
        yield {f"AZURE_STORAGE_{name}": value for name, value in names.items()}


def _program():
    place = kept_cache() / "made" / f"azurite-{VERSION}"
    program = place / "node_modules/.bin/azurite-blob"
    place.mkdir(parents=True, exist_ok=True)
    with FileLock(place / "lock"):
        if not program.exists():
            command = ["npm", "install", "--no-audit", "--no-fund", "--silent", f"azurite@{VERSION}"]
            subprocess.run(command, cwd=place, check=True, timeout=500)
    return program


def _create(endpoint, container):
    date = datetime.datetime.now(datetime.UTC).strftime("%a, %d %b %Y %H:%M:%S GMT")
    headers = {"x-ms-date": date, "x-ms-version": "2021-08-06"}
    canonical = [f"{name}:{value}" for name, value in headers.items()]
    text = "\n".join(["PUT", *[""] * 11, *canonical, f"/{ACCOUNT}/{ACCOUNT}/{container}", "restype:container"])
    signed = base64.b64encode(hmac.new(base64.b64decode(KEY), text.encode(), hashlib.sha256).digest()).decode()
    headers["Authorization"] = f"SharedKey {ACCOUNT}:{signed}"
    request = urllib.request.Request(f"{endpoint}/{container}?restype=container", headers=headers, method="PUT")
    urllib.request.urlopen(request, timeout=60).close()
