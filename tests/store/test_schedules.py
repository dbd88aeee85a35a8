"""Random schedules of everybody who uses an object store at once, through a proxy that delays, fails and loses answers.

Whatever happens, an address holds exactly one publication or is refused, no blob is missing of what was put into the
store, and each command ends with its result or an error that is documented.

A service of the tests needs seconds for each schedule; `ENVPACK_TEST_SCHEDULES=500` runs more than a slice has time
for: so many on an S3 service, and a tenth of them on one of Azure and of Google.
"""

import contextlib
import hashlib
import itertools
import os
import random
import shutil
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from urllib.parse import unquote

import pytest

from envpack.deployment.objects import send
from envpack.deployment.objects.content import Publication, PublishedFile, pin
from envpack.deployment.objects.fetch import copy_publication
from envpack.deployment.objects.prune import parse_digest_address
from envpack.deployment.objects.send import publish
from envpack.store import claims, maintenance
from envpack.store.location import parse_location
from envpack.store.maintenance import list_store, prune_store
from envpack.store.objects import Objects
from envpack.store.shared import open_store
from envpack.support.errors import EnvpackError
from envpack.support.progress import NoProgress
from tests import gcs
from tests.object_stores import BUCKET, faulty

NAMES = ("m/1/model.py", "m/1/helper.py", "m/config.pbtxt", "n/config.pbtxt")
# What a command may end with when the store fails or others are faster.
DOCUMENTED = {"store-unreachable", "store-corrupt", "publication-conflict", "published-not-ours", "published-changed"}
EXPIRY = 5.0  # seconds; a busy machine stands still for longer than two
SCHEDULES, TOGETHER = int(os.environ.get("ENVPACK_TEST_SCHEDULES", "50")), 50
LONGEST = 120.0  # seconds of one command; the longest wait in it is much shorter


class Weather:
    """What a proxy does to requests, by chance: nothing to most of them, and to none in a folder that is `calm`."""

    def __init__(self, proxy, seed):
        self._random, self._change = random.Random(seed), threading.Lock()
        self.calm = set()
        proxy.refuses, proxy.fault = self.before, self.after

    def _chance(self, path):
        with self._change:
            path = unquote(path)
            return 1 if any(folder in path for folder in self.calm) else self._random.random()

    def before(self, method, path):
        """Delay a request: others overtake it, and some come after the claim of their sender has expired."""
        chance = self._chance(path)
        time.sleep(EXPIRY + 1.5 if chance < 0.003 else 0.2 if chance < 0.03 else 0)
        return False

    def after(self, method, path, status, headers, body):
        """Lose the answer to what was done, or cut it off."""
        chance = self._chance(path)
        if chance < 0.05:
            return 503, {"Content-Length": "0"}, b""
        if chance < 0.07 and method == "GET" and len(body) > 1:
            return status, headers, body[:-1]
        return status, headers, body


class Schedule:
    """One schedule: actors in threads, each with some commands in a random order."""

    def __init__(self, url, seed, place):
        self.url, self.random, self.place = url, random.Random(seed), place
        self.ended, self.surprises, self.failed_pushes = [], [], set()
        self._copies = 0

    def run(self):
        actors = [
            [self.publisher("1"), self.publisher("2"), self.published_again("1")],
            [self.publisher("3"), self.publisher("4"), self.published_again("3")],
            [self.pruner, self.pruner_of_publications, self.pruner],
            [self.builder("a", "shared"), self.builder("b", "other"), self.builder("c", "shared")],
            [self.builder("c", "shared"), self.builder("b", "other"), self.builder("a", "shared")],
            [self.reader, self.reader_of_publications, self.reader],
        ]
        threads = []
        for commands in actors:
            self.random.shuffle(commands)
            pauses = [self.random.random() * 0.3 for _ in commands]
            threads.append(threading.Thread(target=self._act, args=(commands, pauses), daemon=True))
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(3 * LONGEST)
        assert not any(thread.is_alive() for thread in threads), "a command does not end"

    def _act(self, commands, pauses):
        for command, pause in zip(commands, pauses, strict=True):
            time.sleep(pause)
            begun = time.monotonic()
            try:
                command()
                self.ended.append("done")
            except EnvpackError as error:
                self.ended.append(error.kind)
                if error.kind not in DOCUMENTED:
                    self.surprises.append(error)
            except BaseException as error:
                self.surprises.append(error)
            if time.monotonic() - begun > LONGEST:
                self.surprises.append(f"{command} took {time.monotonic() - begun:.0f} s")

    def objects(self):
        return Objects(parse_location(f"{self.url}/models"), timeout=10)

    def store(self, push=True):
        return open_store(f"{self.url}/store", push=push, timeout=10, expiry=EXPIRY)

    def publisher(self, text):
        return lambda: publish(publication(text), self.objects(), force=self.random.random() < 0.3)

    def published_again(self, text):
        address = parse_digest_address(f"{self.url}/digests/{{digest}}")

        def command():
            pinned = pin(publication(text), text)
            publish(pinned, Objects(address.of(pinned.digest), timeout=10), renew=True)

        return command

    def pruner(self):
        prune_store(self.store(), 0)

    def pruner_of_publications(self):
        address = parse_digest_address(f"{self.url}/digests/{{digest}}")
        address.prune(1, pin(publication("1"), "1").digest, NoProgress())

    def builder(self, key, content):
        def command():
            store, file = self.store(), self._new()
            file.write_bytes(content.encode() * 1000 + key.encode())
            sizes = [len(content) * 1000, len(key)]
            try:
                if self.random.random() < 0.5:
                    with store.claimed("package", key, "it", NoProgress()) as mine:
                        if mine:
                            store.add("package", key, file, sizes=sizes)
                else:
                    store.add("package", key, file, sizes=sizes)
            except EnvpackError:
                self.failed_pushes.add(key)
                raise

        return command

    def reader(self):
        store = self.store(push=False)
        for key in "abc":
            record = store.find("package", key)
            if record is not None:
                file = self._new()
                store.fetch(record, file, NoProgress())
                assert file.read_bytes().endswith(key.encode())

    def reader_of_publications(self):
        self.copied(self.objects())

    def copied(self, objects):
        """The texts of all files of a publication, after the check."""
        folder = self._new()
        folder.mkdir()
        found = copy_publication(objects, folder, NoProgress())
        texts = {(folder / name).read_text() for name in NAMES if (folder / name).exists()}
        assert not found.compared or len(texts) == 1, texts
        shutil.rmtree(folder)
        return texts

    def _new(self):
        self._copies += 1
        return self.place / f"{threading.get_ident()}-{self._copies}"


def publication(text):
    """Files of the same sizes whatever the text."""
    return Publication(tuple(PublishedFile(name, content=text.encode()) for name in NAMES), ())


def texts_or_kind(schedule, objects):
    """The texts of all files at an address, or the kind of error that a check ends with."""
    try:
        return schedule.copied(objects)
    except EnvpackError as error:
        return error.kind


def assert_nothing_is_mixed(schedule):
    """The address holds one publication, or is refused until the next, which mends it."""
    objects = Objects(parse_location(f"{schedule.url}/models"))
    found = texts_or_kind(schedule, objects)
    assert found == "published-changed" or len(found) <= 1
    with contextlib.suppress(EnvpackError):  # if a busy machine lets the short lease expire, the hint says: again
        publish(publication("9"), objects, force=True)
    publish(publication("9"), objects, force=True)
    assert schedule.copied(objects) == {"9"}
    digests = Objects(parse_location(f"{schedule.url}/digests"))
    for name in digests.folders():
        found = texts_or_kind(schedule, Objects(parse_location(f"{schedule.url}/digests/{name}")))
        assert found in ("published-changed", set()) or {pin(publication(text), text).digest for text in found} == {
            name
        }


def assert_no_blob_is_missing(schedule):
    store = open_store(f"{schedule.url}/store", push=True)
    incomplete = {entry.key for entry in list_store(store).entries if not entry.complete}
    assert incomplete <= schedule.failed_pushes
    for key in "abc":  # who pushes next mends it
        file = schedule.place / f"mended-{key}"
        file.write_bytes(key.encode())
        store.add("package", key, file, again=True)
    assert [entry.key for entry in list_store(store).entries if not entry.complete] == []
    assert hashlib.sha256(b"a").hexdigest() in {blob.sha256 for blob in store.find("package", "a").blobs}


@pytest.fixture
def impatient(monkeypatch):
    """Waits that are short enough for a test, and long enough for a store that is slow."""
    monkeypatch.setattr(send, "EXPIRY", EXPIRY)
    monkeypatch.setattr(send, "_PATIENCE", 20)
    monkeypatch.setattr(maintenance, "_PATIENCE", 20)
    for module in (claims, maintenance):  # whose release is lost, delays others for so long
        monkeypatch.setattr(module, "PRUNE_EXPIRY", 40)
    monkeypatch.setattr(maintenance, "_LATE", 20)
    monkeypatch.setattr(maintenance, "_GRACE", -10)  # what was just written may be removed at once


@pytest.fixture
def scheduled(impatient, folder, tmp_path):
    """Runs schedules by their seeds at an address behind a proxy; returns how the commands of all ended."""

    def run(proxy, address, seeds, at_once=8):
        weather = Weather(proxy, 0)

        def one(seed):
            place = tmp_path / str(seed)
            place.mkdir()
            schedule = Schedule(f"{address}/{folder}/{seed}", seed, place)
            schedule.run()
            assert schedule.surprises == []
            weather.calm.add(f"{folder}/{seed}/")
            assert_nothing_is_mixed(schedule)
            assert_no_blob_is_missing(schedule)
            return schedule.ended

        with ThreadPoolExecutor(at_once) as pool:
            return [*itertools.chain.from_iterable(pool.map(one, seeds))]

    return run


def test_a_schedule(scheduled, proxy):
    assert scheduled(proxy, f"s3://{proxy.url}/{BUCKET}", [0]).count("done") >= 9


@pytest.mark.thorough
@pytest.mark.parametrize("first", range(1000, 1000 + SCHEDULES, TOGETHER))
def test_many_schedules(scheduled, proxy, first):
    ended = scheduled(proxy, f"s3://{proxy.url}/{BUCKET}", range(first, first + TOGETHER))
    assert ended.count("done") > len(ended) / 2


@pytest.mark.thorough
def test_schedules_on_azure(scheduled, azure, monkeypatch):
    address, _, account = azure["AZURE_STORAGE_ENDPOINT"].rpartition("/")
    with faulty(address) as proxy:
        for name, value in (azure | {"AZURE_STORAGE_ENDPOINT": f"{proxy.url}/{account}"}).items():
            monkeypatch.setenv(name, value)
        ended = scheduled(proxy, f"az://{BUCKET}", range(2000, 2000 + SCHEDULES // 10))
    assert ended.count("done") > len(ended) / 2


@pytest.mark.thorough
@pytest.mark.parametrize("first", range(3000, 3000 + SCHEDULES // 10, 5))
def test_schedules_on_google(scheduled, first, monkeypatch, tmp_path):
    """The service looks at all its objects for each list, so that leases end once it has many."""
    with gcs.gcs(tmp_path, BUCKET) as service, faulty(service["GOOGLE_BASE_URL"]) as proxy:
        for name, value in gcs.variables(tmp_path, proxy.url).items():
            monkeypatch.setenv(name, value)
        ended = scheduled(proxy, f"gs://{BUCKET}", range(first, first + 5), at_once=2)
    assert ended.count("done") > len(ended) / 2
