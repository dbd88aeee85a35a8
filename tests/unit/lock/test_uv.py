"""What the errors of uv mean, and the names that it has for platforms; uv itself does not run here."""

from pathlib import Path

import pytest

from envpack.lock.uv import failing_requirement, platform_name, uv_error
from envpack.support.processes import CompletedProcess
from tests.tables import every_row


def test_unknown_package_is_named_as_the_user_wrote_it():
    message = "Because no-such-thing was not found in the package registry and you require no-such-thing<2, we can"
    assert failing_requirement(message, ["numpy", "No_Such.Thing <2"]) == "No_Such.Thing <2"


def test_conflict_names_one_of_the_requirements_and_none_by_accident():
    message = "Because a==1 depends on b>=2 and you require a==1, we can conclude that you require b<2 and a==1"
    assert failing_requirement(message, ["c", "b<2", "a==1"]) in {"b<2", "a==1"}
    assert failing_requirement("something else", ["a"]) == ""


def test_an_error_is_about_the_requirement_that_it_names_or_about_all():
    def message(stderr):
        return uv_error(
            CompletedProcess(1, "", stderr), ["a", f"six==1 --hash=sha256:{'0' * 64}"], Path("/tmp")
        ).message

    mismatch = ": the downloaded file does not have the locked hash"
    assert message("Hash mismatch for `six==1`") == f"pip requirement 'six==1'{mismatch}"
    assert message("Hash mismatch for `other==1`") == f"the pip requirements{mismatch}"


WANDB = """error: No solution found when resolving dependencies
  cause: Because promise>=2.0 has no usable wheels and wandb==0.10.21 depends on promise>=2.0, we can conclude that
         wandb==0.10.21 cannot be used. And because you require wandb==0.10.21, we can conclude that your requirements
         are unsatisfiable.

hint: Wheels are required for `promise` because building from source is disabled for all packages
"""
CONFLICT = """error: No solution found when resolving dependencies
  cause: Because tensorflow==2.13.0 depends on numpy>=1.22,<=1.24.3 and you require numpy<1.20, we can conclude that
         your requirements and tensorflow==2.13.0 are incompatible. And because you require tensorflow==2.13.0, we can
         conclude that your requirements are unsatisfiable.
"""
WINDOWS = """error: No solution found when resolving dependencies
  cause: Because pywin32==305 has no wheels with a matching platform tag (e.g., `manylinux_2_31_x86_64`) and you require
         pywin32==305, we can conclude that your requirements are unsatisfiable.

hint: Wheels are available for `pywin32` (v305) on the following platforms: `win32`, `win_amd64`
"""
OLD = """error: No solution found when resolving dependencies
  cause: Because tensorflow==1.15.0 has no wheels with a matching Python ABI tag (e.g., `cp310`) and you require
         tensorflow==1.15, we can conclude that your requirements are unsatisfiable.

hint: You require CPython 3.10 (`cp310`), but we only found wheels for `tensorflow` (v1.15.0) with the following Python ABI tags: `cp27m`, `cp36m`, `cp37m`
"""  # noqa: E501
RANGE = """error: No solution found when resolving dependencies
  cause: Because numpy<2 has no usable wheels and you require numpy<2, we can conclude that your requirements are
         unsatisfiable.

hint: Wheels are required for `numpy` because building from source is disabled for all packages (i.e., with `--no-build`)

hint: You require CPython 3.13 (`cp313`), but we only found wheels for `numpy` (v1.10.3) with the following Python ABI tags: `cp27m`, `cp33m`, `cp34m`
"""  # noqa: E501


def because(text):
    return f"error: No solution found when resolving dependencies\n  cause: Because {text}, we can conclude that …"


@every_row(
    ("message", "requirements", "kind", "says", "hint"),
    [
        (
            WANDB,
            ["numpy", f"wandb==0.10.21 --hash=sha256:{'a' * 64}"],
            "wheel-missing",
            "pip requirement 'wandb==0.10.21': its dependency promise (wandb → promise) has no wheel",
            "--allow-source promise",
        ),
        (
            CONFLICT,
            ["numpy<1.20", "tensorflow==2.13.0"],
            "unresolvable",
            "pip requirements 'numpy<1.20' (line 1) and 'tensorflow==2.13.0' (line 2) cannot be resolved",
            "change one of them: 'numpy<1.20' (line 1) or 'tensorflow==2.13.0' (line 2)",
        ),
        (
            because("you require a[x]>=1,<2 and b"),
            ["a[x]>=1,<2", "b", "we"],
            "unresolvable",
            "pip requirements 'a[x]>=1,<2' (line 1) and 'b' (line 2) cannot be resolved",
            "change one of them: 'a[x]>=1,<2' (line 1) or 'b' (line 2)",
        ),
        (
            because("a==1 depends on pywin32 and you require a") + "\n\nhint: Wheels are required for `pywin32`",
            ["a"],
            "wheel-missing",
            "'a': its dependency pywin32 (a → pywin32) has no wheel",
            "only Windows has pywin32: choose a version of a that does not need it, or remove a",
        ),
        (
            WINDOWS,
            ["a", "pywin32==305"],
            "wheel-missing",
            "'pywin32==305': it has no wheel",
            "only Windows has it",
        ),
        (
            OLD,
            ["tensorflow==1.15"],
            "wheel-missing",
            "'tensorflow==1.15': it has no wheel",
            "has a wheel for this Python (this one has them for Python 3.6, 3.7), or build",
        ),
        (
            RANGE,
            ["numpy<2"],
            "wheel-missing",
            "'numpy<2': it has no wheel",
            "choose a version that has a wheel for this Python, or build it from source",
        ),
        (
            because("there is no version of torch==2.3.0+cu118 and you require torch==2.3.0+cu118"),
            ["torch==2.3.0+cu118"],
            "unresolvable",
            "'torch==2.3.0+cu118'",
            "--extra-index-url https://download.pytorch.org/whl/cu118",
        ),
        (
            because("there is no version of torch==2.3.0+cu121 and you require torch==2.3.0+cu121")
            + "\n\nhint: `torch` was found on https://a.example, but not at the requested version",
            ["torch==2.3.0+cu121"],
            "unresolvable",
            "'torch==2.3.0+cu121'",
            "--extra-index-url https://download.pytorch.org/whl/cu121",
        ),
        (
            because("you require a") + "hint: … because using pre-built wheels is disabled for `a`",
            ["a"],
            "unresolvable",
            "'a'",
            "it has wheels alone: leave out --allow-source",
        ),
        (
            because("cv2 was not found in the package registry and you require cv2"),
            ["numpy", "cv2"],
            "unresolvable",
            "pip requirement 'cv2'",
            "the package is called opencv-python-headless",
        ),
        (
            because("python was not found in the package registry and you require python==3.10"),
            ["numpy", "python==3.10"],
            "unresolvable",
            "pip requirement 'python==3.10'",
            "remove it: its version is said with --python",
        ),
        (
            because("cudatoolkit was not found in the package registry and you require cudatoolkit"),
            ["cudatoolkit"],
            "unresolvable",
            "pip requirement 'cudatoolkit'",
            "one of conda belongs under dependencies: of an environment.yml",
        ),
        (
            because("all versions of sklearn have no usable wheels and you require sklearn"),
            ["sklearn"],
            "wheel-missing",
            "'sklearn': it has no wheel",
            "the package is called scikit-learn",
        ),
        (
            because(
                "only six==1.0 is available and six==1.0 has no wheels with a matching Python ABI tag (e.g., `cp310`),"
                " we can conclude that all versions of six cannot be used.\n         And because you require six"
            ),
            ["a", "six @ https://files.example/six-1.0-cp37-cp37m-linux_x86_64.whl"],
            "wheel-missing",
            "linux_x86_64.whl': it has no wheel for this Python",
            "name a wheel for this Python, or write six==VERSION for one of an index",
        ),
        (
            because(
                "the requested Python version (>=3.10) does not satisfy Python>=3.11,<4 and scikit-learn==1.9.1 depends"
                " on Python>=3.11,<4, we can conclude that scikit-learn==1.9.1 cannot be used.\n"
                "         And because you require scikit-learn==1.9.1"
            ),
            ["scikit-learn==1.9.1"],
            "unresolvable",
            "'scikit-learn==1.9.1'",
            "it needs Python>=3.11,<4: name a version that fits this Python",
        ),
        (
            because("six==1.0 was yanked (reason: broken) and only six==1.0 is available"),
            ["six"],
            "unresolvable",
            "'six'",
            "choose another version, or write six==1.0 to install it nevertheless",
        ),
        (
            because("there is no version of numpy==99 and you require numpy==99"),
            ["numpy==99"],
            "unresolvable",
            "'numpy==99'",
            "check the version",
        ),
        (
            because("pandas==0.24.0 has invalid metadata and you require pandas==0.24.0"),
            ["numpy", "pandas==0.24.0"],
            "unresolvable",
            "'pandas==0.24.0'",
            "choose another version: uv refuses the metadata of this one",
        ),
        (
            because("numpy was not found in the provided package locations and you require numpy"),
            ["numpy"],
            "unresolvable",
            "'numpy'",
            "no index is used: remove --no-index (PIP_NO_INDEX), or add --find-links DIR",
        ),
        (
            "Prepared 1 package in 1ms\nerror: Unable to uninstall `pyyaml==5.4.1`. distutils-installed distributions",
            ["a==1", "pyyaml==6.0"],
            "unresolvable",
            "'pyyaml==6.0' cannot replace the conda package",
            "remove it from the pip requirements",
        ),
    ],
)
def test_errors_name_the_package_at_fault_and_what_helps(message, requirements, kind, says, hint):
    places = {requirement: f"requirements.txt:{number}" for number, requirement in enumerate(requirements, start=1)}
    error = uv_error(CompletedProcess(1, "", message), requirements, Path("/"), places=places)
    assert error.kind == kind
    assert says in error.message
    assert hint in error.hint
    if hint.startswith("change one of them"):
        assert error.hint == hint
    assert error.where.startswith("requirements.txt:")


def test_an_index_that_fails_is_named_by_the_line_of_its_option():
    stderr = (
        "error: Failed to fetch: `https://index.example/simple/b/`\n"
        "  Caused by: HTTP status client error (403 Forbidden) for url (https://index.example/simple/b/)"
    )
    places = {
        "b @ https://index.example/simple": "r.txt:1",  # of a requirement
        "--find-links https://elsewhere.example/simple": "r.txt:2",
        "--index-url https://user:secret@index.example/simple/": "r.txt:3",
    }
    error = uv_error(CompletedProcess(2, "", stderr), ["b"], Path("/"), places=places)
    assert (error.kind, error.where) == ("index-forbidden", "r.txt:3")


def test_no_index_is_blamed_for_the_address_of_a_wheel():
    address = "https://files.example/six-1.0-py3-none-any.whl"
    stderr = f"error: Failed to download `six @ {address}`\n  cause: error sending request for url ({address})\n"
    error = uv_error(
        CompletedProcess(1, "", stderr), [f"six @ {address}"], Path("/"), places={f"six @ {address}": "r:1"}
    )
    assert (error.kind, error.where) == ("index-unreachable", "r:1")
    assert error.message.startswith(f"the server of 'six @ {address}' does not answer: ")
    assert error.hint == "check the address and the network"


@every_row(
    "cause",
    [
        "HTTP status client error (412 Precondition Failed) for url (https://index.example/simple/b/)",
        "Server returned redirect (HTTP 301 Moved Permanently) without a Location",
    ],
)
def test_versions_are_not_blamed_for_an_index_that_answers_with_an_error(cause):
    stderr = f"error: Failed to fetch: https://index.example/simple/b/\n  cause: {cause}"
    error = uv_error(CompletedProcess(2, "", stderr), ["b==1"], Path("/"), places={"b==1": "r.txt:1"})
    assert error.kind == "index-unreachable"
    assert error.message == f"the package index https://index.example/simple does not answer: {cause}"
    assert error.hint.startswith("check the address and the network; UV_DEFAULT_INDEX or PIP_INDEX_URL names another")


@every_row(
    "line",
    [
        "Failed to parse environment variable `UV_HTTP_TIMEOUT` with invalid value `abc`: invalid digit",
        "invalid value 'wrong' for '--index-strategy <INDEX_STRATEGY>'",
        "failed to open file `/home/me/uv.toml`: No such file or directory (os error 2)",
        "failed to read from file `/home/me/.config/uv/uv.toml`: stream did not contain valid UTF-8",
        "Failed to parse: /home/me/.config/uv/uv.toml",
    ],
)
def test_the_network_is_not_blamed_for_a_setting_of_uv(line):
    error = uv_error(CompletedProcess(2, "", f"error: {line}\n"), ["b==1"], Path("/"))
    assert (error.kind, error.message) == ("pip-failed", f"uv rejects one of its own settings:\nerror: {line}")
    assert error.hint == "correct it: the variable of that name, which begins with UV_, or the file uv.toml"


def test_a_date_that_hides_newer_files_is_named_where_a_version_is_missing(monkeypatch):
    stderr = (
        "error: No solution found when resolving dependencies\n  cause: Because only b<2 is available and you require b"
    )
    plain = uv_error(CompletedProcess(1, "", stderr), ["b"], Path("/"))
    monkeypatch.setenv("UV_EXCLUDE_NEWER", "2020-01-01")
    error = uv_error(CompletedProcess(1, "", stderr), ["b"], Path("/"))
    assert (error.kind, error.message) == (plain.kind, plain.message)
    assert error.hint == f"{plain.hint}; or unset UV_EXCLUDE_NEWER=2020-01-01, which hides what is newer"
    assert "UV_EXCLUDE" not in uv_error(CompletedProcess(1, "", "error: 401 Unauthorized"), ["b"], Path("/")).hint


OF_FILES = [
    "error: Failed to initialize cache at `/home/me/.cache/uv`",
    "error: Could not acquire lock",
    "error: Failed to write to the client cache\n  cause: failed to rename file: Permission denied (os error 13)",
    "error: failed to rename file from /tmp/.tmpsD to /tmp/pylock.toml: Input/output error (os error 5)",
]


@every_row("said", OF_FILES)
def test_a_file_that_uv_cannot_use_is_no_fault_of_the_requirements_or_the_network(said):
    error = uv_error(CompletedProcess(2, "", f"{said}\n"), ["b==1"], Path("/"))
    assert error.kind == "pip-failed"
    assert error.message.startswith("uv cannot read or write a file:\nerror: ")
    assert "UV_CACHE_DIR moves the cache of uv" in error.hint


def test_a_connection_that_the_system_refuses_is_of_the_network():
    said = "error: Failed to fetch: `https://i.example/b/`\n  cause: Permission denied (os error 13)"
    assert uv_error(CompletedProcess(2, "", f"{said}\n"), ["b==1"], Path("/")).kind == "index-unreachable"


@every_row(
    ("said", "kind"),
    [
        ("No space left on device (os error 28)", "disk-full"),
        ("Disk quota exceeded (os error 122)", "disk-full"),
        ("Too many open files (os error 24)", "system-limit"),
    ],
)
def test_what_the_system_has_no_more_of_is_said_so(said, kind):
    line = f"error: Failed to write to the client cache\n  cause: /c/b: {said}"
    assert uv_error(CompletedProcess(2, "", line), ["b==1"], Path("/")).kind == kind


def test_an_address_at_which_no_file_is_has_to_be_corrected():
    requirement = "own @ https://files.example/own-2.0-py3-none-any.whl"
    stderr = f"error: Failed to download `{requirement}`\n  cause: HTTP status client error (404 Not Found) for url (x)"
    error = uv_error(CompletedProcess(2, "", stderr), ["b", requirement], Path("/"), places={requirement: "r.txt:2"})
    assert (error.kind, error.where) == ("unresolvable", "r.txt:2")
    assert error.hint == "correct the address: the server answers 404 Not Found"
    assert error.message.startswith(f"pip requirement {requirement!r} cannot be resolved for this Python: ")


@pytest.mark.parametrize(
    ("glibc", "name"),
    [
        ("2.17", "x86_64-manylinux_2_17"),
        ("2.31", "x86_64-manylinux_2_31"),
        ("2.40", "x86_64-manylinux_2_40"),
        ("2.30", "x86_64-manylinux_2_28"),
        ("2.41", "x86_64-manylinux_2_28"),
    ],
)
def test_uv_knows_some_versions_of_glibc(glibc, name):
    assert platform_name("x86_64", glibc) == name


@pytest.mark.parametrize(
    ("kind", "stderr"),
    [
        ("hash-mismatch", "error: Hash mismatch for `six==1.17.0`"),
        ("index-forbidden", "error: 401 Unauthorized for https://index.example/six/"),
        ("index-forbidden", "error: HTTP status client error (403 Forbidden)"),
        ("not-in-cache", "error: network was disabled"),
        ("index-unreachable", "error: error sending request for url (https://index.example/six/)"),
        ("index-unreachable", "error: dns error"),
        (
            "index-untrusted",
            "error: Failed to fetch: https://x/six/\n  cause: invalid peer certificate: UnknownIssuer",
        ),
        (
            "index-invalid",
            'error: Unsupported `Content-Type` "text/plain" for `https://x/six/`. Expected JSON or HTML.',
        ),
        ("index-invalid", "error: Missing `Content-Type` header for `https://x/six/`"),
        ("index-invalid", "error: Received some unexpected JSON from `https://x/six/`\n  cause: EOF"),
        ("build-failed", "error: Failed to build `six==1.17.0`"),
        ("wheel-invalid", "error: No solution found\n  cause: Because six==1.0 has an invalid package format and …"),
        (
            "wheel-invalid",
            "error: Failed to install: six-1.0-py3-none-any.whl\n  cause: The wheel is invalid: Script …",
        ),
        ("wheel-invalid", "error: Failed to download `six==1.0`\n  cause: Failed to extract archive: …: Bad CRC"),
        ("wheel-missing", "error: No solution found\n  cause: Because six==1.0 has no usable wheels and …"),
        ("unresolvable", "No solution found when resolving dependencies: Because six was not found."),
        ("unresolvable", "Because you require six>9, nothing fits"),
        ("pip-failed", "error: something else"),
        ("disk-full", "error: No space left on device (os error 28)"),
    ],
)
def test_each_failure_of_uv_has_its_kind(tmp_path, kind, stderr):
    error = uv_error(CompletedProcess(2, "", f"Using Python 3.10\n{stderr}"), ["b", "Six>9"], tmp_path)
    assert error.kind == kind
    assert error.hint
    assert "Using Python" not in error.message


@every_row(
    ("printed", "reason", "hint"),
    [
        ("", "", "install a compiler"),
        ("m.c:1:10: fatal error: sqlite3.h: No such file or directory", "fatal error: sqlite3.h: No such", "install a"),
        ("error: command 'gcc' failed: No such file or directory", "error: command 'gcc' failed", "install a compiler"),
        ("Traceback:\nKeyError: 'x'\nRuntimeError: no CUDA", "RuntimeError: no CUDA", "correct it if it is yours"),
        ("error: Multiple top-level packages discovered: a, b.", "error: Multiple top-level packages", "correct it if"),
        ("  cause: Invalid `a.toml`\n  cause: TOML", "Invalid `a.toml`: TOML", "correct it if it is yours"),
        ("LookupError: setuptools-scm was unable to detect version for /x.", "LookupError: ", "build it in a clone"),
        ("LookupError: of nothing\nfatal error: a.h: gone", "fatal error: a.h: gone", "install a compiler"),
    ],
)
def test_why_a_package_could_not_be_built_is_said(tmp_path, printed, reason, hint):
    stderr = f"error: Failed to build `six==1.17.0`\n  cause: exit status: 1\n\n[stderr]\n{printed}\n"
    error = uv_error(CompletedProcess(1, "", stderr), ["six"], tmp_path)
    assert f"it could not be built from source{': ' if reason else ''}{reason}" in error.message
    assert error.hint.startswith(hint)


def test_an_index_that_hides_a_version_of_another_is_named(tmp_path):
    stderr = (
        "error: No solution found when resolving dependencies\n  cause: Because there is no version of six==2 and you"
        " require six==2, we can conclude that your requirements are unsatisfiable.\n\nhint: `six` was found on"
        " https://me:word@a.example/simple, but not at the requested version (six==2). A compatible version may be …"
    )
    hint = uv_error(CompletedProcess(1, "", stderr), ["six==2"], tmp_path).hint
    assert hint.startswith("https://a.example/simple has other versions of six: choose one; or, if a later index")
    assert hint.endswith("UV_INDEX_STRATEGY=unsafe-best-match")


def test_the_reason_of_a_conflict_is_one_sentence():
    stderr = "  x No solution found:\n  `-> Because only six<=1 is\n      available.\n\nhint: something else"
    error = uv_error(CompletedProcess(1, "", stderr), ["b", "six>9"], Path("/"))
    expected = "pip requirement 'six>9' cannot be resolved for this Python: Because only six<=1 is available"
    assert error.message == expected
    plain = uv_error(CompletedProcess(1, "", "No solution found."), ["six>9"], Path("/"))
    assert plain.message == "pip requirement 'six>9' cannot be resolved for this Python: No solution found"
    unnamed = uv_error(CompletedProcess(1, "", "No solution found: Because of x."), ["b", "six>9"], Path("/"))
    assert unnamed.message == "the pip requirements cannot be resolved for this Python: Because of x"
