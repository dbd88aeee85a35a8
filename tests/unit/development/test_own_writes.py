"""Which changes in a model's folder are its own, and which ones a person's."""

import os
import time
from pathlib import Path

import pytest

from envpack.development import changes as module
from envpack.development.changes import ModelFiles, OwnWrites

FOLDER = Path("/models/m")
CODE, HELPER, DATA = FOLDER / "1/model.py", FOLDER / "1/helper.py", FOLDER / "1/weights.bin"

every_code = pytest.mark.parametrize("name", ["1/model.py", "1/helper.py", "config.pbtxt", "requirements.txt"])


@pytest.fixture
def clock(monkeypatch):
    """The time in seconds, which passes as the test says."""

    class Clock:
        now = 1000.0

        def time(self):
            return self.now

    found = Clock()
    monkeypatch.setattr(module, "time", found)
    return found


@pytest.fixture
def model(clock):
    """A model that was loaded from 1000 to 1002 s, and whose files were written at 900 s."""
    return Model(clock)


class Model:
    def __init__(self, clock):
        self.clock, self.own = clock, OwnWrites()
        self.before = files({CODE: 900, HELPER: 900, DATA: 900})
        self.load()

    def load(self):
        self.own.load_begins("m", self.before)
        self.clock.now += 2
        self.own.load_ends("m")

    def changed(self, *, written=(), **later):
        """Which of the changed files count as a person's; with what a file was changed at, None for a removal."""
        named = {
            "code": CODE,
            "helper": HELPER,
            "data": DATA,
            "new": FOLDER / "1/new.txt",
            "other": FOLDER / "1/new.py",
        }
        stamps = dict(self.before.sources)
        for name, at in later.items():
            stamps.pop(named[name], None)
            if at is not None:
                stamps[named[name]] = stamp(at)
        now = ModelFiles(stamps, {}, frozenset())
        found = self.own.without("m", FOLDER, self.before, now, written)
        both = found.sources.keys() | self.before.sources.keys()
        return {file for file in both if found.sources.get(file) != self.before.sources.get(file)}


def stamp(seconds):
    return int(seconds * 1e9), 1, 1


def files(stamps):
    return ModelFiles({file: stamp(at) for file, at in stamps.items()}, {}, frozenset())


def test_code_and_data_that_a_person_saves_count(model):
    model.clock.now = 2000
    assert model.changed(code=1999) == {CODE}
    assert model.changed(data=1999) == {DATA}
    assert model.changed(data=None) == {DATA}
    assert model.changed(other=1999) == {FOLDER / "1/new.py"}
    assert model.own.named == {"m": set()}


def test_what_is_written_during_a_load_is_the_models_but_for_code(model):
    assert model.changed(data=1001) == set()
    assert model.changed(data=1000 - 0.2) == {DATA}
    model.clock.now = 2000
    assert model.changed(code=1001) == {CODE}, "somebody saved it while the model was being loaded"
    assert model.own.named == {"m": {"1/weights.bin"}}


class RealModel(Model):
    """One whose files can be read."""

    def __init__(self, clock, folder):
        self.clock, self.own, self.folder = clock, OwnWrites(), folder
        for name in ("1/model.py", "1/helper.py", "config.pbtxt", "requirements.txt"):
            self.write(name, "as it was", 900)
        self.before = self.now()
        self.load()

    def write(self, name, content, at):
        (self.folder / name).parent.mkdir(exist_ok=True)
        (self.folder / name).write_text(content)
        os.utime(self.folder / name, (at, at))

    def now(self):
        found = {file: module._stamp(file) for file in self.folder.rglob("*.*")}
        required = {file: found.pop(file) for file in [*found] if file.name == "requirements.txt"}
        return ModelFiles(found, required, frozenset())

    def changed(self):
        found = self.own.without("m", self.folder, self.before, self.now(), ())
        now, before = (set((files.sources | files.requirements).items()) for files in (found, self.before))
        return {str(file.relative_to(self.folder)) for file, _ in now ^ before}


@pytest.fixture
def real(clock, tmp_path):
    return RealModel(clock, tmp_path)


@every_code
def test_code_that_is_written_with_the_same_content_during_a_load_is_the_models(real, name):
    real.write(name, "as it was", 1001)
    assert real.changed() == set()
    assert real.own.named == {"m": {name}}
    real.clock.now = 2000
    real.write(name, "as it was", 1999)
    assert real.changed() == {name}, "a person saved it, to load the model again"


@every_code
def test_other_content_counts_although_it_was_written_during_a_load(real, name):
    real.write(name, "edited", 1001)
    assert real.changed() == {name}
    real.write(name, "", 1001)
    assert real.changed() == {name}


@every_code
def test_code_that_is_written_unchanged_after_each_load_causes_few_of_them(real, name):
    for _ in range(3):
        real.clock.now += 1
        real.write(name, "as it was", real.clock.now)
        assert real.changed() == {name}
        real.before = real.now()
        real.load()
    real.clock.now += 1
    real.write(name, "as it was", real.clock.now)
    assert real.changed() == set()
    if name != "1/helper.py":
        real.write(name, "edited", real.clock.now)
        assert real.changed() == {name}, "an edit counts at once"


def test_requirements_that_come_are_an_edit(real, tmp_path):
    (tmp_path / "requirements.txt").unlink()
    real.before = real.now()
    real.load()
    real.write("requirements.txt", "numpy", 1003)
    assert real.changed() == {"requirements.txt"}


def test_files_that_have_come_since_the_load_or_are_open_are_the_models(model):
    model.clock.now = 2000
    assert model.changed(new=1500) == set()
    assert model.changed(data=1500, written={DATA}) == set()
    assert model.own.named == {"m": {"1/new.txt", "1/weights.bin"}}


def test_what_the_model_removes_while_it_is_loaded_is_its_own(model):
    assert model.changed(data=None) == set()


def test_files_that_cause_one_load_after_the_other_are_the_models(model):
    for name, is_own in (("data", True), ("helper", True), ("code", False)):
        model.load()
        expected = {"data": DATA, "helper": HELPER, "code": CODE}[name]
        for _ in range(3):
            model.clock.now += 1
            assert model.changed(**{name: model.clock.now}) == {expected}
            model.load()
        model.clock.now += 1
        assert model.changed(**{name: model.clock.now}) == (set() if is_own else {expected}), name
        model.clock.now += 100
        assert model.changed(**{name: model.clock.now}) == {expected}, "somebody saved it later"


@pytest.mark.parametrize("name", ["data", "helper"])
def test_what_has_caused_many_loads_causes_none_until_a_person_saves_it(model, name):
    for _ in range(4):
        if name == "data":
            assert model.changed(data=model.clock.now) == set(), "it was written during the load, too"
        model.clock.now += 1
        written = model.clock.now
        found = model.changed(**{name: written})
        if found:
            model.load()
    assert found == set()
    model.clock.now += 100
    assert model.changed(**{name: written}) == set(), "nobody has saved it"
    model.load()
    model.clock.now += 1
    for _ in range(9):  # a thread that writes all the time
        model.clock.now += 3
        assert model.changed(**{name: model.clock.now}) == set()
    model.clock.now += 100
    assert len(model.changed(**{name: model.clock.now})) == 1, "somebody has saved it"


def test_code_that_comes_during_each_load_causes_no_more_of_them(model):
    """Each time by another name."""
    for number in range(6):
        came = FOLDER / f"1/generated_{number}.py"
        files_now = {**model.before.sources, came: stamp(model.clock.now - 1)}
        found = model.own.without("m", FOLDER, model.before, ModelFiles(files_now, {}, frozenset()), ())
        assert (came in found.sources) == (number < 3), number
        if number < 3:
            model.before = found
            model.load()
    assert "1/generated_5.py" in model.own.named["m"]


def test_a_model_that_was_never_loaded_writes_nothing():
    before, now = files({DATA: 1}), files({DATA: 2})
    assert OwnWrites().without("m", FOLDER, before, now, ()) is now


def test_the_clock_is_that_of_files(tmp_path):
    """The stamps of files and the clock agree, or nothing of this holds."""
    before = time.time()
    (tmp_path / "file").touch()
    assert before - module._CLOCK <= (tmp_path / "file").stat().st_mtime <= time.time() + module._CLOCK


def test_a_model_that_is_gone_is_forgotten(model):
    assert model.changed(data=None) == set()  # just after the load
    assert model.own.named == {"m": {"1/weights.bin"}}
    model.own.forget("m")
    model.own.load_ends("m")
    assert model.own.named == {}
    assert model.changed(data=None) == {DATA}
