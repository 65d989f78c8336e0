"""Options of all learning applications: steps, seeds, evaluations; and of the data-parallel ones."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from miniapps.runner.config import HUGE, INT32, SEEDS, option

Choices = tuple[str, ...] | Callable[[], list[str]]

SAMPLES = 2**20  # of a batch, at most
ADAPREC, CAUTIOUS = "adaprec", "cautious"
POLICIES = ("fixed", "fastest", "lgreco", ADAPREC, CAUTIOUS)


@dataclass
class Steps:
    """Steps of momentum SGD with the rate (1 - t/T)^2 at step t of T, or of Adam with a constant rate."""

    steps: int = option(468, help="steps of training", minimum=0, maximum=INT32 - 1, flag="--steps")
    until: int | None = option(
        None,
        help="step after which this run stops, at most training.steps; none: after the last step",
        role="control",
        flag="--until",
        effect="until",
        minimum=0,
        maximum=INT32 - 1,
    )
    batch: int = option(
        256,
        help="samples per step",
        unit="samples",
        minimum=1,
        maximum=SAMPLES,
        effect="size",
        flag="--batch",
    )
    micro: int = option(
        32,
        help="samples of a logical micro-batch, a block whose gradient has the same shape on any number of ranks",
        unit="samples",
        minimum=1,
        maximum=SAMPLES,
    )
    rate: float = option(
        0.05, help="learning rate of the first step", minimum=0.0, maximum=HUGE, flag="--rate"
    )
    optimiser: str = option(
        "momentum", help="momentum SGD, or Adam", choices=("momentum", "adam"), flag="--optimiser"
    )
    momentum: float = option(0.9, help="momentum", minimum=0.0, maximum=1.0)
    decay: float = option(
        0.0, help="weight decay: this multiple of a weight is added to its gradient", minimum=0.0, maximum=1.0
    )

    @property
    def last(self) -> int:
        """The step after which the run stops."""
        return self.steps if self.until is None else self.until

    @property
    def blocks(self) -> int:
        """Micro-batches of a step."""
        return self.batch // self.micro


def seconds() -> Any:
    """The option --seconds."""
    return option(
        0.0,
        help="seconds of training after which the run ends, without evaluations on test samples; 0: after its steps",
        unit="s",
        role="method",
        effect="until",
        flag="--seconds",
        minimum=0.0,
        maximum=HUGE,
    )


@dataclass
class ParallelSteps(Steps):
    """Steps whose gradients are added over all ranks."""

    bucket: int = option(
        2**20,
        help="bytes of gradient per message, cut between tensors",
        unit="B",
        minimum=1,
        maximum=2**40,
    )
    divide: str = option(
        "after",
        help="when to divide gradients by the number of samples: after the sum, or before each contribution is encoded",
        choices=("after", "before"),
        role="method",
        effect="reduction",
        flag="--divide",
    )
    seconds: float = seconds()
    overlap: bool = option(
        True,
        help="send buckets while earlier layers still compute",
        role="method",
        effect="cost",
        flag="--overlap",
    )
    calls: str = option(
        "auto",
        help="network calls: one per micro-batch, or one per rank (whose bits depend on the layout); auto: per rank "
        "under guarantees none and run, per micro-batch under layout and exact",
        choices=("auto", "block", "rank"),
        role="method",
        effect="guarantee",
    )


@dataclass
class Seeds:
    """Seeds of random draws, one each; none: the seed of the run."""

    init: int | None = option(
        None, help="seed of the initial weights; none: --seed", minimum=0, maximum=SEEDS
    )
    data: int | None = option(
        None,
        help="seed of the order of the samples, and of drawn samples; none: --seed",
        minimum=0,
        maximum=SEEDS,
    )


def wire() -> Any:
    """The option for the wire of gradients."""
    return option(
        "as is",
        help="encoding of gradients in messages, with parameters if any (table:n=4)",
        role="method",
        effect="reduction",
        flag="--wire",
        choices=_wires,
        parameters=True,
    )


class Judging:
    """The policy that chooses the wires of gradients, beside the options of steps."""

    policy: str

    @property
    def tries(self) -> bool:
        """Whether the policy trains with several wires from one state."""
        return self.policy in (ADAPREC, CAUTIOUS)


def policy() -> Any:
    """The option --policy."""
    return option(
        "fixed",
        help="choice of the wire: fixed, --wire; fastest, the wire with the least measured time for each kind of "
        "tensor; lgreco, wires per tensor that minimise bytes subject to --wire's error; adaprec, the wire with the "
        "largest predicted gain of accuracy per second, from trials; cautious, the same by losses, and it goes back",
        choices=POLICIES,
        role="method",
        effect="reduction",
        flag="--policy",
    )


def wires_of_policy() -> Any:
    """The option --candidates."""
    return option(
        "float32 fp8 table:n=2 sign",
        help="wires from which a policy chooses, separated by spaces",
        role="method",
        effect="reduction",
        flag="--candidates",
    )


def _wires() -> list[str]:
    from kernels import wires

    return [*wires.SUMMARIES, *wires.LOSSY]


IMAGES_SAID = (
    "images: digits (1,438 + 359 of 8 x 8), which come with this suite; blobs, drawn at random (2,048 + 512 of 8 x 8); "
    "Fashion-MNIST (60,000 + 10,000 of 28 x 28) or MNIST-5000 (4,000 + 1,000), from files"
)


AUTO = "auto"


def samples(choices: Choices, said: str = IMAGES_SAID, default: str = AUTO) -> Any:
    """The option --data; `said`: description of the choices. The model resolves `auto`."""
    if default == AUTO:
        said = f"auto: data in this suite that the model can learn; {said}"

    def every() -> list[str]:
        return list(dict.fromkeys([default, *(choices() if callable(choices) else choices)]))

    return option(default, help=said, choices=every, flag="--data", effect="source")


def directory() -> Any:
    """The option --data-dir."""
    return option(
        "",
        role="control",
        flag="--data-dir",
        help="directory of the data files; none: where packages install them",
    )


def evaluations(*records: str) -> Any:
    """The option --evaluate-every; `records`: the rows that it decides on."""
    return option(
        100,
        help="steps between evaluations; 0: only after the last step",
        role="control",
        flag="--evaluate-every",
        records=records,
        minimum=0,
        maximum=INT32,
    )


def target() -> Any:
    """The option --target."""
    return option(
        0.0,
        help="accuracy to reach: time_to_accuracy reports its time; 0: none",
        role="control",
        flag="--target",
        minimum=0.0,
        maximum=1.0,
    )
