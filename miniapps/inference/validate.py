"""Checks the configuration before a run creates anything."""

import kernels.inference  # noqa: F401 - registers its variants
from kernels import registry
from kernels.guarantees import ChoiceError
from miniapps.errors import UsageError
from miniapps.inference.weights import check_weights
from miniapps.learning.course import checks
from miniapps.learning.discovery import require_heard
from miniapps.learning.samples.images import COUNTS, USUAL, load
from miniapps.runner.faults import Targets
from miniapps.training.models import of_images


def backend(config, options) -> str:
    """The backend that is requested, or the one that the guarantee decides. Raises ChoiceError if the requested backend
    promises too little or cannot run here."""
    asked, policy = config.inference.backend, options.policy
    if asked == "auto":
        asked = "static" if policy.per_block or options.processor == "any" else "eager"
    try:
        return registry.check("inference", asked, policy.kernel).name
    except ChoiceError as error:
        raise ChoiceError(f"--backend {asked}: {error}") from None


def complete(config, options, size: int) -> None:
    """Fill in the data, the backend that the guarantee decides, and the seeds that follow from the run's seed."""
    checks.complete_data(config.data, USUAL)
    config.inference.backend = backend(config, options)
    for name in ("init", "data", "requests"):
        if getattr(config.seeds, name) is None:
            setattr(config.seeds, name, options.seed)


def validate(config, options, size: int) -> None:
    """Raises UsageError or ChoiceError with the option, its allowed values and the remedy."""
    requests, name = config.requests, config.data.name
    require_heard(config.model, of_images())
    if size > requests.count:
        raise UsageError(
            f"{size} ranks for {requests.count} requests: every rank answers at least one; raise --requests, or start "
            "fewer ranks"
        )
    if requests.images > COUNTS[name][1]:
        raise UsageError(
            f"requests.images = {requests.images}: {name} has {COUNTS[name][1]} test images; choose at most that number"
        )
    load(name, config.data.dir, config.seeds.data)
    if config.inference.weights:
        check_weights(config)


def follows(config, options) -> str | None:
    """What follows the processor: every backend but `static`."""
    name = config.inference.backend
    if name == "static":
        return None
    return f"--backend {name} chooses its kernels by the processor; choose --backend static"


def targets(config, options, size: int) -> Targets:
    """A step is one request on each rank; there is no state between requests that a fault could strike."""
    return Targets(-(-config.requests.count // size))
