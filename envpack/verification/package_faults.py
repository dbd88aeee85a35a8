"""Known faults of Python, its packages and native libraries; see `envpack.verification.fault_catalogue`."""

from __future__ import annotations

import re

from envpack.repository.imports import ADDED
from envpack.requirements.import_names import NAMESPACES
from envpack.verification.fault_catalogue import LOADER, NO_ADDRESS, NOT_REACHED, UNRESOLVED, Fault

_LIBRARY = r"(?P<library>[^\s:/'\"]{1,200}\.so[\w.]{0,40})"
_LIBPYTHON = r"(?P<library>libpython\d{1,3}\.\d{1,3}[\w.]{1,100})"
_VERSION = r"version [`'](?P<version>(?:GLIBC(?:XX)?|CXXABI)_[\d.]{1,20})' not found"
_NO_MODULE = r"(?:ModuleNotFoundError: |ImportError: [^\n]{0,300})No module named "
_NO_NAME = r"ImportError: cannot import name '(?P<name>[^'\n]{1,300})' from '(?P<module>[\w.]{1,300})' "
_NAMESPACE = "|".join(map(re.escape, sorted(NAMESPACES)))
_OF_NAMESPACE = rf"(?P<module>(?:{_NAMESPACE})(?:\.\w{{1,100}})?)"
# How libraries of Hugging Face name what they neither have nor can ask for.
_HUB = (
    r"(?:OSError|HFValidationError): (?P<quoted>(?:Repo id must [^\n]{1,300}?: "
    r"|Incorrect path_or_model_id: |Can't load [\w ]{1,100} (?:for|of) )')?"
)

_ADDED = "|".join(ADDED)

PACKAGE_FAULTS = (
    Fault(
        "interface-broken",
        "a release's own stub adds this name when it has imported the model: use it in methods alone, or put envpack's"
        " stub beside the model: envpack build MODEL --stub always",
        raised=rf"AttributeError: module 'triton_python_backend_utils' has no attribute '(?:{_ADDED})'"
        rf"|ImportError: cannot import name '(?:{_ADDED})' from 'triton_python_backend_utils' ",
    ),
    Fault(
        "module-missing",
        "add sentencepiece and tiktoken to the model's requirements: the tokenizer is read with one of them",
        raised=r"ValueError: Couldn't instantiate the backend tokenizer from one of",
    ),
    Fault(
        "",
        "write a value in place of {word}, as the tool does that the template is for",
        raised=_HUB + r"(?P<word>\$\{[^{}'\n]{1,80}\})(?(quoted)'|(?!))",
    ),
    Fault(
        "",
        "the folder {path}, or a file in it, is not there, and the library takes it for a name on the Hugging Face Hub:"
        " put the files there, or correct the path",
        raised=_HUB
        + r"(?P<path>/[^'\s]{1,300})(?(quoted)'| (?:is not a local folder and|does not appear to have a file named))",
    ),
    Fault(
        "",
        "the library does not get {name} from the Hugging Face Hub: put its files into the version folder, and load"
        " them from there",
        raised=r"OSError: Can't load [\w ]{1,100} (?:for|of) '(?P<name>[\w.-]{1,100}(?:/[\w.-]{1,100})?)'\. If you",
    ),
    Fault(
        "",
        "the Hugging Face Hub requires a token: set HF_TOKEN where the server runs, which has none of your shell's;"
        ' here, env = ["HF_TOKEN"] in envpack.toml gives it yours',
        raised=r"(?:GatedRepoError|RepositoryNotFoundError): 401 |OSError: You are trying to access a gated repo",
    ),
    Fault(
        "",
        NOT_REACHED,
        raised=rf"gaierror: {NO_ADDRESS}|URLError: <urlopen error {NO_ADDRESS}"
        r"|OSError: We couldn't connect to 'https?://|LocalEntryNotFoundError: "
        rf"|(?:ConnectionError|ConnectError|MaxRetryError): [^\n]{{0,2000}}{UNRESOLVED.pattern}",
    ),
    Fault(
        "",
        "no program listens at that address: start it where the server runs, or correct the address",
        raised=r"\w{1,60}: [^\n]{0,2000}Connection refused",
    ),
    Fault(
        "environment-unusable",
        "Python did not find its standard library: the environment is incomplete or its activate script is wrong",
        reported=r"init_fs_encoding|No module named 'encodings'|Python could not start"
        r"|codec of the filesystem encoding",
        printed=r"Fatal Python error: init_fs_encoding|ModuleNotFoundError: No module named 'encodings'"
        r"|Could not find platform independent libraries",
    ),
    Fault(
        "backend-shadows-model",
        "the stub in the backend directory imports model.py from there (Triton 23.10 and later); use envpack's stub",
        raised=r"ModuleNotFoundError: No module named 'model'",
    ),
    Fault(
        "environment-unusable",
        "NumPy was installed for another Python, without libraries for this one: run envpack build",
        raised=r"(?:ModuleNotFoundError|ImportError): .{0,300}No module named 'numpy\.\w{1,40}\._multiarray_umath'",
        reported=r"No module named 'numpy\.\w{1,40}\._multiarray_umath'",
    ),
    Fault(
        "module-missing",
        "the environment has no pip: add what the model installs when it runs to its requirements instead",
        raised=r"ModuleNotFoundError: No module named 'pip'"
        r"|CalledProcessError: Command '\[[^\n]{0,1000}'-m', 'pip'[^\n]{0,2000} returned non-zero exit status",
        reported=r"No module named '?pip\b",
        printed=r"\S{1,4096}: No module named pip$",
    ),
    Fault(
        "module-missing",
        "add the package with {module}.{name} to the model's requirements",
        raised=rf"ImportError: cannot import name '(?P<name>\w{{1,300}})' from '{_OF_NAMESPACE}' \(unknown location\)",
    ),
    Fault(
        "module-missing",
        "add {package} to the model's requirements",
        raised=_NO_MODULE + f"'{_OF_NAMESPACE}'",
        reported=f"No module named '{_OF_NAMESPACE}'",
    ),
    Fault(
        "module-missing",
        "correct the import, or require a version of {package} that has {module}.{name}",
        raised=_NO_NAME + r"\(/[^\n]{1,1000}/(?:site|dist)-packages/",
    ),
    Fault(
        "module-missing",
        "{module} of Python {python} has no {name}: correct the import, or build for another Python with --python",
        raised=_NO_NAME + r"\(/[^\n]{1,1000}/lib/python(?P<python>3\.\d{1,2})/",
    ),
    Fault(
        "module-missing",
        "add the package of the spaCy model {name} to the model's requirements: the address of its wheel",
        raised=r"OSError: \[E050\] Can't find model '(?P<name>[^'\n]{1,100})'",
    ),
    Fault(
        "module-missing",
        "require a version of {package} that has {module}",
        raised=_NO_MODULE + r"'(?P<module>[^'.\n]{1,300}\.[^'\n]{1,300})'",
        reported=r"No module named '(?P<module>[^'.\n]{1,300}\.[^'\n]{1,300})'",
    ),
    Fault(
        "module-missing",
        "add {package} to the model's requirements, or {module}.py beside model.py if it is your own",
        raised=_NO_MODULE + r"'(?P<module>[^'\n]{1,300})'",
        reported=r"No module named '(?P<module>[^'\n]{1,300})'",
    ),
    Fault(
        "module-missing",
        "add tritonclient[{extra}] to the model's requirements",
        raised=r"RuntimeError: The installation does not include (?P<extra>grpc|http) support\. Specify",
    ),
    Fault(
        "module-missing",
        "add the package of the {library} library to the model's requirements",
        raised=r"ImportError: \s{0,9}[^\n]{1,300} requires the (?P<library>[\w .-]{1,60}) library but it was not found",
    ),
    Fault(  # as a release's own stub says it
        "bad-output",
        "give pb_utils.Tensor an array of a type that Triton's tensors have: strings as .astype(object)",
        raised=r"TritonModelException: NumPy dtype is not supported\.(?:\n|$)",
    ),
    Fault(
        "numpy-mismatch",
        "a package was built for another NumPy: add the version that it needs, often numpy<2, to the requirements",
        raised=r"ImportError: numpy\.core\.multiarray failed to import|ValueError: numpy\.dtype size changed"
        r"|RuntimeError: Numpy is not available"
        r"|(?:ImportError|AttributeError|RuntimeError): .{0,300}compiled using NumPy 1\.x",
        reported=r"numpy\.core\.multiarray failed to import|numpy\.dtype size changed",
        printed=r"A module that was compiled using NumPy 1\.x",
    ),
    Fault(
        "numpy-mismatch",
        "the code is for an older NumPy: add numpy<1.24 to the requirements, or write {name} in place of np.{name}",
        raised=r"AttributeError: module 'numpy' has no attribute '(?P<name>bool|int|float|complex|object|str)'",
    ),
    Fault(
        "numpy-mismatch",
        "the code is for an older NumPy: add numpy<2 to the requirements, or write what the error says",
        raised=r"AttributeError: `np\.\w{1,40}` was removed in the NumPy 2\.0",
    ),
    Fault(
        "",
        "a package was generated by an older protobuf: add protobuf<3.21 to the requirements, or a newer version of it",
        raised=r"TypeError: Descriptors cannot (?:not )?be created directly",
    ),
    Fault(
        "no-gpu",
        "the environment has PyTorch for CPUs: require a build for CUDA, or let torch.cuda.is_available() decide",
        raised=r"AssertionError: Torch not compiled with CUDA enabled",
    ),
    Fault(
        "no-gpu",
        "the server has no GPU: verify with --gpu on a machine that has one, or load the weights with"
        " map_location='cpu'",
        raised=r"RuntimeError: Attempting to deserialize object on a CUDA device but",
    ),
    Fault(
        "",
        "the environment has no code for this GPU: require a build of the package for its architecture",
        raised=r"(?:\w{1,40}Error): CUDA error: no kernel image is available",
    ),
    Fault(
        "libpython-missing",
        "make an execution environment with that Python, with envpack build MODEL --python {python}",
        reported=r"this stub needs (?P<library>libpython[\w.]{1,100}) \(Python (?P<python>\d{1,3}\.\d{1,3})\)",
    ),
    Fault(
        "libpython-missing",
        "no execution environment of the model has {library}: make one with envpack build MODEL",
        reported=f"error while loading shared libraries: {_LIBPYTHON}",
        printed=LOADER + _LIBPYTHON,
    ),
    Fault(
        "library-missing",
        "add the package that contains {library} to the environment",
        reported=r"error while loading shared libraries: (?P<library>[^:\s]{1,300})",
        printed=LOADER + r"(?P<library>[^:\s]{1,300})",
    ),
    Fault(
        "library-missing",
        "add the package that contains {library} to the environment, or rebuild the environment if it has the package",
        raised=rf"(?:ImportError|OSError): {_LIBRARY}: cannot open shared object file",
        reported=_LIBRARY + r": cannot open shared object file",
    ),
    Fault(
        "library-missing",
        "add the package that contains the library {library} to the environment",
        raised=r"OSError: (?P<quoted>cannot load library ')?(?P<library>[\w.+-]{1,200})(?(quoted)'| library not found)",
    ),
    Fault(
        "",
        "{file} was built for other versions of the libraries that it loads: require versions that belong together",
        raised=r"(?:ImportError|OSError): (?P<file>/[^\s:]{1,1000}): undefined symbol: ",
    ),
    Fault(
        "library-too-old",
        "a library was built for a newer system: it needs {version}",
        raised=r"(?:ImportError|OSError): [^\n]{1,4096}: " + _VERSION,
        reported=_VERSION,
        printed=r"\S{1,4096}: \S{1,4096}: " + _VERSION,
    ),
)
