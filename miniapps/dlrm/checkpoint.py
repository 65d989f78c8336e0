"""Checkpoints of DLRM: weights of both perceptrons, and whole tables."""

from __future__ import annotations

import numpy as np

from miniapps.dlrm import problem
from miniapps.dlrm.config import DlrmConfig
from miniapps.learning.course.checkpoint import Arrays, Expected, Holding

TABLE = "table."  # prefix of the fingerprints of a table of embeddings, by block of rows


class Tables(Holding):
    """Tables are buffers; their blocks of rows have fingerprints in the trace."""

    def require(self, config) -> None:
        super().require(config)
        problem.tables(config.data.name, config.embeddings)  # those of recorded lookups are read

    def tensors(self, config) -> dict[str, tuple[int, ...]]:
        return problem.shapes(config.data.name, config.model.hidden, config.embeddings)

    def buffers(self, config) -> Expected:
        tables = problem.tables(config.data.name, config.embeddings)
        return {table.name: ("float32", (table.rows, table.columns)) for table in tables}

    def blocks(self, config, arrays: Arrays) -> dict[str, list[np.ndarray]]:
        return {
            f"{TABLE}{table.name}": np.split(arrays[table.name], table.starts[1:-1])
            for table in problem.tables(config.data.name, config.embeddings)
        }


HOLDING = Tables("dlrm", DlrmConfig)
