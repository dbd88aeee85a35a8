from tests.server.stub.test_forks import *  # noqa: F403
