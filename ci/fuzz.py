"""Search for inputs that break the parsers of what others write, parser by parser.

    .venv/bin/python ci/fuzz.py [--minutes 10] [--list] [PARSER ...]

Each parser has tests with Hypothesis, which `make test` runs with few examples. This program runs them again and again
with the profile `fuzz` and new seeds, and stops at the first example that is neither read nor refused in one line.
The stub's parser of the server's messages has a program of its own, `tests/fuzz/run`.
"""

import argparse
import os
import random
import re
import subprocess
import sys
import time
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parents[1]
_HOSTILE = "tests/unit/hostile/test_"
PARSERS = {
    "envpack.toml": [f"{_HOSTILE}files.py::test_damaged_settings_of_a_project"],
    "config.pbtxt": [f"{_HOSTILE}files.py::test_damaged_configurations_of_a_model"],
    "edits of config.pbtxt": ["tests/unit/repository/test_config_editor_properties.py"],
    "smoke.json": [f"{_HOSTILE}files.py::test_samples", f"{_HOSTILE}files.py::test_damaged_samples"],
    "requirements files": ["tests/unit/requirements/test_odd_files.py"],  # of every format
    "envpack.lock": [f"{_HOSTILE}files.py::test_damaged_lockfiles", "tests/unit/lock/test_lock.py"],
    ".condarc": [f"{_HOSTILE}files.py::test_settings_of_conda", f"{_HOSTILE}files.py::test_damaged_settings_of_conda"],
    "manifests and inventories": [f"{_HOSTILE}files.py::test_descriptions_of_environments"],
    "archives and their sidecars": [f"{_HOSTILE}files.py::test_damaged_archives_and_their_sidecars"],
    "links in archives": ["tests/unit/archive/test_tar_members.py"],
    "records of conda": [
        f"{_HOSTILE}installed_packages.py::test_records_of_conda_with_one_value_replaced",
        f"{_HOSTILE}installed_packages.py::test_damaged_records_of_conda",
        f"{_HOSTILE}installed_packages.py::test_records_in_archives",
    ],
    "RECORD, METADATA, INSTALLER, direct_url.json": [
        f"{_HOSTILE}installed_packages.py::test_records_of_wheels",
        f"{_HOSTILE}installed_packages.py::test_origins_of_wheels",
    ],
    ".pth": [f"{_HOSTILE}installed_packages.py::test_path_files"],
    "pyvenv.cfg": [f"{_HOSTILE}installed_packages.py::test_settings_of_virtual_environments"],
    "ELF headers": [f"{_HOSTILE}elf_headers.py::test_damaged_tables"],
    "placeholders of the prefix": ["tests/unit/environment/test_relocation.py"],
    "stubs": ["tests/native/test_damaged_file.py"],
    "logs of servers": [f"{_HOSTILE}server_output.py::test_logs", f"{_HOSTILE}server_output.py::test_errors_of_models"],
    "answers of servers": [f"{_HOSTILE}server_output.py::test_answers"],
    "binary tensors": [f"{_HOSTILE}server_output.py::test_binary_tensors", "tests/unit/server/test_tensors.py"],
    "processes": [
        f"{_HOSTILE}server_output.py::test_processes_of_a_container",
        f"{_HOSTILE}server_output.py::test_other_writers_to_the_list_of_processes",
        f"{_HOSTILE}server_output.py::test_files_of_processes",
    ],
    "what servers leave": [
        f"{_HOSTILE}server_output.py::test_owners_of_servers",
        f"{_HOSTILE}server_output.py::test_records_of_made_objects",
    ],
    "output of conda, uv and interpreters": [f"{_HOSTILE}programs.py"],
    "stores and publications": [f"{_HOSTILE}stores.py"],
    "trained artifacts": [f"{_HOSTILE}artifacts.py"],
    "images in registries": [f"{_HOSTILE}images.py"],
    "signed statements": ["tests/unit/deployment/test_signing.py::test_damaged_envelopes"],
    "channels": [f"{_HOSTILE}programs.py::test_indexes_of_channels"],
    "values of the command line": [f"{_HOSTILE}command_line.py"],
    "text that is shown": [
        f"{_HOSTILE}texts.py::test_text_is_shown_as_text",
        f"{_HOSTILE}texts.py::test_markup_in_a_text_is_text",
    ],
    "secrets in addresses": [
        f"{_HOSTILE}texts.py::test_no_password_survives",
        f"{_HOSTILE}texts.py::test_no_signature_survives",
        f"{_HOSTILE}texts.py::test_other_texts_stay_readable",
    ],
}
_PASSED = re.compile(r"(\d+) passing(?: examples)?,")


def search(tests: list[str], minutes: float) -> tuple[int, str]:
    """Run tests until the time is over or one fails; returns the number of examples, and the output of the failure."""
    until, examples = time.monotonic() + 60 * minutes, 0
    options = ["-q", "-x", "--hypothesis-profile=fuzz", "--hypothesis-show-statistics", "--show-capture=no"]
    while time.monotonic() < until:
        seed = f"--hypothesis-seed={random.randrange(1 << 32)}"
        run = subprocess.run(
            [sys.executable, "-m", "pytest", *options, seed, *tests],
            cwd=CHECKOUT, env=os.environ, capture_output=True, text=True, check=False,
        )  # fmt: skip
        examples += sum(map(int, _PASSED.findall(run.stdout)))
        if run.returncode:
            return examples, run.stdout + run.stderr
    return examples, ""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parsers", nargs="*", metavar="PARSER", help="default: all, one after the other")
    parser.add_argument("--minutes", type=float, default=10, help="for each parser")
    parser.add_argument("--list", action="store_true", help="print the parsers and their tests")
    arguments = parser.parse_args()
    unknown = set(arguments.parsers) - PARSERS.keys()
    if unknown:
        parser.error(f"unknown: {', '.join(sorted(unknown))}")
    chosen = {name: PARSERS[name] for name in arguments.parsers or PARSERS}
    if arguments.list:
        print("\n".join(f"{name}: {' '.join(tests)}" for name, tests in chosen.items()))
        return 0
    failed = 0
    for name, tests in chosen.items():
        examples, failure = search(tests, arguments.minutes)
        print(f"{name}: {examples} examples in {arguments.minutes:g} minutes, {'FAILED' if failure else 'no finding'}")
        print(failure, end="", flush=True)
        failed += bool(failure)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
