"""A small model repository with tests, for the tests of the pytest plugin and of `envpack test`."""

import textwrap

from tests.newer_pythons import target_of
from tests.server.model_environments import NUMPYS

PYTHON = "3.8"  # with which pytest does not run
HEAD = "import time\nimport numpy as np\nimport triton_python_backend_utils as pb_utils\n"


def config(datatype="FP32", dims="-1", output_dims=""):
    return f"""
    input [ {{ name: "X" data_type: TYPE_{datatype} dims: [ {dims} ] }} ]
    output [ {{ name: "Y" data_type: TYPE_{datatype} dims: [ {output_dims or dims} ] }} ]
    """


# The body of each model's class, and its configuration.
MODELS = {
    "double": (
        """
        def initialize(self, args):
            pb_utils.Logger.log_info("double is ready")
            self.calls = 0

        def execute(self, requests):
            self.calls += 1
            return [self.answer(request) for request in requests]

        def answer(self, request):
            x = pb_utils.get_input_tensor_by_name(request, "X").as_numpy()
            if not len(x):
                raise ValueError("nothing to double")
            pb_utils.Logger.log_warn("doubled %d" % len(x))
            outputs = [pb_utils.Tensor("Y", 2 * x), pb_utils.Tensor("CALLS", np.array([self.calls], np.int32))]
            return pb_utils.InferenceResponse([o for o in outputs if o.name() in request.requested_output_names()])
        """,
        'output [ { name: "CALLS" data_type: TYPE_INT32 dims: [ 1 ] } ]' + config(),
    ),
    "request": (
        """
        def execute(self, requests):
            return [self.answer(request) for request in requests]

        def answer(self, request):
            text = pb_utils.get_input_tensor_by_name(request, "X").as_numpy()
            seen = [request.request_id(), request.parameters(), request.timeout()]
            seen += [item.decode() for item in text.ravel()]
            return pb_utils.InferenceResponse([pb_utils.Tensor("Y", np.array([str(seen)], dtype=object))])
        """,
        config("STRING"),
    ),
    "sequence": (
        """
        def initialize(self, args):
            self.sums = {}

        def execute(self, requests):
            return [self.answer(request) for request in requests]

        def answer(self, request):
            value = {name: pb_utils.get_input_tensor_by_name(request, name).as_numpy() for name in ("X", "START", "ID")}
            number = int(value["ID"].ravel()[0])
            before = 0 if value["START"].ravel()[0] else self.sums[number]
            self.sums[number] = before + value["X"]
            return pb_utils.InferenceResponse([pb_utils.Tensor("Y", self.sums[number])])
        """,
        config(dims="1")
        + """
        max_batch_size: 1
        sequence_batching { control_input [
            { name: "START" control [ { kind: CONTROL_SEQUENCE_START int32_false_true: [ 0, 1 ] } ] },
            { name: "ID" control [ { kind: CONTROL_SEQUENCE_CORRID data_type: TYPE_UINT64 } ] }
        ] }
        """,
    ),
    "count": (
        """
        def initialize(self, args):
            self.was_cancelled = False

        def wait(self, sender):
            until = time.monotonic() + 60
            while not sender.is_cancelled() and time.monotonic() < until:
                time.sleep(0.01)
            self.was_cancelled = sender.is_cancelled()

        def execute(self, requests):
            for request in requests:
                x = pb_utils.get_input_tensor_by_name(request, "X").as_numpy()
                sender = request.get_response_sender()
                for number in range(int(abs(x[0]))):
                    y = np.full((number + 1, 1), -1 if self.was_cancelled else number, np.float32)
                    sender.send(pb_utils.InferenceResponse([pb_utils.Tensor("Y", y)]))
                if x[0] == 0:
                    error = pb_utils.TritonError("nothing to count")
                    sender.send(pb_utils.InferenceResponse(error=error))
                self.wait(sender) if x[0] < 0 else None
                sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
        """,
        config(dims="1", output_dims="-1, 1") + "model_transaction_policy { decoupled: true }",
    ),
    "caller": (
        """
        def execute(self, requests):
            return [self.answer(request) for request in requests]

        def answer(self, request):
            x = pb_utils.get_input_tensor_by_name(request, "X")
            call = pb_utils.InferenceRequest(model_name="double", requested_output_names=["Y"], inputs=[x])
            return pb_utils.InferenceResponse([pb_utils.get_output_tensor_by_name(call.exec(), "Y")])
        """,
        config(),
    ),
    "broken": ("def initialize(self, args):\n    raise RuntimeError('weights are missing')", config()),
}
ENSEMBLE = """
platform: "ensemble"
input [ { name: "IN" data_type: TYPE_FP32 dims: [ -1 ] } ]
output [ { name: "OUT" data_type: TYPE_FP32 dims: [ -1 ] } ]
ensemble_scheduling { step [ {
    model_name: "double" model_version: -1
    input_map { key: "X" value: "IN" } output_map { key: "Y" value: "OUT" }
} ] }
"""
# What only a server runs.
ONLY_SERVED = ("pipeline", "sequence")
# What holds without a server and on one.
TESTS = {
    "double/tests/test_answers.py": """
        import numpy as np
        import pytest
        from envpack.testing import ModelError

        def test_arrays_and_lists(triton_model):
            model = triton_model("double")
            outputs = model.infer(X=np.array([1, 2.5], np.float32))
            assert set(outputs) == {"CALLS", "Y"}
            assert outputs["Y"].dtype == np.float32
            assert outputs["Y"].tolist() == [2, 5]
            assert model.infer({"X": [3]}, outputs=["Y"])["Y"].tolist() == [6]
            assert list(model.infer(X=[3], outputs=["Y"])) == ["Y"]

        def test_one_process_for_all_tests(triton_model):
            first = triton_model("double").infer(X=[1])["CALLS"][0]
            assert first > 1
            assert triton_model("double").infer(X=[1])["CALLS"][0] == first + 1

        def test_errors_have_the_traceback(triton_model):
            with pytest.raises(ModelError) as caught:
                triton_model("double").infer(X=np.empty(0, np.float32))
            assert "ValueError: nothing to double" in str(caught.value)
            assert "model.py" in str(caught.value) and "answer" in str(caught.value)

        def test_requests_are_checked(triton_model):
            with pytest.raises(ModelError, match="INT32.*FP32"):
                triton_model("double").infer(X=np.array([1], np.int32))
            with pytest.raises(ModelError, match="'Z'"):
                triton_model("double").infer(Z=[1])

        def test_batches(triton_model):
            model = triton_model("double")
            wrong = {"X": np.empty(0, np.float32)}
            first, second = model.infer_batch([model.request(X=[1], outputs=["Y"]), {"X": [2, 3]}])
            assert (first["Y"].tolist(), second["Y"].tolist()) == ([2], [4, 6])
            assert list(first) == ["Y"]
            with pytest.raises(ModelError, match="nothing to double"):
                model.infer_batch([wrong])
            (error,) = model.infer_batch([wrong], return_errors=True)
            assert "nothing to double" in str(error)

        def test_logs_are_those_of_the_test(triton_model):
            model = triton_model("double")
            model.infer(X=[1, 2])
            assert model.logs == ["doubled 2"]
            triton_model("request").infer(X=["a"])
            assert model.logs == ["doubled 2"]

        def test_the_configuration_is_complete(triton_model):
            config = triton_model("double").config
            assert config["default_model_filename"] == "model.py"
            assert config["instance_group"][0]["kind"] == "KIND_CPU"
    """,
    "request/test_request.py": """
        def test_request(triton_model):
            model = triton_model("request")
            parameters = {"number": 7, "flag": True, "text": "größe"}
            sent = {**parameters, "timeout": 5000000, "priority": 0}
            (seen,) = model.infer(X=["a", b"b"], id="r1", parameters=sent)["Y"]
            identifier, found, timeout, *text = eval(seen)
            assert (identifier, timeout, text) == ("r1", 5000000, ["a", "b"])
            import json
            assert json.loads(found) == parameters
    """,
    "sequence/test_sequence.py": """
        import pytest
        from envpack.testing import ModelError

        def test_sequences(triton_model):
            model = triton_model("sequence")
            assert model.infer(X=[[1]], sequence_id=5, sequence_start=True)["Y"].tolist() == [[1]]
            assert model.infer(X=[[2]], sequence_id=5, sequence_end=True)["Y"].tolist() == [[3]]
            with pytest.raises(ModelError, match="inference request for sequence 5"):
                model.infer(X=[[2]], sequence_id=5)
    """,
    "count/test_count.py": """
        import pytest
        from envpack.testing import ModelError

        def test_streams(triton_model):
            answers = [outputs["Y"].tolist() for outputs in triton_model("count").stream(X=[3])]
            assert answers == [[[0]], [[1], [1]], [[2], [2], [2]]]

        def test_errors_in_streams(triton_model):
            with pytest.raises(ModelError, match="nothing to count"):
                list(triton_model("count").stream(X=[0]))

        def test_a_closed_stream_is_cancelled(triton_model):
            model = triton_model("count")
            stream = model.stream(X=[-1])
            assert next(stream)["Y"].tolist() == [[0]]
            stream.close()
            assert [outputs["Y"].tolist() for outputs in model.stream(X=[1])] == [[[-1]]]

        def test_one_response_cannot_be_asked_for(triton_model):
            with pytest.raises(ModelError) as caught:
                triton_model("count").infer(X=[1])
            assert "decoupled" in str(caught.value)
    """,
    "caller/test_caller.py": """
        def test_other_models_answer(triton_model):
            assert triton_model("caller").infer(X=[4])["Y"].tolist() == [8]
    """,
    "pipeline/test_pipeline.py": """
        import pytest
        from envpack.testing import ModelError

        def test_ensembles(triton_model):
            model = triton_model("pipeline")
            assert model.infer(IN=[1, 2])["OUT"].tolist() == [2, 4]
            assert [outputs["OUT"].tolist() for outputs in model.infer_batch([{"IN": [1]}, {"IN": [2]}])] == [[2], [4]]
            with pytest.raises(ModelError, match="in ensemble 'pipeline', .*nothing to double"):
                model.infer(IN=[])
    """,
    "broken/test_broken.py": """
        import pytest
        from envpack.testing import ModelError

        def test_load(triton_model):
            with pytest.raises(ModelError) as caught:
                triton_model("broken")
            assert "RuntimeError: weights are missing" in str(caught.value)
            assert "initialize" in str(caught.value)

        def test_no_model(triton_model):
            with pytest.raises(ModelError, match="nobody"):
                triton_model("nobody")
    """,
    "double/test_reload.py": """
        from pathlib import Path

        def test_changed_code_is_loaded(triton_model):
            assert triton_model("double").infer(X=[1])["Y"].tolist() == [2]
            file = Path(__file__).parent / "1/model.py"
            source = file.read_text()
            try:
                file.write_text(source.replace("2 * x", "20 * x"))
                assert triton_model("caller").infer(X=[1])["Y"].tolist() == [20]
                model = triton_model("double")
                assert model.infer(X=[1])["Y"].tolist() == [20]
                assert "double is ready" in model.logs
            finally:
                file.write_text(source)
            assert triton_model("double").infer(X=[1])["Y"].tolist() == [2]
    """,
}


def write_repository(folder, environments):
    """Models of one Python, and their tests."""
    environment = with_headers(environments.environment(PYTHON, NUMPYS[PYTHON][0]), folder.with_name("environment"))
    stub = environments.stub(PYTHON)
    for name, (body, config) in MODELS.items():
        source = f"{HEAD}\nclass TritonPythonModel:\n{textwrap.indent(textwrap.dedent(body), '    ')}"
        write(folder / name / "1/model.py", source)
        parameter = f'parameters {{ key: "EXECUTION_ENV_PATH" value {{ string_value: "{environment}" }} }}'
        write(folder / name / "config.pbtxt", f'backend: "python"\n{config}\n{parameter}\n')
        (folder / name / stub.name).symlink_to(stub)
    (folder / "pipeline/1").mkdir(parents=True)
    write(folder / "pipeline/config.pbtxt", ENSEMBLE)
    for name, text in TESTS.items():
        write(folder / name, textwrap.dedent(text))
    return folder


def with_headers(environment, folder):
    """The environment, with the headers that an environment of conda packages has: envpack compiles a stub for it."""
    folder.mkdir()
    for entry in environment.iterdir():
        (folder / entry.name).symlink_to(entry)
    (folder / "include").mkdir()
    (folder / "include" / f"python{PYTHON}").symlink_to(target_of(PYTHON).include)
    return folder


def write(file, text):
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
