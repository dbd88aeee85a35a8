import numpy as np


def square():
    image = np.zeros((32, 32), np.uint8)
    image[9:23, 9:23] = 220
    return image


def test_recognises_a_square(triton_model):
    scores = triton_model("classifier").infer(IMAGE=square()[None])["SCORES"]
    assert scores.argmax(axis=1).tolist() == [2]


def test_scores_are_probabilities(triton_model):
    scores = triton_model("classifier").infer(IMAGE=np.stack([square(), square().T // 2]))["SCORES"]
    np.testing.assert_allclose(scores.sum(axis=1), 1, rtol=1e-5)


def test_requests_of_a_batch_do_not_mix(triton_model):
    model = triton_model("classifier")
    images = [square(), np.full((32, 32), 30, np.uint8)]
    together = model.infer_batch([{"IMAGE": image[None]} for image in images])
    for image, outputs in zip(images, together, strict=True):
        np.testing.assert_allclose(outputs["SCORES"], model.infer(IMAGE=image[None])["SCORES"], atol=1e-5)
