import subprocess

import pytest

from envpack.environment.relocation import write_activation


@pytest.fixture
def env(tmp_path):
    root = tmp_path / "an env"
    (root / "bin").mkdir(parents=True)
    write_activation(root)
    return root


def bash(script, cwd="/", **variables):
    done = subprocess.run(
        ["/bin/bash", "-c", script], cwd=cwd, env=variables, capture_output=True, text=True, check=False
    )
    return done.returncode, done.stdout.split("\n")[:-1], done.stderr


def test_sourcing_sets_what_a_stub_needs_and_no_external_program_is_used(env):
    script = f'source "{env}/bin/activate"; echo $?; echo "$PATH"; echo "$CONDA_PREFIX"; echo "$PYTHONNOUSERSITE"'
    assert bash(script, PATH="/nowhere") == (0, ["0", f"{env}/bin:/nowhere", str(env), "1"], "")


def test_relative_path_works(env):
    assert bash("source activate; echo $CONDA_PREFIX", cwd=env / "bin", PATH="/bin")[1] == [str(env)]
    assert bash("source ./bin/activate; echo $CONDA_PREFIX", cwd=env, PATH="/bin")[1] == [str(env)]


def test_cdpath_and_odd_names_do_not_matter(env, tmp_path):
    odd = tmp_path / "-x $HOME"
    env.rename(odd)
    script = 'source ./bin/activate; echo "$CONDA_PREFIX"'
    assert bash(script, cwd=odd, PATH="/bin", CDPATH="/usr:/")[1] == [str(odd)]


def test_pythonhome_is_removed_and_pythonpath_kept(env):
    script = f'source "{env}/bin/activate"; echo "${{PYTHONHOME-none}} $PYTHONPATH"'
    assert bash(script, PATH="/bin", PYTHONHOME="/h", PYTHONPATH="/p")[1] == ["none /p"]


def test_sourcing_twice_adds_bin_once(env):
    script = f'source "{env}/bin/activate"; source "{env}/bin/activate"; echo "$PATH"'
    assert bash(script, PATH="/bin")[1] == [f"{env}/bin:/bin"]


def test_package_scripts_run_and_their_failure_does_not_matter(env):
    scripts = env / "etc/conda/activate.d"
    scripts.mkdir(parents=True)
    (scripts / "a.sh").write_text("export FROM_A=$CONDA_PREFIX; return 3\n")
    (scripts / "b.sh").write_text("false\n")
    assert bash(f'source "{env}/bin/activate" && echo "$FROM_A"', PATH="/bin") == (0, [str(env)], "")


def test_strict_shell_survives(env):
    assert bash(f'set -eu; source "{env}/bin/activate"; echo "$PATH"')[:2] == (0, [f"{env}/bin:{default_path()}"])


def default_path():
    return subprocess.run(
        ["/bin/bash", "-c", 'echo "$PATH"'], env={}, capture_output=True, text=True, check=True
    ).stdout.strip()


def test_user_site_is_switched_off_without_activation(env):
    assert (env / "pyvenv.cfg").read_text() == "include-system-site-packages = false\n"


def test_files_are_readable_for_everybody(env):
    assert (env / "bin/activate").stat().st_mode & 0o777 == 0o644
