"""What `envpack doctor` says of the network, of a server and of a container daemon."""

import base64
import http.server
import json
import socketserver
import threading
from types import SimpleNamespace

import pytest
import requests

from envpack.settings.project import Project
from envpack.settings.table import Settings
from envpack.support.errors import InputError
from envpack.workflow.doctor import services
from envpack.workflow.doctor.services import Observation
from tests.tables import every_row
from tests.unit.server.test_process import install


@pytest.fixture
def project(tmp_path):
    return Project(repository=tmp_path, settings=Settings(triton="24.10"))


# The network


@every_row(
    ("error", "words"),
    [
        (requests.exceptions.ProxyError, "rejected by the proxy"),
        (requests.exceptions.SSLError, "its certificate is not trusted"),
        (requests.exceptions.ConnectTimeout, "no response within 3 s"),
        (requests.exceptions.ReadTimeout, "no response within 3 s"),
        (requests.exceptions.ConnectionError, "unreachable"),
        (requests.exceptions.InvalidURL, "invalid address"),
    ],
)
def test_an_error_of_a_request_in_words(monkeypatch, error, words):
    def fail(url, **options):
        raise error("details of the connection")

    monkeypatch.setattr(requests, "head", fail)
    assert services.unreachable("https://index.example") == f": {words}"


@every_row(
    ("status", "words"),
    [
        (200, ""),
        (399, ""),
        (400, ": HTTP status 400"),
        (401, ": it requires credentials (401)"),
        (403, ": it requires credentials (403)"),
        (407, ": it requires credentials (407)"),
        (500, ": HTTP status 500"),
    ],
)
def test_an_answer_in_words(monkeypatch, status, words):
    asked = []

    def answer(url, **options):
        asked.append((url, options["allow_redirects"], options["timeout"]))
        response = requests.Response()
        response.status_code = status
        return response

    monkeypatch.setattr(requests, "head", answer)
    assert services.unreachable("https://index.example") == words
    assert asked == [("https://index.example", True, 3.0)]


def test_an_address_that_is_none(tmp_path, monkeypatch):
    assert services.unreachable("http://[::1") == ": invalid address"
    assert services.unreachable(f"file://{tmp_path}/a%20b") == ": no such file or folder"
    (tmp_path / "a b").mkdir()
    assert services.unreachable(f"file://{tmp_path}/a%20b") == ""
    assert services.unreachable(f"file://{tmp_path}/a%20b/cpython.tar.gz") == ": no such file or folder"
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(tmp_path / "none.pem"))
    with pytest.raises(InputError) as caught:
        services.unreachable("https://127.0.0.1:9/simple")
    assert (caught.value.kind, caught.value.where) == ("bad-certificates", str(tmp_path / "none.pem"))


@every_row(
    ("value", "is_set"), [("1", True), ("yes", True), ("", False), ("0", False), ("False", False), ("NO", False)]
)
def test_a_variable_counts_unless_it_says_no(monkeypatch, value, is_set):
    monkeypatch.setenv("UV_OFFLINE", value)
    assert services.is_set("UV_OFFLINE") is is_set
    assert not services.is_set("ENVPACK_NO_SUCH_VARIABLE")


def test_channels_say_what_to_do_where_one_cannot_be_reached(project, tmp_path, monkeypatch):
    monkeypatch.delenv("CONDA_OFFLINE", raising=False)
    (tmp_path / "good/noarch").mkdir(parents=True)
    said = Settings(channels=(f"{tmp_path}/good/", "local", f"{tmp_path}/bad/x/y"))
    good, bad = services.channels(project.saying(said))
    assert good == Observation("channel", "ok", good.what)
    assert good.what.startswith(f"file://{tmp_path}/good")
    assert (bad.name, bad.state) == ("channel", "warn")
    assert bad.what.endswith("/bad/x/y: no such file or folder")
    assert bad.fix == "check address, network and proxy; the channel `local` works without a network"
    monkeypatch.setenv("CONDA_OFFLINE", "1")
    what = "CONDA_OFFLINE is set; not checked"
    assert [*services.channels(project.saying(said))] == [Observation("channels", "ok", what)]


@pytest.fixture
def site():
    """A web server and proxy that has every file, and records the path and the account of each request."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_HEAD(self):
            self.server.asked.append((self.path, self.headers["Authorization"]))
            self.send_response(200)
            self.end_headers()

        def do_GET(self):
            self.do_HEAD()

        def log_message(self, *_):
            pass

    with http.server.HTTPServer(("127.0.0.1", 0), Handler) as found:
        found.asked = []
        thread = threading.Thread(target=found.serve_forever, args=(0.01,))
        thread.start()
        yield found
        found.shutdown()
        thread.join()


@pytest.mark.parametrize(
    ("refused", "status", "words"), [(405, 200, ""), (501, 200, ""), (405, 404, ": HTTP status 404")]
)
def test_a_server_that_answers_only_get_is_asked_so(site, monkeypatch, refused, status, words):
    handler, methods = site.RequestHandlerClass, []

    def answer(self):
        methods.append(self.command)
        self.send_response(refused if self.command == "HEAD" else status)
        self.end_headers()

    monkeypatch.setattr(handler, "do_HEAD", answer)
    assert services.unreachable(f"http://127.0.0.1:{site.server_port}/simple/numpy/") == words
    assert methods == ["HEAD", "GET"]


BASIC = f"Basic {base64.b64encode(b'me:word').decode()}"
# Lines of .condarc, credentials of the engine, and the request that the channel, or the proxy in front of it, receives.
ACCESS = {
    "an account": ("channels: ['http://me:word@{site}/c']", {}, ("/c/noarch/repodata.json", BASIC)),
    "a token": ("channels: ['http://{site}/t/SECRET/c']", {}, ("/t/SECRET/c/noarch/repodata.json", None)),
    "an account of the engine": (
        "channels: ['http://{site}/c']",
        {"127.0.0.1": {"BasicHTTP": {"username": "me", "password": "word"}}},
        ("/c/noarch/repodata.json", BASIC),
    ),
    "a token of the engine": (
        "channels: ['http://{site}/c']",
        {"127.0.0.1": {"BearerToken": "SECRET"}},
        ("/c/noarch/repodata.json", "Bearer SECRET"),
    ),
    "odd credentials": ("channels: ['http://{site}/c']", {"127.0.0.1": 5}, ("/c/noarch/repodata.json", None)),
    "no table of credentials": ("channels: ['http://{site}/c']", [], ("/c/noarch/repodata.json", None)),
    "a proxy": (
        "channels: ['http://channel.invalid/c']\nproxy_servers: {{http: 'http://{site}'}}",
        {},
        ("http://channel.invalid/c/noarch/repodata.json", None),
    ),
}


@pytest.mark.parametrize("name", ACCESS)
def test_a_channel_is_asked_with_the_users_settings_for_conda(project, site, tmp_path, monkeypatch, name):
    lines, own, asked = ACCESS[name]
    (tmp_path / "condarc").write_text(lines.format(site=f"127.0.0.1:{site.server_port}"))
    (tmp_path / "own.json").write_text(json.dumps(own))
    for variable in ("CONDA_OFFLINE", "CONDA_CHANNELS", "http_proxy", "HTTP_PROXY", "no_proxy", "NO_PROXY"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("CONDARC", str(tmp_path / "condarc"))
    monkeypatch.setenv("RATTLER_AUTH_FILE", str(tmp_path / "own.json"))
    (seen,) = services.channels(project)
    assert site.asked == [asked]
    assert (seen.state, seen.fix) == ("ok", "")
    assert not any(secret in seen.what for secret in ("word", "SECRET"))


def test_all_channels_of_condarc_are_asked(project, site, tmp_path, monkeypatch):
    alias = f"http://127.0.0.1:{site.server_port}/mirror"
    (tmp_path / "condarc").write_text(f"channels: [forge, near]\nchannel_alias: {alias}\n")
    monkeypatch.delenv("CONDA_OFFLINE", raising=False)
    monkeypatch.setenv("CONDARC", str(tmp_path / "condarc"))
    assert [seen.state for seen in services.channels(project)] == ["ok", "ok"]
    assert sorted(path for path, _ in site.asked) == [
        f"/mirror/{name}/noarch/repodata.json" for name in ("forge", "near")
    ]


def test_a_channel_is_asked_with_the_certificates_of_condarc(project, tmp_path, monkeypatch):
    (tmp_path / "condarc").write_text(f"channels: ['https://127.0.0.1:9/c']\nssl_verify: {tmp_path}/none.pem")
    monkeypatch.delenv("CONDA_OFFLINE", raising=False)
    monkeypatch.setenv("CONDARC", str(tmp_path / "condarc"))
    (seen,) = services.channels(project)
    assert (seen.state, "none.pem" in seen.what) == ("warn", True)


@pytest.mark.parametrize("name", ["UV_OFFLINE", "PIP_NO_INDEX"])
def test_an_index_that_is_not_used_is_not_checked(project, monkeypatch, name):
    for other in ("UV_OFFLINE", "UV_DEFAULT_INDEX", "UV_INDEX_URL", "UV_INDEX", "UV_EXTRA_INDEX_URL"):
        monkeypatch.delenv(other, raising=False)
    monkeypatch.setenv(name, "1")
    what = "UV_OFFLINE, or no-index of pip, is set; not checked"
    assert [*services.index(project)] == [Observation("index", "ok", what)]


# The variables of uv, and the requests that the index receives.
INDEXES = {
    "an address": ({"UV_INDEX_URL": "http://{site}/simple/"}, ("/simple/numpy/", None)),
    "the first of two": (
        {"UV_DEFAULT_INDEX": "http://{site}/one", "UV_INDEX_URL": "http://{site}/two"},
        ("/one/numpy/", None),
    ),
    "an account": ({"UV_DEFAULT_INDEX": "http://me:word@{site}/simple"}, ("/simple/numpy/", BASIC)),
    "a name": ({"UV_DEFAULT_INDEX": "my-corp.1=http://{site}/simple"}, ("/simple/numpy/", None)),
    "a query": ({"UV_DEFAULT_INDEX": "http://{site}/a=b"}, ("/a=b/numpy/", None)),
    "a name with an account": (
        {
            "UV_DEFAULT_INDEX": "my-corp=http://{site}/simple",
            "UV_INDEX_MY_CORP_USERNAME": "me",
            "UV_INDEX_MY_CORP_PASSWORD": "word",
        },
        ("/simple/numpy/", BASIC),
    ),
}


@pytest.fixture
def no_index(monkeypatch):
    for name in ("UV_DEFAULT_INDEX", "UV_INDEX_URL", "UV_INDEX", "UV_EXTRA_INDEX_URL", "PIP_INDEX_URL", "UV_OFFLINE"):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.parametrize("name", INDEXES)
@pytest.mark.usefixtures("no_index")
def test_an_index_is_asked_as_uv_asks_it(project, site, monkeypatch, name):
    variables, asked = INDEXES[name]
    for variable, value in variables.items():
        monkeypatch.setenv(variable, value.format(site=f"127.0.0.1:{site.server_port}"))
    (seen,) = services.index(project)
    assert site.asked == [asked]
    assert (seen.name, seen.state) == ("index", "ok")
    assert seen.what.rstrip("/") == f"http://127.0.0.1:{site.server_port}{asked[0].removesuffix('/numpy/')}"


@pytest.mark.usefixtures("no_index")
def test_the_index_of_pips_file_is_asked(project, site, tmp_path, monkeypatch):
    (tmp_path / "pip.conf").write_text(f"[global]\nindex-url = http://me:word@127.0.0.1:{site.server_port}/simple\n")
    monkeypatch.setenv("PIP_CONFIG_FILE", str(tmp_path / "pip.conf"))
    (seen,) = services.index(project)
    assert site.asked == [("/simple/numpy/", BASIC)]
    assert seen.what == f"http://127.0.0.1:{site.server_port}/simple"


@pytest.mark.usefixtures("no_index")
def test_the_index_of_pips_file_is_asked_as_pip_asks_it(project, site, tmp_path, monkeypatch):
    for name in ("http_proxy", "HTTP_PROXY", "no_proxy", "NO_PROXY", "SSL_CERT_FILE", "PIP_CERT"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PIP_CONFIG_FILE", str(tmp_path / "pip.conf"))
    proxy = f"http://127.0.0.1:{site.server_port}"
    (tmp_path / "pip.conf").write_text(f"[global]\nindex-url = http://index.invalid/simple\nproxy = {proxy}\n")
    (seen,) = services.index(project)
    assert (site.asked, seen.state) == ([("http://index.invalid/simple/numpy/", None)], "ok")
    (tmp_path / "pip.conf").write_text("[global]\nindex-url = https://127.0.0.1:9/simple\ncert = /none.pem\n")
    (seen,) = services.index(project)
    assert "/none.pem" in seen.what


@pytest.mark.usefixtures("no_index")
def test_an_index_in_a_folder_is_one(project, tmp_path, monkeypatch):
    for prefix in ("", "corp="):
        for absent in ("a", "a/b/c"):
            monkeypatch.setenv("UV_DEFAULT_INDEX", f"{prefix}{tmp_path}/{absent}")
            (seen,) = services.index(project)
            assert (seen.state, seen.what) == ("warn", f"file://{tmp_path}/{absent}: no such file or folder")
        monkeypatch.setenv("UV_DEFAULT_INDEX", f"{prefix}{tmp_path}")
        (seen,) = services.index(project)
        assert (seen.state, seen.what) == ("ok", f"file://{tmp_path}")


@pytest.mark.parametrize(("code", "state"), [(0, "ok"), (1, "warn")])
@pytest.mark.usefixtures("no_index")
def test_uv_checks_the_index_that_only_it_knows(project, monkeypatch, code, state):
    seen = []

    def run_uv(command, *, variables):
        seen.append((command[-1].read_text(), variables))
        return SimpleNamespace(returncode=code)

    monkeypatch.setattr(services, "run_uv", run_uv)
    (index,) = services.index(project)
    assert (index.name, index.state) == ("index", state)
    assert index.what == "the default index of uv" + (": unreachable" if code else "")
    assert index.fix == ("check network and proxy, or set UV_INDEX_URL to a reachable index" if code else "")
    variables = {"UV_HTTP_TIMEOUT": "3", "UV_HTTP_RETRIES": "0", "UV_NO_CACHE": "1"}
    assert seen == [("numpy\n", variables)]


# Servers


def test_a_server_of_this_machine_is_named_with_its_release(project, tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr("envpack.server.launch._in_wheel", lambda: None)
    (seen,) = services.server(project)
    assert (seen.name, seen.state) == ("tritonserver", "warn")
    assert seen.what.endswith("; servers can run in containers")
    assert "nvidia-pytriton" in seen.what
    assert seen.fix
    program = install(tmp_path / "site/pytriton/tritonserver") / "bin/tritonserver"
    monkeypatch.setenv("PATH", str(program.parent))
    assert [*services.server(project)] == [Observation("tritonserver", "ok", f"unknown release, {program}")]
    (tmp_path / "site/nvidia_pytriton-0.5.3.dist-info").mkdir()
    (tmp_path / "site/nvidia_pytriton-0.5.3.dist-info/METADATA").write_text("Name: nvidia-pytriton\nVersion: 0.5.3\n")
    assert [*services.server(project)] == [Observation("tritonserver", "ok", f"Triton 24.02, {program}")]


class Daemon(socketserver.ThreadingUnixStreamServer):
    """Answers a container daemon's requests from documents by path."""

    daemon_threads = True

    def __init__(self, place, documents):
        self.documents = documents

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self):
                path = self.path.partition("?")[0]
                path = path[path.index("/", 1) :] if path.startswith("/v1") else path
                found = self.server.documents.get(path)
                content = json.dumps(found or {"message": "no such image"}).encode()
                self.send_response(200 if found is not None else 404)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            def address_string(self):
                return "client"

            def log_message(self, *_):
                pass

        super().__init__(str(place), Handler)


@pytest.fixture
def daemon(tmp_path, monkeypatch):
    """A container daemon with an image."""
    documents = {
        "/version": {"ApiVersion": "1.44", "Version": "25.0.3", "MinAPIVersion": "1.24"},
        "/info": {"Runtimes": {"runc": {}, "nvidia": {}}},
        "/images/nvcr.io/nvidia/tritonserver:24.10-py3/json": {"Id": "sha256:1"},
    }
    place = tmp_path / "docker.sock"
    monkeypatch.setenv("DOCKER_HOST", f"unix://{place}")
    monkeypatch.setattr(services, "_CDI_FOLDERS", (tmp_path / "cdi", tmp_path / "none"))
    with Daemon(place, documents) as found:
        thread = threading.Thread(target=found.serve_forever, args=(0.01,))
        thread.start()
        found.address = f"unix://{place}"
        yield found
        found.shutdown()
        thread.join()


def test_a_daemon_is_described_with_its_image_and_its_gpus(project, daemon):
    assert [*services.containers(project)] == [
        Observation("containers", "ok", f"docker 25.0.3, API 1.44, at {daemon.address}"),
        Observation("image", "ok", "nvcr.io/nvidia/tritonserver:24.10-py3"),
        Observation("GPUs in containers", "ok", "runtime nvidia, of nvidia, runc"),
    ]


def test_an_image_that_is_missing_can_be_pulled(project, daemon):
    daemon.documents["/version"]["Components"] = [{"Name": "Podman Engine"}]
    del daemon.documents["/images/nvcr.io/nvidia/tritonserver:24.10-py3/json"]
    _, image, _ = services.containers(project)
    name = "nvcr.io/nvidia/tritonserver:24.10-py3"
    assert image == Observation(
        "image", "warn", f"{name} is not present", f"run podman pull {name}, or verify with --set pull=true"
    )


def gpus(project):
    *_, found = services.containers(project)
    return found


def test_gpus_can_come_by_cdi(project, daemon, tmp_path):
    info = daemon.documents["/info"] = {"DiscoveredDevices": [{"ID": "nvidia.com/gpu=0"}, {"ID": "intel"}, "x", {}]}
    assert gpus(project) == Observation("GPUs in containers", "ok", "by CDI: nvidia.com/gpu=0")
    info.clear()
    (tmp_path / "cdi").mkdir()
    for name in ("nvidia.yaml", "intel.yaml"):
        (tmp_path / "cdi" / name).touch()
    assert gpus(project) == Observation("GPUs in containers", "ok", "by CDI: nvidia.yaml")


def test_a_daemon_without_gpus_says_how_to_get_them(project, daemon):
    fix = "install nvidia-container-toolkit, run nvidia-ctk runtime configure --runtime=docker, restart Docker"
    for info, runtimes in (({"Runtimes": {"runc": {}, "crun": {}}}, "crun, runc"), ({"Name": "x"}, "unknown")):
        daemon.documents["/info"] = info
        what = f"docker has no GPU access: runtimes {runtimes}, no NVIDIA CDI device"
        assert gpus(project) == Observation("GPUs in containers", "warn", what, fix)


def test_a_daemon_on_another_machine_is_not_asked(project, monkeypatch):
    monkeypatch.setenv("DOCKER_HOST", "tcp://192.0.2.1:2376")
    (seen,) = services.containers(project)
    assert (seen.name, seen.state) == ("containers", "warn")
    assert seen.what.endswith("; servers run as processes")
    assert seen.fix == "run envpack on that machine, or unset DOCKER_HOST"
