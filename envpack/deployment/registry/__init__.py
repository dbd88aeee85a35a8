"""A container registry: addresses, accounts, documents and blobs."""
