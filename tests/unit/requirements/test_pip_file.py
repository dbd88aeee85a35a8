"""requirements.txt, as pip reads it."""

import time

import pytest

from envpack.requirements.format import read_requirements
from envpack.requirements.formats import pip_file
from tests.tables import every_row

HASH = "sha256:" + "0123456789abcdef" * 4
EXAMPLE = (
    "requirements.txt",
    f"--index-url https://example.org/a\n-r base.txt\nsix[x]==1 ; os_name=='a' --hash={HASH}\n",
)


@pytest.fixture
def project(write):
    """The folder of a Python project."""
    return write("lib/pyproject.toml", '[project]\nname = "My.Lib"\nversion = "1"\n').parent


@pytest.fixture
def wheel(write):
    return write("wheels/own_pack-1.0-py3-none-any.whl", "")


def test_paths_of_included_files_are_relative_to_the_including_file(write):
    top = write("requirements.txt", "six\n-r sub/more.txt\n-c sub/limits.txt\nfilelock\n")
    more = write("sub/more.txt", "--requirement deeper/last.txt\npillow\n")
    last = write("sub/deeper/last.txt", "click\n")
    limits = write("sub/limits.txt", "numpy<2\n")
    found = read_requirements(top)
    assert found.pip == ("six", "click", "pillow", "filelock")
    assert found.constraints == ("numpy<2",)
    assert (found.source, found.files) == (top, (top, more, last, limits))


def test_files_in_a_circle_are_read_once(write):
    top = write("requirements.txt", "six\n-r other.txt\n")
    write("other.txt", "-r requirements.txt\n-r other.txt\nclick\n")
    assert read_requirements(top).pip == ("six", "click")


def test_files_that_double_at_each_level_are_read_at_once(write):
    for level in range(40):
        write(f"{level}.txt", f"-r {level + 1}.txt\n-c {level + 1}.txt\n" * 2)
    write("40.txt", "six\n")
    found = read_requirements(write("requirements.txt", "-r 0.txt\n"))
    assert found.pip == ("six",)


def test_files_nested_without_end_are_refused(write, refused):
    for level in range(60):
        write(f"{level}.txt", f"-r {level + 1}.txt\n")
    assert "files include each other" in refused(write("requirements.txt", "-r 0.txt\n")).message


@pytest.mark.parametrize(
    "line",
    [
        "./a" + "[" * 20_000,
        "numpy" + " x" * 20_000,
        "a[" + " " * 900 + "x" * 4000 + "] x @",
        "-e ./a" + "[" * 20_000,
        "./" + "a/" * 20_000,
    ],
)
def test_requirements_that_patterns_would_take_long_for_are_refused_at_once(write, refused, line):
    began = time.process_time()
    assert "more than 4096" in refused(write("requirements.txt", f"six\n{line}\n"), 2).message
    assert time.process_time() - began < 1


@pytest.mark.parametrize("place", ["numpy{}x", "{}numpy", "numpy # {}", "numpy \\\n{}x"])
def test_blanks_without_end_are_refused_at_once(write, refused, place):
    began = time.process_time()
    file = write("requirements.txt", f"six\n{place.format(' ' * 100_000)}\n")
    assert "more than 1000 blanks" in refused(file, 3 if "\n" in place else 2).message
    assert time.process_time() - began < 1


def test_requirements_included_by_a_constraints_file_are_requirements(write):
    """pip installs the packages of -r also inside a file named by -c."""
    write("limits.txt", "numpy<2\n-r more.txt\n")
    write("more.txt", "six\n")
    found = read_requirements(write("requirements.txt", "-c limits.txt\n"))
    assert (found.pip, found.constraints) == (("six",), ("numpy<2",))


def test_hashes_stay_on_the_line(write):
    file = write("requirements.txt", f"six==1.16.0 \\\n    --hash={HASH} \\\n    --hash={HASH}\n")
    assert read_requirements(file).pip == (f"six==1.16.0 --hash={HASH} --hash={HASH}",)


def test_local_wheel_becomes_a_named_url(write, wheel, tmp_path):
    file = write(
        "requirements.txt",
        f"""\
        ./wheels/own_pack-1.0-py3-none-any.whl
        wheels/own_pack-1.0-py3-none-any.whl[fast] ; python_version < "3.9"
        {wheel}
        own-pack @ {wheel.as_uri()}
        own_pack @ ./wheels/own_pack-1.0-py3-none-any.whl
        """,
    )
    url = wheel.as_uri()
    assert read_requirements(file).pip == (
        f"own-pack @ {url}",
        f'own-pack[fast] @ {url} ; python_version < "3.9"',
        f"own-pack @ {url}",
        f"own-pack @ {url}",
        f"own_pack @ {url}",
    )


def test_wheel_beside_the_file_needs_no_dot(write):
    wheel = write("own-1.0-py3-none-any.whl", "")
    file = write("requirements.txt", "own-1.0-py3-none-any.whl\n")
    assert read_requirements(file).pip == (f"own @ {wheel.as_uri()}",)


def test_wheel_at_a_url_gets_its_name(write):
    url = "https://files.example.org/packages/six-1.16.0-py2.py3-none-any.whl#sha256=00"
    assert read_requirements(write("requirements.txt", url)).pip == (f"six @ {url}",)


def test_paths_with_spaces_and_other_letters_work(write):
    wheel = write("größe 1/räder/own-1.0-py3-none-any.whl", "")
    project = write("größe 1/mein projekt/setup.py", "").parent
    write("größe 1/mehr davon.txt", "click\n")
    file = write(
        "größe 1/requirements.txt",
        "./räder/own-1.0-py3-none-any.whl\n-e 'mein projekt'\n-r 'mehr davon.txt'\n",
    )
    found = read_requirements(file)
    assert found.pip == (f"own @ {wheel.as_uri()}", "click")
    assert found.projects == (project,)
    assert "%20" in found.pip[0]


@pytest.mark.parametrize("line", ["-e lib", "-e ./lib", "./lib", "--editable=lib", "lib/", "my-lib @ {uri}", "{path}"])
def test_folder_of_a_project_becomes_a_project(write, project, line):
    file = write("requirements.txt", line.format(uri=project.as_uri(), path=project))
    found = read_requirements(file)
    assert (found.projects, found.pip) == ((project,), ())


def test_the_folder_of_the_file_itself_can_be_the_project(write, project):
    assert read_requirements(write("lib/requirements.txt", "-e .\n")).projects == (project,)


def test_the_python_of_a_project_is_that_of_the_file(write):
    mine = write("lib/pyproject.toml", '[project]\nname = "a"\nversion = "1"\nrequires-python = ">=3.11"\n')
    write("other/pyproject.toml", '[project]\nname = "b"\nversion = "1"\nrequires-python = "<3.12"\n')
    found = read_requirements(write("requirements.txt", "-e ./lib\n./other\n"))
    assert (found.python, found.python_range, found.places["python"]) == ("3.11", ">=3.11,<3.12", str(mine))
    found = read_requirements(write("environment.yml", "dependencies: [python=3.10, {pip: [-e ./lib]}]"))
    assert (found.python, found.python_range) == ("3.10", "==3.10.*")  # the resolver refuses the project


def test_extras_of_a_project_become_a_requirement_for_its_name(write, project):
    found = read_requirements(write("requirements.txt", "-e ./lib[fast,dev]\n"))
    assert (found.projects, found.pip) == ((project,), ("My.Lib[dev,fast]",))


def test_options_are_kept_with_absolute_paths(write, wheel, tmp_path):
    file = write(
        "sub/requirements.txt",
        """\
        -i https://index.example.org/simple
        --extra-index-url=https://user:word@example.org/simple
        --find-links ../wheels
        -f https://example.org/links.html
        --no-binary :none: --only-binary=numpy,scipy
        --prefer-binary
        --pre
        --no-index
        --require-hashes
        --trusted-host example.org
        """,
    )
    found = read_requirements(file)
    assert found.download_variables == {
        "UV_INDEX": "https://index.example.org/simple https://user:word@example.org/simple https://example.org/links.html",
        "UV_INSECURE_HOST": "example.org",
    }
    assert set(found.pip_options) == {
        "--index-url https://index.example.org/simple",
        "--extra-index-url https://user:word@example.org/simple",
        f"--find-links {wheel.parent.as_uri()}",
        "--find-links https://example.org/links.html",
        "--no-binary :none:",
        "--only-binary numpy,scipy",
        "--prefer-binary",
        "--pre",
        "--no-index",
        "--require-hashes",
        "--trusted-host example.org",
    }


def test_variables_are_replaced_as_pip_does(write, monkeypatch):
    monkeypatch.setenv("ENVPACK_TEST_TOKEN", "very-secret")
    monkeypatch.setenv("lower", "no")
    file = write("requirements.txt", "--index-url https://x:${ENVPACK_TEST_TOKEN}@example.org/\n")
    assert read_requirements(file).pip_options == ("--index-url https://x:very-secret@example.org/",)


@pytest.mark.parametrize(
    "line",
    [
        "six @ https://x:${ENVPACK_TEST_TOKEN}@example.org/six-1-py3-none-any.whl",
        "numpy ${ENVPACK_TEST_TOKEN}",
        "./${ENVPACK_TEST_TOKEN}.whl",
        "-e ${ENVPACK_TEST_TOKEN}",
        "-r ${ENVPACK_TEST_TOKEN}",
        "--find-links ${ENVPACK_TEST_TOKEN}",
        "--global-option ${ENVPACK_TEST_TOKEN}",
        "--unknown=${ENVPACK_TEST_TOKEN}",
        "six --hash=sha256:${ENVPACK_TEST_TOKEN}",
        "git+https://${ENVPACK_TEST_TOKEN}@example.org/x",
    ],
)
def test_value_of_a_variable_is_never_shown(write, refused, monkeypatch, line):
    monkeypatch.setenv("ENVPACK_TEST_TOKEN", "very-secret")
    assert "very-secret" not in str(refused(write("requirements.txt", f"six\n{line}\n"), 2))


def test_variable_that_is_not_set_is_named(write, refused, monkeypatch):
    monkeypatch.delenv("ENVPACK_TEST_TOKEN", raising=False)
    error = refused(write("requirements.txt", "--index-url https://${ENVPACK_TEST_TOKEN}@example.org/\n"), 1)
    assert "${ENVPACK_TEST_TOKEN} is not set" in error.message


@pytest.mark.parametrize(
    "line",
    [
        "six @ https://me:very-secret@example.org/six-1-py3-none-any.whl",
        "https://very-secret@example.org/six-1-py3-none-any.whl",
        "--unknown https://me:very-secret@example.org/",
        "six --index-url https://me:very-secret@example.org/",
        "--index-url https://me:very-secret@example.org/ x",
        "sci kit @ https://me:very-secret@example.org/",
    ],
)
def test_password_in_the_file_is_never_shown(write, refused, line):
    assert "very-secret" not in str(refused(write("requirements.txt", f"six\n\n{line}\n"), 3))


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("git+https://example.org/x.git", "version control"),
        ("x @ git+ssh://git@example.org/x.git@main", "version control"),
        ("-e git+https://example.org/x.git#egg=x", "version control"),
        ("-e git://example.org/x.git@main#egg=x", "version control"),
        ("git@example.org:me/x.git", "version control"),
        ("./none-1.0-py3-none-any.whl", "no such file or folder"),
        ("./none", "no such file or folder"),
        ("-e .", "has no Python project"),
        ("-e none", "no such file or folder"),
        ("-e numpy", "no such file or folder"),
        ("bad.whl", "no such file or folder"),
        ("./there.whl", "not the name of a wheel"),
        ("./there.tar.gz", "not a wheel"),
        ("./win-1.0-cp310-cp310-win_amd64.whl", "another system"),
        ("other @ ./win-1.0-py3-none-any.whl", "the wheel's package is win"),
        ("https://example.org/x.tar.gz", "not a wheel"),
        ("x @ https://example.org/x.zip", "not a wheel"),
        ("ftp://example.org/x-1-py3-none-any.whl", "neither an http(s) URL"),
        ("x @ x", "no such file or folder"),
        # Pythons from 3.13 on take a link to itself for nothing, those before for an error.
        ("./circle", "./circle': n"),
        ("./" + "x" * 300, "neither an http(s) URL"),
        ("-r " + "x" * 300, "not on this machine"),
        ("--find-links circle", "no such file or folder"),
        ("https://[x]/x-1-py3-none-any.whl", "neither an http(s) URL"),
        ("file://host/x-1-py3-none-any.whl", "neither an http(s) URL"),
        ("-r none.txt", "no file none.txt"),
        ("-r https://example.org/requirements.txt", "not on this machine"),
        ("-c none.txt", "no file none.txt"),
        ("--find-links none", "no such file or folder"),
        ("--unknown", "'--unknown'"),
        ("--global-option x", "'--global-option'"),
        ("--use-feature x", "'--use-feature'"),
        ("--no-use-wheel", "'--no-use-wheel'"),
        ("-Z", "'-Z'"),
        ("--index-url", "'--index-url'"),
        ("--index-url x", "no such file or folder"),
        ("-r", "'-r'"),
        ("numpy --pre", "'--pre'"),
        ("numpy --hash=sha256:00 " + " " * 120 + "--pre", "'--pre'"),
        ("pip install numpy", "'pip install numpy' is a command, and no requirement"),
        ("!pip3 install numpy --pre", "is a command, and no requirement"),
        ("/opt/bin/python3.10 -m pip install numpy", "is a command, and no requirement"),
        ("$ uv pip install numpy", "is a command, and no requirement"),
        ("numpy --install-option=x", "'--install-option'"),
        ("numpy --hash=md5:00", "is not a hash"),
        ("numpy --hash=sha256:00", "is not a hash"),
        ("--hash=sha256:00", "'--hash'"),
        ("--pre numpy", "one word too many"),
        ("-e 'unclosed", "'-e'"),
        ("not a name", "is not a requirement"),
        ("FROM nvidia/cuda:12.1.0-base", "is neither a requirement nor a file"),
        ("conda-forge::numpy=1.26", "names a conda channel"),
        ("numpy; python_version <", "is not a requirement"),
        ("numpy<", "is not a requirement"),
        ("numpy===1.0-unsupported", "is not a requirement: Invalid version: '1.0-unsupported'"),
        ("=", "is not a requirement"),
        ("[extra]", "is not a requirement"),
    ],
)
def test_unsupported_line_is_refused_with_its_line(write, refused, line, expected):
    write("there.whl", "")
    circle = write("there.tar.gz", "").with_name("circle")
    circle.symlink_to("circle")
    write("win-1.0-cp310-cp310-win_amd64.whl", "")
    write("win-1.0-py3-none-any.whl", "")
    assert expected in refused(write("requirements.txt", f"six\n\n{line}\n"), 3).message


def test_an_option_after_a_requirement_is_moved_to_a_line_that_is_read(write, refused):
    lines = "numpy --extra-index-url https://index.example/simple"
    error = refused(write("requirements.txt", lines), 1)
    assert error.hint.startswith("write it on a line of its own")
    read = read_requirements(write("requirements.txt", lines.replace(" ", "\n", 1)))
    assert (read.pip, read.pip_options) == (("numpy",), ("--extra-index-url https://index.example/simple",))


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("./lib --hash=" + HASH, "a folder has no hash"),
        ("./lib ; python_version < '3.9'", "a folder cannot have a marker"),
        ("./old[fast]", "need the name of this project"),
        ("-e ./lib/pyproject.toml", "not a wheel"),
    ],
)
def test_project_with_hash_or_marker_is_refused(write, refused, project, line, expected):
    write("old/setup.py", "")
    assert expected in refused(write("requirements.txt", f"{line}\n"), 1).message


@pytest.mark.parametrize(("line", "expected"), [("./lib", "cannot be a constraint"), ("numpy[x]<2", "no extras")])
def test_invalid_constraint_is_refused_in_its_own_file(write, refused, project, line, expected):
    write("limits.txt", f"six<2\n{line}\n")
    error = refused(write("requirements.txt", "-c limits.txt\n"), 2)
    assert "limits.txt" in error.where
    assert expected in error.message


def test_line_is_that_of_the_first_of_joined_lines(write, refused):
    refused(write("requirements.txt", "six\n# a comment\nsci \\\n  kit\n"), 3)


def test_byte_order_mark_is_skipped(write):
    assert read_requirements(write("requirements.txt", "\ufeffsix\n")).pip == ("six",)


@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be"])
def test_utf_16_with_its_mark_is_read_as_pip_does(tmp_path, encoding):
    for name, text in {"requirements.txt": "-r more.txt\r\nsix\r\n", "more.txt": "click\r\n"}.items():
        (tmp_path / name).write_bytes(f"\ufeff{text}".encode(encoding))
    assert read_requirements(tmp_path / "requirements.txt").pip == ("click", "six")


@every_row("content", ["café\n".encode("latin-1"), "\ufeffsix\n".encode("utf-16-le")[:-1]])
def test_other_encodings_are_refused(tmp_path, refused, content):
    file = tmp_path / "requirements.txt"
    file.write_bytes(content)
    error = refused(file)
    assert (error.where, error.message) == (str(file), "cannot be read: not UTF-8")
    assert error.hint == "it must be a UTF-8 text file"


def test_a_file_that_cannot_be_read_is_to_be_made_readable(tmp_path, refused):
    file = tmp_path / "requirements.txt"
    file.symlink_to("/proc/self/mem")  # which root cannot read from its beginning, either
    error = refused(file)
    assert (error.message, error.hint) == ("cannot be read: Input/output error", "make it readable")


@pytest.mark.parametrize("line", ["x @ file:///home/me/x", "/home/me/x", "--find-links /home/me/x", "-e /home/me/x"])
def test_a_path_of_another_machine_is_called_that(write, refused, line):
    error = refused(write("requirements.txt", f"{line}\n"), 1)
    assert error.hint == "the path is of another machine: name a copy beside requirements.txt, or a release"
    assert "relative" in refused(write("requirements.txt", "./x\n")).hint


@every_row(
    ("line", "option"),
    [
        ("--index-url https://a.example/simple --default-timeout 600", "--default-timeout"),
        ("--pre --timeout=5", "--timeout"),
        ("--pre --index-url", "--index-url"),
        ("numpy --pre --index-url", "--index-url"),
    ],
)
def test_the_option_of_several_that_is_wrong_is_named(write, refused, line, option):
    error = refused(write("requirements.txt", f"{line}\n"), 1)
    assert error.message == f"option '{option}' is not supported or incomplete"


@pytest.mark.parametrize("option", ["--index-url", "--extra-index-url", "--find-links"])
@pytest.mark.parametrize("account", ["me:very-secret#1", "me:very-secret?x", "me:p@very-secret/x", "me:a very-secret"])
def test_an_address_whose_password_is_not_encoded_is_refused_without_it(write, refused, option, account):
    """uv would take a part of the password for the host, and print that."""
    error = refused(write("requirements.txt", f"six\n{option} http://{account}@host.example/simple\n"), 2)
    assert "very-secret" not in str(error)
    assert "%20" in error.hint


@every_row(
    "address",
    ["https://me:word@host/simple", "https://me:word@host.example/_packaging/feed@view/simple", "http://[::1]:8080/x"],
)
def test_an_address_with_an_account_is_read(write, address):
    assert read_requirements(write("requirements.txt", f"--index-url {address}\n")).pip_options == (
        f"--index-url {address}",
    )


@every_row(
    ("name", "text", "is_named"),
    [
        ("uv.toml", '[[index]]\nurl = "https://own.example"\n', True),
        ("uv.toml", 'extra-index-url = ["https://own.example"]\n', True),
        ("pyproject.toml", '[[tool.uv.index]]\nurl = "https://own.example"\n', True),
        ("pyproject.toml", '[tool.uv]\nindex-url = "https://own.example"\n', True),
        ("pyproject.toml", '[[tool.uv.index]]\nurl = "https://own.example"\nexplicit = true\n', False),
        ("pyproject.toml", '[[tool.uv.index]]\nurl = "https://named.example/simple/"\n', False),
        ("pyproject.toml", f'[tool.uv]\nindex-url = "https://{pip_file._PUBLIC[0]}/simple"\n', False),
        ("pyproject.toml", "[tool.uv]\nmanaged = true\n", False),
        ("pyproject.toml", "tool = 3\n", False),
        ("pyproject.toml", "[tool]\nuv = 3\n", False),
        ("uv.toml", "index = 3\n", False),
        ("pyproject.toml", "[tool", False),
    ],
)
def test_indexes_that_only_uv_would_read_are_named(write, name, text, is_named):
    other = write(name, text)
    file = write("requirements.txt", "--extra-index-url https://named.example/simple\nsix\n")
    warnings = read_requirements(file).warnings
    assert [warning.startswith(f"{other}: its indexes are not read with requirements.txt") for warning in warnings] == (
        [True] if is_named else []
    )
    assert read_requirements(write("requirements.txt", f"six==1 --hash=sha256:{'0' * 64}\n")).warnings == ()
    other.unlink()
