"""The table for training and for serving."""

import numpy as np
import pandas as pd

WEATHER = ("clear", "cloudy", "rain", "snow")


def table(hour: np.ndarray, temperature: np.ndarray, holiday: np.ndarray, weather: list) -> pd.DataFrame:
    """Columns of the same length, with the types that the booster needs.

    Raises ValueError if a weather is none of `WEATHER`.
    """
    unknown = sorted(set(weather) - set(WEATHER))
    if unknown:
        raise ValueError(f"WEATHER is {unknown[0]!r}, not one of {', '.join(WEATHER)}")
    return pd.DataFrame(
        {
            "hour": hour.astype(np.int32),
            "temperature": temperature.astype(np.float32),
            "holiday": holiday.astype(bool),
            "weather": pd.Categorical(weather, categories=WEATHER),
        }
    )
