"""Places that a server can run in: a process of this machine, or a container."""
