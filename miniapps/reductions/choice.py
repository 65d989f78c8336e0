"""The choice of variants for a run: those named, or all that suit operation, device and guarantee."""

from __future__ import annotations

import kernels.sums  # noqa: F401 - registers its variants
from kernels import registry
from kernels.guarantees import LEVELS, ChoiceError, known, meets
from kernels.registry import Variant
from miniapps.reductions.config import DEFAULT_REFERENCE
from miniapps.runner.policy import Policy

ON_DEVICE = ("cupy",)  # backends whose arrays lie in device memory
EMULATED = "emulated"  # the backend that draws orders of arrival from a seed; its samples are not timed
# Variants that repeat, but that cannot run block by block with one thread per block.
NOT_BY_BLOCKS = {("dot", "numpy"): "NumPy's BLAS itself chooses the number of threads that add up a block"}


def choose(
    operation: str, wanted: tuple[str, ...], reference: str | None, policy: Policy, device: str
) -> list[Variant]:
    """The variants to run, the reference first. Raises ChoiceError, with the possible choices, for variants that are
    unknown, cannot run here, or promise too little."""
    suiting = _suiting(operation, policy, device)
    chosen = [_named(operation, name, policy.partial_sum, device, policy) for name in wanted if name != "all"]
    if not wanted or "all" in wanted:
        chosen += suiting
    first = _reference(operation, reference, chosen, suiting, policy, device)
    return list({_key(v): v for v in (first, *chosen)}.values())


def label(variant: Variant) -> str:
    """OPERATION:VARIANT:BACKEND, as in the trace."""
    return ":".join(_key(variant))


def _key(variant: Variant) -> tuple[str, str, str]:
    return variant.operation, variant.name, variant.backend


def _on(device: str, variant: Variant) -> bool:
    return (variant.backend in ON_DEVICE) == (device == "cuda")


def _suiting(operation: str, policy: Policy, device: str) -> list[Variant]:
    return [
        v
        for v in registry.variants(operation)
        if _on(device, v)
        and meets(v.guarantee, policy.partial_sum)
        and not v.unavailable()
        and not _refused(v, policy)
    ]


def _refused(variant: Variant, policy: Policy) -> str | None:
    return NOT_BY_BLOCKS.get((variant.operation, variant.name)) if policy.per_block else None


def _named(operation: str, name: str, needed: str, device: str, policy: Policy) -> Variant:
    """The variant named NAME or NAME@BACKEND, which must promise `needed`. Of several backends, it is the first that
    can run on the device."""
    name, at, backend = name.partition("@")
    variants = registry.variants(operation)
    known(operation, name, dict.fromkeys(v.name for v in variants))
    variants = [v for v in variants if v.name == name]
    if at:
        known(f"backend of {operation} {name!r}", backend, [v.backend for v in variants])
        variants = [v for v in variants if v.backend == backend]
    here = [v for v in variants if _on(device, v)]
    if not here:
        backends = ", ".join(v.backend for v in variants)
        raise ChoiceError(
            f"{operation} {name!r} with backend {backends} does not run with --device {device}; "
            f"choose among {', '.join(dict.fromkeys(v.name for v in _suiting(operation, policy, device)))}"
        )
    able = next((v for v in here if not v.unavailable()), here[0])
    if reason := _refused(able, policy):
        raise ChoiceError(
            f"--guarantee {policy.level}: {operation} {name!r} cannot run over logical blocks: {reason}; choose "
            f"among {', '.join(dict.fromkeys(v.name for v in _suiting(operation, policy, device)))}"
        )
    try:
        return registry.check(operation, name, needed, able.backend)
    except ChoiceError as error:
        raise ChoiceError(
            f"--guarantee {policy.level} needs variants that promise {needed!r} here: {error}"
        ) from None


def _reference(
    operation: str,
    name: str | None,
    chosen: list[Variant],
    suiting: list[Variant],
    policy: Policy,
    device: str,
) -> Variant:
    if name is not None:
        needed = max("run", policy.partial_sum, key=LEVELS.index)  # a reference must repeat its own bits
        return _named(operation, name, needed, device, policy)
    default = [v for v in suiting if v.name == DEFAULT_REFERENCE]
    fixed = [v for v in chosen or suiting if v.guarantee != "none"] or [
        v for v in suiting if v.guarantee != "none"
    ]
    if not default + fixed:
        raise ChoiceError(
            f"{operation} on --device {device} has no variant for --guarantee {policy.level} that can be the reference"
        )
    return default[0] if default else max(fixed, key=lambda v: LEVELS.index(v.guarantee))
