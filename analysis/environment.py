"""What differs between the machines and software of the runs; what is equal is not listed."""

from __future__ import annotations

import json

import pandas as pd


def differences(runs: pd.DataFrame) -> pd.DataFrame:
    """Environment entries that differ between launches: one row per (key, value), with the `runs` that have
    it.

    `telling` is False for keys with another value in every one of three or more launches, such as job ids:
    they cannot explain why some runs are equal and others are not.
    """
    launches = runs.drop_duplicates("run")
    environments = {
        run: json.loads(text) for run, text in zip(launches["run"], launches["environment"], strict=True)
    }
    rows = []
    for key in dict.fromkeys(key for environment in environments.values() for key in environment):
        by_value: dict[str, list[str]] = {}
        for run, environment in environments.items():
            by_value.setdefault(environment.get(key, "not set"), []).append(run)
        if len(by_value) > 1:
            telling = len(by_value) < max(3, len(environments))
            rows += [(key, value, having, telling) for value, having in by_value.items()]
    return pd.DataFrame(rows, columns=["key", "value", "runs", "telling"])
