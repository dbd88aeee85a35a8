"""A repository of models."""

import pytest

from tests.faults.broken_models import CONFIG, DOUBLE

GPU = "instance_group [ { count: 1 kind: KIND_GPU } ]\n"


@pytest.fixture
def add_model(tmp_path):
    def add(name, requirements="numpy\n", config=CONFIG):
        folder = tmp_path / name
        (folder / "1").mkdir(parents=True)
        (folder / "config.pbtxt").write_text(config)
        (folder / "1/model.py").write_text(DOUBLE)
        (folder / "requirements.txt").write_text(requirements)
        return folder

    return add
