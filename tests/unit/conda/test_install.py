"""The embedded engine installs exactly the locked files of conda packages, also of local channels."""

import dataclasses
import hashlib
import os

import pytest

from envpack.conda.engine import install_conda, is_locked_file
from envpack.conda.extracted import differing_files
from envpack.conda.settings import CondaSettings
from envpack.requirements.model import CondaPackage
from envpack.requirements.target import Target
from envpack.support.errors import EnvironmentBuildError
from envpack.support.progress import SILENT
from tests import conda_packages
from tests.conda_packages import make_conda_package
from tests.steps import Steps
from tests.tables import every_row
from tests.web import serve

ZEROS = {"sha256": "0" * 64, "md5": "0" * 32}


@pytest.fixture
def package(tmp_path):
    """Writes the package ``x`` with a text into a channel; returns it with its hashes of these kinds."""

    def make(channel, *algorithms, text="of the lock"):
        file = make_conda_package(tmp_path / channel, "x", "1.0", {"share/x": text.encode()}, noarch="generic")
        hashes = {algorithm: hashlib.new(algorithm, file.read_bytes()).hexdigest() for algorithm in algorithms}
        return CondaPackage(name="x", version="1.0", build="0", subdir="noarch", url=file.as_uri(), **hashes)

    return make


@pytest.fixture
def install(tmp_path):
    """Installs a package into a new folder; returns what it contains."""
    done = []

    def run(package, progress=SILENT):
        prefix = tmp_path / f"prefix-{len(done)}"
        prefix.mkdir()
        done.append(prefix)
        settings = CondaSettings()
        target = Target("linux-64", "3.12")
        cache = tmp_path / "cache"
        install_conda([package], prefix, target, settings=settings, credentials={}, cache=cache, progress=progress)
        return (prefix / "share/x").read_text()

    return run


@every_row("algorithms", [["sha256"], ["md5"], ["sha256", "md5"]])
def test_a_local_file_with_another_hash_is_refused(package, install, algorithms):
    locked = package("channel", *algorithms)
    changed = dataclasses.replace(locked, **{kind: ZEROS[kind] for kind in algorithms})
    with pytest.raises(EnvironmentBuildError) as caught:
        install(changed)
    error = caught.value
    assert (error.kind, error.where) == ("hash-mismatch", locked.url.removeprefix("file://"))
    found = getattr(locked, algorithms[0])
    assert f"conda package x 1.0: the file does not have the locked hash: its {algorithms[0]} is {found}" in str(error)
    assert error.hint == "lock again if you trust the file, or put the locked one back"


def test_a_local_file_that_was_replaced_after_the_lock_is_refused(package, install):
    locked = package("channel", "sha256")
    assert install(locked) == "of the lock"
    package("channel", text="replaced")
    with pytest.raises(EnvironmentBuildError) as caught:
        install(locked)
    assert caught.value.kind == "hash-mismatch"


@pytest.mark.parametrize("algorithms", [(), ("md5",)], ids=["without hash", "md5 alone"])
def test_a_package_of_another_channel_with_the_same_name_is_not_taken_from_the_cache(package, install, algorithms):
    assert install(package("one", *algorithms, text="one")) == "one"
    assert install(package("other", *algorithms, text="other")) == "other"
    assert install(package("other", "sha256", text="other")) == "other"


@pytest.mark.parametrize("algorithms", [(), ("md5",)], ids=["without hash", "md5 alone"])
def test_downloads_of_two_channels_without_a_sha256_are_kept_apart(package, install, tmp_path, algorithms):
    with serve(tmp_path) as site:
        for channel in ("one", "other"):
            local = package(channel, *algorithms, text=channel)
            served = dataclasses.replace(local, url=f"{site.url()}/{channel}/noarch/x-1.0-0.conda")
            assert install(served) == channel
        assert install(package("other", "sha256", text="other")) == "other"


def test_a_download_with_another_md5_is_refused(package, install, tmp_path):
    local = package("one", "md5")
    with serve(tmp_path) as site, pytest.raises(EnvironmentBuildError) as caught:
        install(dataclasses.replace(local, url=f"{site.url()}/one/noarch/x-1.0-0.conda", md5=ZEROS["md5"]))
    assert caught.value.kind == "hash-mismatch"


def test_capitals_in_a_hash_do_not_matter(package, tmp_path):
    locked = package("channel", "sha256")
    file = tmp_path / "channel/noarch/x-1.0-0.conda"
    assert is_locked_file(dataclasses.replace(locked, sha256=locked.sha256.upper()), file)
    assert not is_locked_file(dataclasses.replace(locked, sha256=ZEROS["sha256"]), file)


AGAIN = ["files of x were changed in the cache; it is extracted again"]


def cut(file):
    file.write_text("of")


def replaced_by(make):
    return lambda file: (file.unlink(), make(file))


@every_row(
    "damage",
    [
        cut,  # as after a power failure
        lambda file: file.write_text("of the LOCK"),
        lambda file: file.unlink(),
        replaced_by(os.mkdir),
        replaced_by(os.mkfifo),  # a program that opens it blocks
        replaced_by(lambda file: file.symlink_to("../info/about.json")),
        lambda file: (file.parents[1] / "info/index.json").write_text("{"),
        lambda file: cut(file.parents[1] / "info/paths.json"),
    ],
)
def test_a_package_that_was_damaged_in_the_cache_is_extracted_again(package, install, tmp_path, damage):
    locked = package("channel", "sha256")
    assert install(locked) == "of the lock"
    damage(tmp_path / "cache/conda-packages/x-1.0-0/share/x")
    steps = Steps()
    assert install(locked, steps) == "of the lock"
    assert steps.seen == AGAIN
    assert install(locked, steps) == "of the lock"
    assert steps.seen == AGAIN


def test_a_package_that_was_published_with_a_wrong_digest_is_extracted_again_once(
    package, install, tmp_path, monkeypatch
):
    right = conda_packages._record
    monkeypatch.setattr(conda_packages, "_record", lambda path, content: right(path, content + b"!"))
    locked = package("channel", "sha256")
    first, second, third = Steps(), Steps(), Steps()
    assert [install(locked, steps) for steps in (first, second, third)] == ["of the lock"] * 3
    assert [first.seen, second.seen, third.seen] == [[], AGAIN, []]
    kept = tmp_path / "cache/conda-packages/x-1.0-0"
    assert differing_files(kept) == []
    cut(kept / "share/x")
    assert differing_files(kept) == ["share/x"]
    fourth = Steps()
    assert (install(locked, fourth), fourth.seen) == ("of the lock", AGAIN)
