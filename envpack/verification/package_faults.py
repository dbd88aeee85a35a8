"""Known faults of Python, its packages and native libraries; see `envpack.verification.fault_catalogue`."""

from __future__ import annotations

from envpack.verification.fault_catalogue import LOADER, NO_ADDRESS, NOT_REACHED, UNRESOLVED, Fault

_LIBRARY = r"(?P<library>[^\s:/'\"]{1,200}\.so[\w.]{0,40})"
_LIBPYTHON = r"(?P<library>libpython(?P<python>\d{1,3}\.\d{1,3})[\w.]{1,100})"
_NO_MODULE = r"(?:ModuleNotFoundError: |ImportError: [^\n]{0,300})No module named "
# How libraries of Hugging Face name what they neither have nor can ask for.
_HUB = (
    r"(?:OSError|HFValidationError): (?P<quoted>(?:Repo id must [^\n]{1,300}?: "
    r"|Incorrect path_or_model_id: |Can't load [\w ]{1,100} (?:for|of) )')?"
)

PACKAGE_FAULTS = (
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
        NOT_REACHED,
        raised=rf"gaierror: {NO_ADDRESS}|URLError: <urlopen error {NO_ADDRESS}"
        r"|OSError: We couldn't connect to 'https?://"
        rf"|(?:ConnectionError|ConnectError|MaxRetryError): [^\n]{{0,2000}}{UNRESOLVED.pattern}",
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
        "add the package of the {library} library to the model's requirements",
        raised=r"ImportError: \s{0,9}[^\n]{1,300} requires the (?P<library>[\w .-]{1,60}) library but it was not found",
    ),
    Fault(
        "numpy-mismatch",
        "a package was built for another NumPy: add the version that it needs, often numpy<2, to the requirements",
        raised=r"ImportError: numpy\.core\.multiarray failed to import|ValueError: numpy\.dtype size changed"
        r"|(?:ImportError|AttributeError|RuntimeError): .{0,300}compiled using NumPy 1\.x",
        reported=r"numpy\.core\.multiarray failed to import|numpy\.dtype size changed",
        printed=r"A module that was compiled using NumPy 1\.x",
    ),
    Fault(
        "libpython-missing",
        "make an execution environment with that Python, with envpack build MODEL --python {python}",
        reported=r"this stub needs (?P<library>libpython[\w.]{1,100}) \(Python (?P<python>\d{1,3}\.\d{1,3})\)",
    ),
    Fault(
        "libpython-missing",
        "no execution environment of the model has {library}: make one with envpack build MODEL --python {python}",
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
        "library-too-old",
        "a library was built for a newer system: it needs {version}",
        raised=r"(?:ImportError|OSError): [^\n]{1,4096}: version [`'](?P<version>GLIBC(?:XX)?_[\d.]{1,20})' not found",
        reported=r"version [`'](?P<version>GLIBC(?:XX)?_[\d.]{1,20})' not found",
        printed=r"\S{1,4096}: \S{1,4096}: version [`'](?P<version>GLIBC(?:XX)?_[\d.]{1,20})' not found",
    ),
)
