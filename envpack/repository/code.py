"""What the code of a model shows without being run: the models that it calls, what it may complete."""

from __future__ import annotations

import ast
import os
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from envpack.repository.config import ModelConfig
from envpack.repository.config_editor import EXECUTION_ENVIRONMENT
from envpack.repository.folders import find_folder, is_for_authors, looks_like_model, version_folders
from envpack.support.bounded_reading import read_source
from envpack.support.folders import real_path
from envpack.support.placed_files import CONFIG_NAME

_MOST_SEARCHED = 1 << 20  # bytes of a source that is searched
_METHOD = "auto_complete_config"
_REQUEST = re.compile(r"InferenceRequest\s*\(|\b(?:import|from)\s+tritonclient\.(?:http|grpc)\b")
_CALL = re.compile(r"""InferenceRequest\s*\([^()]*?\bmodel_name\s*=\s*(["'])([^"'{}\n]+)\1""")
_OVERRIDE = re.compile(r"\bload_model\s*\([^()]*(?:\([^()]*\)[^()]*)*\b(?:config|files)\s*=")
_PARAMETERS = re.compile(r"\bloads\(\s*\w+\.parameters\(\)")
_DOCSTRING = re.compile(r'"""(?:\\[\s\S]|[^\\])*?"""|^[ \t]*#.*', re.MULTILINE)  # or a line of a comment
_QUOTED = re.compile(r"""(["'])((?:\\.|(?!\1)[^\\\n])*)\1""")
_OF_EVERY_SERVER = re.compile(r"/+(?:(?:bin|dev|etc|lib\w*|opt/tritonserver|proc|s?bin|sys|usr)(?:/|$)|$)")
_WRITTEN = re.compile(r"/+(?:run|tmp|var/(?:log|run|tmp))(?:/|$)")  # where code may write what it reads again
_BETWEEN = re.compile(r"""(?<=[^\s(\[{,=:+%<>|])["']\s*[/,]\s*["']""")  # of "a" / "b", and of join(HERE, "a", "b")
# parents[2] / "name", and join(HERE, "name")
_JOINED = re.compile(r"""(?:[\w)\]]\s*/|\bjoin\([^"'\n]{0,200},)\s*["']([^"'/\n]+)["']""")
_IMPORT = re.compile(r"^\s*(?:from|import)\s+(\w+)", re.MULTILINE)
_UNPARSABLE = (ValueError, SyntaxError, RecursionError, MemoryError)  # code that is wrong, or for a newer Python
_ENDS = (ast.Return, ast.Yield, ast.YieldFrom)
_NAME = re.compile(r"(?<![\w/])\w[\w.-]*+(?!/)")  # a word in a path is the name of a folder


def called_models(folder: Path) -> tuple[str, ...]:
    """Names of the models of its repository that a model has in a string of its code or configuration, sorted.

    A server loads no model because another one sends requests to it, and nothing declares these requests. A name that
    code puts together at run time is not found; a string that happens to be a model's name is.
    """
    if not folder.is_dir():
        return ()
    words = {word for source in (folder / CONFIG_NAME, *_code(folder)) for word in _quoted_words(source)}
    # Words are compared with names of folders: one that is looked up in the file system may be too long for a path.
    others = [other for other in folder.parent.iterdir() if other.name in words and other.name != folder.name]
    return tuple(sorted(other.name for other in others if other.is_dir() and looks_like_model(other)))


def paths_elsewhere(folder: Path, config: ModelConfig, *, has_links: bool = True) -> Iterator[str]:
    """Paths in the code and the parameters of a model that another server may lack, and what its versions link to
    outside of its repository.

    Only what this machine has. A repository in the root directory is at the same path in containers. A deployment has
    no such links, but what they lead to.
    """
    files = (file for version in version_folders(folder) for file in version.rglob("*") if has_links)
    links = [os.path.realpath(file) for file in files if file.is_symlink()]
    texts = [parameter.string_value for name, parameter in config.parameters.items() if name != EXECUTION_ENVIRONMENT]
    for source in _code(folder):
        texts += [quoted[2] for quoted in _QUOTED.finditer(_DOCSTRING.sub("", _text(source)))]
    inside = (real_path(folder), real_path(folder.parent))
    is_mounted = folder.parent.parent == Path(folder.anchor)
    named = (text for text in texts if text.startswith("/") and not _WRITTEN.match(text))
    for text in dict.fromkeys([*links, *named]):
        if _OF_EVERY_SERVER.match(text):
            continue
        is_there = os.path.exists(text)  # noqa: PTH110 - any text, which may be too long for a path
        is_inside = is_there and any(real_path(Path(text)).is_relative_to(place) for place in inside)
        if is_there and not (is_inside and (is_mounted or text in links)):
            yield text


def named_and_left_out(folder: Path, config: ModelConfig) -> tuple[str, ...]:
    """What the code or the configuration of a model names and no deployment has: hidden files, those for authors, and
    what is beside the models, sorted. Paths begin in the repository.

    Code that changes ``sys.path`` names what it imports, too.
    """
    repository, versions = folder.parent, version_folders(folder)
    values = [parameter.string_value for name, parameter in config.parameters.items() if name != EXECUTION_ENVIRONMENT]
    named = {value for value in values if "/" in value or value.startswith(".")}
    named.update(output.label_filename for output in config.output)
    for text in (_DOCSTRING.sub("", _text(source)) for source in _code(folder)):
        modules = _IMPORT.findall(text) if "sys.path" in text else ()
        named.update(modules, (f"{module}.py" for module in modules), [".env"] if "load_dotenv()" in text else ())
        for paths in (text, _BETWEEN.sub("/", text)):
            named.update(_JOINED.findall(paths))
            quoted = (found[2] for found in _QUOTED.finditer(paths))
            named.update(path.rpartition("}/")[2] for path in quoted if "/" in path or path.startswith("."))
    found = (_place(name, (*versions, folder, repository)) for name in named)
    return tuple(sorted({left for place in found if (left := _left_out(place, repository))}))


def _place(name: str, starts: Iterable[Path]) -> str:
    """The first place that a relative path has from some folders; ``""`` if there is nothing."""
    places = (os.path.normpath(start / name) for start in starts)
    return next((place for place in places if os.path.exists(place)), "")  # noqa: PTH110 - any text


def _left_out(place: str, repository: Path) -> str:
    """The part of a path that no deployment of a repository has, from the repository on; ``""`` if that has all."""
    if not place.startswith(f"{repository}/"):
        return ""
    first, *parts = Path(place).relative_to(repository).parts
    if not ((repository / first).is_dir() and looks_like_model(repository / first)):
        return first
    hidden = next((at for at, part in enumerate(parts, 1) if part.startswith(".")), 0)
    end = hidden or int(is_for_authors("/".join(parts)))
    return "/".join((first, *parts[:end])) if end else ""


def missing_models(folder: Path) -> tuple[str, ...]:
    """Names of the models to which the code of a model sends requests, and which the repository does not have."""
    found = (call[2] for source in _code(folder) for call in _CALL.finditer(_DOCSTRING.sub("", _text(source))))
    return tuple(name for name in dict.fromkeys(found) if find_folder(folder.parent, name) is None)


def sends_requests(folder: Path) -> bool:
    return any(_REQUEST.search(_DOCSTRING.sub("", _text(source))) for source in _code(folder))


def reads_requested_outputs(folder: Path) -> bool:
    return any(".requested_output_names()" in _DOCSTRING.sub("", _text(source)) for source in _code(folder))


def reads_request_parameters(folder: Path) -> bool:
    return any(_PARAMETERS.search(_DOCSTRING.sub("", _text(source))) for source in _code(folder))


def gives_configurations(folder: Path) -> bool:
    """Whether the code of a model gives ``load_model()`` another configuration, or files."""
    return any(_OVERRIDE.search(_DOCSTRING.sub("", _text(source))) for source in _code(folder))


def reads_parameter(folder: Path, name: str) -> bool:
    named = re.compile(rf"""(["']){re.escape(name)}\1""")
    return any("parameters" in text and named.search(text) for text in map(_text, _code(folder)))


def calls_itself(folder: Path) -> bool:
    named = re.compile(rf"""\bmodel_name\s*=\s*(["']){re.escape(folder.name)}\1""")
    return any(named.search(_DOCSTRING.sub("", _text(source))) for source in _code(folder))


def returns_nothing(folder: Path) -> bool:
    """Whether the code of a model has a method execute, which returns nothing, and sends no response otherwise."""
    texts = [*map(_text, _code(folder))]
    try:
        nodes = [node for text in texts for node in ast.walk(ast.parse(text))]
    except _UNPARSABLE:
        return False
    methods = [node for node in nodes if getattr(node, "name", "") == "execute"]
    ends = (node for method in methods for node in ast.walk(method) if isinstance(node, _ENDS))
    answers = any(ast.unparse(node) not in ("return", "return None") for node in ends)
    return bool(methods) and not answers and not any("get_response_sender" in text for text in texts)


def completes_itself(folder: Path) -> bool:
    """Whether the code of a model may add inputs and outputs to its configuration when it is loaded."""
    return any(_METHOD in _text(source) for source in _code(folder))


def _code(folder: Path) -> Iterator[Path]:
    for version in version_folders(folder):
        yield from version.rglob("*.py")


def _quoted_words(source: Path) -> Iterator[str]:
    for quoted in _QUOTED.finditer(_DOCSTRING.sub("", _text(source))):
        yield from _NAME.findall(quoted[2])


def _text(source: Path) -> str:
    try:
        return read_source(source, most=_MOST_SEARCHED)
    except (OSError, ValueError):  # what is wrong with a file is said by those who load it
        return ""


_CLASS = "TritonPythonModel"
_DEFAULT_FILE = "model.py"
_OTHER_BINDING = re.compile(
    rf"^\s*class {_CLASS}\s*\((?!\s*(object)?\s*\))|{_CLASS}\s*=[^=]|\bimport\b.*({_CLASS}|\*)", re.MULTILINE
)


def may_complete(folder: Path, config: ModelConfig) -> bool:
    """Whether a server that completes configurations could serve a model in another way than one that does not.

    A server waits a second for each completion. It is in vain if the configuration names all inputs and outputs, and
    the model's class has no base from which it could inherit `auto_complete_config`. What cannot be decided is True.
    """
    if not (folder / CONFIG_NAME).is_file() or not config.backend or not config.input or not config.output:
        return True
    return may_be_completed(folder, config)


def may_be_completed(folder: Path, config: ModelConfig) -> bool:
    """Whether the code of a model, or a base class of it, may add to its configuration."""
    name = config.default_model_filename or _DEFAULT_FILE
    codes = [version / name for version in version_folders(folder)]
    return any(map(_mentions_method, (*folder.glob("*.py"), *_code(folder)))) or any(map(_may_inherit, codes))


def _mentions_method(source: Path) -> bool:
    try:
        return _METHOD in read_source(source, most=_MOST_SEARCHED)
    except (OSError, ValueError):
        return True


def _may_inherit(code: Path) -> bool:
    """Whether the model's class may get a method from elsewhere; False for a file that has no such class."""
    try:
        text = read_source(code, most=_MOST_SEARCHED)
    except (OSError, ValueError):
        return False  # no server can load it either
    if _CLASS not in text:
        return bool(_OTHER_BINDING.search(text))  # import *
    try:
        tree = ast.parse(text)
    except _UNPARSABLE:
        return bool(_OTHER_BINDING.search(text))
    binds = [node for node in ast.walk(tree) if _binds_class(node)]
    if len(binds) != 1 or binds[0] not in tree.body or not isinstance(binds[0], ast.ClassDef):
        return True
    found = binds[0]
    bases = [base for base in found.bases if not (isinstance(base, ast.Name) and base.id == "object")]
    return bool(bases or found.keywords or found.decorator_list)


def _binds_class(node: ast.AST) -> bool:
    match node:
        case ast.ClassDef(name=name) | ast.FunctionDef(name=name):
            return name == _CLASS
        case ast.Name(id=name, ctx=ast.Store()):
            return name == _CLASS
        case ast.alias(name=name, asname=asname):
            return (asname or name) in (_CLASS, "*")
    return False
