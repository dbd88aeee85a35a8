"""What users get wrong on the command line, in a repository and in its files."""

from __future__ import annotations

from tests.faults.bad_artifacts import ARTIFACTS
from tests.faults.bad_input import MODEL, BadInput, usage
from tests.faults.broken_models import CONFIG, DOUBLE

_STEP = 'ensemble_scheduling {{ step [ {{ model_name: "{}" model_version: -1 }} ] }}\n'
_BUILD = "build --repository REPOSITORY --json"
_VERIFY = "verify --repository REPOSITORY --json"
_PUBLISH = "publish --repository REPOSITORY --json"
_BUILD_M = f"{_BUILD} m --python 3.10"


def _model(name: str, kind: str, says: tuple[str, ...], files: dict[str, str | bytes]) -> tuple[BadInput, ...]:
    """A model that neither build nor verify takes."""
    return tuple(
        BadInput(f"{verb}: {name}", command, 3, kind, says, files)
        for verb, command in (("build", _BUILD_M), ("verify", _VERIFY))
    )


def _project(name: str, text: str, *says: str, kind: str = "bad-project-file", code: int = 3) -> BadInput:
    return BadInput(f"envpack.toml: {name}", f"{_BUILD} m", code, kind, says, MODEL | {"envpack.toml": text})


def _requirements(name: str, file: str, text: str, *says: str) -> BadInput:
    files = {"m/config.pbtxt": CONFIG, "m/1/model.py": DOUBLE, f"m/{file}": text}
    return BadInput(f"requirements: {name}", _BUILD_M, 3, "bad-requirements", (f"m/{file}", *says), files)


CATALOGUE = (
    BadInput(
        "the folder of a model in place of the repository",
        "build x --json --repository REPOSITORY/m",
        3,
        "repository-empty",
        ("this folder is a model", "contains the model"),
        MODEL,
    ),
    BadInput(
        "a model of another repository",
        f"{_BUILD} ../elsewhere/m --python 3.10",
        3,
        "other-repository",
        ("'../elsewhere/m'", "--repository"),
    ),
    usage("a value with braces", f"{_BUILD} --set layout={{x}}", "unknown layout", "known: model, backend"),
    usage("a recipe that is missing", "build --json --recipe nowhere.json", "nowhere.json", "does not exist"),
    usage("a removed option", f"{_BUILD} --all", "no longer has --all", "without MODEL, a command works on all models"),
    usage("unknown command", "pack --json", "No such command 'pack'", "envpack --help"),
    usage("misspelt command", "biuld --json", "No such command 'biuld'. (Did you mean 'build'?)"),
    usage("unknown option", f"{_BUILD} m --pyton 3.10", "--pyton"),
    usage("option without its value", "run m --json --server", "'--server'", "envpack run --help"),
    usage("unknown format", f"{_BUILD} m --format zip", "'zip' is not one of"),
    usage("port out of range", f"{_VERIFY} --set port=70000", "70000"),
    usage(
        "relative path on the server",
        f"{_PUBLISH} oci://r.example/m:1 --served-from x",
        "--served-from must begin with /",
        "/models",
    ),
    usage("timeout of nothing", f"{_VERIFY} --timeout 0", "--timeout"),
    usage("image without a container", "dev --json --repository REPOSITORY --image i", "--runtime docker"),
    usage("memory of no container", "dev --json --repository REPOSITORY --set memory=1g", "memory is for a"),
    usage("image to debug in", "dev m --json --repository REPOSITORY --runtime auto --debug --image i", "no --debug"),
    BadInput(
        "input that is missing",
        "run m --json --repository REPOSITORY --input REPOSITORY/x.npy",
        3,
        "bad-input",
        ("x.npy", "No such file"),
    ),
    BadInput(
        "misspelt model to inspect",
        "inspect m1 --json --repository REPOSITORY",
        2,
        "usage",
        ("'m1' does not exist", "did you mean m?"),
        MODEL,
    ),
    usage("address to inspect", "inspect --json s3://bucket/m", "s3://bucket/m is no address of", "envpack fetch s3:"),
    usage("stub for nothing", "stub --json", "--python or --prefix"),
    usage("stub for every Python and one", "stub --json --python 3.8 --all-pythons", "--python or --all-pythons"),
    usage("stubs for no core", "stub --json --python 3.8 --jobs 0", "--jobs"),
    usage("stub for another system", "stub --json --python 3.8 --platform windows", "'windows' is not one of"),
    usage("stub for a prefix that is missing", "stub --json --prefix REPOSITORY/none", "does not exist"),
    usage("inspect what is missing", "inspect --json REPOSITORY/none", "none' does not exist, and is no model of"),
    BadInput(
        "inspect in a repository that is missing",
        "inspect --json m --repository REPOSITORY/none",
        3,
        "repository-missing",
        ("model repository not found", "--repository"),
    ),
    BadInput("unknown release", f"{_BUILD_M} --triton 99.99", 2, "unknown-release", ("'99.99'", "a year and a month")),
    BadInput("folder for 23.04", f"{_BUILD_M} --triton 23.04", 2, "folder-unsupported", ("23.04", "--format tar.gz")),
    BadInput(
        "stub for an unknown release",
        "stub --json --python 3.10 --triton 1.0 --output REPOSITORY",
        2,
        "unknown-release",
        ("'1.0'", "a year and a month"),
    ),
    BadInput(
        "unknown template", "init --json --template x REPOSITORY/new", 2, "unknown-template", ("'x'", "decoupled")
    ),
    BadInput(
        "model with a hyphen", "init --json --template bls REPOSITORY/my-m", 3, "bad-model-name", ("'my-m'", "letters")
    ),
    BadInput("model that exists", "init --json --template bls REPOSITORY/m", 3, "not-empty", ("exists",)),
    usage("recipe and template", "init --json --recipe digits --template bls REPOSITORY/new", "only one"),
    BadInput("unknown recipe", "init --json --recipe nope REPOSITORY/new", 2, "unknown-recipe", ("'nope'", "digits")),
    *(
        BadInput(f"Python {version}", f"{_BUILD} m --python {version}", 2, "bad-python-version", (version, "3.6, 3.7"))
        for version in ("ten", "3", "3.10.2", "3.x", "2.7", "3.5", "3.99")
    ),
    BadInput(
        "stub for Python 4", "stub --json --python 4.0 --output REPOSITORY", 2, "bad-python-version", ("4.0", "3.6")
    ),
    BadInput(
        "stubs for two Pythons, one unknown",
        "stub --json --python 3.10 --python 3.5 --output REPOSITORY",
        2,
        "bad-python-version",
        ("3.5", "3.6"),
    ),
    BadInput(
        "stubs for two releases, one unknown",
        "stub --json --python 3.10 --triton 24.10 --triton 24.1 --output REPOSITORY",
        2,
        "unknown-release",
        ("'24.1'", "write 24.10"),
    ),
    BadInput(
        "a prefix without a Python",
        "stub --json --prefix REPOSITORY --output REPOSITORY",
        5,
        "libpython-missing",
        ("repository: ", "--enable-shared"),
    ),
    *ARTIFACTS,
    BadInput(
        "init into a folder with a recipe's name", "init --json REPOSITORY/router", 2, "usage", ("--recipe router",)
    ),
    BadInput(
        "init into a folder with a template's name", "init --json bls", 2, "usage", ("--template bls", "digits bls")
    ),
    BadInput("init into a full folder", "init --json REPOSITORY", 3, "not-empty", ("repository: ",)),
    *(
        BadInput(f"init {what} where no stub starts", f"init --json REPOSITORY/a;b/new {how}", 3, "bad-path", ("';'",))
        for what, how in (("a recipe", ""), ("a template", "--template bls"), ("an artifact", "--from shape:f"))
    ),
    BadInput("init over a file", "init --json REPOSITORY/m/config.pbtxt", 3, "not-empty", ("config.pbtxt: ",)),
    BadInput(
        "no repository",
        "build --repository REPOSITORY/none --json m",
        3,
        "repository-missing",
        ("none", "--repository"),
    ),
    BadInput(
        "verify: no repository",
        "verify --repository REPOSITORY/none --json",
        3,
        "repository-missing",
        ("--repository",),
    ),
    BadInput("empty repository", _BUILD, 3, "repository-empty", ("envpack init",), {}),
    BadInput("verify: empty repository", _VERIFY, 3, "repository-empty", ("envpack init",), {}),
    BadInput("no model folder", f"{_BUILD} x --python 3.10", 3, "model-missing", ("'x'", "repository/x")),
    BadInput("one of two is missing", f"{_BUILD} m x --python 3.10", 3, "model-missing", ("'x'",)),
    BadInput("verify: no model folder", f"{_VERIFY} x", 3, "model-missing", ("'x'",)),
    *_model("no code", "model-without-code", ("m/1/model.py",), {"m/config.pbtxt": CONFIG}),
    *_model("a version without code", "model-without-code", ("m/2",), MODEL | {"m/2/weights.bin": "x"}),
    *_model(
        "unknown field in config.pbtxt",
        "bad-config",
        ("m/config.pbtxt:2", "max_batchsize"),
        MODEL | {"m/config.pbtxt": 'backend: "python"\nmax_batchsize: 4\n'},
    ),
    *_model(
        "unclosed list in config.pbtxt",
        "bad-config",
        ("m/config.pbtxt:3",),
        MODEL | {"m/config.pbtxt": 'backend: "python"\ninput [ {\n  name: "IN" data_type TYPE_FP32\n'},
    ),
    *_model("config.pbtxt in Latin-1", "bad-config", ("UTF-8",), MODEL | {"m/config.pbtxt": b'name: "\xe9"\n'}),
    *_model(
        "another name",
        "model-name-mismatch",
        ("'other'", "'m'"),
        MODEL | {"m/config.pbtxt": f'name: "other"\n{CONFIG}'},
    ),
    BadInput(
        "another backend",
        _BUILD_M,
        3,
        "not-a-python-model",
        ("'onnxruntime'",),
        {"m/config.pbtxt": 'backend: "onnxruntime"\n', "m/1/model.onnx": ""},
    ),
    BadInput(
        "ensembles that run each other",
        _VERIFY,
        3,
        "ensemble-cycle",
        ("a -> b -> a",),
        {
            "a/config.pbtxt": 'platform: "ensemble"\n' + _STEP.format("b"),
            "b/config.pbtxt": 'platform: "ensemble"\n' + _STEP.format("a"),
        },
    ),
    *(
        BadInput(f"{verb}: {what} in the path", command, 3, "bad-path", (repr(what), "move"), folder=f"re{what}po")
        for what in (" ", "$", "'", "&", ";", "(")
        for verb, command in (("build", _BUILD_M), ("verify", _VERIFY))
    ),
    *(
        BadInput(
            f"{verb}: a path that is not UTF-8", command, 3, "name-not-text", ("not valid UTF-8",), folder="re\udcffpo"
        )
        for verb, command in (
            ("build", _BUILD_M),
            ("verify", _VERIFY),
            ("lock", "lock m --json --repository REPOSITORY"),
        )
    ),
    _project("not TOML", '[models.m]\npython = "3.10"\ntriton : 24.10\n', "envpack.toml:3", "[models.NAME]"),
    _project("cut off", "[models.m", "envpack.toml", "[models.NAME]"),
    _project("unknown key", '[models.m]\npyton = "3.10"\n', "'pyton'", "[models.m]", "did you mean python?"),
    _project(
        "setting of a model at the top", 'from_prefix = "/venv"\n', "'from_prefix'", "write it below [models.NAME]"
    ),
    _project("setting of the top in a model", '[models.m]\ntriton = "24.10"\n', "'triton'", "before the first [models"),
    _project("setting of a command", "force = true\n", "'force'", "say it with each command"),
    _project(
        "unknown table",
        "[model.m]\n",
        "'model'",
        "did you mean models?",
    ),
    _project("Python without quotes", "[models.m]\npython = 3.10\n", "must be text", 'python = "3.10"'),
    _project("release without quotes", "triton = 24.10\n", "must be text", 'triton = "24.10"'),
    _project("a model that is no table", '[models]\nm = "3.10"\n', "[models.m] must be a table"),
    _project("models is no table", "models = 1\n", "models must be a table"),
    _project("unknown release", 'triton = "9"\n', "envpack.toml", "'9'", kind="unknown-release", code=2),
    _project(
        "unknown Python", '[models.m]\npython = "3.1"\n', "envpack.toml", "'3.1'", kind="bad-python-version", code=2
    ),
    _project("a number that is too long", "triton = " + "9" * 5000, "envpack.toml", "not valid TOML"),
    _project("nested too deeply", "triton = " + "[" * 100_000, "envpack.toml", "nested too deeply"),
    *(
        _project(f"{key} of a user who does not exist", text, "~nobody-here/x", kind="no-home")
        for key, text in (
            ("backends", 'backends = "~nobody-here/x"\n'),
            ("channels", 'channels = ["~nobody-here/x"]\n'),
            ("from_prefix", '[models.m]\nfrom_prefix = "~nobody-here/x"\n'),
        )
    ),
    _project(
        "requirements that are missing",
        '[models.m]\npython = "3.10"\nrequirements = "m/needs.txt"\n',
        "m/needs.txt",
        kind="bad-requirements",
    ),
    _requirements("not a requirement", "requirements.txt", "numpy\nsci kit\n", "requirements.txt:2", "'sci kit'"),
    _requirements(
        "an unknown option", "requirements.txt", "--global-option x\n", "requirements.txt:1", "'--global-option'"
    ),
    _requirements(
        "a file that is missing", "requirements.txt", "six\n-r other.txt\n", "requirements.txt:2", "other.txt"
    ),
    _requirements(
        "version control", "requirements.txt", "git+https://example.org/x\n", "requirements.txt:1", "pip wheel"
    ),
    _requirements("no project", "requirements.txt", "-e .\n", "requirements.txt:1", "pyproject.toml or a setup.py"),
    _requirements(
        "no wheel", "requirements.txt", "./x-1-py3-none-any.whl\n", "requirements.txt:1", "no such file or folder"
    ),
    _requirements("not YAML", "environment.yml", "dependencies: [numpy\n", "not valid YAML"),
    _requirements("unknown key", "environment.yml", "dependancies: [numpy]\n", "'dependancies'", "dependencies"),
    _requirements("pip in YAML", "conda.yaml", "dependencies:\n- pip:\n  - sci kit\n", "conda.yaml:3", "'sci kit'"),
    _requirements("no version", "python_env.yaml", "python: three\n", "python_env.yaml:1", "python: 3.10.13"),
    _requirements("not TOML", "pyproject.toml", "[project\n", "pyproject.toml:1", "not valid TOML"),
    _requirements(
        "Poetry", "pyproject.toml", "[tool.poetry.dependencies]\nsix = '*'\n", "pyproject.toml:1", "poetry lock"
    ),
    _requirements("a lock of another age", "pixi.lock", "version: 3\nenvironments: {}\n", "pixi.lock:1", "pixi lock"),
    _requirements(
        "an empty lock", "conda-lock.yml", "version: 1\npackage: x\nmetadata:\n", "conda-lock.yml:2", "a list"
    ),
    _requirements("a lock without version", "pylock.toml", "packages = []\n", "PEP 751"),
    _requirements("no Python", "environment.yml", "dependencies: ['python>=three']\n", "python=3.10"),
    _requirements(
        "several Pythons",
        "environment.yml",
        "dependencies:\n- python>=3.11\n- python<3.11\n",
        "environment.yml:3",
        "no version of Python is allowed by",
        "correct the ranges",
    ),
    _requirements("a lock of PDM", "pdm.lock", "", "pdm export --format pylock --output pylock.toml"),
    BadInput(
        "requirements: no hash",
        _BUILD_M,
        4,
        "hash-missing",
        ("requirements.txt:2", "'six' has no hash", "add --hash=sha256:…"),
        MODEL | {"m/requirements.txt": "--require-hashes\nsix\n"},
    ),
    _requirements("a lock that is not beside its project", "uv.lock", "version = 1\n", "uv export"),
    _requirements("another tool's file", "Pipfile", "[packages]\n", "pipenv lock"),
    BadInput(
        "stub into a folder that is missing",
        "stub --json --python 3.10 --output REPOSITORY/none",
        3,
        "output-missing",
        ("none", "create it"),
    ),
    BadInput("no server there", f"{_VERIFY} --server REPOSITORY/none", 6, "server-missing", ("none", "install one: ")),
    BadInput(
        "a server without its Python backend",
        f"{_VERIFY} --server REPOSITORY/m/1/model.py",
        6,
        "server-missing",
        ("libtriton_python.so",),
    ),
    BadInput(
        "a name that no object store holds",
        f"{_PUBLISH} s3://bucket/models",
        3,
        "unpublishable-name",
        ("a\\tname.txt", "rename it"),
        {**MODEL, "m/1/a\tname.txt": ""},
    ),
    BadInput(
        "a digest in the middle of an address",
        f"{_PUBLISH} s3://bucket/{{digest}}/models",
        2,
        "bad-store-address",
        ("last part", "s3://bucket/models/{digest}"),
    ),
    BadInput(
        "an address that is none yet", "verify --json s3://bucket/{digest}", 2, "bad-store-address", ("that `envpack",)
    ),
    usage("old publications of an address without digest", f"{_PUBLISH} s3://bucket/models --prune 2", "{digest}"),
    usage("nothing is replaced there", f"{_PUBLISH} s3://bucket/{{digest}} --delete", "--delete", "--prune"),
    usage("an age without a signature", "verify --json s3://bucket/models --max-age 3", "--require-signature"),
    usage("an image as a folder", "fetch --json oci://registry/models:1 REPOSITORY/m", "volume"),
    usage("repairs of the cache", "cache verify --repair --json", "a store"),
    BadInput(
        "a key that is none",
        "fetch --json s3://bucket/models REPOSITORY/new --require-signature REPOSITORY/m/1/model.py",
        3,
        "bad-key",
        ("model.py", "ssh-keygen"),
    ),
)
