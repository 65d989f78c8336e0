"""What the examples of docs/examples/sums print with `fpna`, computed in NumPy with the sums of kernels.sums and
kernels.scatter: the hash over all sums of a run, and a number of its last line.

Each computes number by number in the order of the example, so that only the sums could differ.
"""

import numpy as np

from kernels import registry, scatter, sums  # noqa: F401  (registers the variants)


def hashed(value, numbers, prime, bits):
    """FNV-1a over the bytes of float64 numbers."""
    for byte in np.asarray(numbers, np.float64).tobytes():
        value = (value ^ byte) * prime % 2**bits
    return value


def hash64(value, numbers):
    return hashed(value, numbers, 1099511628211, 64)


def cg():
    """(hash, residual) of cg.c."""
    n, most = 64, 400
    dots = registry.get("dot", "exact", "native")

    def dot(x, y):
        return dots(x.ravel(), y.ravel())

    i, j = np.arange(n)[:, None], np.arange(n)[None, :]
    r = 1.0 / (1 + i * 7 % 11 + j * 5 % 13)
    u, p = np.zeros((n, n)), r.copy()
    rr = dot(r, r)
    wanted, value, steps = 1e-12 * rr, 14695981039346656037, 0
    while rr > wanted and steps < most:
        steps += 1
        padded = np.pad(p, 1)
        q = 4 * p - padded[1:-1, :-2] - padded[1:-1, 2:] - padded[:-2, 1:-1] - padded[2:, 1:-1]
        alpha, before = rr / dot(p, q), rr
        u += alpha * p
        r -= alpha * q
        rr = dot(r, r)
        p = r + rr / before * p
        value = hash64(value, [alpha, rr])
    return f"{hash64(value, dot(u, u)):016x}", float(rr)


def drawn(counter):
    """Numbers in [0, 1) by splitmix64."""
    z = (counter.astype(np.uint64) + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return ((z ^ (z >> np.uint64(31))) >> np.uint64(11)).astype(np.float64) * 2.0**-53


def deposit():
    """(hash, charge of the first cell) of deposit.cpp."""
    cells, particles, steps = 64, 20000, 10
    add = registry.get("scatter_add", "exact", "native")
    k = np.arange(particles)
    place, speed, charge = cells * drawn(3 * k), drawn(3 * k + 1) - 0.5, drawn(3 * k + 2)
    value = 14695981039346656037
    for _ in range(steps):
        cell = place.astype(np.int64)
        right = place - cell
        shares = np.concatenate([charge * (1 - right), charge * right])
        total = add(shares, np.concatenate([cell % cells, (cell + 1) % cells]), cells)
        value = hash64(value, total)
        speed += 1e-3 * (total[cell] - total[(cell + 1) % cells])
        place += np.clip(speed, -1, 1)
        place[place < 0] += cells
        place[place >= cells] -= cells
    return f"{value:016x}", float(total[0])


def column():
    """(hash, volume) of column.f90."""
    levels, width, length, steps = 20, 16, 48, 40
    depth, step_s, gravity, mixing, density = 10.0, 3600.0, 9.81, 4e-3, 1027.0
    exact = registry.get("sum", "exact", "native")
    k = np.arange(1, levels + 1)[:, None, None]
    place, row = np.arange(1, width + 1)[None, :, None], np.arange(1, length + 1)[None, None, :]
    t = 4 + 20 / (1 + 0.2 * k) - 0.1 * abs(row - 24) + 0.03 * ((7 * place + row) % 5)
    s = 35 + 0.02 * k - 0.01 * ((3 * place + 2 * row) % 7)
    u = 0.3 / k - 0.01 * ((row + place) % 3)
    dz = depth + 0.1 * (k * place % 4) + 0.0 * row

    def mix(x):
        flux = np.zeros((levels + 1, width, length))
        flux[1:levels] = mixing * (x[1:] - x[:-1]) / depth
        return x + step_s * (flux[1:] - flux[:-1]) / dz

    value, target = 2166136261, None
    for _ in range(steps + 1):
        rho = density * (1 - 2e-4 * (t - 10) + 8e-4 * (s - 35))
        shear = np.zeros_like(u)
        shear[1:] = ((u[1:] - u[:-1]) / depth) ** 2
        fields = (
            dz, rho * dz, 3990 * density * t * dz, s * dz, rho * u * dz, 0.5 * rho * u * u * dz,
            -gravity * rho * (k - 0.5) * dz * dz, gravity * (density - rho) / density * dz, shear,
            t * t * dz, s * s * dz,
        )  # fmt: skip
        totals = [exact(np.ascontiguousarray(field).ravel()) for field in fields]
        value = hashed(value, [*totals, abs(u).max() * step_s / 1e4], 16777619, 32)
        target = target or totals[2:4]
        t, s, u = mix(t), mix(s), mix(u)
        t[0] += step_s * 1e-6 * (24 - abs(row[0] - 24) - t[0]) / dz[0]
        u[0] += step_s * 1e-7 * (row[0] - 24) / dz[0]
        t[0] += (target[0] - totals[2]) / (3990 * density * depth * width * length)
        s[0] += (target[1] - totals[3]) / (depth * width * length)
    return f"{value:08X}", float(totals[0])
