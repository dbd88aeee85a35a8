"""Folders and files that are not where, or not as, a server wants them."""

from tests.faults.repositories.broken import Broken, Site


def _stray_folder(site: Site):
    (site.repository / "notes").mkdir()
    (site.repository / "notes/readme.txt").write_text("not a model")


def _dot_folder(site: Site):
    (site.repository / ".git").mkdir()


def _odd_version(site: Site):
    site.write("2tmp/model.py", (site.model / "1/model.py").read_text())


def _empty_version(site: Site):
    (site.model / "2").mkdir()


def _no_version(site: Site):
    (site.model / "1").rename(site.model / "v1")


def _code_beside(site: Site):
    (site.model / "1/model.py").rename(site.model / "model.py")


def _broken_link(site: Site):
    (site.model / "1/weights.bin").symlink_to("/mnt/nas/weights.bin")


def _private(site: Site):
    site.own("1/model.py").chmod(0o600)


def _outside(site: Site):
    (site.model / "1/labels.txt").symlink_to(__file__)


def _beside(site: Site):
    (site.repository / "labels.txt").write_text("cat")
    code = site.own("1/model.py")
    code.write_text(
        f"{code.read_text()}\nfrom pathlib import Path\nLABELS = Path(__file__).parents[2] / 'labels.txt'\n"
    )


def _call(site: Site):
    code = site.own("1/model.py")
    call = 'pb_utils.InferenceRequest(model_name="gone", requested_output_names=[], inputs=[])'
    code.write_text(f"{code.read_text()}\n\ndef ask(pb_utils):\n    return {call}\n")


def _like_the_standard_library(site: Site):
    site.write("1/queue.py", "SIZE = 2\n")
    code = site.own("1/model.py")
    code.write_text(f"from queue import SIZE\n{code.read_text()}")


def _like_the_server(site: Site):
    site.write("1/triton_python_backend_utils.py", "class Tensor: pass\nclass InferenceResponse: pass\n")


def _space(site: Site):
    return site.repository.rename(site.repository.with_name("my models"))


def _dollar(site: Site):
    return site.repository.rename(site.repository.with_name("models$1"))


def _equals(site: Site):
    return site.repository.rename(site.repository.with_name("models=1"))


def _huge_version(site: Site):
    (site.model / "1").rename(site.model / "9223372036854775808")


def _file_name(site: Site):
    site.own("1/model.py").rename(site.model / "1/$(id)model.py")
    site.append('default_model_filename: "$(id)model.py"\n')


def _empty_repository(site: Site):
    site.model.rename(site.repository.parent / "moved")


ENTRIES = (
    Broken(
        "stray-folder",
        "a folder that is no model lies in the repository",
        _stray_folder,
        "stray-folder",
        "notes: a server loads every folder here as a model, and exits because it cannot load this one",
        "move it elsewhere, or serve the folder that `envpack layout --output` writes",
    ),
    Broken(
        "dot-folder",
        "the repository is a git checkout: `.git` lies in it",
        _dot_folder,
        "stray-folder",
        ".git: a server loads every folder here as a model, and exits because it cannot load this one",
        "move it elsewhere, or serve the folder that `envpack layout --output` writes",
    ),
    Broken(
        "version-2tmp",
        "a version folder is called `2tmp`",
        _odd_version,
        "odd-version",
        "2tmp: because of this folder, a server loads version 2 of the model from 2, which does not exist",
        "remove it, or give it a name that does not start with a digit",
    ),
    Broken(
        "version-empty",
        "a version folder is empty",
        _empty_version,
        "model-without-code",
        "Triton loads this folder as a version of the model, but it has no model.py",
        "add the file, or give the folder a name that does not start with a digit",
    ),
    Broken(
        "version-none",
        "the version folder is called `v1`",
        _no_version,
        "model-without-code",
        "no version folder with a model.py",
        "put the model's code in … /1/model.py",
    ),
    Broken(
        "version-without-code",
        "`model.py` lies beside the version folder",
        _code_beside,
        "model-without-code",
        "Triton loads this folder as a version of the model, but it has no model.py",
        "add the file, or give the folder a name that does not start with a digit",
    ),
    Broken(
        "link-nowhere",
        "the target of a link in the model does not exist",
        _broken_link,
        "broken-link",
        "the link's target does not exist: /mnt/nas/weights.bin",
        "fix or remove the link",
    ),
    Broken(
        "file-private",
        "only its owner can read `model.py`",
        _private,
        "not-for-everybody",
        "only its owner or group can read it, and a server in a container often runs as another user",
        "chmod -R a+rX",
        options=("--strict",),
    ),
    Broken(
        "link-outside",
        "the version has a link to a file of this machine that is outside of the repository",
        _outside,
        "outside-repository",
        "it names, or links to, … layout.py, a path that another server may not have",
        "put it beside the model's code, which finds it from Path(__file__).parent, or deploy it at the same path",
        options=("--strict",),
    ),
    Broken(
        "labels-beside",
        "`model.py` reads a file beside the models",
        _beside,
        "left-out",
        "it names labels.txt, which `envpack layout` and `publish` leave out",
        "move it into the model's version folder, under a name without a dot before it",
        options=("--strict",),
    ),
    Broken(
        "call-to-nobody",
        "`model.py` sends requests to a model that is not in the repository",
        _call,
        "call-missing",
        "it sends requests to gone, which is not in the repository",
        "add that model, or correct the name",
        options=("--strict",),
    ),
    Broken(
        "module-of-python",
        "`model.py` imports a file beside it, which is called as a module of Python",
        _like_the_standard_library,
        "module-hidden",
        "it imports queue, and gets the module of that name of its Python, or of a package, not … 1/queue.py",
        "1/queue.py another name, and import that",
        options=("--strict",),
    ),
    Broken(
        "module-of-server",
        "`1/triton_python_backend_utils.py`, made for tests, lies beside `model.py`",
        _like_the_server,
        "module-hidden",
        "servers import this file in place of their own module, of which they need more than models do",
        "move it to where only your tests find it",
        options=("--strict",),
    ),
    Broken(
        "path-with-space",
        "the repository's path has a space in it",
        _space,
        "bad-path",
        "the path contains ' ', and servers pass it to a shell unquoted",
        "move the model repository to a path of letters, digits, '/', '_', '-' and '.'",
    ),
    Broken(
        "path-with-dollar",
        "the repository's path has a `$` in it",
        _dollar,
        "bad-path",
        "the path contains '$', and servers pass it to a shell unquoted",
        "move the model repository to a path of letters, digits, '/', '_', '-' and '.'",
    ),
    Broken(
        "path-with-equals",
        "the repository's path has a `=` in it",
        _equals,
        "bad-path",
        "the path contains '=', and servers pass it to a shell unquoted",
        "move the model repository to a path of letters, digits, '/', '_', '-' and '.'",
    ),
    Broken(
        "file-with-dollar",
        "the name of the model's file is a command for a shell",
        _file_name,
        "bad-path",
        "default_model_filename contains '$', and servers pass it to a shell unquoted",
        "give the file a name of letters, digits, '_', '-' and '.'",
    ),
    Broken(
        "version-huge",
        "the number of a version does not fit into 64 bits",
        _huge_version,
        "odd-version",
        "9223372036854775808: the number of this version does not fit into 64 bits, so a server cannot load the model",
        "give the folder a smaller number",
    ),
    Broken(
        "repository-empty",
        "there is no model in the repository",
        _empty_repository,
        "repository-empty",
        "no Python model in this repository",
        "`envpack init FOLDER` creates a working example",
        found_by="verify",
        alone=True,
        step="start",
    ),
)
