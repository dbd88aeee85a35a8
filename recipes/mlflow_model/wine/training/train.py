"""Fit a pipeline on the wines that scikit-learn brings, log it by MLflow, and keep some wines as samples.

Runs in the environment of the model `wine`. Writes `1/model` and `envpack/smoke.json`.
"""

import importlib.metadata
import json
import shutil
from pathlib import Path

import mlflow.sklearn
from mlflow.models import infer_signature
from sklearn.datasets import load_wine
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

MODEL = Path(__file__).resolve().parents[1]
PACKAGES = (MODEL / "requirements.txt").read_text(encoding="utf-8").split()


def main() -> None:
    wine = load_wine(as_frame=True)
    data, kinds = wine.data, wine.target.map(dict(enumerate(wine.target_names)))
    known, new, kind_of_known, kind_of_new = train_test_split(data, kinds, test_size=20, random_state=0)
    pipeline = make_pipeline(StandardScaler(), LogisticRegression()).fit(known, kind_of_known)
    print(f"right about {pipeline.score(new, kind_of_new):.0%} of {len(new)} new wines")

    shutil.rmtree(MODEL / "1/model", ignore_errors=True)
    mlflow.sklearn.save_model(
        pipeline,
        str(MODEL / "1/model"),
        signature=infer_signature(known, pipeline.predict(known)),
        input_example=known[:5],
        pip_requirements=[f"{name}=={importlib.metadata.version(name)}" for name in PACKAGES],
    )
    samples = {
        "data": [{name: [value] for name, value in row.items()} for row in new.to_dict("records")],
        "validation_data": [{"predictions": [kind]} for kind in pipeline.predict(new)],
        "envpack": {"noun": "wines"},
    }
    (MODEL / "envpack").mkdir(exist_ok=True)
    (MODEL / "envpack/smoke.json").write_text(json.dumps(samples), encoding="utf-8")


if __name__ == "__main__":
    main()
