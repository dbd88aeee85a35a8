from tests.server.stub.test_dlpack import *  # noqa: F403
