"""What a user can say, once: the settings, envpack.toml, and which of them counts. Facts about Triton releases."""

from __future__ import annotations

from typing import TYPE_CHECKING

from envpack.support.lazy_imports import lazy_imports

if TYPE_CHECKING:
    from envpack.settings.examples import copy_recipe, copy_template, example_titles
    from envpack.settings.fields import Field
    from envpack.settings.kinds import BadValueError
    from envpack.settings.project import FILE_NAME, Project, open_project
    from envpack.settings.pythons import FREE_THREADED, SUPPORTED, check_minor, is_fetchable, pybind11_for
    from envpack.settings.releases import (
        DEFAULT_RELEASE,
        Release,
        all_releases,
        find_release,
        release_for_stub,
        release_of_server,
    )
    from envpack.settings.table import (
        FIELDS,
        ArchiveFormat,
        PackerName,
        PythonPreference,
        RuntimeName,
        Settings,
        Start,
        StubPolicy,
        ToolchainName,
    )
else:
    __getattr__, __all__ = lazy_imports(__name__, __file__)
