"""Where a model's Python has its standard library, and what stands in `sys`."""


def test_an_environment_without_executable_files_serves(served):
    """Python itself looks for an executable python3, and would find that of the server's system."""
    facts = served.evaluate("[sys.prefix, sys.exec_prefix, sys.executable, np.__version__]", model="without_modes")
    prefix = facts[0]
    assert prefix.endswith("-without-modes")
    assert facts[1:3] == [prefix, f"{prefix}/bin/python3"]


def test_programs_of_the_environment_have_the_same_home(served):
    code = (
        "import subprocess\n"
        "asked = [sys.executable, '-c', 'import sys; print(sys.prefix)']\n"
        "printed = subprocess.check_output(asked).decode()\n"
        "return [reply([printed.strip(), sys.prefix])]"
    )
    printed, prefix = served.run_code(code)
    assert printed == prefix
