import pytest

from tests.server.stub.test_tensors import *  # noqa: F403

pytestmark = pytest.mark.thorough  # these hardly depend on the wire
