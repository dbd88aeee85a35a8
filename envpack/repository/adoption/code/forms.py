"""How the values of a model are made of tensors; a model.py has those that it needs."""

import json

import numpy as np


def array(values):
    return values


def numbers(values):
    return values.reshape(-1)


def texts(values):
    return np.array([value.decode() for value in values.flat], dtype=object)


def strings(values):
    return np.array([value.decode() for value in values.flat], dtype=object).reshape(values.shape)


def plain_texts(values):
    return np.array([value.decode() for value in values.flat], dtype=str)


def plain_strings(values):
    return np.array([value.decode() for value in values.flat], dtype=str).reshape(values.shape)


def words(values):
    return [value.decode() for value in values.flat]


def items(values):
    return values.reshape(-1).tolist()


def times(values):
    import pandas as pd

    return [pd.Timestamp(value.decode()) for value in values.flat]


def documents(values):
    return [json.loads(value) for value in values.flat]


def lists(values):
    return [value.tolist() for value in values]


def binaries(values):
    return list(values.flat)


def text(values):
    return values.item().decode()


def item(values):
    return values.item()


def picture(values):
    import io

    from PIL import Image

    return Image.open(io.BytesIO(values.item()))


def once(values):
    """A parameter, which all rows of a call must share."""
    if (values != values[:1]).any():
        raise ValueError("a parameter differs between rows")
    return values[:1]


def png(image):
    import io

    file = io.BytesIO()
    image.save(file, "png")
    return file.getvalue()
