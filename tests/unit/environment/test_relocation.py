import base64
import hashlib
import json
import os
import subprocess
import time
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from envpack.conda.engine import PREFIX_PLACEHOLDER
from envpack.environment.relocation import (
    ACTIVATE,
    check_prefix,
    relocatable_script,
    relocate,
    replace_placeholder,
    update_records,
    write_activation,
)
from envpack.support.errors import UsageError
from tests.tables import every_row


def prefix_with_script(root, text):
    site = root / "lib/python3.8/site-packages/tool-1.dist-info"
    for folder in (root / "bin", root / "conda-meta", site):
        folder.mkdir(parents=True)
    script = root / "bin/tool"
    script.write_text(text)
    script.chmod(0o755)
    (site / "direct_url.json").write_text('{"url": "file:///home/me/tool"}')
    rows = "../../../bin/tool,sha256=old,1\ntool-1.dist-info/direct_url.json,sha256=x,2\ntool-1.dist-info/RECORD,,\n"
    (site / "RECORD").write_text(rows)
    return script, site / "RECORD"


def test_script_finds_python_through_path_and_record_follows(tmp_path):
    script, record = prefix_with_script(tmp_path, f"#!{tmp_path}/bin/python3\nprint(1)\n")
    relocate(tmp_path, (tmp_path,), minor="3.8")
    assert script.read_text() == "#!/usr/bin/env python3.8\nprint(1)\n"
    assert script.stat().st_mode & 0o777 == 0o755
    digest = base64.urlsafe_b64encode(hashlib.sha256(script.read_bytes()).digest()).rstrip(b"=").decode()
    assert f"\n../../../bin/tool,sha256={digest},{script.stat().st_size}\n".encode() in b"\n" + record.read_bytes()


def test_local_origin_of_a_package_is_forgotten(tmp_path):
    _, record = prefix_with_script(tmp_path, "#!/bin/sh\n")
    relocate(tmp_path, (tmp_path,), minor="3.8")
    assert not record.with_name("direct_url.json").exists()
    assert "direct_url" not in record.read_text()


def test_installer_cache_is_never_edited(tmp_path):
    script, _ = prefix_with_script(tmp_path / "env", f"#!{tmp_path}/env/bin/python\n")
    os.link(script, tmp_path / "cached")
    relocate(tmp_path / "env", (tmp_path / "env",), minor="3.8")
    assert (tmp_path / "cached").read_text() == f"#!{tmp_path}/env/bin/python\n"


def test_conda_records_do_not_point_into_the_cache(tmp_path):
    prefix_with_script(tmp_path, "#!/bin/sh\n")
    record = tmp_path / "conda-meta/x-1-0.json"
    metadata = {"name": "x", "version": "1", "fn": "x.conda", "url": "file:///c/x.conda"}
    metadata |= {"extracted_package_dir": "/c/x", "link": {"source": "/c"}}
    record.write_text(json.dumps(metadata))
    record.chmod(0o600)
    relocate(tmp_path, (tmp_path,), minor="3.8")
    assert "/c" not in record.read_text()
    assert json.loads(record.read_text())["url"] == "x.conda"
    assert record.stat().st_mode & 0o777 == 0o644
    record.write_text(json.dumps({"name": "x", "version": "1", "url": "file:///c/x.conda"}))
    relocate(tmp_path, (tmp_path,), minor="3.8")
    assert json.loads(record.read_text())["url"] == ""


@pytest.mark.parametrize(
    "start",
    [
        "#!{}/bin/python\n",
        "#! {}/bin/python3.9\n",
        "#!{}/bin/python3 -E\n",
        "#!/bin/sh\n'''exec' \"{}/bin/python\" \"$0\" \"$@\"\n' '''\n",
        "#!/bin/sh\n'''exec' {}/bin/python3.9 \"$0\" \"$@\"\n' '''\n",
        "#!/bin/sh\n'''exec' \"{}/bin/python\" \"$0\" \"$@\" #'''\n",
        "#!/bin/sh\n'''exec' '{}/bin/python3' \"$0\" \"$@\" #'''\n",
        "#!/bin/sh\n'''exec' {}/bin/python \"$0\" \"$@\" #'''\n",
    ],
)
def test_every_form_of_a_first_line_is_replaced_and_the_rest_stays(start):
    """Installers write the forms with /bin/sh where the path is too long for a first line, or has a space."""
    folders = (Path("/build/a+b (1)/env"), Path("/store/env"))
    for folder in folders:
        script = (start.format(folder) + "print('''x''')\n").encode()
        assert relocatable_script(script, folders, minor="3.9") == b"#!/usr/bin/env python3.9\nprint('''x''')\n"
        assert relocatable_script(b"\n" + script, folders, minor="3.9") == b"\n" + script
        assert relocatable_script(script, [Path("/other")], minor="3.9") == script


@given(st.binary())
def test_scripts_of_others_stay_as_they_are(content):
    assert relocatable_script(content, ("/build/env",), minor="3.8") == content


def test_links_folders_and_programs_in_bin_stay(tmp_path):
    script, _ = prefix_with_script(tmp_path / "env", f"#!{tmp_path}/env/bin/python\n")
    outside = tmp_path / "outside"
    outside.write_text(script.read_text())
    (tmp_path / "env/bin/link").symlink_to(outside)
    (tmp_path / "env/bin/folder").mkdir()
    (tmp_path / "env/bin/program").write_bytes(b"\x7fELF")
    relocate(tmp_path / "env", (tmp_path / "env",), minor="3.8")
    assert outside.read_text() == f"#!{tmp_path}/env/bin/python\n"
    assert (tmp_path / "env/bin/link").is_symlink()
    assert script.read_text() == "#!/usr/bin/env python3.8\n"


def test_an_origin_on_the_network_stays(tmp_path):
    _, record = prefix_with_script(tmp_path, "#!/bin/sh\n")
    record.with_name("direct_url.json").write_text('{"url": "https://example/x.whl"}')
    before = record.read_text()
    relocate(tmp_path, (tmp_path,), minor="3.8")
    assert record.with_name("direct_url.json").exists()
    assert record.read_text() == before


def test_records_follow_files_that_changed_later(tmp_path):
    script, record = prefix_with_script(tmp_path, "#!/bin/sh\n")
    rows = record.read_text().splitlines()
    script.write_text("changed")
    update_records(tmp_path, {script})
    digest = base64.urlsafe_b64encode(hashlib.sha256(b"changed").digest()).rstrip(b"=").decode()
    assert record.read_text().splitlines() == [f"../../../bin/tool,sha256={digest},7", *rows[1:]]
    before = record.stat().st_ino
    update_records(tmp_path, {tmp_path / "other"})
    assert record.stat().st_ino == before


def test_a_record_of_conda_names_no_local_channel(tmp_path):
    prefix_with_script(tmp_path, "#!/bin/sh\n")
    written = {}
    for name, url in (("local", "file:///c/x.conda"), ("remote", "https://c/x.conda")):
        metadata = {"name": name, "version": "1", "fn": "x.conda", "url": url, "channel": "c"}
        metadata |= {"package_tarball_full_path": "/c", "link": {"type": 3}}
        (tmp_path / f"conda-meta/{name}.json").write_text(json.dumps(metadata))
    relocate(tmp_path, (tmp_path,), minor="3.8")
    for name in ("local", "remote"):
        written[name] = json.loads((tmp_path / f"conda-meta/{name}.json").read_text())
    common = {"version": "1", "fn": "x.conda", "package_tarball_full_path": "", "link": {"type": 1, "source": ""}}
    assert written == {
        "local": {**common, "name": "local", "url": "x.conda", "channel": "local"},
        "remote": {**common, "name": "remote", "url": "https://c/x.conda", "channel": "c"},
    }


def test_files_that_installers_leave_are_removed(tmp_path):
    prefix_with_script(tmp_path, "#!/bin/sh\n")
    for name in ("CACHEDIR.TAG", ".lock", "kept"):
        (tmp_path / name).touch()
    relocate(tmp_path, (tmp_path,), minor="3.8")
    assert sorted(path.name for path in tmp_path.iterdir() if path.is_file()) == ["kept"]


def test_the_activation_replaces_what_a_package_installed(tmp_path):
    (tmp_path / "bin").mkdir()
    for name in ("bin/activate", "pyvenv.cfg"):
        (tmp_path / name).write_text("of a package")
    write_activation(tmp_path)
    assert (tmp_path / "bin/activate").read_text() == ACTIVATE
    assert (tmp_path / "pyvenv.cfg").read_text() == "include-system-site-packages = false\n"


OLD = PREFIX_PLACEHOLDER.encode()


def test_texts_get_the_folder_wherever_they_name_it():
    assert replace_placeholder(b"a=" + OLD + b"/x\nb=" + OLD, "/m/env", "text") == b"a=/m/env/x\nb=/m/env"


def test_texts_in_binary_files_keep_their_length():
    content = b"\x7fELF\0" + OLD + b"/lib:" + OLD + b"/bin\0after\0"
    found = replace_placeholder(content, "/m/env", "binary")
    assert len(found) == len(content)
    assert found.startswith(b"\x7fELF\0/m/env/lib:/m/env/bin\0\0")
    assert found.endswith(b"\0after\0")


@every_row("content", [OLD + b"/lib\0" + b"x" * 200_000, OLD * 10_000])
def test_the_time_for_a_binary_grows_with_its_size_alone(content):
    """Quadratic time takes more than ten seconds of processor time."""
    started = time.process_time()
    replace_placeholder(content + b"!", "/m/env", "binary")
    assert time.process_time() - started < 5


def test_a_string_that_the_file_does_not_end_stays():
    content = b"\0" + OLD + b"/lib\0x" + OLD + b"/bin"
    assert replace_placeholder(content, "/m/env", "binary") == (
        b"\0" + b"/m/env/lib\0".ljust(len(OLD) + 5, b"\0") + b"x" + OLD + b"/bin"
    )


def test_a_folder_of_the_longest_name_fits():
    longest = "/" + "x" * (len(PREFIX_PLACEHOLDER) - 1)
    check_prefix(longest)
    assert replace_placeholder(OLD + b"\0", longest, "binary") == longest.encode() + b"\0"


def test_a_longer_folder_is_refused():
    with pytest.raises(UsageError) as caught:
        check_prefix("/" + "ü" * 100)
    assert caught.value.kind == "path-too-long"


@pytest.fixture
def env(tmp_path):
    root = tmp_path / "an env"
    (root / "bin").mkdir(parents=True)
    write_activation(root)
    return root


def bash(script, cwd="/", **variables):
    done = subprocess.run(
        ["/bin/bash", "-c", script], cwd=cwd, env=variables, capture_output=True, text=True, check=False
    )
    return done.returncode, done.stdout.split("\n")[:-1], done.stderr


def test_sourcing_sets_what_a_stub_needs_and_no_external_program_is_used(env):
    script = f'source "{env}/bin/activate"; echo $?; echo "$PATH"; echo "$CONDA_PREFIX"; echo "$PYTHONNOUSERSITE"'
    assert bash(script, PATH="/nowhere") == (0, ["0", f"{env}/bin:/nowhere", str(env), "1"], "")


def test_relative_path_works(env):
    assert bash("source activate; echo $CONDA_PREFIX", cwd=env / "bin", PATH="/bin")[1] == [str(env)]
    assert bash("source ./bin/activate; echo $CONDA_PREFIX", cwd=env, PATH="/bin")[1] == [str(env)]


def test_cdpath_and_odd_names_do_not_matter(env, tmp_path):
    odd = tmp_path / "-x $HOME"
    env.rename(odd)
    script = 'source ./bin/activate; echo "$CONDA_PREFIX"'
    assert bash(script, cwd=odd, PATH="/bin", CDPATH="/usr:/")[1] == [str(odd)]


def test_pythonhome_is_removed_and_pythonpath_kept(env):
    script = f'source "{env}/bin/activate"; echo "${{PYTHONHOME-none}} $PYTHONPATH"'
    assert bash(script, PATH="/bin", PYTHONHOME="/h", PYTHONPATH="/p")[1] == ["none /p"]


def test_sourcing_twice_adds_bin_once(env):
    script = f'source "{env}/bin/activate"; source "{env}/bin/activate"; echo "$PATH"'
    assert bash(script, PATH="/bin")[1] == [f"{env}/bin:/bin"]


def test_package_scripts_run_and_their_failure_does_not_matter(env):
    scripts = env / "etc/conda/activate.d"
    scripts.mkdir(parents=True)
    (scripts / "a.sh").write_text("export FROM_A=$CONDA_PREFIX; return 3\n")
    (scripts / "b.sh").write_text("false\n")
    assert bash(f'source "{env}/bin/activate" && echo "$FROM_A"', PATH="/bin") == (0, [str(env)], "")


def test_strict_shell_survives(env):
    assert bash(f'set -eu; source "{env}/bin/activate"; echo "$PATH"')[:2] == (0, [f"{env}/bin:{default_path()}"])


def default_path():
    return subprocess.run(
        ["/bin/bash", "-c", 'echo "$PATH"'], env={}, capture_output=True, text=True, check=True
    ).stdout.strip()


def test_user_site_is_switched_off_without_activation(env):
    assert (env / "pyvenv.cfg").read_text() == "include-system-site-packages = false\n"


def test_files_are_readable_for_everybody(env):
    assert (env / "bin/activate").stat().st_mode & 0o777 == 0o644
