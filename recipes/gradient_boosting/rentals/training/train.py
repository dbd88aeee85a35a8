"""Make up three years of hours, train the booster on them, and keep some as samples.

Runs in the environment of the model `rentals`. Writes `1/booster.json` and `envpack/smoke.json`.
"""

import json
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import xgboost

MODEL = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(MODEL / "1"))
from features import WEATHER, table  # noqa: E402


def hours(count: int, random: np.random.Generator) -> pd.DataFrame:
    hour = random.integers(0, 24, count)
    temperature = random.normal(12, 8, count)
    return table(hour, temperature, random.random(count) < 0.1, random.choice(WEATHER, count).tolist())


def rentals_in(rows: pd.DataFrame, random: np.random.Generator) -> np.ndarray:
    """More in the rush hours and when it is warm, fewer in bad weather; other hours on holidays."""
    rush = np.exp(-((rows.hour - 8) ** 2) / 4) + np.exp(-((rows.hour - 17) ** 2) / 6)
    noon = np.exp(-((rows.hour - 14) ** 2) / 18)
    mood = rows.weather.map({"clear": 1.0, "cloudy": 0.8, "rain": 0.35, "snow": 0.15}).astype(float)
    demand = np.where(rows.holiday, noon, rush) * mood * (rows.temperature + 25).clip(lower=5)
    return (demand * 10 + random.normal(0, 4, len(rows))).clip(lower=0).to_numpy(np.float32)


def main() -> None:
    random = np.random.default_rng(0)
    rows = hours(24 * 365 * 3, random)
    data = xgboost.DMatrix(rows, rentals_in(rows, random), enable_categorical=True)
    booster = xgboost.train({"max_depth": 6, "eta": 0.2, "seed": 0}, data, num_boost_round=120)
    booster.save_model(MODEL / "1" / "booster.json")

    new = hours(1000, random)
    predicted = booster.predict(xgboost.DMatrix(new, enable_categorical=True))
    error = np.abs(predicted - rentals_in(new, random)).mean()
    print(f"mean error on 1,000 new hours: {error:.1f} of {predicted.mean():.0f} rentals")
    samples = {
        "data": [
            {"HOUR": [row.hour], "TEMPERATURE": [row.temperature], "HOLIDAY": [row.holiday], "WEATHER": [row.weather]}
            for row in new[:20].itertuples()
        ],
        "validation_data": [{"RENTALS": [float(value)]} for value in predicted[:20]],
        "envpack": {"rtol": 0.001},
    }
    (MODEL / "envpack").mkdir(exist_ok=True)
    (MODEL / "envpack" / "smoke.json").write_text(json.dumps(samples), encoding="utf-8")


if __name__ == "__main__":
    main()
