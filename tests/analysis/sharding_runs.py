"""Runs that recorded the lookups of tables of embeddings, and files of timed steps."""

import json

import numpy as np

from miniapps.embeddings.histogram import as_values, described
from miniapps.embeddings.sharding import SHARDINGS, Table
from miniapps.trace import Tracer
from miniapps.trace.schema import rank_file
from tests.analysis.synthetic import attributes


def write_asked(out, tables=2, change=None):
    """Write a run into the new directory `out` and return it; `change` {name: value of its first block}."""
    out.mkdir(parents=True)
    with Tracer(out / rank_file(0), attributes(0, 1, "none", "ring", run_id=str(out)), size=1) as tracer:
        tracer.at(0, 0)
        for t in range(tables):
            rows = np.random.default_rng(t).integers(0, 40, 256)
            for name, array in as_values(described(Table(str(t), 60, 8, 4), 64, 1, rows)).items():
                array[0] = (change or {}).get(name, array[0])
                tracer.values(name, np.arange(len(array)), array)
    return out


def timed(path, ranks=1):
    """A file of steps whose times go with the lookups, and are a millisecond longer from sharding to sharding."""
    problems, rng = [], np.random.default_rng(1)
    for number in range(12):
        tables = [
            described(
                Table(str(t), 50 + 40 * number, 8, 4), 64, 1, rng.integers(0, 50, 64 * (1 + number % 4))
            )
            for t in range(2)
        ]
        steps = [
            {"shardings": [(name, 0)] * 2, "wall": seconds, "cpu": seconds}
            for k, name in enumerate(SHARDINGS)
            for seconds in [1e-3 * (1 + k) + 1e-6 * sum(of["lookups"] for of in tables)]
        ]
        problems.append({"tables": tables, "steps": steps})
    content = {
        "format": "fpna-lookups",
        "schema": 1,
        "ranks": ranks,
        "order": "sorted",
        "cpu": "x",
        "problems": problems,
    }
    path.write_text(json.dumps(content))
    return path
