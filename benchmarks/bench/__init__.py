"""What the benchmarks of the stub share: models, a lean load generator, and figures of processes."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))  # of the tests, whose helpers some benchmarks use
