"""What Python 3.14 has changed, in a stub."""

import pytest

from tests.newer_pythons import PYTHONS, newer_root


@pytest.mark.since("3.8")  # the child watchers of older Pythons need a loop in the main thread
def test_a_coroutine_starts_a_program_and_awaits_its_end(served):
    """Python 3.14 removed the child watchers; the loop of the stub runs in a thread that is not the main thread."""
    code = (
        "import asyncio, sys\n"
        "async def run():\n"
        "    started = await asyncio.create_subprocess_exec(sys.executable, '-c', 'print(42)', stdout=-1)\n"
        "    output, _ = await started.communicate()\n"
        "    return [reply([output.decode(), started.returncode])]\n"
        "return run()"
    )
    assert served.run_code(code) == ["42\n", 0]


@pytest.mark.parametrize("python", PYTHONS)
def test_an_annotation_may_name_what_is_not_defined(served, python):
    code = "class Later:\n    field: NotDefined\nreturn [reply(list(Later.__annotate__.__code__.co_names))]"
    assert served.run_code(code) == ["NotDefined"]


@pytest.mark.parametrize("python", PYTHONS)
def test_subinterpreters_run_code_of_a_model(served, python):
    code = (
        "from concurrent.futures import InterpreterPoolExecutor\n"
        "with InterpreterPoolExecutor(2) as pool:\n"
        "    return [reply(list(pool.map(abs, [-1, -2])))]"
    )
    assert served.run_code(code) == [1, 2]


@pytest.mark.parametrize("python", PYTHONS)
def test_another_program_cannot_attach_to_a_model(served, python, tmp_path):
    """Python lets programs attach to those that its own main function runs."""
    (pid,) = served.workers("script")
    trap, sprung = tmp_path / "trap.py", tmp_path / "sprung"
    trap.write_text(f"open({str(sprung)!r}, 'w').close()\n")
    done = newer_root().run(f"python{python}", "-c", f"import sys; sys.remote_exec({pid}, {str(trap)!r})")
    reasons = ("Can't find the main thread in the remote process", "Failed to find the PyRuntime section in process")
    assert any(reason in done.stderr for reason in reasons)
    assert served.evaluate("2 + 2") == 4
    assert not sprung.exists()
