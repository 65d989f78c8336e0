"""Options of the calibration."""

from dataclasses import dataclass

from miniapps.runner.config import option, section

WHAT = ("kernels", "programs", "collectives", "noise", "memory")
# The default orderings of the guarantees, and others with the most different costs.
REDUCTIONS = (
    "library", "recursive-doubling", "direct", "ring", "rabenseifner", "direct in exact",
)  # fmt: skip


@dataclass
class Calibrate:
    """The measured parts of the machine, and the time for them."""

    budget: float = option(
        60.0,
        help="time to spend; every case is measured at least once, even beyond this time",
        unit="s",
        role="control",
        flag="--budget",
        minimum=0.0,
        maximum=86400.0,
    )
    what: tuple[str, ...] = option(
        (),
        help="a part to measure; may be given several times; none given: all",
        role="control",
        effect="machine",
        flag="--what",
        choices=WHAT,
    )
    reductions: tuple[str, ...] = option(
        REDUCTIONS,
        help="an ordering to measure, with its accumulation if any ('direct in exact'); may be given several times",
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
    plans: tuple[str, ...] = option(
        (),
        help="plans whose kernels to measure: 'gpt dp width=64..256 data=1..2', or of a module of yours: "
        "'mine.py:Model inputs=\"float32[32,784] int64[32]\" loss=cross_entropy'; may be given several times",
        role="control",
        flag="--plan",
        effect="size",
    )
    programs: int = option(
        12,
        help="plans drawn from each --plan",
        flag="--programs",
        minimum=1,
        maximum=1000,
        effect="size",
    )
    variants: tuple[str, ...] = option(
        ("own", "torch"),
        help="a variant of matmul and conv to measure; may be given several times",
        role="control",
        flag="--variant",
        choices=("own", "torch"),
    )


@dataclass
class CalibrateConfig:
    """All options of `python -m miniapps.calibrate` beside the common ones."""

    calibrate: Calibrate = section(Calibrate)
