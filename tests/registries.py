"""A real registry on 127.0.0.1, Debian's docker-registry, and a plain HTTP client that reads what is in it."""

import contextlib
import datetime
import gzip
import hashlib
import io
import ipaddress
import json
import shutil
import tarfile
import urllib.error
import urllib.request

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from tests.object_stores import free_port, running
from tests.registry_tokens import ISSUER, SERVICE

PROGRAM = "docker-registry"
MISSING = f"needs {PROGRAM}, a package of Debian"
# What `htpasswd -nbB name word` prints; the registry accepts bcrypt only.
ACCOUNT = ("name", "word")
HTPASSWD = "name:$2b$05$KF2yHIXoBYxXHe5tVZCR5eRQg91HXTQ.WsA9K1OxKgJEbalQfQYhG\n"
OCI = "application/vnd.oci.image.manifest.v1+json, application/vnd.oci.image.index.v1+json"


def is_installed():
    return shutil.which(PROGRAM) is not None


def certificate(folder, *, host="127.0.0.1", days=2, authority=True):
    """A key and a certificate for an address, signed by itself, valid for so many days from now; returns both files."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "127.0.0.1")])
    now = datetime.datetime.now(datetime.UTC)
    built = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=30))
        .not_valid_after(now + datetime.timedelta(days=days))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address(host))]), critical=False)
        .add_extension(x509.BasicConstraints(ca=authority, path_length=0 if authority else None), critical=True)
        .sign(key, hashes.SHA256())
    )
    files = folder / "registry.key", folder / "registry.crt"
    form = serialization.PrivateFormat.PKCS8
    files[0].write_bytes(key.private_bytes(serialization.Encoding.PEM, form, serialization.NoEncryption()))
    files[1].write_bytes(built.public_bytes(serialization.Encoding.PEM))
    return files


@contextlib.contextmanager
def registry(folder, *, protected=False, tokens=None):
    """Run a registry during the block; yields its host and port.

    A protected one has TLS and wants `ACCOUNT`, one with a token service its TLS and its tokens.
    """
    port = free_port()
    settings = {
        "version": "0.1",
        "log": {"level": "error", "accesslog": {"disabled": True}},
        "storage": {"filesystem": {"rootdirectory": str(folder / "content")}},
        "http": {"addr": f"127.0.0.1:{port}"},
    }
    if protected:
        key, public = certificate(folder)
        (folder / "htpasswd").write_text(HTPASSWD)
        settings["http"]["tls"] = {"certificate": str(public), "key": str(key)}
        settings["auth"] = {"htpasswd": {"realm": "models", "path": str(folder / "htpasswd")}}
    if tokens:
        settings["http"]["tls"] = {"certificate": str(tokens.public), "key": str(tokens.key)}
        trust = {"rootcertbundle": str(tokens.public)}
        settings["auth"] = {"token": {"realm": tokens.realm, "service": SERVICE, "issuer": ISSUER, **trust}}
    (folder / "config.json").write_text(json.dumps(settings))  # which is YAML as well
    with running([PROGRAM, "serve", folder / "config.json"], port, folder / "registry.log"):
        yield f"127.0.0.1:{port}"


class Reader:
    """Reads a repository of a registry, with nothing but HTTP."""

    def __init__(self, host, name):
        self._address = f"http://{host}/v2/{name}"

    def get(self, path, accept="*/*"):
        request = urllib.request.Request(f"{self._address}/{path}", headers={"Accept": accept})
        with urllib.request.urlopen(request, timeout=60) as answer:
            return answer.read()

    def manifest(self, reference):
        """A manifest and its digest."""
        content = self.get(f"manifests/{reference}", OCI)
        return json.loads(content), f"sha256:{hashlib.sha256(content).hexdigest()}"

    def blob(self, descriptor):
        """The content of a blob, which must have the announced digest and size."""
        content = self.get(f"blobs/{descriptor['digest']}")
        assert f"sha256:{hashlib.sha256(content).hexdigest()}" == descriptor["digest"]
        assert len(content) == descriptor["size"]
        return content

    def config(self, manifest):
        return json.loads(self.blob(manifest["config"]))

    def files(self, manifest):
        """Everything in an image: type, mode, owner, target and content by path. Layers must be as configured."""
        found = {}
        expected = self.config(manifest)["rootfs"]["diff_ids"]
        assert len(expected) == len(manifest["layers"])
        for layer, digest in zip(manifest["layers"], expected, strict=True):
            content = gzip.decompress(self.blob(layer))
            assert f"sha256:{hashlib.sha256(content).hexdigest()}" == digest
            with tarfile.open(fileobj=io.BytesIO(content)) as archive:
                for member in archive:
                    data = archive.extractfile(member).read() if member.isfile() else None
                    owner = (member.uid, member.gid)
                    found[member.name] = (member.type, oct(member.mode), owner, member.linkname, data)
        return found
