"""Options of the inference mini-app."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from miniapps.learning.course.options import directory, samples
from miniapps.learning.discovery import section_of
from miniapps.learning.samples.images import IMAGES
from miniapps.runner.config import INT32, SEEDS, option, section
from miniapps.training import models

MOST_IMAGES = 2**16


def _backends() -> list[str]:
    import kernels.inference  # noqa: F401 - registers its variants
    from kernels.registry import variants

    return ["auto", *(variant.name for variant in variants("inference"))]


@dataclass
class Images:
    """Images and their labels."""

    name: str = samples(IMAGES)
    dir: str = directory()


if TYPE_CHECKING:
    Model = Any
else:
    Model = section_of(models.of_images(), __name__, "mlp")


@dataclass
class Requests:
    """What is asked."""

    count: int = option(300, help="requests", minimum=1, maximum=INT32 - 1, flag="--requests", effect="size")
    sizes: tuple[int, ...] = option(
        (1, 2, 3, 7, 16, 64),
        help="images of a request: one of these, drawn for each",
        unit="images",
        minimum=1,
        maximum=MOST_IMAGES,
        count=(1, 64),
        effect="size",
    )
    images: int = option(
        256,
        help="different test images that requests are drawn from, so that each comes again",
        minimum=1,
        maximum=MOST_IMAGES,
        effect="size",
    )


@dataclass
class Inference:
    """How it is answered."""

    backend: str = option(
        "auto",
        help="what computes the network; auto: eager, and static where the guarantee asks for layout",
        choices=_backends,
        role="method",
        flag="--backend",
        effect="guarantee",
    )
    weights: str = option(
        "",
        help="a run of training, of whose checkpoints the last is taken, or a checkpoint; none: weights drawn by seed",
        flag="--weights",
        effect="source",
    )


@dataclass
class Seeds:
    """Seeds of what is drawn at random, each on its own; none: that of the run."""

    init: int | None = option(None, help="weights; none: --seed", minimum=0, maximum=SEEDS)
    data: int | None = option(None, help="blobs; none: --seed", minimum=0, maximum=SEEDS)
    requests: int | None = option(
        None, help="sizes of requests and their images; none: --seed", minimum=0, maximum=SEEDS
    )


@dataclass
class InferenceConfig:
    """All options of `python -m miniapps.inference` beside the common ones."""

    data: Images = section(Images)
    model: Model = section(Model)
    requests: Requests = section(Requests)
    inference: Inference = section(Inference)
    seeds: Seeds = section(Seeds)
