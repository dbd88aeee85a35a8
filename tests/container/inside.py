"""Programs in a container of a test."""


def output_of(container, command):
    """What a command prints in a container.

    podman was seen to send a frame of its protocol within the output, or none, in one of some hundred calls on a busy
    machine.
    """
    for _ in range(3):
        code, output = container.exec_run(command)
        assert code == 0, output
        if output and b"\0" not in output:
            break
    return output.decode()
