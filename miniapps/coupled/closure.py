"""The subgrid closure of a step: none, the physics, the surrogate, or the surrogate learning from the physics."""

from functools import partial
from math import sqrt

import numpy as np

from kernels import registry
from kernels.guarantees import ChoiceError, meets
from miniapps.coupled.chunks import by_chunks
from miniapps.coupled.network import INPUTS, POINTS
from miniapps.coupled.physics import HALO, dynamic_coefficient

NETWORKS = ("surrogate", "online")  # closures with a network


def make_surrogate(config, options, seed: int, xp=np):
    """The network of a closure, with weights drawn by `seed`, on the device of the fields; None for closures without
    one, which do not import torch.

    Raises UsageError without torch, or if torch cannot compute on this device.
    """
    closure = config.closure
    if closure.kind not in NETWORKS:
        return None
    try:
        import torch
    except ImportError as error:
        from miniapps.errors import UsageError

        raise UsageError(
            f"--closure {closure.kind} needs torch, which cannot be imported ({error}); install it with "
            "pip install torch, or choose --closure physics or none"
        ) from error
    from miniapps.coupled.surrogate import Surrogate

    batch = closure_batch(config, options)
    torch.set_num_threads(options.threads if batch == "rank" else 1)
    return Surrogate(
        closure.channels,
        closure.limit,
        closure.scale,
        closure.learning_rate,
        seed,
        batch,
        network_device(xp),
        repeatable=meets(options.policy.kernel, "run"),
        anywhere=options.processor == "any",
        compiled=compiled(config, options),
        threads=options.threads,
    )


def compiled(config, options):
    """A function that makes the network of a backend from `forward` and weights; None if torch evaluates it."""
    variant = inference_variant(config, options)
    if variant is None:
        return None
    sample = (INPUTS, config.grid.by + 2 * POINTS, config.grid.bx + 2 * POINTS)
    return partial(variant, sample=sample, threads=options.threads)


def inference_variant(config, options):
    """The backend of `kernels.inference` that evaluates the network; None for torch, called as in `closure.batch`.
    Raises ChoiceError for a backend below the guarantee, and for one that cannot run here or with this closure."""
    closure = config.closure
    if closure.inference == "torch" or closure.kind not in NETWORKS:
        return None
    import kernels.inference  # noqa: F401 - registers its variants

    name = f"--inference {closure.inference}"
    if options.device != "cpu":
        raise ChoiceError(f"{name}: computes on the CPU; choose --device cpu, or --inference torch")
    if closure.kind == "online" and closure.inference != "static":
        raise ChoiceError(
            f"{name}: compiles the network again for new weights, and --closure online changes them every "
            f"{closure.every} steps; choose --inference static or torch, or --closure surrogate"
        )
    try:
        return registry.check("inference", closure.inference, options.policy.kernel)
    except ChoiceError as error:
        raise ChoiceError(f"{name}: {error}") from None


def network_device(xp):
    """The torch.device of the arrays of `xp`. Raises UsageError if this torch cannot compute there."""
    import torch

    try:
        return torch.from_dlpack(xp.zeros(1)).device
    except Exception as error:  # a torch without CUDA raises various errors
        from miniapps.errors import UsageError

        raise UsageError(
            f"--device cuda: torch {torch.__version__} cannot compute on the device of the fields ({error}); "
            "install a torch built for CUDA, or choose --closure physics or none, or --device cpu"
        ) from error


def closure_batch(config, options) -> str:
    """What has the same bits in any company: a "rank" with all of its blocks, or a "block". Raises ChoiceError if this
    is below the guarantee, or follows the processor in spite of --processor any."""
    asked, policy, anywhere = config.closure.batch, options.policy, options.processor == "any"
    if asked == "rank" and anywhere and torch_evaluates(config):
        raise ChoiceError(
            "--processor any: with closure.batch = rank torch computes the network, and chooses its kernels by the "
            "processor; use closure.batch = block"
        )
    if asked == "rank" and policy.per_block:
        raise ChoiceError(
            f"closure.batch = rank meets guarantee run, below {policy.level}: a convolution's rounding depends on "
            "the number of blocks in its batch; use closure.batch = block"
        )
    return asked if asked != "auto" else ("block" if policy.per_block or anywhere else "rank")


def torch_evaluates(config) -> bool:
    """Whether the closure has a network that no backend of `kernels.inference` evaluates, or one that learns."""
    kind = config.closure.kind
    return kind == "online" or (kind in NETWORKS and config.closure.inference == "torch")


class EddyViscosity:
    """Computes the eddy viscosity that drives a step, and trains the network of an online closure.

    `gradients`: all-reduce of shape (parameters,), float32; `errors`: of shape (2,), float64; `same(array, what)`
    raises if the ranks hold different bits.
    """

    def __init__(self, config, blocks, h, surrogate, gradients, errors, same, xp=np):
        self.config, self.blocks, self.h, self.xp = config.closure, blocks, h, xp
        self.surrogate, self.gradients, self.errors, self.same = surrogate, gradients, errors, same
        self.error = None  # relative error of the surrogate against the physics, when last compared

    def eddy(self, zeta, psi):
        """nu_e `(blocks, by + 2, bx + 2)` of blocks from their fields, padded by HALO. With `batch` block, nu_e of a
        block depends only on its own fields."""
        if self.config.kind == "physics":
            coefficient, magnitude = self._physics(zeta, psi)
        else:
            _, coefficient, magnitude = self._network(zeta, psi)
        return coefficient * magnitude * (self.h * self.h)

    def viscosity(self, step: int, state, settled=None):
        """nu_e padded by 1, `(own blocks, by + 2, bx + 2)`, or None; the halos of the state must be filled to 4.

        The network drives the step before it learns in the step; `settled(nu_e)` is called in between.
        """
        kind, h2 = self.config.kind, self.h * self.h
        self.error = None
        if kind == "none":
            return None
        if kind == "physics":
            coefficient, magnitude = self._physics(state.zeta, state.psi)
        else:
            inputs, coefficient, magnitude = self._network(state.zeta, state.psi)
        eddy = coefficient * magnitude * h2
        if settled is not None:
            settled(eddy)
        if kind == "online" and step % self.config.every == 0:
            self._train(inputs, coefficient, magnitude, state)
        return eddy

    def _network(self, zeta, psi):
        inputs, magnitude = self.surrogate.inputs(zeta, psi, HALO, self.h, self.xp)
        coefficient = self.xp.from_dlpack(self.surrogate.coefficient(inputs)).astype(self.xp.float64)
        return inputs, coefficient, magnitude

    def _physics(self, zeta, psi):
        config, h, xp = self.config, self.h, self.xp

        def physics(zeta, psi):
            return dynamic_coefficient(zeta, psi, HALO, h, config.filters, config.limit, xp)

        return by_chunks(physics, (zeta, psi), xp)

    def _train(self, inputs, coefficient, magnitude, state) -> None:
        target, _ = self._physics(state.zeta, state.psi)
        self.error = self._relative_error(coefficient, target, magnitude)
        total = self.gradients(self.surrogate.gradients(inputs, target, magnitude))
        self.surrogate.step(total * np.float32(1.0 / self.blocks.count))
        self.same(self.surrogate.parameters(), "weights of the surrogate")

    def _relative_error(self, coefficient, target, magnitude) -> float:
        """|nu_surrogate - nu_physics| / |nu_physics| over the domain, 2-norm."""
        inner = (slice(None), slice(1, -1), slice(1, -1))
        physics = (target * magnitude)[inner]
        difference = (coefficient * magnitude)[inner] - physics
        for k, field in enumerate((difference, physics)):
            field = self.xp.ascontiguousarray(field)
            self.errors.put(k, field, 0, field, 0)
        squared, reference = self.errors.total().tolist()
        return sqrt(squared / reference) if reference > 0.0 else 0.0
