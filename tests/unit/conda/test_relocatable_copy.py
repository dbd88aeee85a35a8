import re

import pytest

from envpack.conda.interpreter_package import (
    PLACEHOLDER,
    _fixed_sources,
    _relative_pkgconfig,
    _runtime_sysconfig,
    _undo_distribution_layout,
    neutralise_prefix,
)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (b"\0/home/me/py\0", b"\0/____/me/py\0"),
        (b"\0/home/me/py/lib\0", b"\0/____/me/py/lib\0"),
        (b"\0/home/me/py/lib/python3.8:x", b"\0/____/me/py/lib/python3.8:x"),
        (b"\0/home/me/python\0", b"\0/home/me/python\0"),
        (b"\0/x/home/me/py\0", b"\0/x/home/me/py\0"),
    ],
)
def test_only_the_first_component_of_the_prefix_changes(tmp_path, before, after):
    from pathlib import Path

    file = tmp_path / "lib.so"
    file.write_bytes(before)
    neutralise_prefix(file, Path("/home/me/py"))
    assert file.read_bytes() == after


def test_settings_follow_the_running_prefix():
    text = _runtime_sysconfig("build_time_vars = {'LIBDIR': '/home/me/py/lib', 'N': 1}", re.compile("/home/me/py"))
    space = {}
    exec(text, space)
    import sys

    assert space["build_time_vars"] == {"LIBDIR": f"{sys.prefix}/lib", "N": 1}


def test_pkg_config_description_is_relative_to_itself():
    text = _relative_pkgconfig("prefix=/home/me/py\nlibdir=/home/me/py/lib\n", re.compile("/home/me/py"))
    assert text == "prefix=${pcfiledir}/../..\nlibdir=${prefix}/lib\n"


@pytest.mark.parametrize("name", ["sysconfig.py", "sysconfig/__init__.py"], ids=["a module", "a package, since 3.13"])
def test_installers_use_site_packages_in_a_copy_of_debians_python(tmp_path, name):
    sysconfig = tmp_path / name
    sysconfig.parent.mkdir(exist_ok=True)
    sysconfig.write_text("if True:\n    prefix_scheme = 'posix_local'\n")
    _undo_distribution_layout(tmp_path)
    assert sysconfig.read_text() == "if True:\n    prefix_scheme = 'posix_prefix'\n"
    assert (tmp_path / "dist-packages").readlink().name == "site-packages"


def test_modules_with_the_placeholder_are_not_compiled(tmp_path):
    library = tmp_path / "lib/python3.12"
    library.mkdir(parents=True)
    (library / "fixed.py").write_text("X = '/usr'")
    (library / "rooted.py").write_text(f"X = '{PLACEHOLDER}'")
    assert _fixed_sources(tmp_path, library) == ["lib/python3.12/fixed.py"]
