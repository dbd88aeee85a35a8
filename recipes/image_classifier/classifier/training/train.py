"""Draw images of four shapes, train the network on them, and keep some as samples.

Runs in the environment of the model `classifier`. Writes `1/weights.pt` and `envpack/smoke.json`.
"""

import json
import sys
from pathlib import Path

import numpy as np
import torch

MODEL = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(MODEL / "1"))
from network import Network  # noqa: E402

SHAPES = (MODEL / "labels.txt").read_text(encoding="utf-8").split()
ROWS, COLUMNS = np.mgrid[0:32, 0:32]


def drawn(shape: str, random: np.random.Generator) -> np.ndarray:
    """One image: a bright shape of random size and place, on a dark and noisy ground."""
    size = random.uniform(5, 10)
    down, right = ROWS - random.uniform(11, 21), COLUMNS - random.uniform(11, 21)
    inside = {
        "circle": down**2 + right**2 < size**2,
        "cross": (np.minimum(abs(down), abs(right)) < size / 4) & (np.maximum(abs(down), abs(right)) < size),
        "square": np.maximum(abs(down), abs(right)) < size * 0.85,
        "triangle": (abs(right) < (down + size) / 2) & (down < size),
    }[shape]
    image = np.where(inside, random.uniform(150, 255), random.uniform(0, 60)) + random.normal(0, 12, (32, 32))
    return image.clip(0, 255).astype(np.uint8)


def many(count: int, random: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    labels = np.arange(count) % len(SHAPES)
    return np.stack([drawn(SHAPES[label], random) for label in labels]), labels


def trained(images: np.ndarray, labels: np.ndarray) -> Network:
    network = Network()
    optimizer = torch.optim.Adam(network.parameters(), lr=0.003)
    inputs, targets = torch.from_numpy(images), torch.from_numpy(labels)
    for _ in range(12):
        for chosen in torch.randperm(len(inputs)).split(64):
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(network(inputs[chosen]), targets[chosen]).backward()
            optimizer.step()
    return network.eval()


def main() -> None:
    torch.manual_seed(0)
    random = np.random.default_rng(0)
    network = trained(*many(2000, random))
    images, labels = many(200, random)
    with torch.inference_mode():
        scores = network(torch.from_numpy(images)).softmax(dim=1).numpy()
    torch.save(network.state_dict(), MODEL / "1" / "weights.pt")
    samples = {
        "data": [{"IMAGE": image.ravel().tolist()} for image in images[:20]],
        "validation_data": [{"SCORES": row.tolist()} for row in scores[:20]],
        "envpack": {"atol": 0.02},
    }
    (MODEL / "envpack").mkdir(exist_ok=True)
    (MODEL / "envpack" / "smoke.json").write_text(json.dumps(samples), encoding="utf-8")
    print(f"{(scores.argmax(axis=1) == labels).mean():.1%} of 200 new images are right")


if __name__ == "__main__":
    main()
