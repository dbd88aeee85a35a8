"""What a store copies itself when it is published to: content that lies there is not sent once more."""

import pytest

from envpack.deployment.objects.content import Publication, PublishedFile, pin
from envpack.deployment.objects.fetch import copy_publication
from envpack.deployment.objects.prune import parse_digest_address
from envpack.deployment.objects.send import publish
from envpack.store.location import parse_location
from envpack.store.objects import Objects
from envpack.support.errors import StorageError
from envpack.support.progress import NoProgress
from tests.object_stores import BUCKET
from tests.steps import Steps

LARGE = bytes(range(256)) * 40_000  # 10 MB, sent in two parts
SMALL = b"code"


@pytest.fixture(
    params=["s3", pytest.param("az", marks=pytest.mark.thorough), pytest.param("gs", marks=pytest.mark.thorough)]
)
def url(request, folder, monkeypatch):
    if request.param == "s3":
        return request.getfixturevalue("url")
    variables = request.getfixturevalue({"az": "azure", "gs": "google"}[request.param])
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    return f"{request.param}://{BUCKET}/{folder}"


def publication(**contents):
    files = (PublishedFile(name.replace("__", "/"), content=content) for name, content in contents.items())
    return Publication(tuple(sorted(files, key=lambda file: file.is_visible)), ())


def model(name, environment, code=SMALL):
    return {f"{name}__environment.tar": environment, f"{name}__config.pbtxt": code}


def fetched(objects, tmp_path):
    copied = copy_publication(objects, tmp_path, NoProgress())
    assert copied.compared
    return {str(file.relative_to(tmp_path)): file.read_bytes() for file in tmp_path.rglob("*") if file.is_file()}


def test_models_with_the_same_environment_have_it_sent_once(url, tmp_path):
    objects = Objects(parse_location(url))
    models, steps = publication(**model("a", LARGE), **model("b", LARGE), **model("c", LARGE)), Steps()
    done = publish(models, objects, progress=steps)
    expected = "to send: 4 files, 10.2 MB in 7 requests; the store copies 2 files, 20.5 MB"
    there = "what is published takes 6 files, 30.7 MB, and a server that loads all models downloads 30.7 MB"
    assert steps.seen == [f"{expected}; {there}"]
    assert (done.size, done.copied) == (3 * len(LARGE + SMALL), 2 * len(LARGE))
    assert publish(models, objects).sent == ()
    assert {content for path, content in fetched(objects, tmp_path).items() if path.endswith("tar")} == {LARGE}


def test_a_model_that_comes_later_gets_a_copy_of_what_is_there(url, tmp_path):
    objects = Objects(parse_location(url))
    publish(publication(**model("a", LARGE)), objects)
    done = publish(publication(**model("a", LARGE), **model("b", LARGE)), objects)
    assert (sorted(done.sent), done.copied) == (["b/config.pbtxt", "b/environment.tar"], len(LARGE))
    assert fetched(objects, tmp_path)["b/environment.tar"] == LARGE


def test_a_new_digest_gets_copies_of_the_publication_before(url, tmp_path):
    address = parse_digest_address(f"{url}/{{digest}}")
    for number, code in enumerate((b"one", b"two")):
        pinned = pin(publication(**model("a", LARGE, code)), url)
        objects = Objects(address.of(pinned.digest))
        done = publish(pinned, objects, earlier=lambda digest=pinned.digest: address.newest(digest))
        assert (len(done.sent), done.copied) == (2, number * len(LARGE))
    assert fetched(objects, tmp_path) == {"a/environment.tar": LARGE, "a/config.pbtxt": b"two"}


def test_what_another_program_wrote_since_is_not_copied(url, tmp_path):
    objects, source = Objects(parse_location(f"{url}/new")), Objects(parse_location(f"{url}/old"))
    publish(publication(**model("a", LARGE)), source)
    source.upload("a/environment.tar", [LARGE[::-1]], len(LARGE))
    done = publish(publication(**model("b", LARGE)), objects, earlier=lambda: source)
    assert done.copied == 0
    assert fetched(objects, tmp_path)["b/environment.tar"] == LARGE


def test_nothing_is_copied_to_where_something_lies(url, tmp_path):
    objects = Objects(parse_location(url))
    publish(publication(**model("a", LARGE), **model("b", LARGE[::-1])), objects)
    assert publish(publication(**model("a", LARGE), **model("b", LARGE)), objects).copied == 0
    assert fetched(objects, tmp_path)["b/environment.tar"] == LARGE


def test_a_store_that_refuses_to_copy_is_asked_once_and_sent_everything(proxy, faulty_url, tmp_path):
    proxy.refuses = lambda method, _: method == "COPY"
    objects = Objects(parse_location(faulty_url))
    done = publish(publication(**model("a", LARGE), **model("b", LARGE), **model("c", LARGE)), objects)
    assert (len(done.sent), done.copied) == (6, 0)
    assert 1 <= [method for method, _ in proxy.requests].count("COPY") <= 2  # two may be asked at the same time
    assert fetched(objects, tmp_path)["c/environment.tar"] == LARGE


def test_what_may_not_be_listed_beside_the_publication_does_not_matter(proxy, faulty_url):
    address = parse_digest_address(f"{faulty_url}/{{digest}}")
    pinned = pin(publication(**model("a", LARGE)), faulty_url)
    proxy.refuses = lambda _, path: "delimiter" in path and pinned.digest not in path
    with pytest.raises(StorageError):
        address.newest(pinned.digest)
    objects = Objects(address.of(pinned.digest))
    assert len(publish(pinned, objects, earlier=lambda: address.newest(pinned.digest)).sent) == 2


def test_a_copy_that_an_unwell_store_only_claims_to_make_is_sent(proxy, faulty_url, tmp_path):
    objects = Objects(parse_location(faulty_url))
    proxy.swallows = lambda method, _: method == "COPY"
    done = publish(publication(**model("a", LARGE), **model("b", LARGE)), objects)
    assert done.copied == 0
    assert fetched(objects, tmp_path)["b/environment.tar"] == LARGE
