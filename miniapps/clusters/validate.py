"""Checks the configuration before a run creates anything."""

from __future__ import annotations

from miniapps.errors import UsageError
from miniapps.learning.course import checks
from miniapps.learning.samples.images import COUNTS, EDGE, USUAL, load
from miniapps.runner.faults import Targets
from miniapps.system.resources import Need


def complete(config, options, size: int) -> None:
    """Fill in the data, and the seeds that follow from the run's seed."""
    checks.complete_data(config.data, USUAL)
    checks.complete_seeds(config.seeds, options.seed)


def validate(config, options, size: int) -> None:
    """Raises UsageError with the option, its allowed values and the remedy."""
    name, asked = config.data.name, config.clusters
    points = COUNTS[name][0]
    blocks = -(-points // asked.block)
    if size > blocks:
        raise UsageError(
            f"{size} ranks for {blocks} blocks of {asked.block} points: every rank needs at least one block; start at "
            f"most {blocks} ranks, or choose a smaller clusters.block"
        )
    load(name, config.data.dir, config.seeds.data)


def follows(config, options) -> None:
    """Nothing follows the processor: products are chains, and all else is rounded correctly."""
    return None


def memory(config, options, size: int) -> Need:
    """The memory of a rank: all images as bytes, its points, and the sums of its blocks."""
    name, asked = config.data.name, config.clusters
    points, dims, width = sum(COUNTS[name]), EDGE[name] ** 2, int(asked.dtype[-2:]) // 8
    own = -(-points // size)
    sums = -(-own // asked.block) * asked.count * (dims + 1)
    return Need(
        points * dims + own * dims * (width + 8) + 2 * sums * width,
        f"--data {name}, clusters.block = {asked.block}",
        lambda share: "choose larger blocks, or start more nodes",
    )


def targets(config, options, size: int) -> Targets:
    """The centres, by cluster; their number of iterations is not known before the run."""
    from miniapps.runner.faults import Struck

    words = EDGE[config.data.name] ** 2
    bits = int(config.clusters.dtype[-2:])
    return Targets(
        None,
        blocks=lambda fault: (
            Struck(config.clusters.count, lambda block: words, bits)
            if fault.kind in ("bitflip", "nan")
            else Struck(0)
        ),
    )
