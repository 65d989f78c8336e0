"""Exports networks as ONNX models, for the backends that read them."""

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
    """The serialised ONNX model of a network with an open batch size, weights included."""
    import torch

    with _quiet():
        program = torch.onnx.export(export(forward, weights, sample, batched), verbose=False)
    assert program is not None  # None only for dynamo=False
    return program.model_proto.SerializeToString()


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """A context in which the exporter prints no steps and no warnings of optional packages."""
    logger = logging.getLogger("torch.onnx")
    before = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(before)
