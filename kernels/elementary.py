"""Sine, cosine, exponential, logarithm and normal quantile with the same bits on every processor, float64.

C libraries choose other instructions for other processors, and so other bits. Here a function is a fixed sequence of
NumPy's additions, subtractions, multiplications, divisions and square roots, which IEEE 754 rounds correctly, and of
exact operations on integers and exponents. Each NumPy call rounds once, so nothing is fused. Errors are below one unit
in the last place, unless a function states otherwise.

Arguments are arrays or numbers; results have their shape. Polynomials are those of fdlibm (Sun Microsystems 1993), the
reduction of angles is by Cody & Waite (1980), quantiles by Wichura's AS 241 (Applied Statistics 37, 1988).
"""

from __future__ import annotations

from typing import Any

import numpy as np

LARGEST = 1e7  # angle, in radians
# pi / 2 in three parts of 30 bits, whose products with integers below 2^23 are exact, and the rest.
HALF_PI = tuple(
    map(float.fromhex, ("0x1.921fb54p0", "0x1.10b46118p-30", "0x1.313198ap-61", "0x1.701b839a25205p-92"))
)
# ln 2 in two parts; products of the first with integers below 2^20 are exact.
LN2 = float.fromhex("0x1.62e42feep-1"), float.fromhex("0x1.a39ef35793c76p-33")
WHOLE_LN2 = float.fromhex("0x1.62e42fefa39efp-1")
SMALLEST = -745.14  # of e^x: below it is zero
GREATEST = 709.79  # above it is infinite
EXPONENTS = 1100.0  # of powers of two, at most


def sine(x: Any) -> Any:
    """The sine of angles in radians. Raises ValueError for an angle that is not finite, or beyond LARGEST."""
    size, negative = np.abs(x), np.signbit(x)
    quadrant, of_sine, of_cosine = _reduced(size)
    value = np.where(quadrant % 2 == 0, of_sine, of_cosine)
    return np.where((quadrant >= 2) != negative, -value, value)[()]


def cosine(x: Any) -> Any:
    """The cosine of angles in radians. Raises ValueError for an angle that is not finite, or beyond LARGEST."""
    quadrant, of_sine, of_cosine = _reduced(np.abs(x))
    value = np.where(quadrant % 2 == 0, of_cosine, of_sine)
    return np.where((quadrant == 1) | (quadrant == 2), -value, value)[()]


def exponential(x: Any) -> Any:
    """e^x; of NaN NaN. A subnormal result may be wrong by one unit more."""
    x = np.asarray(x, np.float64)
    with np.errstate(all="ignore"):
        inner = np.where(np.isnan(x), 0.0, np.clip(x, SMALLEST, GREATEST))
        n = np.rint(inner * (1.0 / WHOLE_LN2))
        high, low = inner - n * LN2[0], n * LN2[1]
        r = high - low
        square = r * r
        c = r - square * polynomial(
            square,
            4.13813679705723846039e-08,
            -1.65339022054652515390e-06,
            6.61375632143793436117e-05,
            -2.77777777770155933842e-03,
            1.66666666666666019037e-01,
        )
        value = np.ldexp(1.0 - ((low - (r * c) / (2.0 - c)) - high), n.astype(np.int32))
        value = np.where(x > GREATEST, np.inf, np.where(x < SMALLEST, 0.0, value))
    return np.where(np.isnan(x), np.nan, value)[()]


def logarithm(x: Any) -> Any:
    """The natural logarithm: of 0 minus infinity; of NaN and of numbers below 0 NaN."""
    exponent, f = _split(x)
    with np.errstate(all="ignore"):
        half = 0.5 * f * f
        s = f / (2.0 + f)
        square = s * s
        series = square * polynomial(
            square,
            1.479819860511658591e-01,
            1.531383769920937332e-01,
            1.818357216161805012e-01,
            2.222219843214978396e-01,
            2.857142874366239149e-01,
            3.999999999940941908e-01,
            6.666666666666735130e-01,
        )
        value = exponent * LN2[0] - ((half - (s * (half + series) + exponent * LN2[1])) - f)
    return _outside(x, value)


def exponential2(x: Any) -> Any:
    """2^x, exact for integers; else with errors below two units in the last place. Raises ValueError for numbers
    outside -EXPONENTS to EXPONENTS."""
    x = np.asarray(x, np.float64)
    if not (np.abs(x) <= EXPONENTS).all():
        raise ValueError(f"exponential2: an exponent is outside {-EXPONENTS:g} to {EXPONENTS:g}")
    n = np.rint(x)
    with np.errstate(all="ignore"):
        return np.ldexp(exponential((x - n) * WHOLE_LN2), n.astype(np.int32))[()]


def logarithm2(x: Any) -> Any:
    """The logarithm to base 2, exact for powers of two; else with errors below two units in the last place. Special
    cases as for `logarithm`."""
    exponent, f = _split(x)
    with np.errstate(all="ignore"):
        return _outside(x, exponent + logarithm(1.0 + f) * (1.0 / WHOLE_LN2))


def power(x: float, n: int) -> float:
    """x^n for an integer n >= 0, by squaring: the highest bit of n first. Each product is rounded, so the error grows
    with the logarithm of n."""
    value = 1.0
    for bit in bin(n)[2:]:
        value *= value
        if bit == "1":
            value *= x
    return value


def quantile(p: Any) -> Any:
    """The number below which a standard normal number lies with probability p. Relative errors are below 1e-15. Raises
    ValueError unless 0 < p < 1."""
    p = np.asarray(p, np.float64)
    if not ((p > 0.0) & (p < 1.0)).all():
        raise ValueError("quantile: a probability is not between 0 and 1")
    shape, p = p.shape, p.reshape(-1)
    q = p - 0.5
    r = 0.180625 - q * q
    value = q * (polynomial(r, *CENTRE[0]) / polynomial(r, *CENTRE[1]))
    outer = np.flatnonzero(np.abs(q) > 0.425)
    side = np.minimum(p[outer], 1.0 - p[outer])
    r = np.sqrt(-logarithm(side))
    near, far = r - 1.6, r - 5.0
    size = np.where(
        r <= 5.0,
        polynomial(near, *NEAR[0]) / polynomial(near, *NEAR[1]),
        polynomial(far, *FAR[0]) / polynomial(far, *FAR[1]),
    )
    value[outer] = np.copysign(size, q[outer])
    return value.reshape(shape)[()]


def polynomial(x: Any, first: float, *others: float) -> Any:
    """A polynomial by Horner's rule, in the type of the array x; each product and each sum is rounded."""
    kind = x.dtype.type
    p = kind(first)
    for c in others:
        p = p * x + kind(c)
    return p


def _reduced(size: Any) -> tuple[Any, Any, Any]:
    """For angles from 0 on: (quadrant 0 to 3, sine, cosine of the angle minus the nearest multiple of pi / 2).

    The difference has two parts, r and rest. Its subtractions before the last part are exact (TwoSum: Knuth 1969).
    """
    if not (size <= LARGEST).all():
        raise ValueError(f"sine and cosine: an angle is not finite or beyond {LARGEST:g}")
    with np.errstate(all="ignore"):
        n = np.rint(size * (2.0 / np.pi))
        r, rest = size - n * HALF_PI[0], -(n * HALF_PI[3])
        for part in HALF_PI[1:3]:
            r, error = two_sum(r, -(n * part))
            rest = rest + error
        r, rest = two_sum(r, rest)
        z = r * r
        cube = z * r
        p = polynomial(
            z,
            1.58969099521155010221e-10,
            -2.50507602534068634195e-08,
            2.75573137070700676789e-06,
            -1.98412698298579493134e-04,
            8.33333333332248946124e-03,
        )
        of_sine = r - ((z * (0.5 * rest - cube * p) - rest) + cube * 1.66666666666666324348e-01)
        p = polynomial(
            z,
            -1.13596475577881948265e-11,
            2.08757232129817482790e-09,
            -2.75573143513906633035e-07,
            2.48015872894767294178e-05,
            -1.38888888888741095749e-03,
            4.16666666666666019037e-02,
        )
        half = 0.5 * z
        first = 1.0 - half
        of_cosine = first + (((1.0 - first) - half) + (z * (z * p) - r * rest))
        return n.astype(np.int64) % 4, of_sine, of_cosine


def two_sum(a: Any, b: Any) -> tuple[Any, Any]:
    """(a + b rounded, the rounding error, exactly), of floats or arrays (Knuth 1969)."""
    total = a + b
    part = total - a
    return total, (a - (total - part)) + (b - part)


def _split(x: Any) -> tuple[Any, Any]:
    """(exponent, f) with x = 2^exponent (1 + f) and 1 + f from sqrt(1/2) to sqrt(2), for positive finite x."""
    with np.errstate(all="ignore"):
        m, exponent = np.frexp(np.asarray(x, np.float64))
        low = m < 0.7071067811865476
        return exponent - low.astype(np.float64), np.where(low, m + m, m) - 1.0


def _outside(x: Any, value: Any) -> Any:
    """`value`, a logarithm, where x is positive and finite, and the limits elsewhere."""
    x = np.asarray(x, np.float64)
    value = np.where(x == np.inf, np.inf, np.where(x == 0.0, -np.inf, value))
    return np.where(x >= 0.0, value, np.nan)[()]


# Numerators and denominators, highest power first.
CENTRE = (
    (
        2.5090809287301226727e3, 3.3430575583588128105e4, 6.7265770927008700853e4, 4.5921953931549871457e4,
        1.3731693765509461125e4, 1.9715909503065514427e3, 1.3314166789178437745e2, 3.3871328727963666080e0,
    ),
    (
        5.2264952788528545610e3, 2.8729085735721942674e4, 3.9307895800092710610e4, 2.1213794301586595867e4,
        5.3941960214247511077e3, 6.8718700749205790830e2, 4.2313330701600911252e1, 1.0,
    ),
)  # fmt: skip
NEAR = (
    (
        7.74545014278341407640e-4, 2.27238449892691845833e-2, 2.41780725177450611770e-1, 1.27045825245236838258e0,
        3.64784832476320460504e0, 5.76949722146069140550e0, 4.63033784615654529590e0, 1.42343711074968357734e0,
    ),
    (
        1.05075007164441684324e-9, 5.47593808499534494600e-4, 1.51986665636164571966e-2, 1.48103976427480074590e-1,
        6.89767334985100004550e-1, 1.67638483018380384940e0, 2.05319162663775882187e0, 1.0,
    ),
)  # fmt: skip
FAR = (
    (
        2.01033439929228813265e-7, 2.71155556874348757815e-5, 1.24266094738807843860e-3, 2.65321895265761230930e-2,
        2.96560571828504891230e-1, 1.78482653991729133580e0, 5.46378491116411436990e0, 6.65790464350110377720e0,
    ),
    (
        2.04426310338993978564e-15, 1.42151175831644588870e-7, 1.84631831751005468180e-5, 7.86869131145613259100e-4,
        1.48753612908506148525e-2, 1.36929880922735805310e-1, 5.99832206555887937690e-1, 1.0,
    ),
)  # fmt: skip
