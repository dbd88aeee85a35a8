"""Runs models without a server: in their environment, under our stub, with envpack in the server's place."""
