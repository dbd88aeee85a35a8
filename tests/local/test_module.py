from tests.server.stub.test_module import *  # noqa: F403
