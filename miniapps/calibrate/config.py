"""Options of the calibration."""

from dataclasses import dataclass

from miniapps.runner.config import option, section

WHAT = ("kernels", "collectives", "noise", "memory")
# What runs by default add with, by guarantee; and the orderings whose costs are most unlike each other.
REDUCTIONS = (
    "library", "recursive-doubling", "direct", "ring", "rabenseifner", "direct in exact",
)  # fmt: skip


@dataclass
class Calibrate:
    """What is measured, and for how long."""

    budget: float = option(
        60.0,
        help="time to spend; every case is measured at least once, however long that takes",
        unit="s",
        role="control",
        flag="--budget",
        minimum=0.0,
        maximum=86400.0,
    )
    what: tuple[str, ...] = option(
        (),
        help="a part to measure; may be repeated; none given: all",
        role="control",
        effect="machine",
        flag="--what",
        choices=WHAT,
    )
    reductions: tuple[str, ...] = option(
        REDUCTIONS,
        help="an ordering, with or without its accumulation ('direct in exact'), whose all-reduces are measured; may "
        "be repeated",
        role="control",
        flag="--reduction",
    )
    shapes: int = option(
        40,
        help="shapes of each kernel, drawn from the seed",
        flag="--shapes",
        minimum=1,
        maximum=10_000,
        effect="size",
    )
    variants: tuple[str, ...] = option(
        ("own", "torch"),
        help="variants of matmul and conv; may be repeated",
        role="control",
        flag="--variant",
        choices=("own", "torch"),
    )


@dataclass
class CalibrateConfig:
    """All options of `python -m miniapps.calibrate` beside the common ones."""

    calibrate: Calibrate = section(Calibrate)
