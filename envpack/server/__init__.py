"""A running Triton server, as a process or in a container: start, requests, log, leftovers."""
