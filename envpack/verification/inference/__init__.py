"""Asking a served model: KServe's protocol, tensors, what to ask, and what to expect."""
