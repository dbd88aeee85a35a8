"""Programs in a container of a test."""

_BEGIN, _END = b"begins\n", b"ends\n"
_MARKED = 'echo begins; "$@"; code=$?; echo ends; exit $code'


def output_of(container, command):
    """What a command prints in a container; ``command`` is a list of words.

    On a busy machine podman was seen to lose the beginning or all of an output, or to send a frame of its protocol
    within it.
    """
    for _ in range(5):
        code, output = container.exec_run(["sh", "-c", _MARKED, "sh", *command])
        assert code == 0, output
        if output.startswith(_BEGIN) and output.endswith(_END) and b"\0" not in output:
            return output[len(_BEGIN) : -len(_END)].decode()
    raise AssertionError(f"the daemon lost a part of the output five times: {output!r}")
