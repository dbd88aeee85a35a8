"""pylock.toml: the extras and groups that the project beside it selects."""

from envpack.requirements.format import read_requirements
from tests.tables import every_row
from tests.unit.requirements.test_locks import PYLOCK, SIX

SELECTABLE = PYLOCK.replace(
    'created-by = "x"',
    'created-by = "pdm"\nextras = ["web"]\ndependency-groups = ["base", "serve"]\ndefault-groups = ["base"]',
) + "".join(
    f"""
[[packages]]
name = "{name}"
version = "1.0"
marker = "{marker}"
wheels = [{{url = "https://example.org/{name}-1.0-py3-none-any.whl", hashes = {{sha256 = "{SIX.sha256}"}}}}]
"""
    for name, marker in (
        ("h11", "'web' in extras"),
        ("orjson", "'serve' in dependency_groups"),
        ("click", "'base' in dependency_groups"),
    )
)


@every_row(
    ("selection", "names"),
    [
        ("", "click six"),
        ('extras = ["Web"]', "click h11 six"),
        ('groups = ["serve"]', "click orjson six"),
        ('extras = ["web"]\ngroups = ["Serve", "base"]', "click h11 orjson six"),
    ],
)
def test_pylock_gives_the_extras_and_groups_that_its_project_selects(write, selection, names):
    project = write("pyproject.toml", f"[tool.envpack]\n{selection}\n")
    lock = write("pylock.toml", SELECTABLE)
    found = read_requirements(lock)
    assert " ".join(sorted(package.name for package in found.locked_pip)) == names
    assert (found.files, found.warnings) == ((lock, project) if selection else (lock,), ())


def test_pylock_without_the_selected_extra_is_refused_or_named_in_a_warning(write, refused):
    write("pyproject.toml", '[tool.envpack]\nextras = ["gpu"]\n')
    error = refused(write("pylock.toml", SELECTABLE))
    assert (error.message, error.hint) == ("the lock has no extras 'gpu'", "known: web; or lock again")
    lock = write("pylock.toml", PYLOCK)
    (warning,) = read_requirements(lock).warnings
    assert warning == f"{lock}: the lock names no extras, so 'gpu' must be in what it was made from"
