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
    """The requests."""

    count: int = option(
        300, help="number of requests", minimum=1, maximum=INT32 - 1, flag="--requests", effect="size"
    )
    sizes: tuple[int, ...] = option(
        (1, 2, 3, 7, 16, 64),
        help="numbers of images per request; each request draws one",
        unit="images",
        minimum=1,
        maximum=MOST_IMAGES,
        count=(1, 64),
        effect="size",
    )
    images: int = option(
        256,
        help="different test images from which requests are drawn, so that images repeat",
        minimum=1,
        maximum=MOST_IMAGES,
        effect="size",
    )


@dataclass
class Inference:
    """The network that answers."""

    backend: str = option(
        "auto",
        help="backend that computes the network; auto: static under layout and exact, else eager",
        choices=_backends,
        role="method",
        flag="--backend",
        effect="guarantee",
    )
    weights: str = option(
        "",
        help="a run of training, for its last checkpoint, or a checkpoint; none: random weights from the seed",
        flag="--weights",
        effect="source",
    )


@dataclass
class Seeds:
    """Seeds of random draws, one each; none: the seed of the run."""

    init: int | None = option(None, help="seed of the weights; none: --seed", minimum=0, maximum=SEEDS)
    data: int | None = option(None, help="seed of --data blobs; none: --seed", minimum=0, maximum=SEEDS)
    requests: int | None = option(
        None, help="seed of the requests' sizes and images; none: --seed", minimum=0, maximum=SEEDS
    )


@dataclass
class InferenceConfig:
    """All options of `python -m miniapps.inference` beside the common ones."""

    data: Images = section(Images)
    model: Model = section(Model)
    requests: Requests = section(Requests)
    inference: Inference = section(Inference)
    seeds: Seeds = section(Seeds)
