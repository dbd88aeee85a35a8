"""Match specs of conda as text."""

import pytest

from envpack.requirements.conda_spec import parse_spec, python_range, tidy_spec, without_build
from envpack.requirements.target import allows_minor, only_system, selects, system_of_prefix
from tests.tables import every_row


@every_row(
    ("text", "channel", "name", "version"),
    [
        ("numpy", "", "numpy", ""),
        ("NumPy=1.26", "", "numpy", "=1.26"),
        ("numpy=1.19.2=py38h54aff64_0", "", "numpy", "=1.19.2"),
        ("numpy >= 1.20 , < 2", "", "numpy", ">=1.20,<2"),
        ("pytorch>=2.7.0=cuda12*", "", "pytorch", ">=2.7.0"),
        ("pytorch=1.8.1=py3.8_cuda11.1_cudnn8.0.5_0", "", "pytorch", "=1.8.1"),
        ("x264=1!161.3030=h0b41bf4_3", "", "x264", "=1!161.3030"),
        ("tensorflow 1.15", "", "tensorflow", "1.15"),
        ("python 3.10.* *_cpython", "", "python", "3.10.*"),
        ("python[version='>=3.8,<3.11', build=*_cpython]", "", "python", ">=3.8,<3.11"),
        ("conda-forge::numpy=1.2", "conda-forge", "numpy", "=1.2"),
        ("https://x.org/c/linux-64::numpy", "https://x.org/c/linux-64", "numpy", ""),
        ("https://x.org:80/c::numpy", "https://x.org:80/c", "numpy", ""),
        ("conda-forge:numpy=1.2", "", "numpy", "=1.2"),
        ("_libgcc_mutex=0.1=main", "", "_libgcc_mutex", "=0.1"),
        ("numpy=1.2[build='a]b']", "", "numpy", "=1.2[build"),
        ("numpy[[version='1.2']", "", "numpy", "1.2"),
        ("numpy[channel=conda-forge]", "conda-forge", "numpy", ""),
        ("a::numpy[version='>1', channel='https://x.org/c', build=py*]", "https://x.org/c", "numpy", ">1"),
        ("numpy >1[channel=c]", "c", "numpy", ">1"),
        ("numpy[build='channel=c']", "", "numpy", ""),
        ("numpy=1.2=", "", "numpy", "=1.2="),
        ("numpy ==1.2 a b", "", "numpy", "==1.2"),
        (">=3", "", "", ""),
        ("3", "", "", ""),
    ],
)
def test_parts_of_a_match_spec(text, channel, name, version):
    assert parse_spec(text) == (channel, name, version)


@every_row(
    ("text", "expected"),
    [
        ("numpy   >=  1.2 ,  < 2", "numpy >=1.2,<2"),
        ("numpy = 1.2", "numpy =1.2"),
        ("x == 1.2 py_0", "x ==1.2 py_0"),
        ("a::numpy[version='>1', channel=\"c\", build=py*]", "c::numpy[version='>1',build=py*]"),
        ("numpy[channel=c]", "c::numpy"),
        ("numpy[channels=c]", "numpy[channels=c]"),
        ("conda-forge:numpy=1.2", "numpy=1.2"),
        ("c::n:numpy", "c::numpy"),
    ],
)
def test_blanks_of_a_match_spec_are_reduced(text, expected):
    assert tidy_spec(text) == expected


@every_row(
    ("spec", "expected"),
    [
        ("numpy=1.19.2=py38h54aff64_0", "numpy==1.19.2"),
        ("c::numpy=1.26.*=py38*", "c::numpy=1.26.*"),
        ("numpy 1.2 py_0", "numpy 1.2"),
        ("c::numpy[version='1.2',build=py_0]", "c::numpy 1.2"),
        ("numpy[build='py38*']", "numpy"),
        ("numpy[md5=b1b2]", "numpy[md5=b1b2]"),
        ("numpy=1.2", "numpy=1.2"),
        ("numpy", "numpy"),
    ],
)
def test_a_build_is_removed(spec, expected):
    assert without_build(spec) == expected


@every_row(
    ("version", "allowed"),
    [
        ("", "3.6 3.8 3.10 3.12"),
        ("*", "3.6 3.8 3.10 3.12"),
        ("=3.8", "3.8"),
        ("==3.8", "3.8"),
        ("3.8.5", "3.8"),
        ("=3.8.*", "3.8"),
        ("3.1*", ""),
        (">=3.8", "3.8 3.10 3.12"),
        (">=3.8.*", "3.8 3.10 3.12"),
        (">=3.6,<3.9", "3.6 3.8"),
        (">=3.6,<=3.8", "3.6 3.8"),
        (">3.8,!=3.12.*", "3.8 3.10"),
        ("~=3.8.1", "3.8"),
        ("~=3.8", "3.8 3.10 3.12"),
        ("~=3", "3.6 3.8 3.10 3.12"),
        ("=3.6|>=3.12", "3.6 3.12"),
        ("=2.7", ""),
    ],
)
def test_ranges_of_python(version, allowed):
    found = python_range(version)
    assert " ".join(minor for minor in ("3.6", "3.8", "3.10", "3.12") if allows_minor(found, minor)) == allowed


@pytest.mark.parametrize("version", ["=three", ">=3.x", "<>3", ">="])
def test_what_is_no_range_of_python_is_refused(version):
    with pytest.raises(ValueError, match=r"."):
        python_range(version)


@every_row(
    ("selector", "x86", "arm"),
    [
        ("linux", True, True),
        ("linux64", True, False),
        ("aarch64", False, True),
        ("win", False, False),
        ("not win", True, True),
        ("osx or linux64", True, False),
        ("unix and not aarch64", True, False),
    ],
)
def test_selectors_choose_platforms(selector, x86, arm):
    assert (selects(selector, "linux-64"), selects(selector, "linux-aarch64")) == (x86, arm)
    with pytest.raises(ValueError, match="unknown"):
        selects("py310", "linux-64")


def test_the_system_of_an_export_is_recognised():
    systems = {r"C:\Users\me\x": "Windows", "/Users/me/x": "macOS", "/home/me/x": "", "/opt/conda/envs/x": "", "": ""}
    assert {prefix: system_of_prefix(prefix) for prefix in systems} == systems
    assert [
        only_system(name) for name in ("pywin32", "vs2015_runtime", "m2w64-gcc-libs", "m2-libedit", "appnope", "m2r")
    ] == [
        *("Windows", "Windows", "Windows", "Windows", "macOS", ""),
    ]
