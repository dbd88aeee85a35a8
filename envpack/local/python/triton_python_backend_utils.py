"""What a model imports besides the stub's classes, for models that run without a server.

On a server, the backend provides this module; the stub adds its classes to either. It must run on Python 3.6 and with
NumPy 1 and 2. Names, results and texts of errors are those of Triton 23.11 to 26.07, whose modules are the same.
"""

import json
import struct
from os import environ as _environ

import numpy as np

if "ENVPACK_RUN" in _environ:
    import envpack_run  # noqa: F401 - the stub imports this module before the model

TRITONSERVER_REQUEST_FLAG_SEQUENCE_START = 1
TRITONSERVER_REQUEST_FLAG_SEQUENCE_END = 2
TRITONSERVER_RESPONSE_COMPLETE_FINAL = 1
TRITONSERVER_REQUEST_RELEASE_ALL = 1
TRITONSERVER_REQUEST_RELEASE_RESCHEDULE = 2

TRITON_STRING_TO_NUMPY = {
    "TYPE_BOOL": bool,
    "TYPE_UINT8": np.uint8,
    "TYPE_UINT16": np.uint16,
    "TYPE_UINT32": np.uint32,
    "TYPE_UINT64": np.uint64,
    "TYPE_INT8": np.int8,
    "TYPE_INT16": np.int16,
    "TYPE_INT32": np.int32,
    "TYPE_INT64": np.int64,
    "TYPE_FP16": np.float16,
    "TYPE_FP32": np.float32,
    "TYPE_FP64": np.float64,
    "TYPE_STRING": np.object_,
}

# By Triton's number of the type, from 1 on.
_NUMPY_TYPES = (np.bool_, *list(TRITON_STRING_TO_NUMPY.values())[1:])
_BYTES = 13
_LENGTH = struct.Struct("<I")


def serialize_byte_tensor(input_tensor):
    """The elements of an array of strings, each after its length; None for an array of another type."""
    if input_tensor.size == 0:
        return ()
    if input_tensor.dtype != np.object_ and input_tensor.dtype.type != np.bytes_:
        return None
    parts = []
    for element in input_tensor.ravel(order="C"):
        text = element if isinstance(element, bytes) else str(element).encode("utf-8")
        parts += [_LENGTH.pack(len(text)), text]
    return b"".join(parts)


def deserialize_bytes_tensor(encoded_tensor):
    """The opposite of `serialize_byte_tensor`: an array of bytes with one dimension."""
    elements = []
    at = 0
    while at < len(encoded_tensor):
        (size,) = _LENGTH.unpack_from(encoded_tensor, at)
        (element,) = struct.unpack_from("<%ds" % size, encoded_tensor, at + _LENGTH.size)
        at += _LENGTH.size + size
        elements.append(element)
    return np.array(elements, dtype=np.object_)


def get_input_tensor_by_name(inference_request, name):
    """The input of a request, or None."""
    return _named(inference_request.inputs(), name)


def get_output_tensor_by_name(inference_response, name):
    """The output of a response, or None."""
    return _named(inference_response.output_tensors(), name)


def _named(tensors, name):
    return next((tensor for tensor in tensors if tensor.name() == name), None)


def get_input_config_by_name(model_config, name):
    """What a configuration says of an input, or None."""
    return _declared(model_config, "input", name)


def get_output_config_by_name(model_config, name):
    """What a configuration says of an output, or None."""
    return _declared(model_config, "output", name)


def _declared(model_config, key, name):
    return next((entry for entry in model_config.get(key, ()) if entry["name"] == name), None)


def using_decoupled_model_transaction_policy(model_config):
    """Whether a model may send any number of responses to a request."""
    return "model_transaction_policy" in model_config and model_config["model_transaction_policy"]["decoupled"]


def triton_string_to_numpy(triton_type_string):
    """The NumPy type of a configuration's type; KeyError for an unknown one."""
    return TRITON_STRING_TO_NUMPY[triton_type_string]


def triton_to_numpy_type(data_type):
    """The NumPy type of a number, or None."""
    return _NUMPY_TYPES[data_type - 1] if 1 <= data_type <= len(_NUMPY_TYPES) else None


def numpy_to_triton_type(data_type):
    """The number of a NumPy type, or None."""
    if data_type == np.bytes_:
        return _BYTES
    return next((number for number, known in enumerate(_NUMPY_TYPES, 1) if data_type == known), None)


class ModelConfig:
    """The configuration that auto_complete_config() is given and returns."""

    def __init__(self, model_config):
        self._model_config = json.loads(model_config)

    def as_dict(self):
        """The configuration itself, not a copy."""
        return self._model_config

    def set_max_batch_size(self, max_batch_size):
        """Set it, unless the file has a larger one."""
        if self._model_config["max_batch_size"] > max_batch_size:
            raise ValueError(
                "configuration specified max_batch_size {}, but in auto-complete-config function for model '{}' "
                "specified max_batch_size {}".format(self._model_config["max_batch_size"], self._name, max_batch_size)
            )
        self._model_config["max_batch_size"] = max_batch_size

    def set_dynamic_batching(self):
        """Let the server join requests, unless the file has another scheduler."""
        for choice in ("sequence_batching", "ensemble_scheduling"):
            if choice in self._model_config:
                raise ValueError(
                    f"Configuration specified scheduling_choice as '{choice}', but auto-complete-config function for "
                    f"model '{self._name}' tries to set scheduling_choice as 'dynamic_batching'"
                )
        self._model_config.setdefault("dynamic_batching", {})

    def add_input(self, input):
        """Declare an input; one that the file declares must be the same."""
        self._add("input", input, ("name", "data_type", "dims", "optional"))

    def add_output(self, output):
        """Declare an output; one that the file declares must be the same."""
        self._add("output", output, ("name", "data_type", "dims"))

    def set_model_transaction_policy(self, transaction_policy_dict):
        """Set whether the model is decoupled, unless the file says otherwise."""
        if any(key != "decoupled" for key in transaction_policy_dict):
            raise ValueError(
                f"model transaction property in auto-complete-config function for model '{self._name}' contains "
                "property other than 'decoupled'."
            )
        current = self._model_config.setdefault("model_transaction_policy", {})
        if "decoupled" not in transaction_policy_dict:
            return
        if current.get("decoupled", transaction_policy_dict["decoupled"]) != transaction_policy_dict["decoupled"]:
            raise ValueError(
                "trying to change decoupled property in auto-complete-config for model '{}', which is already set to "
                "'{}'.".format(self._name, current["decoupled"])
            )
        current["decoupled"] = transaction_policy_dict["decoupled"]

    @property
    def _name(self):
        return self._model_config["name"]

    def _add(self, kind, tensor, known):
        self._check(kind, tensor, known)
        entries = self._model_config[kind]
        for entry in entries:
            if entry["name"] == tensor["name"]:
                self._compare(kind, entry, tensor)
                entry.update(tensor)
                return
        entries.append(dict(tensor))

    def _check(self, kind, tensor, known):
        where = f"in auto-complete-config function for model '{self._name}'"
        if any(key not in known for key in tensor):
            properties = ", ".join("'%s'" % key for key in known[:-1])
            raise ValueError(
                "{} '{}' {} contains property other than {} and '{}'.".format(
                    kind, tensor["name"], where, properties, known[-1]
                )
            )
        if "name" not in tensor:
            raise ValueError(f"{kind} {where} is missing 'name' property.")
        for key in ("data_type", "dims"):
            if key not in tensor:
                raise ValueError("{} '{}' {} is missing '{}' property.".format(kind, tensor["name"], where, key))

    def _compare(self, kind, entry, tensor):
        if entry["data_type"] not in ("TYPE_INVALID", tensor["data_type"]):
            raise ValueError(
                "unable to load model '{}', configuration expects datatype {} for {} '{}', model provides {}".format(
                    self._name, entry["data_type"], kind, tensor["name"], tensor["data_type"]
                )
            )
        for key in ("dims", "optional"):
            if not entry.get(key) or key not in tensor or entry[key] == tensor[key]:
                continue
            raise ValueError(
                "model '{0}', tensor '{1}': the model expects {2} {3} but the model configuration specifies "
                "{2} {4}".format(self._name, tensor["name"], key, tensor[key], entry[key])
            )
