"""Checks the configuration before a run creates anything."""

import importlib.util

from kernels.torchops.source import require
from miniapps.cpus import asking
from miniapps.errors import UsageError
from miniapps.operations.config import CPU
from miniapps.runner.faults import Targets


def validate(config, options, size: int) -> None:
    """Raise UsageError or ChoiceError if the configuration cannot run; imports none of the user's code."""
    audit = config.audit
    if importlib.util.find_spec("torch") is None:
        raise UsageError("operations needs torch, which is not installed: pip install torch")
    if audit.function and audit.operations:
        raise UsageError("--function and --operation are both given: audit one or the other")
    if CPU in audit.axes:
        asking.library()
    if audit.function:
        require(audit.function)
    if options.device == "cuda":
        import torch

        if not torch.cuda.is_available():
            raise UsageError(
                "--device cuda: this torch sees no CUDA device; install a build for CUDA, or choose --device cpu"
            )
    if options.policy.level not in ("none", "run"):
        raise UsageError(
            f"--guarantee {options.policy.level}: an audit reports how torch behaves; it promises at most run (one "
            "thread repeats its bits); choose none or run"
        )
    if options.replay is not None:
        raise UsageError(
            "--replay: an audit decides nothing from a clock or an order of arrival; leave it out"
        )


def targets(config, options, size: int) -> Targets:
    """The targets of injected faults: none, since the number of cases is known only once torch is imported."""
    return Targets(None)
