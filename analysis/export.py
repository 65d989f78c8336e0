"""Frames as CSV files."""

from __future__ import annotations

from pathlib import Path

import pandas as pd


def write_csv(frames: dict[str, pd.DataFrame], directory: Path) -> list[str]:
    """Write each of `frames` into `directory` as NAME.csv, in full precision; the names of the files."""
    directory.mkdir(parents=True, exist_ok=True)
    for name, frame in frames.items():
        frame.to_csv(directory / f"{name}.csv", index=False)
    return [f"{name}.csv" for name in frames]
