"""Turn the held-out digits into PNG files and write them as samples, with what is right: pixels and true labels.

Runs in the environment of the model `preprocessing`. Writes `envpack/smoke.json` of `preprocessing` and of `pipeline`,
in the format that perf_analyzer takes as --input-data.
"""

import base64
import io
import json
from pathlib import Path

import numpy as np
from PIL import Image

REPOSITORY = Path(__file__).resolve().parents[2]
NAMES = ["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine"]


def png_of(pixels: np.ndarray) -> bytes:
    file = io.BytesIO()
    Image.fromarray((pixels.reshape(8, 8) * (255 / 16)).round().astype(np.uint8)).save(file, "PNG")
    return file.getvalue()


def write(model: str, samples: dict) -> None:
    file = REPOSITORY / model / "envpack" / "smoke.json"
    file.parent.mkdir(exist_ok=True)
    file.write_text(json.dumps(samples), encoding="utf-8")
    print(f"wrote {len(samples['data'])} images to {file.relative_to(REPOSITORY)}")


def main() -> None:
    held_out = np.load(Path(__file__).with_name("held_out.npz"))
    images = [{"IMAGE": {"b64": base64.b64encode(png_of(pixels)).decode("ascii")}} for pixels in held_out["pixels"]]
    pixels = [{"PIXELS": image.tolist()} for image in held_out["pixels"]]
    labels = [{"LABEL": [NAMES[label]]} for label in held_out["labels"]]
    # A PNG file has 256 shades and a digit 17, so a brightness comes back a little rounded.
    write("preprocessing", {"data": images[:10], "validation_data": pixels[:10], "envpack": {"atol": 0.05}})
    # A classifier is not always right; below this share it is the pipeline that is broken, not a digit.
    expected = {"minimum_match": 0.95, "noun": "images"}
    write("pipeline", {"data": images, "validation_data": labels, "envpack": expected})


if __name__ == "__main__":
    main()
