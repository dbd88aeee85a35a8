"""What Python, its packages and native libraries write of each known fault, and words of the fix.

Kind, words of the fix that no other fix has, and what is raised by the model, reported by the server, or printed.
"""

LOADER = "/models/m/triton_python_backend_stub: error while loading shared libraries: "
NOT_FOUND = "cannot open shared object file: No such file or directory"
GLIBC = "/lib/x86_64-linux-gnu/libm.so.6: version `GLIBC_2.38' not found (required by /env/lib/liba.so)"
GLIBCXX = "/lib/x86_64-linux-gnu/libstdc++.so.6: version `GLIBCXX_3.4.32' not found (required by /env/lib/liba.so)"
UMATH = "No module named 'numpy.core._multiarray_umath'"
OLD_NUMPY = "A module that was compiled using NumPy 1.x cannot be run in NumPy 2.1.0"

OF_PACKAGES = [
    (
        ("module-missing", "add sentencepiece and tiktoken to the model's requirements"),
        {
            "raised": [
                "ValueError: Couldn't instantiate the backend tokenizer from one of: \n(1) a `tokenizers` library"
            ]
        },
    ),
    (
        ("load-failed", "write a value in place of ${tokenizer_dir}, as the tool does"),
        {
            "raised": [
                (
                    "OSError: Repo id must use alphanumeric chars, '-', '_' or '.'. The name cannot start or end with"
                    " '-' or '.' and the maximum length is 96: '${tokenizer_dir}'."
                ),
                "OSError: Can't load the configuration of '${tokenizer_dir}'. If you were trying to load it from",
            ]
        },
    ),
    (
        ("load-failed", "the folder /models/llama, or a file in it, is not there, and the library takes it for a name"),
        {
            "raised": [
                (
                    "huggingface_hub.errors.HFValidationError: Repo id must be in the form 'repo_name' or"
                    " 'namespace/repo_name': '/models/llama'. Use `repo_type` argument if needed."
                ),
                "OSError: Incorrect path_or_model_id: '/models/llama'. Please provide either the path to a loc",
                "OSError: Can't load tokenizer for '/models/llama'. If you were trying to load it fr",
                "OSError: /models/llama does not appear to have a file named config.json. Checkout 'https://huggingf",
            ]
        },
    ),
    (
        ("load-failed", "put what the model downloads into its version folder"),
        {
            "raised": [
                "socket.gaierror: [Errno -3] Temporary failure in name resolution",
                "urllib.error.URLError: <urlopen error [Errno -2] Name or service not known>",
                "urllib.error.URLError: <urlopen error [Errno 101] Network is unreachable>",
                "OSError: We couldn't connect to 'https://huggingface.co' to load the files, and couldn't find them in",
                (
                    "requests.exceptions.ConnectionError: HTTPSConnectionPool(host='a.b', port=443): Max retries"
                    ' exceeded with url: /c (Caused by NameResolutionError("<urllib3.connection.HTTPSConnection>: '
                    "Failed to resolve 'a.b' ([Errno -3] Temporary failure in name resolution)\"))"
                ),
                "httpx.ConnectError: [Errno -3] Temporary failure in name resolution",
            ],
        },
    ),
    (
        ("load-failed", "no program listens at that address: start it where the server runs"),
        {
            "raised": [
                "ConnectionRefusedError: [Errno 111] Connection refused",
                "redis.exceptions.ConnectionError: Error 111 connecting to localhost:6379. Connection refused.",
                (
                    "requests.exceptions.ConnectionError: HTTPConnectionPool(host='localhost', port=5000): Max retries"
                    " exceeded with url: /health (Caused by NewConnectionError(\"HTTPConnection(host='localhost',"
                    ' port=5000): Failed to establish a new connection: [Errno 111] Connection refused"))'
                ),
                'psycopg2.OperationalError: connection to server at "::1", port 5432 failed: Connection refused',
            ]
        },
    ),
    (
        ("environment-unusable", "Python did not find its standard library"),
        {
            "reported": [
                "init_fs_encoding: failed to get the Python codec",
                "the interpreter has No module named 'encodings'",
                "Python could not start with this environment",
                "failed to get the Python codec of the filesystem encoding",
            ],
            "printed": [
                "Fatal Python error: init_fs_encoding: failed to get the Python codec of the filesystem encoding",
                "ModuleNotFoundError: No module named 'encodings'",
                "Could not find platform independent libraries <prefix>",
            ],
        },
    ),
    (
        ("backend-shadows-model", "imports model.py from there"),
        {"raised": ["ModuleNotFoundError: No module named 'model'"]},
    ),
    (
        ("environment-unusable", "NumPy was installed for another Python"),
        {
            "raised": [f"ModuleNotFoundError: {UMATH}", f"ImportError: Error importing numpy: {UMATH}"],
            "reported": [f"the stub cannot import it: {UMATH}"],
        },
    ),
    (
        ("module-missing", "the environment has no pip: add what the model installs when it runs to its requirements"),
        {
            "raised": [
                "ModuleNotFoundError: No module named 'pip'",
                (
                    "subprocess.CalledProcessError: Command '['/e/bin/python3', '-m', 'pip', 'install', 'torch']'"
                    " returned non-zero exit status 1."
                ),
            ],
            "reported": ["the stub cannot import it: No module named 'pip'"],
            "printed": ["/e/bin/python3: No module named pip"],
        },
    ),
    (
        ("module-missing", "add opencv-python-headless to the model's requirements, or cv2.py beside model.py"),
        {
            "raised": [
                "ModuleNotFoundError: No module named 'cv2'",
                "ImportError: Could not import module a.providers.b: No module named 'cv2'. Please see",
            ],
            "reported": ["the stub cannot import it: No module named 'cv2'"],
        },
    ),
    (
        ("module-missing", "add the package with the part of google that is imported to the model's requirements"),
        {
            "raised": ["ModuleNotFoundError: No module named 'google'"],
            "reported": ["the stub cannot import it: No module named 'google'"],
        },
    ),
    (
        ("module-missing", "add google-cloud-storage to the model's requirements"),
        {
            "raised": ["ModuleNotFoundError: No module named 'google.cloud.storage'"],
            "reported": ["the stub cannot import it: No module named 'google.cloud.storage'"],
        },
    ),
    (
        ("module-missing", "add the package with google.cloud.storage to the model's requirements"),
        {"raised": ["ImportError: cannot import name 'storage' from 'google.cloud' (unknown location)"]},
    ),
    (
        ("module-missing", "require a version of google-cloud-storage that has google.cloud.storage.v9"),
        {
            "raised": ["ModuleNotFoundError: No module named 'google.cloud.storage.v9'"],
            "reported": ["the stub cannot import it: No module named 'google.cloud.storage.v9'"],
        },
    ),
    (
        ("module-missing", "require a version of scikit-learn that has sklearn.a.b"),
        {
            "raised": ["ModuleNotFoundError: No module named 'sklearn.a.b'"],
            "reported": ["the stub cannot import it: No module named 'sklearn.a.b'"],
        },
    ),
    (
        ("module-missing", "add tritonclient[http] to the model's requirements"),
        {"raised": ["RuntimeError: The installation does not include http support. Specify 'http' or 'all' while i"]},
    ),
    (
        ("module-missing", "add tritonclient[grpc,http] to the model's requirements"),
        {"raised": ["ModuleNotFoundError: No module named 'tritonclient'"]},
    ),
    (
        ("module-missing", "add the package of the PyTorch library to the model's requirements"),
        {"raised": ["ImportError: \nX requires the PyTorch library but it was not found in your environment."]},
    ),
    (
        ("bad-output", "strings as .astype(object)"),
        {"raised": ["TritonModelException: NumPy dtype is not supported."]},
    ),
    (
        ("numpy-mismatch", "often numpy<2, to the requirements"),
        {
            "raised": [
                "ImportError: numpy.core.multiarray failed to import",
                "ValueError: numpy.dtype size changed, may indicate binary incompatibility",
                f"ImportError: {OLD_NUMPY}",
                f"AttributeError: _ARRAY_API not found. {OLD_NUMPY}",
                f"RuntimeError: {OLD_NUMPY}",
            ],
            "reported": [
                "the stub cannot use it: numpy.core.multiarray failed to import",
                "the stub cannot use it: numpy.dtype size changed, may indicate binary incompatibility",
            ],
            "printed": [OLD_NUMPY],
        },
    ),
    (
        ("libpython-missing", "with envpack build MODEL --python 3.8"),
        {
            "reported": [
                "this stub needs libpython3.8.so.1.0 (Python 3.8), which could not be loaded: " + NOT_FOUND,
            ]
        },
    ),
    (
        ("libpython-missing", "has libpython3.8.so.1.0: make one with envpack build MODEL"),
        {
            "reported": [f"it printed: {LOADER}libpython3.8.so.1.0: {NOT_FOUND}"],
            "printed": [f"{LOADER}libpython3.8.so.1.0: {NOT_FOUND}"],
        },
    ),
    (
        ("library-missing", "the package that contains libz.so.1 to the environment"),
        {
            "raised": [f"ImportError: libz.so.1: {NOT_FOUND}", f"OSError: libz.so.1: {NOT_FOUND}"],
            "reported": [f"it printed: {LOADER}libz.so.1: {NOT_FOUND}", f"dlopen failed, libz.so.1: {NOT_FOUND}"],
            "printed": [f"{LOADER}libz.so.1: {NOT_FOUND}"],
        },
    ),
    (
        ("library-too-old", "it needs GLIBC_2.38"),
        {
            "raised": [f"ImportError: {GLIBC}", f"OSError: {GLIBC}"],
            "reported": [GLIBC],
            "printed": [f"/m/stub: {GLIBC}"],
        },
    ),
    (
        ("library-too-old", "it needs GLIBCXX_3.4.32"),
        {"raised": [f"ImportError: {GLIBCXX}"], "reported": [GLIBCXX], "printed": [f"/m/stub: {GLIBCXX}"]},
    ),
    (
        ("load-failed", "the library does not get bert-base-uncased from the Hugging Face Hub: put its files into the"),
        {
            "raised": [
                "OSError: Can't load tokenizer for 'bert-base-uncased'. If you were trying to load it fr",
                "OSError: Can't load the configuration of 'bert-base-uncased'. If you were trying to load it fr",
            ]
        },
    ),
    (
        ("load-failed", "the Hugging Face Hub requires a token: set HF_TOKEN where the server runs"),
        {
            "raised": [
                "huggingface_hub.errors.GatedRepoError: 401 Client Error. (Request ID: 1)",
                "huggingface_hub.errors.RepositoryNotFoundError: 401 Client Error. (Request ID: 1)",
                "OSError: You are trying to access a gated repo.\nMake sure to have access to it at https://huggingface.co/a",
            ]
        },
    ),
    (
        ("load-failed", "the server does not reach that host"),
        {
            "raised": [
                "huggingface_hub.errors.LocalEntryNotFoundError: An error happened while trying to locate the file"
            ]
        },
    ),
    (
        ("module-missing", "require a version of huggingface-hub that has huggingface_hub.cached_download"),
        {
            "raised": [
                f"ImportError: cannot import name 'cached_download' from 'huggingface_hub' (/env/lib/{packages}/hugg"
                "ingface_hub/__init__.py)"
                for packages in ("python3.10/site-packages", "python3/dist-packages")
            ]
        },
    ),
    (
        (
            "module-missing",
            "collections of Python 3.10 has no Mapping: correct the import, or build for another Python",
        ),
        {
            "raised": [
                "ImportError: cannot import name 'Mapping' from 'collections' (/e/lib/python3.10/collections/x.py)"
            ]
        },
    ),
    (
        ("module-missing", "add the package of the spaCy model en_core_web_sm to the model's requirements"),
        {"raised": ["OSError: [E050] Can't find model 'en_core_web_sm'. It doesn't seem to be a Python package"]},
    ),
    (
        ("numpy-mismatch", "add numpy<1.24 to the requirements, or write float in place of np.float"),
        {"raised": ["AttributeError: module 'numpy' has no attribute 'float'.\n`np.float` was a deprecated alias"]},
    ),
    (
        ("numpy-mismatch", "add numpy<2 to the requirements, or write what the error says"),
        {"raised": ["AttributeError: `np.float_` was removed in the NumPy 2.0 release. Use `np.float64` instead."]},
    ),
    (
        ("load-failed", "add protobuf<3.21 to the requirements"),
        {"raised": [f"TypeError: Descriptors cannot {word}be created directly." for word in ("", "not ")]},
    ),
    (
        ("no-gpu", "the environment has PyTorch for CPUs"),
        {"raised": ["AssertionError: Torch not compiled with CUDA enabled"]},
    ),
    (
        ("no-gpu", "load the weights with map_location='cpu'"),
        {
            "raised": [
                "RuntimeError: Attempting to deserialize object on a CUDA device but torch.cuda.is_available() is False"
            ]
        },
    ),
    (
        ("load-failed", "the environment has no code for this GPU"),
        {
            "raised": [
                f"{kind}: CUDA error: no kernel image is available for execution on the device"
                for kind in ("RuntimeError", "torch.AcceleratorError")
            ]
        },
    ),
    (
        ("library-missing", "add the package that contains the library libsndfile.so to the environment"),
        {"raised": [f"OSError: cannot load library 'libsndfile.so': libsndfile.so: {NOT_FOUND}"]},
    ),
    (
        ("library-missing", "add the package that contains the library sndfile to the environment"),
        {"raised": ["OSError: sndfile library not found"]},
    ),
    (
        ("load-failed", "/env/lib/a.so was built for other versions of the libraries that it loads"),
        {
            "raised": [
                "ImportError: /env/lib/a.so: undefined symbol: cublasLtGetStatusString, version libcublasLt.so.11"
            ]
        },
    ),
    (
        ("library-too-old", "it needs CXXABI_1.3.15"),
        {"raised": [f"ImportError: {GLIBCXX.replace('GLIBCXX_3.4.32', 'CXXABI_1.3.15')}"]},
    ),
]
