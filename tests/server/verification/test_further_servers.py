"""A model is judged for itself, in another server, after models that end a server or that it waits for."""

from dataclasses import replace

from envpack.server.choice import ServerSpec
from envpack.settings.table import Settings
from envpack.verification.run import verify
from tests.verdicts import of

PROCESS = ServerSpec(Settings(runtime="process"))
# Ends the server as soon as a file is there.
WATCHES = """import os
import signal
import threading
import time


def watch():
    while not os.path.exists({sign!r}):
        time.sleep(0.01)
    os.kill(os.getppid(), signal.SIGKILL)


threading.Thread(target=watch, daemon=True).start()
"""
# Sends a request to another model, which must be loaded.
CALLED = """

def called(data):
    inputs = [pb_utils.Tensor("IN", data)]
    answer = pb_utils.InferenceRequest(model_name="a_good", requested_output_names=["OUT"], inputs=inputs).exec()
    return pb_utils.get_output_tensor_by_name(answer, "OUT").as_numpy()
"""


def test_a_model_is_judged_for_itself_after_others_that_the_server_waits_for(environment, faults, tmp_path):
    """A server loads four models at once, and waits for ever for one whose process died in time."""
    dies = next(fault for fault in faults.FAULTS if fault.name == "exits")
    for number in range(5):
        faults.write_model(tmp_path, replace(dies, name=f"dies_{number}"), environment)
    faults.write_model(tmp_path, faults.GOOD, environment)
    verdict = verify(tmp_path, ["dies_0", "dies_1", "dies_2", "dies_3", "dies_4", "good"], spec=PROCESS)
    assert [model.failure.kind for model in verdict.models if not model.ok] == ["stub-died"] * 5
    assert of(verdict, "good").ok, of(verdict, "good").failure
    assert verdict.leftovers == ()


def test_a_model_is_judged_for_itself_after_one_that_ended_the_server(environment, faults, tmp_path):
    ends_it = "import os\nimport signal\n\nos.kill(os.getppid(), signal.SIGKILL)\n"
    calls = faults.DOUBLE.replace("data * 2", "called(data)") + CALLED
    for name, code in (("a_good", faults.DOUBLE), ("b_ends_it", ends_it + faults.DOUBLE), ("c_calls", calls)):
        faults.write_model(tmp_path, replace(faults.GOOD, name=name, code=code), environment)
    verdict = verify(tmp_path, spec=PROCESS)
    assert of(verdict, "b_ends_it").failure.kind == "server-died"
    assert of(verdict, "c_calls").ok, of(verdict, "c_calls").failure
    assert (of(verdict, "a_good").ok, verdict.ok) == (True, False)


def test_a_model_that_ends_the_server_only_beside_another_one_is_not_blamed_alone(environment, faults, tmp_path):
    """The first model ends the server when the second one is loaded; what follows is judged for itself."""
    sign = tmp_path / "sign"
    watches = WATCHES.format(sign=str(sign)) + faults.DOUBLE
    loads = f"import pathlib\nimport time\n\nsign = pathlib.Path({str(sign)!r})\nif not sign.exists():\n"
    loads += "    sign.touch()\n    time.sleep(60)\n" + faults.DOUBLE
    repository = tmp_path / "models"
    for name, code in (("a_watches", watches), ("b_loads", loads), ("c_good", faults.DOUBLE)):
        faults.write_model(repository, replace(faults.GOOD, name=name, code=code), environment)
    verdict = verify(repository, spec=PROCESS)
    assert [model.ok for model in verdict.models] == [True, True, True], [model.failure for model in verdict.models]
    (together,) = (check for check in verdict.checks if check.id == "together" and not check.ok)
    assert together.evidence == "the server ended when b_loads was loaded beside the models before it"
    assert not verdict.ok
