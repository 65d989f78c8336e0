"""Weights of the network: drawn from a seed, or read from a checkpoint of training."""

from dataclasses import fields
from pathlib import Path

import numpy as np

from miniapps.checkpoints import restart
from miniapps.checkpoints.file import FOLDER, NAME, Checkpoint
from miniapps.errors import UsageError
from miniapps.learning.course.checkpoint import WEIGHTS
from miniapps.learning.samples.images import EDGE
from miniapps.learning.weights import initial
from miniapps.training.checkpoint import HOLDING
from miniapps.training.models import model


def weights(config) -> dict[str, np.ndarray]:
    """{name: float32 array} of weights and biases, in the model's order. Raises UsageError like `check_weights`."""
    if config.inference.weights:
        checkpoint = check_weights(config)
        return {
            name: checkpoint.arrays[f"{WEIGHTS}{name}"] for name in HOLDING.tensors(checkpoint.shapes.config)
        }
    shapes = model(config.model.name).shapes(config.model, EDGE[config.data.name])
    return dict(zip(shapes, initial(shapes, config.seeds.init), strict=True))


def check_weights(config) -> Checkpoint:
    """The checkpoint that `inference.weights` names. Raises UsageError if there is none, if it is damaged, or if it
    holds another network."""
    path = _checkpoint(config.inference.weights)
    checkpoint = restart.read_option("--weights", str(path), HOLDING.kind)
    sizes = model(config.model.name).OPTIONS
    options = {"data.name": config.data.name, "model.name": config.model.name}
    options |= {f"model.{field.name}": getattr(config.model, field.name) for field in fields(sizes)}
    restart.require_same("--weights", str(path), checkpoint, options, tuple(options))
    return checkpoint


def _checkpoint(given: str) -> Path:
    """The named file, or the last checkpoint of the named run."""
    path = Path(given)
    if not path.is_dir():
        return path
    files = [(tuple(map(int, match.groups())), file) for file in (path / FOLDER).glob("*.h5")
             if (match := NAME.fullmatch(file.name))]  # fmt: skip
    if not files:
        raise UsageError(
            f"--weights {given}: no checkpoint in {path / FOLDER}; train with --checkpoint-every N, or name a file"
        )
    return max(files)[1]
