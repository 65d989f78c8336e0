// Block stencils: one field is (blocks, rows + 2 pad, columns + 2 pad), each block with its own halo.
//
// The same instructions compute every block, on any rank: one thread per block, dot products in the fixed 64-lane order
// of lanes.hpp. So the bits of a block depend on the block alone.
#include "kernels.hpp"
#include "lanes.hpp"
#include "../include/pointwise.hpp"

#include <cstring>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace {

using i64 = std::int64_t;

struct Shape {  // of a padded field
    i64 blocks, rows, columns, pad;
    i64 pitch() const { return columns + 2 * pad; }
    i64 stride() const { return (rows + 2 * pad) * pitch(); }
    i64 interior(i64 block) const { return block * stride() + pad * pitch() + pad; }
};

Shape shape_of(const array<double> &field, i64 pad, const char *name) {
    if (field.ndim() != 3 || field.shape(1) <= 2 * pad || field.shape(2) <= 2 * pad)
        throw std::invalid_argument(std::string(name) + ": expected (blocks, rows + 2 pad, columns + 2 pad) with pad " +
                                    std::to_string(pad));
    return {field.shape(0), field.shape(1) - 2 * pad, field.shape(2) - 2 * pad, pad};
}

void require_same(const Shape &a, const Shape &b, const char *name) {
    if (a.blocks != b.blocks || a.rows != b.rows || a.columns != b.columns)
        throw std::invalid_argument(std::string(name) + ": blocks differ in number or shape from the first field's");
}

// ---- conjugate gradients ------------------------------------------------------------------------------------

FPNA_CLONES
void update_block(double alpha, double beta, const double *u, const double *w, double *p, double *s, double *x,
                  i64 xp, double *r, i64 rp, i64 rows, i64 columns) {
    for (i64 j = 0; j < rows; ++j, r += rp, x += xp, u += columns, w += columns, p += columns, s += columns) {
#pragma GCC ivdep
        for (i64 i = 0; i < columns; ++i) cg_step(alpha, beta, u[i], w[i], p[i], s[i], x[i], r[i]);
    }
}

// r = b - A x
FPNA_CLONES
void residual_block(const double *b, const double *x, i64 xp, double *r, i64 rp, i64 rows, i64 columns,
                    double inverse_h2) {
    for (i64 j = 0; j < rows; ++j, b += columns, x += xp, r += rp) {
#pragma GCC ivdep
        for (i64 i = 0; i < columns; ++i) r[i] = b[i] - minus_laplacian(x + i, xp, inverse_h2);
    }
}

// ---- multigrid ----------------------------------------------------------------------------------------------
//
// A block computes into its halo, redundantly and in its cache: every product with A makes the valid region one point
// narrower. Stages follow one another row by row, stage k one row behind stage k - 1, so that the rows in between stay
// in the first-level cache. Scratch has the shape of the padded block, lines that of one of its rows.

struct Smoother {  // Chebyshev's semi-iteration for A z = r
    i64 degree;
    double inverse_h2, inverse_theta;
    const double *coefficients;  // (degree, 2)
};

// A row of next = z + d with the next step d; step -1 is the first of all.
inline __attribute__((always_inline)) void chebyshev_row(const Smoother &by, i64 step, i64 pitch, i64 begin, i64 end,
                                                         const double *r, const double *z, double *d, double *next) {
    if (step < 0) {
#pragma GCC ivdep
        for (i64 i = begin; i < end; ++i) {
            d[i] = (r[i] - minus_laplacian(z + i, pitch, by.inverse_h2)) * by.inverse_theta;
            next[i] = z[i] + d[i];
        }
        return;
    }
    const double keep = by.coefficients[2 * step], take = by.coefficients[2 * step + 1];
#pragma GCC ivdep
    for (i64 i = begin; i < end; ++i) {
        d[i] = chebyshev_step(keep, d[i], take, r[i], minus_laplacian(z + i, pitch, by.inverse_h2));
        next[i] = z[i] + d[i];
    }
}

// coarse = averages around every factor-th point of q, which has factor - 1 points around the block
inline __attribute__((always_inline)) void average(const double *q, i64 pitch, i64 rows, i64 columns, i64 factor,
                                                   double *line, double *coarse, i64 coarse_pitch) {
    const i64 reach = factor - 1, width = 2 * factor - 1;
    const double scale = hat_scale(factor);
    for (i64 j = 0; j < rows; j += factor, coarse += coarse_pitch) {
        const double *top = q + (j - reach) * pitch;
        for (i64 i = -reach; i < columns + reach; ++i) line[i] = top[i];
        for (i64 k = 1; k < width; ++k) {
            const double weight = hat_weight(k, factor);
#pragma GCC ivdep
            for (i64 i = -reach; i < columns + reach; ++i) line[i] += weight * top[k * pitch + i];
        }
        for (i64 i = 0; i < columns; i += factor) {
            double sum = line[i - reach];
            for (i64 k = 1; k < width; ++k) sum += hat_weight(k, factor) * line[i - reach + k];
            coarse[i / factor] = sum * scale;
        }
    }
}

FPNA_CLONES
void restrict_block(const double *r, i64 pitch, i64 rows, i64 columns, const Smoother &by, i64 factor, double *z,
                    double *scratch, double *d, double *line, double *coarse, i64 coarse_pitch) {
    const i64 outer = 2 * by.degree + 2, residual = by.degree + 1;  // stages: first guess, steps, residual
    double *stages[2] = {by.degree % 2 ? scratch : z, by.degree % 2 ? z : scratch};  // so that the last step fills z
    for (i64 row = -outer; row < rows + outer; ++row) {
        for (i64 k = 0; k <= residual && 2 * k <= row + outer; ++k) {
            const i64 begin = (row - k) * pitch - outer + k, end = (row - k) * pitch + columns + outer - k;
            if (k == 0) {
                double *first = stages[0];
#pragma GCC ivdep
                for (i64 i = begin; i < end; ++i) d[i] = first[i] = r[i] * by.inverse_theta;
            } else if (k < residual) {
                chebyshev_row(by, k - 1, pitch, begin, end, r, stages[(k + 1) % 2], d, stages[k % 2]);
            } else {
#pragma GCC ivdep
                for (i64 i = begin; i < end; ++i) d[i] = r[i] - minus_laplacian(z + i, pitch, by.inverse_h2);
            }
        }
    }
    average(d, pitch, rows, columns, factor, line, coarse, coarse_pitch);
}

// Interpolates a row of coarse points at its fine points [begin, end).
inline __attribute__((always_inline)) void interpolate_row(const double *e, i64 factor, i64 begin, i64 end, double *line) {
    for (i64 part = 0; part < factor; ++part) {
        const double left = linear_weight(factor - part, factor), right = linear_weight(part, factor);
        const i64 over = begin - part, first = over / factor + (over % factor > 0);  // cell of the first such point
        for (i64 cell = first; cell * factor + part < end; ++cell)
            line[cell * factor + part] = left * e[cell] + right * e[cell + 1];
    }
}

FPNA_CLONES
void prolong_block(const double *r, const double *z, i64 pitch, i64 rows, i64 columns, const Smoother &by, i64 factor,
                   const double *e, i64 e_pitch, double *even, double *odd, double *d, double *upper, double *lower,
                   double *u, i64 u_pitch, double *w, double *dots) {
    const i64 outer = by.degree + 2;  // stages: correction, steps, product
    double *stages[2] = {even, odd};
    i64 part = (factor - outer % factor) % factor;
    const double *below = e - (outer + part) / factor * e_pitch;
    interpolate_row(below, factor, -outer, columns + outer, lower);
    Lanes ru, wu, rr;
    for (i64 row = -outer; row < rows + outer; ++row) {
        if (part == 0 || row == -outer) {
            std::swap(upper, lower);
            below += e_pitch;
            interpolate_row(below, factor, -outer, columns + outer, lower);
        }
        const double over = linear_weight(factor - part, factor), under = linear_weight(part, factor);
        const double *before = z + row * pitch;
        double *after = even + row * pitch;
#pragma GCC ivdep
        for (i64 i = -outer; i < columns + outer; ++i) after[i] = before[i] + (over * upper[i] + under * lower[i]);
        part = (part + 1) % factor;
        for (i64 k = 1; k < outer && 2 * k <= row + outer; ++k)
            chebyshev_row(by, k - 2, pitch, (row - k) * pitch - outer + k, (row - k) * pitch + columns + outer - k, r,
                          stages[(k + 1) % 2], d, stages[k % 2]);
        const i64 last = row - outer;
        if (last < 0) continue;
        const double *from = stages[(outer - 1) % 2] + last * pitch, *right = r + last * pitch;
        double *ur = u + last * u_pitch, *wr = w + last * columns;
#pragma GCC ivdep
        for (i64 i = 0; i < columns; ++i) {
            ur[i] = from[i];
            wr[i] = minus_laplacian(from + i, pitch, by.inverse_h2);
        }
        ru.add_products(right, ur, columns);
        wu.add_products(wr, ur, columns);
        rr.add_products(right, right, columns);
    }
    dots[0] = ru.total();
    dots[1] = wu.total();
    dots[2] = rr.total();
}

Smoother smoother_of(const Shape &r, double inverse_h2, double inverse_theta, const array<double> &coefficients) {
    if (coefficients.ndim() != 2 || coefficients.shape(1) != 2)
        throw std::invalid_argument("coefficients: expected (degree, 2)");
    const Smoother by{coefficients.shape(0), inverse_h2, inverse_theta, coefficients.data()};
    if (r.pad < 2 * by.degree + 2) throw std::invalid_argument("r: the halo must be at least twice the degree plus 2");
    return by;
}

void require_coarse(const Shape &fine, const Shape &coarse, i64 factor, i64 degree, const char *name) {
    if (factor < 1 || factor > degree + 2) throw std::invalid_argument("factor: expected 1 to the degree plus 2");
    if (coarse.blocks != fine.blocks || coarse.rows * factor != fine.rows || coarse.columns * factor != fine.columns)
        throw std::invalid_argument(std::string(name) + ": expected blocks of the first field's, coarser by the factor");
}

FPNA_CLONES
double dot_block(const double *a, i64 ap, const double *b, i64 bp, i64 rows, i64 columns) {
    Lanes lanes;
    for (i64 j = 0; j < rows; ++j, a += ap, b += bp) lanes.add_products(a, b, columns);
    return lanes.total();
}

}  // namespace

// ---- arrays -------------------------------------------------------------------------------------------------

void copy_runs(array<double> src, array<double> dst, array<i64> runs) {
    const double *from = src.data();
    double *to = dst.mutable_data();
    const i64 *run = runs.data();
    for (i64 k = 0, n = runs.shape(0); k < n; ++k, run += 5) {
        const double *a = from + run[0];
        double *b = to + run[1];
        const i64 count = run[2], sa = run[3], sb = run[4];
        if (sa == 1 && sb == 1) {
            std::memcpy(b, a, count * sizeof(double));
        } else {
            for (i64 i = 0; i < count; ++i) b[i * sb] = a[i * sa];
        }
    }
}

void cg_update(double alpha, double beta, array<double> u, array<double> w, array<double> p,
               array<double> s, array<double> x, i64 x_pad, array<double> r, i64 r_pad, int threads) {
    const Shape rs = shape_of(r, r_pad, "r"), xs = shape_of(x, x_pad, "x"), us = shape_of(u, 0, "u");
    require_same(rs, xs, "x");
    require_same(rs, us, "u");
    require_same(rs, shape_of(w, 0, "w"), "w");
    require_same(rs, shape_of(p, 0, "p"), "p");
    require_same(rs, shape_of(s, 0, "s"), "s");
    double *rd = r.mutable_data(), *pd = p.mutable_data(), *sd = s.mutable_data(), *xd = x.mutable_data();
    const double *ud = u.data(), *wd = w.data();
#pragma omp parallel num_threads(threads) if (threads > 1)
    {
        const DefaultEnvironment environment;
#pragma omp for schedule(static)
        for (i64 b = 0; b < rs.blocks; ++b) {
            const i64 at = us.interior(b);
            update_block(alpha, beta, ud + at, wd + at, pd + at, sd + at, xd + xs.interior(b), xs.pitch(),
                         rd + rs.interior(b), rs.pitch(), rs.rows, rs.columns);
        }
    }
}

void poisson_residual(array<double> b, array<double> x, i64 x_pad, array<double> r, i64 r_pad,
                      double inverse_h2, int threads) {
    const Shape rs = shape_of(r, r_pad, "r"), xs = shape_of(x, x_pad, "x"), bs = shape_of(b, 0, "b");
    require_same(rs, xs, "x");
    require_same(rs, bs, "b");
    if (x_pad < 1) throw std::invalid_argument("x: the Laplacian needs a halo of at least 1");
    const double *bd = b.data(), *xd = x.data();
    double *rd = r.mutable_data();
#pragma omp parallel num_threads(threads) if (threads > 1)
    {
        const DefaultEnvironment environment;
#pragma omp for schedule(static)
        for (i64 k = 0; k < rs.blocks; ++k)
            residual_block(bd + bs.interior(k), xd + xs.interior(k), xs.pitch(), rd + rs.interior(k), rs.pitch(), rs.rows,
                           rs.columns, inverse_h2);
    }
}

void smooth_restrict(array<double> r, i64 pad, array<double> z, array<double> coarse, i64 coarse_pad, i64 factor,
                     double inverse_h2, double inverse_theta, array<double> coefficients, int threads) {
    const Shape rs = shape_of(r, pad, "r"), cs = shape_of(coarse, coarse_pad, "coarse");
    require_same(rs, shape_of(z, pad, "z"), "z");
    const Smoother by = smoother_of(rs, inverse_h2, inverse_theta, coefficients);
    require_coarse(rs, cs, factor, by.degree, "coarse");
    const double *rd = r.data();
    double *zd = z.mutable_data(), *cd = coarse.mutable_data();
#pragma omp parallel num_threads(threads) if (threads > 1)
    {
        const DefaultEnvironment environment;
        std::vector<double> other(rs.stride()), d(rs.stride()), line(rs.pitch());
        const i64 first = rs.interior(0);
#pragma omp for schedule(static)
        for (i64 b = 0; b < rs.blocks; ++b)
            restrict_block(rd + rs.interior(b), rs.pitch(), rs.rows, rs.columns, by, factor, zd + rs.interior(b),
                           other.data() + first, d.data() + first, line.data() + pad, cd + cs.interior(b), cs.pitch());
    }
}

void prolong_smooth(array<double> r, i64 pad, array<double> z, array<double> e, i64 e_pad, i64 factor,
                    array<double> u, i64 u_pad, array<double> w, array<double> dots, double inverse_h2,
                    double inverse_theta, array<double> coefficients, int threads) {
    const Shape rs = shape_of(r, pad, "r"), es = shape_of(e, e_pad, "e"), us = shape_of(u, u_pad, "u"),
                ws = shape_of(w, 0, "w");
    require_same(rs, shape_of(z, pad, "z"), "z");
    require_same(rs, us, "u");
    require_same(rs, ws, "w");
    const Smoother by = smoother_of(rs, inverse_h2, inverse_theta, coefficients);
    require_coarse(rs, es, factor, by.degree, "e");
    if (e_pad < (by.degree + 1) / factor + 2) throw std::invalid_argument("e: the halo must cover the interpolation");
    if (dots.ndim() != 2 || dots.shape(0) != rs.blocks || dots.shape(1) != 3)
        throw std::invalid_argument("dots: expected (blocks, 3)");
    const double *rd = r.data(), *zd = z.data(), *ed = e.data();
    double *ud = u.mutable_data(), *wd = w.mutable_data(), *out = dots.mutable_data();
#pragma omp parallel num_threads(threads) if (threads > 1)
    {
        const DefaultEnvironment environment;
        std::vector<double> even(rs.stride()), odd(rs.stride()), d(rs.stride()), upper(rs.pitch()), lower(rs.pitch());
        const i64 first = rs.interior(0);
#pragma omp for schedule(static)
        for (i64 b = 0; b < rs.blocks; ++b)
            prolong_block(rd + rs.interior(b), zd + rs.interior(b), rs.pitch(), rs.rows, rs.columns, by, factor,
                          ed + es.interior(b), es.pitch(), even.data() + first, odd.data() + first, d.data() + first,
                          upper.data() + pad, lower.data() + pad, ud + us.interior(b), us.pitch(),
                          wd + ws.interior(b), out + 3 * b);
    }
}

void block_dots(array<double> a, i64 a_pad, array<double> b, i64 b_pad, array<double> out) {
    const Shape as = shape_of(a, a_pad, "a"), bs = shape_of(b, b_pad, "b");
    require_same(as, bs, "b");
    if (out.ndim() != 1 || out.shape(0) != as.blocks) throw std::invalid_argument("out: expected (blocks,)");
    for (i64 k = 0; k < as.blocks; ++k)
        out.mutable_data()[k] =
            dot_block(a.data() + as.interior(k), as.pitch(), b.data() + bs.interior(k), bs.pitch(), as.rows, as.columns);
}
