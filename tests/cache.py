"""The folder in which tests keep what takes long to make: stubs, environments, servers, interpreters as packages."""

import os
from pathlib import Path

_DEFAULT = Path(__file__).resolve().parents[1] / "build/test-cache"


def kept_cache():
    """The folder that ENVPACK_TEST_CACHE names, by default one in the checkout, so that the next run has it.

    Each thing in it is named by the content that it was made from.
    """
    return Path(os.environ.get("ENVPACK_TEST_CACHE") or _DEFAULT).absolute()


def use_kept_cache():
    """Make it envpack's own cache too, so that no test uses the user's."""
    os.environ["ENVPACK_CACHE_DIR"] = os.environ["ENVPACK_TEST_CACHE"] = str(kept_cache())
