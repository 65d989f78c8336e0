"""Checks every block stencil, halo exchange and operator of the flow against the bits of the NumPy definition.

Times them against the C++ kernels on one core, if these are built.
"""

import statistics
from types import SimpleNamespace

import numpy as np

from benchmarks.gpu.timing import rounds
from benchmarks.harness.turns import samples
from kernels.guarantees import ChoiceError
from kernels.stencil import backend
from miniapps.coupled import flow
from miniapps.coupled.multigrid import AROUND, factor_of, halo_of, smoother
from miniapps.coupled.physics import HALO, dynamic_coefficient
from miniapps.layout import halo
from miniapps.layout.blocks import Blocks

GRIDS = {"S": (128, 16), "M": (512, 32), "L": (2048, 64)}  # points and block edge of the decks
ALONE = SimpleNamespace(Dup=lambda: SimpleNamespace(Free=lambda: None))  # the communicator of one rank


def kernel_rows(asked) -> list[dict]:
    """One row per kernel and deck."""
    gpu, reference = backend("cupy"), backend("reference")
    try:
        native = backend("native")
    except ChoiceError:
        native = None
    rows = []
    for deck in ["S"] if asked.quick else GRIDS:
        on_device, defined = cases(gpu, deck), cases(reference, deck)
        on_cpu = cases(native, deck) if native else {}
        wrong = set()
        for name, (call, outputs, _) in on_device.items():  # before timing, which repeats the updates
            call()
            defined[name][0]()
            if any(a.get().tobytes() != b.tobytes() for a, b in zip(outputs, defined[name][1], strict=True)):
                wrong.add(name)
        for name, (call, _, nbytes) in on_device.items():
            device_s = statistics.median(rounds({name: call}, asked)[name])
            once = asked.quick or name.endswith("array operations")  # of NumPy, which take seconds
            cpu_s = statistics.median(samples(on_cpu[name][0], once)) if native else None
            check = "FAIL bits differ" if name in wrong else "same bits"
            rows.append(row(f"{deck} {name}", check, device_s, cpu_s, nbytes / device_s))
    return rows


def cases(module, deck: str) -> dict:
    """{name: (call, arrays that it writes, least bytes to move)}, with the same numbers for every backend."""
    xp, rng, (points, edge) = module.xp, np.random.default_rng(1), GRIDS[deck]
    blocks = Blocks(points, points, edge, edge)
    h = 2.0 * np.pi / points

    def field(pad):
        return xp.asarray(rng.standard_normal((blocks.count, edge + 2 * pad, edge + 2 * pad)))

    x, zeta, psi = (field(HALO) for _ in range(3))
    pad, factor = halo_of(edge, edge), factor_of(edge, edge)
    r, haloed, z = field(pad), field(pad), field(pad)
    u, w, p, s, b, residual, force = (field(0) for _ in range(7))
    dots, dot, rate = xp.zeros((blocks.count, 3)), xp.zeros(blocks.count), field(0)
    u2, w2, coefficient = field(0), field(0), field(1)
    inverse_theta, table = smoother(factor, 1.0)
    smoothing = (1.0, inverse_theta, xp.asarray(table), 1)
    coarse, e = (
        xp.asarray(rng.standard_normal((blocks.count, *[edge // factor + 2 * around] * 2)))
        for around in (0, AROUND)
    )
    exchange = halo.plan(blocks, ALONE, pad, pad, True, module)

    def physics():
        coefficient[...] = dynamic_coefficient(zeta, psi, HALO, h, 8, 0.2, xp)[0]

    def flow_rate():
        terms = flow.source(zeta, HALO, force, 0.05, 1e-3, coefficient, h)
        rate[...] = terms - flow.jacobian(psi, zeta, HALO, h)

    def down():
        module.smooth_restrict(r, pad, z, coarse, 0, factor, *smoothing)

    def up():
        module.prolong_smooth(r, pad, z, e, AROUND, factor, u2, 0, w2, dots, *smoothing)

    inner, padded, padded_x = 8 * points * points, r.nbytes, x.nbytes
    return {
        "halo": (lambda: exchange(haloed), (haloed,), 2 * (padded - inner)),
        "smooth_restrict": (down, (coarse,), 2 * padded + coarse.nbytes),
        "prolong_smooth": (up, (u2, w2, dots), 2 * padded + e.nbytes + 2 * inner),
        "cg_update": (
            lambda: module.cg_update(0.3, -0.7, u, w, p, s, x, HALO, r, pad, 1),
            (p, s, x, r),
            10 * inner,
        ),
        "poisson_residual": (
            lambda: module.poisson_residual(b, x, HALO, residual, 0, 1.0, 1),
            (residual,),
            3 * inner,
        ),
        "block_dots": (lambda: module.block_dots(r, pad, u, 0, dot), (dot,), 2 * inner),
        "closure, array operations": (physics, (coefficient,), 2 * padded_x + inner),
        "rate, array operations": (flow_rate, (rate,), 2 * padded_x + 3 * inner),
    }


def row(what: str, check: str, device_s=None, cpu_s=None, rate=None) -> dict:
    """One line of the table."""
    return {
        "what": what,
        "check": check,
        "device ms": "-" if device_s is None else 1e3 * device_s,
        "CPU ms": "-" if cpu_s is None else 1e3 * cpu_s,
        "device GB/s": "-" if rate is None else 1e-9 * rate,
    }
