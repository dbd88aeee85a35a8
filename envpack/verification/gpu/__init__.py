"""Proof that models can use a GPU; a server that starts proves nothing."""
