"""Triton's model repository: open models, check and edit their configuration, place stubs and environments."""

from envpack.repository.archives import ONE_AT_A_TIME, unpacking_backends
from envpack.repository.backends import (
    PYTHON_BACKEND,
    Backend,
    backend_for,
    backends_of,
    find_backends,
    place_backend,
    python_of_backend,
)
from envpack.repository.config import ModelConfig, parse_config
from envpack.repository.config_editor import (
    get_string_parameter,
    set_backend,
    set_execution_environment,
    set_string_parameter,
)
from envpack.repository.model import (
    CONFIG_NAME,
    DEFAULT_CONFIG,
    Model,
    config_text,
    examine_model,
    find_models,
    looks_like_model,
    no_models,
    open_model,
    version_folders,
)
from envpack.repository.placement import (
    RELEASE_FILE,
    STUB_NAME,
    environment_of,
    forget_release,
    in_model_folder,
    is_stub_placed,
    place_stub,
    point_to_environment,
    remove_stub,
)

__all__ = [
    "CONFIG_NAME",
    "DEFAULT_CONFIG",
    "ONE_AT_A_TIME",
    "PYTHON_BACKEND",
    "RELEASE_FILE",
    "STUB_NAME",
    "Backend",
    "Model",
    "ModelConfig",
    "backend_for",
    "backends_of",
    "config_text",
    "environment_of",
    "examine_model",
    "find_backends",
    "find_models",
    "forget_release",
    "get_string_parameter",
    "in_model_folder",
    "is_stub_placed",
    "looks_like_model",
    "no_models",
    "open_model",
    "parse_config",
    "place_backend",
    "place_stub",
    "point_to_environment",
    "python_of_backend",
    "remove_stub",
    "set_backend",
    "set_execution_environment",
    "set_string_parameter",
    "unpacking_backends",
    "version_folders",
]
