"""Train the classifier on nine tenths of scikit-learn's handwritten digits and set the last tenth aside.

Runs in the environment of the model `core`. Writes `core/1/classifier.joblib` and `core/training/held_out.npz`.
"""

from pathlib import Path

import joblib
import numpy as np
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from sklearn.svm import SVC

REPOSITORY = Path(__file__).resolve().parents[2]


def main() -> None:
    digits = load_digits()
    train_x, held_out_x, train_y, held_out_y = train_test_split(
        digits.data.astype(np.float32), digits.target, test_size=0.1, stratify=digits.target, random_state=0
    )
    classifier = SVC(gamma=0.001, probability=True, random_state=0).fit(train_x, train_y)
    joblib.dump(classifier, REPOSITORY / "core" / "1" / "classifier.joblib")
    np.savez_compressed(Path(__file__).with_name("held_out.npz"), pixels=held_out_x, labels=held_out_y)
    print(f"trained on {len(train_x)} images, {len(held_out_x)} held out")


if __name__ == "__main__":
    main()
