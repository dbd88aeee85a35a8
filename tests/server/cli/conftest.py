"""The server and the small environment of the verification tests."""

from tests.server.verification.conftest import environment, server

__all__ = ["environment", "server"]
