"""Dynamic eddy viscosity for two-dimensional turbulence: the expensive closure that the surrogate learns.

The subgrid flux of vorticity is modelled as -nu_e grad(zeta), nu_e = C h^2 |S|. C comes from the Germano
identity (Germano et al., Phys. Fluids A 3, 1991) in Lilly's least-squares form (Phys. Fluids A 4, 1992), here
over a family of test filters: one filter gives a noisy C, eight give a usable C at eight times the cost.

Element-wise arithmetic over an array module, like `flow`, so the bits of a point depend only on its neighbourhood.
"""

from miniapps.coupled.flow import gradient, strain, view

HALO = 4  # strain and filters need 4 points around a block to give the viscosity on the block plus 1
FLOOR = 1e-30  # avoids 0/0 for a flow at rest; far below any resolved M^2


def test_filter(field, weight: float):
    """(w, 1 - 2w, w) along both axes; the result is one point smaller on every side."""
    centre = 1.0 - 2.0 * weight
    rows = weight * (field[:, :-2] + field[:, 2:]) + centre * field[:, 1:-1]
    return weight * (rows[:, :, :-2] + rows[:, :, 2:]) + centre * rows[:, :, 1:-1]


def dynamic_coefficient(zeta, psi, pad: int, h: float, filters: int, limit: float, xp):
    """C on the block plus 1 point, clipped to [0, limit]; also |S| there. Shapes `(blocks, by + 2, bx + 2)`.

    zeta, psi: padded fields with a filled halo of 4, corners included. `filters` test filters have second moments
    between those of (1, 10, 1)/12 and (1, 2, 1)/4.
    """
    magnitude = strain(psi, pad, h, 3, xp)
    zeta_x, zeta_y = gradient(zeta, pad, h, 3)
    psi_x, psi_y = gradient(psi, pad, h, 3)
    u, v = -psi_y, psi_x
    inner_zeta = view(zeta, pad, 3)
    flux = (u * inner_zeta, v * inner_zeta)
    resolved = (magnitude * zeta_x, magnitude * zeta_y)
    numerator = denominator = 0.0
    for k in range(filters):
        weight = (1.0 + 2.0 * (k + 1) / filters) / 12.0
        ratio = 1.0 + 24.0 * weight  # (test width / grid width)^2 by second moments
        zeta_hat, psi_hat = _filter_wide(zeta, pad, weight), _filter_wide(psi, pad, weight)
        strain_hat = strain(psi_hat, 3, h, 2, xp)
        gradient_hat = gradient(zeta_hat, 3, h, 2)
        zeta_in = test_filter(inner_zeta, weight)
        for component in (0, 1):
            velocity = (u, v)[component]
            leonard = test_filter(flux[component], weight) - test_filter(velocity, weight) * zeta_in
            model = ratio * (strain_hat * gradient_hat[component]) - test_filter(resolved[component], weight)
            numerator = numerator + leonard * model
            denominator = denominator + model * model
    numerator, denominator = test_filter(numerator, 0.25), test_filter(denominator, 0.25)
    coefficient = -numerator / (denominator * (h * h) + FLOOR)
    return xp.clip(coefficient, 0.0, limit), magnitude[:, 2:-2, 2:-2]


def _filter_wide(field, pad: int, weight: float):
    """The filtered field on the interior plus 3 points."""
    return test_filter(view(field, pad, 4), weight)
