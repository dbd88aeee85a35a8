from tests.server.stub.test_metrics import *  # noqa: F403
