"""Checks the configuration, on rank 0, before a run creates anything."""

from kernels.elementary import logarithm2
from kernels.sums.emulated import UNITS
from kernels.sums.launch import shape
from miniapps.errors import UsageError
from miniapps.layout.blocks import MOST_BLOCKS
from miniapps.reductions import data, illconditioned
from miniapps.reductions.choice import choose
from miniapps.reductions.config import ARRAYS
from miniapps.reductions.parts import Parts
from miniapps.runner.faults import Fault, Struck, Targets
from miniapps.system.resources import Need


def validate(config, options, size: int) -> None:
    """Raise UsageError or ChoiceError if the configuration cannot run."""
    problem, method = config.problem, config.method
    if (problem.distribution == "file") != bool(problem.file):
        raise UsageError(
            "--file and --distribution file go together: give --file PATH with --distribution file, or neither"
        )
    chosen = choose(problem.operation, method.variants, method.reference, options.policy, options.device)
    if method.worst:
        _can_be_searched(problem, method, [v.name for v in chosen], size)
    sizes, arrays = data.extent(problem)
    if arrays > ARRAYS:
        raise UsageError(
            f"--file {problem.file}: holds {arrays} arrays, but a run takes at most {ARRAYS}; split it"
        )
    try:
        shape(max(sizes), **launch_shape(config.launch))
    except ValueError as error:
        raise UsageError(f"launch.{error}") from error
    if problem.distribution == "ill-conditioned":
        for n in sizes:
            _can_be_conditioned(problem, n)
    ordering, _ = options.policy.scalars
    if method.split == "arrays" and ordering == "arrival":
        raise UsageError("--split arrays adds nothing across ranks, so there is no order of arrival; "
                         "choose another --allreduce, or --split elements")  # fmt: skip
    contributions = max(-(-n // problem.block) for n in sizes)
    if contributions > MOST_BLOCKS:
        raise UsageError(
            f"problem.block = {problem.block}: {contributions} logical blocks in an array of {max(sizes)}, but every "
            f"rank lists all blocks, at most {MOST_BLOCKS}: set it to {-(-max(sizes) // MOST_BLOCKS)} or more"
        )


FIXED = (
    "native",
    "emulated",
    "reference",
)  # backends without a library that chooses its kernels by the processor


def follows(config, options) -> str | None:
    """What follows the processor: variants of NumPy and torch."""
    problem, method = config.problem, config.method
    chosen = choose(problem.operation, method.variants, method.reference, options.policy, options.device)
    others = [f"{v.name}@{v.backend}" for v in chosen if v.backend not in FIXED]
    if not others:
        return None
    fixed = dict.fromkeys(v.name for v in chosen if v.backend in FIXED)
    return (
        f"{' and '.join(others)} {'adds' if len(others) == 1 else 'add'} by a library that chooses its kernels by the "
        f"processor; name variants of this suite, such as --variant {next(iter(fixed), 'exact')}"
    )


def targets(config, options, size: int) -> Targets:
    """A step is one array or, with `--split arrays`, one array of every rank."""
    problem = config.problem
    sizes, arrays = data.extent(problem)
    rounds = -(-arrays // (size if config.method.split == "arrays" else 1))

    def blocks(fault: Fault) -> Struck:
        if fault.kind not in ("nan", "bitflip"):
            return Struck(0)
        parts = Parts(sizes[(fault.step - 1) // rounds], problem.block)
        return Struck(parts.count, parts.length, 8 * data.element_type(problem.dtype).itemsize)

    return Targets(len(sizes) * rounds, blocks=blocks)


def launch_shape(launch) -> dict[str, int]:
    """The set parameters of the launch shape."""
    given = {name: getattr(launch, name) for name in ("block", "items", "grid")}
    return {name: value for name, value in given.items() if value is not None}


def _can_be_searched(problem, method, names: list[str], size: int) -> None:
    if problem.operation != "sum" or not set(names) & set(UNITS):
        raise UsageError(
            f"--worst searches the orders of arrival of {' and '.join(UNITS)}: choose one of them (--variant) with "
            "--operation sum, under --guarantee none"
        )
    if size > 1 and method.split != "arrays":
        raise UsageError("--worst needs whole arrays on a rank: add --split arrays, or start one rank")


def _can_be_conditioned(problem, n: int) -> None:
    m = min(n, problem.block)
    most = illconditioned.limit(m, n, data.element_type(problem.dtype), data.vectors_of(problem.operation))
    if logarithm2(problem.condition) > most:
        can = f"at most {2.0**most:.1e}" if most >= 1 else "none"
        raise UsageError(
            f"problem.condition = {problem.condition:g} cannot be built from blocks of {m} elements of {problem.dtype} "
            f"({can}, for arrays of {n}): choose a smaller condition number, larger arrays or problem.block, or a "
            "wider problem.dtype"
        )


# Measured bytes of memory: per logical block of the rank, per logical block of any rank, and per element if worst
# orders are searched.
OWN, LISTED, SEARCHED = 450, 20, 80


def memory(config, options, size: int) -> Need:
    """The memory that a rank needs for its part of the longest array; the variants do not copy it."""
    problem, method = config.problem, config.method
    n = max(data.extent(problem)[0])
    element = data.element_type(problem.dtype).itemsize * data.vectors_of(problem.operation)
    each = element + (SEARCHED if method.worst else 0)
    ranks = 1 if method.split == "arrays" else size
    blocks = -(-n // problem.block)
    fixed = LISTED * blocks
    own = -(-blocks // ranks)
    what = f"--file {problem.file}" if problem.distribution == "file" else f"--size {n}"
    what += f", problem.block = {problem.block}"

    def fitting(share: int) -> str:
        fits = int(share / (each + (OWN + LISTED * ranks) / problem.block)) * ranks
        return f"arrays of about {fits} elements fit; choose shorter ones, longer blocks or more nodes"

    return Need(min(n, own * problem.block) * each + own * OWN + fixed, what, fitting)
