"""Triton's model repository: opens models, checks and edits their configuration, places stubs and environments."""

from __future__ import annotations

from typing import TYPE_CHECKING

from envpack.support.lazy_imports import lazy_imports

if TYPE_CHECKING:
    from envpack.repository.backends import (
        default_file as default_file,
        is_model_file as is_model_file,
        misspelt_backend as misspelt_backend,
    )
    from envpack.repository.calls import (
        called_models as called_models,
        completes_itself as completes_itself,
        sends_requests as sends_requests,
    )
    from envpack.repository.config import (
        ModelConfig as ModelConfig,
        parse_config as parse_config,
        parse_json_config as parse_json_config,
    )
    from envpack.repository.config_checks import config_faults as config_faults
    from envpack.repository.config_choices import (
        CustomConfig as CustomConfig,
        custom_configs as custom_configs,
        is_custom_config as is_custom_config,
        python_configs as python_configs,
    )
    from envpack.repository.config_editor import (
        get_string_parameter as get_string_parameter,
        remove_parameter as remove_parameter,
        set_backend as set_backend,
        set_execution_environment as set_execution_environment,
        set_string_parameter as set_string_parameter,
    )
    from envpack.repository.ensemble_checks import fit_faults as fit_faults, flow_faults as flow_faults
    from envpack.repository.ensembles import (
        find_cycles as find_cycles,
        in_loading_order as in_loading_order,
        needed_first as needed_first,
    )
    from envpack.repository.imports import imported_modules as imported_modules
    from envpack.repository.model import (
        CONFIG_NAME as CONFIG_NAME,
        DEFAULT_CONFIG as DEFAULT_CONFIG,
        SHELL_CHARACTER as SHELL_CHARACTER,
        UNADDRESSABLE as UNADDRESSABLE,
        Model as Model,
        config_text as config_text,
        examine_model as examine_model,
        find_folder as find_folder,
        looks_like_model as looks_like_model,
        not_in_python as not_in_python,
        open_model as open_model,
        served_versions as served_versions,
        version_folders as version_folders,
    )
    from envpack.repository.placement import (
        BRIDGE as BRIDGE,
        ONE_AT_A_TIME as ONE_AT_A_TIME,
        PYTHON_BACKEND as PYTHON_BACKEND,
        RELEASE_FILE as RELEASE_FILE,
        STUB_NAME as STUB_NAME,
        UTILITIES as UTILITIES,
        Backend as Backend,
        backend_for as backend_for,
        backends_folder as backends_folder,
        environment_of as environment_of,
        find_backends as find_backends,
        forget_release as forget_release,
        in_model_folder as in_model_folder,
        is_bridge as is_bridge,
        is_stub_placed as is_stub_placed,
        library_name as library_name,
        place_backend as place_backend,
        place_stub as place_stub,
        point_to_environment as point_to_environment,
        python_of_backend as python_of_backend,
        remove_stub as remove_stub,
        unpacking_backends as unpacking_backends,
    )
    from envpack.repository.selection import (
        chosen_folders as chosen_folders,
        find_models as find_models,
        model_name as model_name,
        named_models as named_models,
        no_models as no_models,
        open_models as open_models,
    )
    from envpack.repository.starting import START_PARAMETER as START_PARAMETER, configured_start as configured_start
    from envpack.repository.warmups import (
        warmup_data_faults as warmup_data_faults,
        warmup_faults as warmup_faults,
    )

__getattr__, __all__ = lazy_imports(__name__, __file__)
