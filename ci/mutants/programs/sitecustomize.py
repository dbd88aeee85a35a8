"""Runs in each Python program that a test starts: it imports the copy of the tree, and its lines can be measured."""

import os
import sys
from pathlib import Path

# An editable installation finds the original.
sys.meta_path[:] = [finder for finder in sys.meta_path if type(finder).__name__ != "ScikitBuildRedirectingFinder"]


def _measure(folder: str, test: str) -> None:
    """Write the lines of envpack that this program executes, as those of a test, when it ends."""
    import coverage

    measured = coverage.Coverage(
        f"{folder}/program",
        data_suffix=True,
        auto_data=True,
        config_file=False,
        source=[str(Path(__file__).parents[3] / "envpack")],
        context=test,
    )
    measured.set_option("run:disable_warnings", ["no-data-collected", "module-not-imported", "module-not-measured"])
    measured.start()


if os.environ.get("ENVPACK_MUTANTS_PROGRAMS"):
    _measure(os.environ["ENVPACK_MUTANTS_PROGRAMS"], os.environ["ENVPACK_MUTANTS_TEST"])
