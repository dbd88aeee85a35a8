"""Statements about files, signed and verified with ed25519."""
