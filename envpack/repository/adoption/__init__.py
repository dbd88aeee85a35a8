"""Trained artifacts as models of Triton: an MLflow model, a scikit-learn or ONNX file, a Python function.

An artifact is only read here. It runs once, in the execution environment of the model that is made of it.
"""
