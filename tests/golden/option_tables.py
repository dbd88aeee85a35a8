"""Sets of options, with and without envpack.toml, for `build`, `lock` and `stub`, and the models that they are for."""

from dataclasses import dataclass

from tests.faults.broken_models import CONFIG, DOUBLE, ENSEMBLE

_WARM = 'parameters { key: "ENVPACK_START" value { string_value: "warm" } }\n'
# good takes what it requires from pip, conda from conda; bare requires nothing, and its configuration says more.
MODELS = {
    "good/config.pbtxt": CONFIG,
    "good/1/model.py": DOUBLE,
    "good/requirements.txt": "numpy<2\n",
    "conda/config.pbtxt": CONFIG,
    "conda/1/model.py": DOUBLE,
    "conda/environment.yml": "channels: [conda-forge]\ndependencies: [python=3.11, numpy, pip, {pip: [six]}]\n",
    "bare/config.pbtxt": CONFIG.replace('"python"', '"python_312"') + _WARM,
    "bare/1/model.py": DOUBLE,
    "other/needs.txt": "numpy\norjson\n",
    "pair/config.pbtxt": ENSEMBLE,
    "pair/1/.keep": "",
}


@dataclass(frozen=True)
class Options:
    """One set.

    Attributes:
        name: what it is about.
        words: words of the command; ``WORK`` stands for the folder with the repository, ``pythons`` and ``store``.
        project: text of envpack.toml, ``""`` for none.
    """

    name: str
    words: str
    project: str = ""


_SETTINGS = """\
triton = "25.08"
platform = "linux-aarch64"
channels = ["https://channel.example/conda", "conda-forge"]
served_from = "/models"
format = "tar.gz"
exclude = ["*.pyi"]
toolchain = "zig"
link_mode = "copy"
start = "warm"
store = "s3://bucket/envpack"
push = true
"""
_MODEL = """\
[models.good]
python = "3.12"
requirements = "other/needs.txt"
format = "tar"
exclude = ["docs/"]
toolchain = "system"
link_mode = "hardlink"
layout = "backend"
start = "cold"
"""
_PREFIX = '[models.good]\nfrom_prefix = "../pythons/3.12"\n'
_EVERYTHING = (
    "good --python 3.9 --triton 24.10 --channel https://other.example/conda --platform linux-64 --allow-source b "
    "--format tar --set exclude=*.md --set include=docs/keep.md --stub always --set toolchain=system "
    "--set link_mode=clone --set layout=model --set served_from=/mnt/models --start cold --set strip=true --force"
)
_TWO_PREFIXES = "--prefix WORK/pythons/3.8 --prefix WORK/pythons/3.12"

BUILDS = (
    Options("no options", ""),
    Options("every model", "good conda bare pair"),
    Options("one model", "good"),
    Options("a Python", "good --python 3.12"),
    Options("a Python for a model that names another", "conda --python 3.12"),
    Options("a release", "good --triton 25.08"),
    Options("an unknown release with an ABI", "good --triton 99.01 --set abi=25.04"),
    Options("an old release and an archive", "good --triton 23.04 --format tar.gz"),
    Options("another machine", "good --platform linux-x86_64 --channel conda-forge --channel WORK/channel"),
    Options("sources", "good --allow-source b --allow-source a"),
    Options("a preference for fetched Pythons", "good --set python_preference=managed"),
    Options("only Pythons of this machine, by a setting", "good", 'python_preference = "only-system"\n'),
    Options("patterns", "good --set exclude=*.md --set exclude=docs/ --set include=docs/keep.md"),
    Options("conda-pack", "good --set packer=conda-pack --format tar.gz"),
    Options("a prefix", "good --from-prefix WORK/pythons/3.12 --python 3.12 --platform linux-64"),
    Options(
        "a backend",
        "good --set layout=backend --set backends=WORK/ours --set copy_library=/opt/tritonserver/backends/python",
    ),
    Options("a model with a backend, beside the model", "bare --set layout=model"),
    Options("a warm start", "good --start warm --stub auto --set strip=true"),
    Options("a store", "good --store file://WORK/store --set push=true"),
    Options("settings", "", _SETTINGS),
    Options("settings of a model", "good", _MODEL),
    Options("settings, and others of a model", "good", _SETTINGS + _MODEL),
    Options("options before settings", _EVERYTHING + " --store none", _SETTINGS + _MODEL),
    Options("a prefix in the settings", "good conda", _PREFIX),
    Options("a backend in the settings, in a folder", "good bare", 'layout = "backend"\nbackends = "ours"\n'),
    Options(
        "a store in the settings, and nothing is put there", "good --set push=false", 'store = "gs://b"\npush = true\n'
    ),
    Options("conda-pack and a folder", "good --set packer=conda-pack"),
    Options("a folder for an old release", "good", 'triton = "23.04"\n'),
    Options("a backend without a stub", "good --stub never", 'layout = "backend"\n'),
    Options("a warm start without a stub", "good --start warm --stub never"),
    Options("something to push, and no store", "good --set push=true"),
    Options("a store alone, and no cluster", "good --set store_only=true --store file://WORK/store"),
)
LOCKS = (
    Options("no options", ""),
    Options("one model, of which two packages are resolved anew", "good --update numpy --update six"),
    Options("options", "good --python 3.9 --triton 25.08 --channel https://other.example/conda"),
    Options("another machine", "--platform linux-aarch64 --allow-source :all:"),
    Options("settings", "", _SETTINGS),
    Options("settings of a model", "good", _MODEL),
    Options(
        "options before settings", "good --python 3.8 --channel local --store file://WORK/store", _SETTINGS + _MODEL
    ),
    Options("an unknown Python in the settings", "good", '[models.good]\npython = "3.7"\n'),
)
STUBS = (
    Options("one prefix", "--prefix WORK/pythons/3.8"),
    Options("one release", "--prefix WORK/pythons/3.8 --triton 24.10"),
    Options("an unknown release", "--prefix WORK/pythons/3.8 --triton 99.01 --abi 25.04 --toolchain zig --glibc 2.31"),
    Options(
        "two prefixes and two releases",
        f"{_TWO_PREFIXES} --triton 23.04 --triton 25.08 --output WORK/stubs --jobs 3",
    ),
    Options("some of a matrix", f"{_TWO_PREFIXES} --only cp3*-24* --triton 24.10"),
    Options(
        "all but some", "--prefix WORK/pythons/3.8 --prefix WORK/pythons/3.10 --skip *-aarch64 --output WORK/stubs"
    ),
    Options("of one platform", "--prefix WORK/pythons/3.10 --prefix WORK/pythons/3.12 --platform linux-aarch64"),
    Options("a store", "--prefix WORK/pythons/3.12 --store file://WORK/store --set push=true --toolchain system"),
    Options("an ABI and no release", "--prefix WORK/pythons/3.8 --abi 24.10"),
    Options("nothing of a matrix", f"{_TWO_PREFIXES} --only cp39-*"),
)
