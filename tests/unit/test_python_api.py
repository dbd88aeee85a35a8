"""What all functions of the Python API have in common."""

import inspect

import envpack


def test_nobody_has_to_receive_the_steps():
    """What has no receiver by default can only be called by who finds one inside of envpack."""
    functions = {name: getattr(envpack, name) for name in envpack.__all__ if name[0].islower()}
    receive = [name for name, function in functions.items() if "progress" in inspect.signature(function).parameters]
    assert len(receive) > 10
    for name in receive:
        assert inspect.signature(functions[name]).parameters["progress"].default is None, name
