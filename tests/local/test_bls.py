from tests.server.stub.test_bls import *  # noqa: F403
