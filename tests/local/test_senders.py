from tests.server.stub.test_senders import *  # noqa: F403
