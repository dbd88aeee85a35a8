"""What a user can say, once: the settings, envpack.toml, and which of them counts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from envpack.support.lazy_imports import lazy_imports

if TYPE_CHECKING:
    from envpack.settings.examples import (
        Example as Example,
        copy_recipe as copy_recipe,
        copy_template as copy_template,
        recipes as recipes,
        templates as templates,
    )
    from envpack.settings.fields import UNSAID as UNSAID, Field as Field
    from envpack.settings.kinds import (
        BadValueError as BadValueError,
        Choice as Choice,
        Flag as Flag,
        Kind as Kind,
        Number as Number,
        Place as Place,
        Size as Size,
        Texts as Texts,
        parse_size as parse_size,
    )
    from envpack.settings.project import FILE_NAME as FILE_NAME, Project as Project, open_project as open_project
    from envpack.settings.table import (
        FIELDS as FIELDS,
        ArchiveFormat as ArchiveFormat,
        Layout as Layout,
        PackerName as PackerName,
        PythonPreference as PythonPreference,
        RuntimeName as RuntimeName,
        Settings as Settings,
        Start as Start,
        StubPolicy as StubPolicy,
        ToolchainName as ToolchainName,
    )

__getattr__, __all__ = lazy_imports(__name__, __file__)
