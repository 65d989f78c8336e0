"""Reads the numbers that a repeat recorded step by step."""

from __future__ import annotations

import numpy as np
import pandas as pd


def series(values: pd.DataFrame, name: str) -> tuple[np.ndarray, np.ndarray]:
    """(steps int64, values float64) of the rows of one repeat with this name and without a block."""
    own = values[named(values, name) & (values["block"] == -1).to_numpy()]
    return own["step"].to_numpy(np.int64), own["value"].to_numpy()


def named(values: pd.DataFrame, name: str) -> np.ndarray:
    """A mask of the rows with this name; of several in a step only the first."""
    return (values["name"] == name).to_numpy() & (values["occurrence"] == 0).to_numpy()
