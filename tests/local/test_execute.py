from tests.server.stub.test_execute import *  # noqa: F403
