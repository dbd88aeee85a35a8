from tests.server.stub.test_tensors import *  # noqa: F403
