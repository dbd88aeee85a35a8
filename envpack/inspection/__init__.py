"""Finds all problems of a model repository from its files alone: nothing is started, run or unpacked.

`preflight_model` compares the stub and the execution environment of a model with a release and a host;
`find_mismatches` compares facts that the caller has read.
"""
