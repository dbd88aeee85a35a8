"""Triton's model repository: open models, check and edit their configuration, place stubs and environments."""

from envpack.repository.config import ModelConfig, parse_config
from envpack.repository.config_editor import get_string_parameter, set_execution_environment, set_string_parameter
from envpack.repository.model import CONFIG_NAME, DEFAULT_CONFIG, Model, config_text, find_models, no_models, open_model
from envpack.repository.placement import (
    RELEASE_FILE,
    STUB_NAME,
    environment_of,
    forget_release,
    in_model_folder,
    is_stub_placed,
    place_stub,
    point_to_environment,
)

__all__ = [
    "CONFIG_NAME",
    "DEFAULT_CONFIG",
    "RELEASE_FILE",
    "STUB_NAME",
    "Model",
    "ModelConfig",
    "config_text",
    "environment_of",
    "find_models",
    "forget_release",
    "get_string_parameter",
    "in_model_folder",
    "is_stub_placed",
    "no_models",
    "open_model",
    "parse_config",
    "place_stub",
    "point_to_environment",
    "set_execution_environment",
    "set_string_parameter",
]
