"""A lock has packages for the target, and each of them once."""

from envpack.requirements.format import read_requirements
from tests.tables import every_row
from tests.unit.requirements.test_locks import FORGE, LOCKS, PIXI_6, PYTHON_URL, SIX, SIX_URL

NUMPY = f"{FORGE}/linux-64/numpy-1.0-0.conda"
NUMPY_2 = f"{FORGE}/linux-64/numpy-2.0-0.conda"
CONDA_LOCK = (LOCKS / "conda-lock.yml").read_text(encoding="utf-8")
EMPTY_PIXI = PIXI_6.partition("      - conda")[0].replace("linux-64:", "linux-64: []") + "packages: []\n"
OTHER_SIX = SIX_URL.replace("1.16.0", "1.17.0")
TWO_WHEELS = (
    PIXI_6.replace(f"      - pypi: {SIX_URL}\n", f"      - pypi: {SIX_URL}\n      - pypi: {OTHER_SIX}\n")
    + f"- pypi: {OTHER_SIX}\n  sha256: {SIX.sha256}\n"
)
SDIST = "https://files.example/six-1.16.0.tar.gz"
TWO_PYTHONS = PIXI_6.replace(f"      - conda: {PYTHON_URL}\n", f"      - conda: {PYTHON_URL}\n" * 2)


def conda_entry(name, version, manager, url, category="main"):
    return (
        f"- {{name: {name}, version: {version}, manager: {manager}, platform: linux-64, dependencies: {{}}, "
        f"url: '{url}', hash: {{sha256: {SIX.sha256}}}, category: {category}}}\n"
    )


def conda_lock(*entries):
    return CONDA_LOCK.partition("package:\n")[0] + "package:\n" + "".join(entries)


@every_row(
    ("name", "text", "line", "message", "hint"),
    [
        ("list.txt", "# platform: linux-64\n@EXPLICIT\n", 0, "the list has no packages", "conda list --explicit --md5"),
        (
            "conda-lock.yml",
            conda_lock(conda_entry("numpy", "1.0", "conda", NUMPY, "serve")),
            28,
            "the lock has no packages of the category main for linux-64",
            "run conda-lock again",
        ),
        (
            "conda-lock.yml",
            conda_lock().replace("package:", "package: []"),
            28,
            "no packages of the category main",
            "py",
        ),
        ("pixi.lock", EMPTY_PIXI, 4, "the environment default of the lock has no packages", "pixi add python"),
    ],
)
def test_a_lock_without_packages_for_the_target_is_refused(write, refused, name, text, line, message, hint):
    error = refused(write(name, text), line)
    assert message in error.message
    assert hint in error.hint


@every_row(
    ("name", "text", "line", "message"),
    [
        ("list.txt", f"@EXPLICIT\n{PYTHON_URL}\n{NUMPY}\n\n{NUMPY_2}\n", 5, "numpy is locked twice: 1.0 and 2.0"),
        ("list.txt", f"@EXPLICIT\n{PYTHON_URL}\n{PYTHON_URL}\n", 3, "python is locked twice: 3.10.13 and 3.10.13"),
        (
            "conda-lock.yml",
            conda_lock(conda_entry("numpy", "1.0", "conda", NUMPY), conda_entry("numpy", "2.0", "conda", NUMPY_2)),
            30,
            "numpy is locked twice",
        ),
        (
            "conda-lock.yml",
            conda_lock(conda_entry("six", "1.16.0", "pip", SIX_URL), conda_entry("six", "1.17.0", "pip", OTHER_SIX)),
            30,
            "six is locked twice: 1.16.0 and 1.17.0",
        ),
        ("pixi.lock", TWO_PYTHONS, 21, "python is locked twice"),
        ("pixi.lock", TWO_WHEELS, 31, "six is locked twice"),
    ],
)
def test_a_package_that_occurs_twice_is_refused(write, refused, name, text, line, message):
    error = refused(write(name, text), line)
    assert message in error.message
    assert error.hint.startswith("leave only one of them in the lock")


def test_conda_and_pip_may_have_the_same_package(write):
    text = conda_lock(
        conda_entry("six", "1.16.0", "conda", f"{FORGE}/noarch/six-1.16.0-0.conda"),
        conda_entry("six", "1.16.0", "pip", SIX_URL),
        conda_entry("six", "1.17.0", "pip", OTHER_SIX, "dev"),
    )
    found = read_requirements(write("conda-lock.yml", text))
    assert [len(found.locked_conda), len(found.locked_pip)] == [1, 1]


def test_what_main_packages_need_is_read_from_any_category(write):
    needs = conda_entry("six", "1.16.0", "conda", f"{FORGE}/noarch/six-1.16.0-0.conda").replace("{}", "{numpy: ''}")
    of_dev = conda_entry("numpy", "1.0", "conda", NUMPY, "dev").replace("{}", "{idna: '', __glibc: ''}")
    idna, other = (conda_entry(name, "1", "conda", f"{FORGE}/noarch/{name}-1-0.conda", "dev") for name in ("idna", "z"))
    of_pip = conda_entry("idna", "1", "pip", SIX_URL, "dev")
    found = read_requirements(write("conda-lock.yml", conda_lock(idna, other, needs, of_dev, of_pip)))
    assert [package.name for package in found.locked_conda] == ["six", "numpy", "idna"]


@every_row(
    ("name", "text"),
    [
        ("conda-lock.yml", conda_lock(conda_entry("six", "1.16.0", "pip", SDIST))),
        ("pixi.lock", PIXI_6.replace(SIX_URL, SDIST)),
    ],
)
def test_a_source_distribution_is_locked_to_be_built_if_that_is_allowed(write, name, text):
    (found,) = read_requirements(write(name, text)).locked_pip
    assert (found.name, found.version, found.url, found.is_wheel) == ("six", "1.16.0", SDIST, False)
