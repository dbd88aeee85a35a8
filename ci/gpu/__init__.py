"""Runs our stub with a GPU under the real server; ci/gpu-check.sh starts it."""
