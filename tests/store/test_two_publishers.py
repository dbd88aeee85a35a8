"""Two publishers of one address: files of the same sizes, of which an object store's tags tell only the content."""

import threading
import time

import pytest

from envpack.deployment.objects import send
from envpack.deployment.objects.content import Publication, PublishedFile
from envpack.deployment.objects.fetch import copy_publication
from envpack.deployment.objects.record import RECORD
from envpack.deployment.objects.send import publish
from envpack.store.claims import ENDED
from envpack.store.location import parse_location
from envpack.store.objects import Objects
from envpack.support.errors import EnvpackError
from envpack.support.progress import NoProgress

NAMES = ("m/1/model.py", "m/1/helper.py", "m/config.pbtxt")


def publication(text):
    """A model whose files have the same sizes whatever the text."""
    return Publication(tuple(PublishedFile(name, content=text.encode()) for name in NAMES), ())


def contents(objects):
    return {name: objects.read(name, 100)[0].decode() for name in NAMES}


class Waits(NoProgress):
    """Notes when a publication waits for another one."""

    def __init__(self):
        self.event = threading.Event()

    def detail(self, text):
        if "wait" in text:
            self.event.set()


class Publisher(threading.Thread):
    """Publishes in a thread; ``ended`` or ``waits`` is set when it goes no further for now."""

    def __init__(self, url, text, **options):
        super().__init__(daemon=True)
        self.objects, self.text, self.options = Objects(parse_location(url)), text, options
        self.progress, self.error = Waits(), None

    def run(self):
        try:
            publish(publication(self.text), self.objects, progress=self.progress, **self.options)
        except EnvpackError as error:
            self.error = error
        self.progress.event.set()

    def stands(self):
        """Wait until it has ended, or waits for another publication."""
        assert self.progress.event.wait(60)


@pytest.fixture
def holding(proxy):
    """Holds the first PUT of model.py until an event is set."""
    arrived, go = threading.Event(), threading.Event()

    def hold(method, path):
        if method == "PUT" and path.endswith("/m/1/model.py") and not arrived.is_set():
            arrived.set()
            go.wait(60)
        return False

    proxy.refuses = hold
    yield arrived, go
    go.set()


def checked_copy(objects, folder):
    """The files of the publication, if it is exactly one."""
    folder.mkdir()
    copy_publication(objects, folder, NoProgress())
    return {(folder / name).read_text() for name in NAMES}


@pytest.mark.parametrize("force", [False, True])
def test_the_second_waits_and_the_address_holds_exactly_its_publication(url, faulty_url, holding, tmp_path, force):
    objects = Objects(parse_location(url))
    publish(publication("0"), objects)
    arrived, go = holding
    first, second = Publisher(faulty_url, "1"), Publisher(url, "2", force=force)
    first.start()
    assert arrived.wait(60)
    second.start()
    second.stands()
    go.set()
    first.join(60)
    second.join(60)
    assert (first.error, second.error) == (None, None)
    assert set(contents(objects).values()) == {"2"}
    assert checked_copy(objects, tmp_path / "copy") == {"2"}
    assert publish(publication("2"), objects).sent == ()


def test_what_a_publisher_that_stood_still_sends_late_is_never_taken_for_the_successors(
    url, faulty_url, holding, proxy, tmp_path, monkeypatch
):
    """Its lease expires while a request is on the way; another one publishes; then the request arrives."""
    monkeypatch.setattr(send, "EXPIRY", 1.0)
    objects = Objects(parse_location(url))
    arrived, go = holding
    first, second = Publisher(faulty_url, "1"), Publisher(url, "2")
    hold = proxy.refuses
    proxy.refuses = lambda method, path: hold(method, path) or (arrived.is_set() and "lease" in path)
    first.start()
    assert arrived.wait(60)
    second.start()
    second.join(60)
    assert second.error is None
    assert set(contents(objects).values()) == {"2"}
    go.set()
    first.join(60)
    assert first.error.kind == "publication-conflict"
    assert contents(objects)["m/1/model.py"] == "1"
    with pytest.raises(EnvpackError) as raised:
        checked_copy(objects, tmp_path / "copy")
    assert raised.value.kind == "published-changed"
    assert publish(publication("2"), objects, force=True).sent
    assert checked_copy(objects, tmp_path / "again") == {"2"}


def test_force_sends_everything_although_the_record_has_it(url, tmp_path):
    """Only the content of the files shows what is wrong here: sizes and tags are those of the record."""
    objects = Objects(parse_location(url))
    publish(publication("1"), objects)
    record = objects.read(RECORD, 100_000)[0].decode()
    objects.write("m/1/model.py", b"2")
    old, new = (objects.head(name).tag.strip('"') for name in ("m/config.pbtxt", "m/1/model.py"))
    at = record.index('"m/1/model.py"')
    objects.write(RECORD, (record[:at] + record[at:].replace(old, new, 1)).encode())
    assert publish(publication("1"), objects).sent == ()
    assert sorted(publish(publication("1"), objects, force=True).sent) == sorted(NAMES)
    assert checked_copy(objects, tmp_path / "copy") == {"1"}


def test_a_killed_publication_delays_the_next_no_longer_than_its_lease(url, monkeypatch):
    monkeypatch.setattr(send, "EXPIRY", 1.0)
    objects = Objects(parse_location(url))
    objects.write(f"{send.LEASE}7", b"owner")
    begun = time.monotonic()
    publish(publication("1"), objects)
    assert 1.0 < time.monotonic() - begun < 30
    assert [(info.path, info.size) for info in objects.list_here() if send.LEASE in info.path] == [
        (f"{send.LEASE}8", len(ENDED))
    ]


def test_who_waits_too_long_is_told(url, monkeypatch):
    monkeypatch.setattr(send, "_PATIENCE", 0.1)
    objects = Objects(parse_location(url))
    objects.write(f"{send.LEASE}7", b"owner")
    with pytest.raises(EnvpackError) as raised:
        publish(publication("1"), objects)
    assert raised.value.kind == "publication-conflict"
    assert [info.path for info in objects.list()] == [f"{send.LEASE}7"]
