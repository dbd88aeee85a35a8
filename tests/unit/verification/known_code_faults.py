"""What Python, the server and the stub write of each known fault in a model's code, and words of the fix.

Kind, words of the fix that no other fix has, and what is raised by the model, reported by the server, or printed.
"""

DTYPE = "TritonModelException: NumPy dtype is not supported. Tensor 'Y' has the dtype"
WRONG_ARGUMENTS = (
    "TypeError: __init__(): incompatible constructor arguments. The following argument types are supported:\n"
    "    1. c_python_backend_utils.Tensor(name: str, array: numpy.ndarray)\n\nInvoked with: {}"
)

OF_CODE = [
    (
        ("interface-broken", "define a class TritonPythonModel in model.py"),
        {
            "raised": ["AttributeError: module 'model' has no attribute 'TritonPythonModel'"],
            "reported": ["the module has no attribute 'TritonPythonModel'"],
        },
    ),
    (
        ("interface-broken", "initialize(self, args) and finalize(self)"),
        {
            "raised": [
                "TypeError: TritonPythonModel.initialize() takes 1 positional argument but 2 were given",
                "TypeError: TritonPythonModel.auto_complete_config() missing 1 required positional argument: 'config'",
            ],
            "reported": ["Python model file m.py does not implement `execute` method."],
        },
    ),
    (
        ("interface-broken", "adds this name when it has imported the model: use it in methods alone"),
        {
            "raised": [
                "ImportError: cannot import name 'Tensor' from 'triton_python_backend_utils' (/opt/utils.py)",
                "AttributeError: module 'triton_python_backend_utils' has no attribute 'InferenceRequest'",
            ],
        },
    ),
    (
        ("interface-broken", "return the configuration at the end of auto_complete_config"),
        {"reported": ["auto_complete_config function in model 'm' must return a valid pb.ModelConfig object."]},
    ),
    (
        ("interface-broken", "return None from execute, and send the responses"),
        {"reported": ["Python model 'm_0_0' is using the decoupled mode and the execute function must return None."]},
    ),
    (
        ("bad-output", "declare the output Y in config.pbtxt"),
        {"reported": ["unexpected inference output 'Y' for model 'm'"]},
    ),
    (
        ("interface-broken", "send the responses to each request with its response sender"),
        {
            "reported": [
                (
                    "has returned from execute without a final response, and has kept neither a request nor a response"
                    " sender: nothing can answer any more. Send the responses and the final flag with request.get_re"
                ),
            ]
        },
    ),
    (
        ("interface-broken", "return a list with one InferenceResponse per request"),
        {
            "reported": [
                "Number of InferenceResponse objects do not match the number of InferenceRequest objects.",
                "Expected an 'InferenceResponse' object in the execute function return list, found type 'str'.",
                "Expected a list in the execute return, found type 'NoneType'.",
            ]
        },
    ),
    (
        ("syntax-error", "a file that has NUL bytes is UTF-16"),
        {
            "raised": [
                "ValueError: source code string cannot contain null bytes",
                "SyntaxError: source code string cannot contain null bytes",
            ]
        },
    ),
    (
        ("syntax-error", "save model.py, and what it imports, as UTF-8 text"),
        {
            "raised": [
                "SyntaxError: (unicode error) 'utf-8' codec can't decode byte 0xff in position 0 (model.py, line 1)"
            ]
        },
    ),
    (
        ("syntax-error", "correct line 3 of model.py; "),
        {
            "raised": [
                "SyntaxError: invalid syntax (model.py, line 3)",
                "IndentationError: unexpected indent (model.py, line 3)",
                "TabError: inconsistent use of tabs and spaces in indentation (model.py, line 3)",
            ]
        },
    ),
    (
        ("interface-broken", "for request in requests"),
        {"raised": ["AttributeError: 'list' object has no attribute 'inputs'"]},
    ),
    (
        ("interface-broken", "give pb_utils.Tensor a NumPy array"),
        {"raised": [WRONG_ARGUMENTS.format("'Y', [1.0]")]},
    ),
    (
        ("interface-broken", "or an error=pb_utils.TritonError(TEXT)"),
        {"raised": [WRONG_ARGUMENTS.format("kwargs: output_tensors=[], error='text'")]},
    ),
    (
        ("load-failed", "compare the names that the model asks for"),
        {"raised": ["AttributeError: 'NoneType' object has no attribute 'as_numpy'"]},
    ),
    (
        ("load-failed", "a server has no terminal"),
        {"raised": ["EOFError: EOF when reading a line"]},
    ),
    (
        ("load-failed", "put the file beside the model's code"),
        {"raised": ["FileNotFoundError: [Errno 2] No such file or directory: '/tmp/envpack-verify-a_1b/.token'"]},
    ),
    (
        ("bad-output", "give Y its strings as an array of objects: .astype(object)"),
        {"raised": [f"{DTYPE} <U1. Convert strings with astype(object)."]},
    ),
    (
        ("bad-output", "convert Y: no type of Triton's tensors is the dtype datetime64[D]"),
        {"raised": [f"{DTYPE} datetime64[D].", f"{DTYPE} datetime64[D]"]},
    ),
]
