"""Triton's model repository: opens models, checks and edits their configuration, places stubs and environments."""

from __future__ import annotations

from typing import TYPE_CHECKING

from envpack.support.lazy_imports import lazy_imports

if TYPE_CHECKING:
    from envpack.repository.code import called_models
    from envpack.repository.config import ModelConfig, parse_config, unfilled_parameters
    from envpack.repository.config_choices import custom_configs, is_custom_config, python_configs
    from envpack.repository.config_editor import START_PARAMETER, set_backend, set_execution_environment
    from envpack.repository.config_rules import (
        WIDTHS,
        agree,
        config_faults,
        data_type,
        datatype_of,
        fits,
        kserve_type,
        later_fields,
        warmup_faults,
    )
    from envpack.repository.ensembles import find_cycles, in_loading_order, needed_first
    from envpack.repository.folders import (
        Stamps,
        file_in,
        find_folder,
        is_model_file,
        looks_like_model,
        odd_version,
        source_stamps,
        version_folders,
    )
    from envpack.repository.model import (
        SHELL_CHARACTER,
        UNADDRESSABLE,
        Model,
        config_text,
        examine_model,
        not_in_python,
        open_model,
    )
    from envpack.repository.nearby import no_models
    from envpack.repository.placement import (
        BRIDGE,
        ONE_AT_A_TIME,
        PYTHON_BACKEND,
        STUB_MODE,
        UTILITIES,
        Backend,
        backend_for,
        backends_folder,
        check_server_backend,
        edited_configs,
        find_backends,
        forget_release,
        in_model_folder,
        is_stub_placed,
        library_name,
        linked_path_fault,
        names_release,
        place_stub,
        point_to_environment,
        python_of_backend,
        remove_stub,
        unpacking_backends,
    )
    from envpack.repository.selection import (
        chosen_folders,
        examine_readable,
        model_folders,
        model_name,
        named_models,
        open_models,
    )
    from envpack.support.placed_files import CONFIG_NAME, RELEASE_FILE, STUB_NAME
else:
    __getattr__, __all__ = lazy_imports(__name__, __file__)
