"""Which modules of an environment get byte code, and that it is the byte code of their sources."""

import marshal
import py_compile
import shutil
import sys
from pathlib import Path

import pytest

from envpack.conda.bytecode import bytecode_path
from envpack.environment.build import compile_sources
from envpack.environment.inventory import Owners, ReplacedFile
from envpack.lock.lockfile import Lock
from envpack.requirements.model import CondaPackage, PipPackage
from envpack.requirements.target import Target
from tests.tables import every_row

MINOR = f"{sys.version_info.major}.{sys.version_info.minor}"
SITE = f"lib/python{MINOR}/site-packages"
UNCHECKED = py_compile.PycInvalidationMode.UNCHECKED_HASH


@pytest.fixture
def compiled(tmp_path):
    """Compiles modules of packages in a new folder with the cache of the test; returns the value of each module."""

    def compile_modules(modules, *, changed=(), placeholders=(), prepare=lambda prefix: None):
        prefix = tmp_path / "env"
        shutil.rmtree(prefix, ignore_errors=True)
        owners = Owners({path: package for path, (package, _) in modules.items()}, tuple(changed), {})
        owners.placeholders.update(dict.fromkeys(placeholders, "text"))
        for path, (_, value) in modules.items():
            (prefix / path).parent.mkdir(parents=True, exist_ok=True)
            (prefix / path).write_text(f"VALUE = {value!r}\n")
        prepare(prefix)
        about = {"version": "1", "build": "0", "subdir": "noarch", "url": "https://c/x"}
        conda = tuple(CondaPackage(name=name, sha256=name * 9, **about) for name in "ab")
        wheels = tuple(PipPackage(name, "1", f"https://w/{name}", name * 9) for name in ("wa", "wb"))
        lock = Lock(Target("linux-64", MINOR), (), conda, wheels)
        compile_sources(prefix, owners, lock, python=Path(sys.executable), cache=tmp_path / "cache")
        return {path: value_in(prefix / bytecode_path(path, MINOR)) for path in modules}

    return compile_modules


def value_in(byte_code):
    if not byte_code.is_file():
        return None
    space = {}
    exec(marshal.loads(byte_code.read_bytes()[16:]), space)
    return space["VALUE"]


def test_a_module_whose_prefix_will_change_has_no_byte_code(compiled):
    fixed, rooted = f"{SITE}/fixed.py", f"{SITE}/rooted.py"
    assert compiled({fixed: ("a", 1), rooted: ("a", "/placeholder")}, placeholders=[rooted]) == {fixed: 1, rooted: None}


def test_another_patch_release_of_python_compiles_again(compiled, tmp_path, monkeypatch):
    """Its compiler may give other byte code, and mend a fault of the one before."""
    for number in (1, 2, 2):
        facts = {"version": f"{MINOR}.{number}"}
        monkeypatch.setattr("envpack.conda.bytecode.ProbeMemory.facts", lambda *_, facts=facts: facts)
        compiled({f"{SITE}/module.py": ("a", 1)})
        assert len([*(tmp_path / "cache").glob("[!.]*")]) == number


@every_row(
    "damage",
    [
        lambda file: file.write_bytes(file.read_bytes()[:20]),  # as after a power failure
        lambda file: file.write_bytes(file.read_bytes().replace(b"right", b"wrong")),
        lambda file: file.unlink(),
        lambda file: (file.unlink(), file.mkdir()),
        lambda file: next(file.parents[4].rglob("digests.json")).write_text("{"),
        lambda file: next(file.parents[4].rglob("digests.json")).unlink(),
    ],
)
def test_damaged_byte_code_in_the_cache_is_made_again(compiled, tmp_path, damage):
    """Python would run it without a look at the source."""
    module = f"{SITE}/module.py"
    for _ in range(2):
        assert compiled({module: ("a", "right")}) == {module: "right"}
        damage(next((tmp_path / "cache").rglob("module.*.pyc")))
    assert compiled({module: ("a", "right")}) == {module: "right"}
    assert value_in(next((tmp_path / "cache").rglob("module.*.pyc"))) == "right"


def test_byte_code_of_a_package_stays_unless_the_prefix_in_its_source_will_change(compiled):
    """Python never compares such byte code with its source, so it would keep the placeholder."""
    fixed, rooted = f"{SITE}/fixed.py", f"{SITE}/rooted.py"

    def prepare(prefix):
        for path in (fixed, rooted):
            (prefix / "other.py").write_text("VALUE = 'of the package'\n")
            py_compile.compile(
                prefix / "other.py", prefix / bytecode_path(path, MINOR), doraise=True, invalidation_mode=UNCHECKED
            )

    found = compiled({fixed: ("a", 1), rooted: ("a", "/placeholder")}, placeholders=[rooted], prepare=prepare)
    assert found == {fixed: "of the package", rooted: None}


@pytest.mark.parametrize(
    ("before", "after"), [("pip wa", "pip wb"), ("pip wb", ""), ("pip wb", "unknown"), ("conda a", "pip wb")]
)
def test_a_package_whose_files_changed_hands_shares_no_byte_code_with_the_package_alone(compiled, before, after):
    """Its modules may be those of another package: of two wheels with the same file, any can be installed last."""
    shared = f"{SITE}/shared.py"
    changed = [ReplacedFile(shared, before, after)]
    assert compiled({shared: ("wb", "of wa")}, changed=changed) == {shared: "of wa"}
    assert compiled({shared: ("wb", "of wb")}) == {shared: "of wb"}
    assert compiled({shared: ("wb", "of a")}, changed=changed) == {shared: "of a"}


def test_byte_code_of_a_package_comes_from_the_cache(compiled):
    own = f"{SITE}/own.py"
    assert compiled({own: ("wb", 1)}) == {own: 1}
    assert compiled({own: ("wb", "its hash has not changed")}) == {own: 1}


def test_files_outside_of_pythons_folder_have_no_byte_code(compiled):
    assert compiled({"share/tool.py": ("a", 1), f"{SITE}/x.py": ("b", 2)}) == {"share/tool.py": None, f"{SITE}/x.py": 2}
