"""Discrete operators of two-dimensional flow in vorticity-streamfunction form, on blocks.

    d(zeta)/dt + J(psi, zeta) = F - mu zeta + nu laplace(zeta) + div(nu_e grad(zeta)),   laplace(psi) = zeta

on a periodic rectangle of width 2 pi; velocity (u, v) = (-d psi/dy, d psi/dx). Second order in space.

Fields are float64 `(blocks, rows + 2 pad, columns + 2 pad)`. Every operator is element-wise arithmetic (+, -, *, /,
sqrt, each correctly rounded) over an array module. So the bits of a point depend only on its neighbours' bits, not on
the layout, and not on NumPy or CuPy. (CuPy runs every operator as a separate kernel, so the compiler cannot contract
a*b + c into one rounding.)
"""

import math

import numpy as np

from kernels.elementary import cosine


def view(field, pad: int, margin: int = 0, dj: int = 0, di: int = 0):
    """A view of the interior of a padded field plus `margin` points around it, shifted by (dj, di).

    Needs margin + max(|dj|, |di|) <= pad.
    """
    rows, columns = field.shape[1:]
    return field[
        :, pad - margin + dj : rows - pad + margin + dj, pad - margin + di : columns - pad + margin + di
    ]


def jacobian(psi, zeta, pad: int, h: float):
    """Arakawa's Jacobian J(psi, zeta) on the interior; conserves energy and enstrophy (J. Comput. Phys. 1, 1966).

    psi, zeta: padded fields with a filled halo of at least 1, corners included; h: spacing.
    """

    def p(dj, di):
        return view(psi, pad, 0, dj, di)

    def z(dj, di):
        return view(zeta, pad, 0, dj, di)

    centred = (p(0, 1) - p(0, -1)) * (z(1, 0) - z(-1, 0)) - (p(1, 0) - p(-1, 0)) * (z(0, 1) - z(0, -1))
    psi_flux = (p(0, 1) * (z(1, 1) - z(-1, 1)) - p(0, -1) * (z(1, -1) - z(-1, -1))) - (
        p(1, 0) * (z(1, 1) - z(1, -1)) - p(-1, 0) * (z(-1, 1) - z(-1, -1))
    )
    zeta_flux = (p(1, 1) * (z(1, 0) - z(0, 1)) - p(-1, -1) * (z(0, -1) - z(-1, 0))) - (
        p(1, -1) * (z(1, 0) - z(0, -1)) - p(-1, 1) * (z(0, 1) - z(-1, 0))
    )
    return ((centred + psi_flux) + zeta_flux) * (1.0 / (12.0 * h * h))


def laplacian(field, pad: int, h: float, margin: int = 0):
    """Five-point Laplacian on the interior plus `margin`."""
    centre = view(field, pad, margin)
    across = view(field, pad, margin, 0, -1) + view(field, pad, margin, 0, 1)
    along = view(field, pad, margin, -1, 0) + view(field, pad, margin, 1, 0)
    return ((across + along) - 4.0 * centre) * (1.0 / (h * h))


def gradient(field, pad: int, h: float, margin: int = 0):
    """Centred differences (d/dx, d/dy) on the interior plus `margin`."""
    scale = 1.0 / (2.0 * h)
    return (
        (view(field, pad, margin, 0, 1) - view(field, pad, margin, 0, -1)) * scale,
        (view(field, pad, margin, 1, 0) - view(field, pad, margin, -1, 0)) * scale,
    )


def strain(psi, pad: int, h: float, margin: int, xp):
    """|S| = sqrt(4 psi_xy^2 + (psi_xx - psi_yy)^2), the magnitude of the strain rate, on interior plus `margin`."""
    mixed = (
        (view(psi, pad, margin, 1, 1) - view(psi, pad, margin, 1, -1))
        - (view(psi, pad, margin, -1, 1) - view(psi, pad, margin, -1, -1))
    ) * (0.25 / (h * h))
    across = view(psi, pad, margin, 0, 1) + view(psi, pad, margin, 0, -1)
    along = view(psi, pad, margin, 1, 0) + view(psi, pad, margin, -1, 0)
    normal = (across - along) * (1.0 / (h * h))
    return xp.sqrt(4.0 * (mixed * mixed) + normal * normal)


def eddy_diffusion(zeta, pad: int, viscosity, viscosity_pad: int, h: float):
    """div(nu_e grad(zeta)) on the interior in flux form; viscosity is padded by `viscosity_pad` >= 1."""

    def flux(dj, di):
        face = 0.5 * (view(viscosity, viscosity_pad) + view(viscosity, viscosity_pad, 0, dj, di))
        return face * (view(zeta, pad, 0, dj, di) - view(zeta, pad))

    return ((flux(0, 1) + flux(0, -1)) + (flux(1, 0) + flux(-1, 0))) * (1.0 / (h * h))


def angles(wavenumbers, n: int) -> np.ndarray:
    """The angles of waves at the n points of a period, float64 (..., n), reduced to less than a turn; `wavenumbers`:
    integers that broadcast to (..., 1)."""
    return (wavenumbers * np.arange(n) % n) * (2.0 * math.pi / n)


def kolmogorov(blocks, wavenumber: int, amplitude: float):
    """Vorticity forcing of the body force amplitude * sin(k y) in x: -amplitude k cos(k y), `(blocks, by, bx)` float64.

    The cosine is evaluated once per global row, so it does not depend on the layout.
    """
    profile = -amplitude * wavenumber * cosine(angles(wavenumber, blocks.ny))
    force = blocks.zeros()
    for k, block in enumerate(blocks.own):
        row, _ = blocks.origin(int(block))
        force[k] = profile[row : row + blocks.by, None]
    return force


def source(zeta, pad: int, force, drag: float, viscosity: float, eddy, h: float):
    """d(zeta)/dt without advection: forcing, drag, viscosity, closure. eddy: padded by 1, or None."""
    rate = (force - drag * view(zeta, pad)) + viscosity * laplacian(zeta, pad, h)
    if eddy is not None:
        rate = rate + eddy_diffusion(zeta, pad, eddy, 1, h)
    return rate
