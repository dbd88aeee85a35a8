import pytest

FOR_CANDIDATE, FOR_STABLE = "user 10", "user 1"


def answer(model, key, amounts):
    outputs = model.infer(KEY=[key], AMOUNTS=amounts)
    return outputs["MODEL"][0].decode(), float(outputs["RISK"][0])


def test_a_key_always_gets_the_same_model(triton_model):
    router = triton_model("router")
    assert {answer(router, FOR_STABLE, [50, 300]) for _ in range(3)} == {("stable", 0.5)}
    assert {answer(router, FOR_CANDIDATE, [100, 100]) for _ in range(3)} == {("candidate", 0.5)}


def test_a_share_of_the_keys_gets_the_candidate(triton_model):
    router = triton_model("router")
    requests = [{"KEY": [f"user {number}"], "AMOUNTS": [1]} for number in range(200)]
    models = [outputs["MODEL"][0] for outputs in router.infer_batch(requests)]
    assert models.count(b"candidate") == pytest.approx(50, abs=15)


def test_the_stable_model_answers_where_the_candidate_fails(triton_model):
    router = triton_model("router")
    assert answer(router, FOR_CANDIDATE, [-5, 500]) == ("stable", 0.5)
    assert any("amounts must not be negative" in line for line in router.logs)
