"""Deployments: a folder, objects or an image in a registry with the models and backends that a server needs."""
