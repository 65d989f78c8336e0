"""Networks as ONNX models, for the backends that read these."""

from __future__ import annotations

import contextlib
import io
import logging
import warnings
from collections.abc import Callable, Iterator, Mapping

import numpy as np

from kernels.inference.capture import export


def exported(
    forward: Callable, weights: Mapping[str, np.ndarray], sample: tuple[int, ...], batched: bool
) -> bytes:
    """The ONNX model of a network with an open batch, serialised; its weights are inside."""
    import torch

    with _quiet():
        program = torch.onnx.export(export(forward, weights, sample, batched), verbose=False)
    assert program is not None  # it is for dynamo=False alone
    return program.model_proto.SerializeToString()


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Inside, the exporter neither prints its steps nor warns of packages that it could do more with."""
    logger = logging.getLogger("torch.onnx")
    before = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(before)
