// Block stencils: one field is (blocks, rows + 2 pad, columns + 2 pad), each block with its own halo.
//
// Every block is computed by the same instructions whoever owns it: one thread per block, dot products in the
// fixed 64-lane order of lanes.hpp. So the bits of a block depend on the block alone.
#include "lanes.hpp"
#include "native.hpp"
#include "../include/pointwise.hpp"

#include <cstring>
#include <stdexcept>
#include <string>
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

// ---- copies -------------------------------------------------------------------------------------------------

void copy_runs(const array<double> &src, array<double> &dst, const array<i64> &runs) {
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

// ---- conjugate gradients ------------------------------------------------------------------------------------

FPNA_CLONES
void update_block(double alpha, double beta, const double *u, const double *w, double *p, double *s, double *x,
                  i64 xp, double *r, i64 rp, i64 rows, i64 columns) {
    for (i64 j = 0; j < rows; ++j, r += rp, x += xp, u += columns, w += columns, p += columns, s += columns) {
#pragma GCC ivdep
        for (i64 i = 0; i < columns; ++i) cg_step(alpha, beta, u[i], w[i], p[i], s[i], x[i], r[i]);
    }
}

void cg_update(double alpha, double beta, const array<double> &u, const array<double> &w, array<double> &p,
               array<double> &s, array<double> &x, i64 x_pad, array<double> &r, i64 r_pad, int threads) {
    const Shape rs = shape_of(r, r_pad, "r"), xs = shape_of(x, x_pad, "x"), us = shape_of(u, 0, "u");
    require_same(rs, xs, "x");
    require_same(rs, us, "u");
    require_same(rs, shape_of(w, 0, "w"), "w");
    require_same(rs, shape_of(p, 0, "p"), "p");
    require_same(rs, shape_of(s, 0, "s"), "s");
    double *rd = r.mutable_data(), *pd = p.mutable_data(), *sd = s.mutable_data(), *xd = x.mutable_data();
    const double *ud = u.data(), *wd = w.data();
#pragma omp parallel for num_threads(threads) if (threads > 1) schedule(static)
    for (i64 b = 0; b < rs.blocks; ++b) {
        const i64 at = us.interior(b);
        update_block(alpha, beta, ud + at, wd + at, pd + at, sd + at, xd + xs.interior(b), xs.pitch(),
                     rd + rs.interior(b), rs.pitch(), rs.rows, rs.columns);
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

void poisson_residual(const array<double> &b, const array<double> &x, i64 x_pad, array<double> &r, i64 r_pad,
                      double inverse_h2, int threads) {
    const Shape rs = shape_of(r, r_pad, "r"), xs = shape_of(x, x_pad, "x"), bs = shape_of(b, 0, "b");
    require_same(rs, xs, "x");
    require_same(rs, bs, "b");
    if (x_pad < 1) throw std::invalid_argument("x: the Laplacian needs a halo of at least 1");
    const double *bd = b.data(), *xd = x.data();
    double *rd = r.mutable_data();
#pragma omp parallel for num_threads(threads) if (threads > 1) schedule(static)
    for (i64 k = 0; k < rs.blocks; ++k)
        residual_block(bd + bs.interior(k), xd + xs.interior(k), xs.pitch(), rd + rs.interior(k), rs.pitch(), rs.rows,
                       rs.columns, inverse_h2);
}

// u = P(A) r on the block by Chebyshev's semi-iteration, w = A u, and the sums (r, u), (w, u), (r, r).
// All of it from the block and its halo of degree + 1 points, which stay in the first-level cache: the halo's
// share is computed redundantly instead of exchanged. z and d are scratch of the shape of the padded block.
FPNA_CLONES
void chebyshev_block(const double *r, i64 pitch, i64 rows, i64 columns, i64 degree, double inverse_theta,
                     const double *coefficients, double inverse_h2, double *z, double *d, double *u, double *w,
                     double *dots) {
    const i64 outer = degree + 1;
    for (i64 j = -outer; j < rows + outer; ++j) {
#pragma GCC ivdep
        for (i64 i = j * pitch - outer; i < j * pitch + columns + outer; ++i) d[i] = z[i] = r[i] * inverse_theta;
    }
    for (i64 k = 0; k < degree; ++k) {
        const double keep = coefficients[2 * k], take = coefficients[2 * k + 1];
        const i64 margin = degree - k;
        for (i64 j = -margin; j < rows + margin; ++j) {
#pragma GCC ivdep
            for (i64 i = j * pitch - margin; i < j * pitch + columns + margin; ++i)
                d[i] = chebyshev_step(keep, d[i], take, r[i], minus_laplacian(z + i, pitch, inverse_h2));
        }
        for (i64 j = -margin; j < rows + margin; ++j) {
#pragma GCC ivdep
            for (i64 i = j * pitch - margin; i < j * pitch + columns + margin; ++i) z[i] += d[i];
        }
    }
    Lanes ru, wu, rr;
    for (i64 j = 0; j < rows; ++j, r += pitch, z += pitch, u += columns, w += columns) {
#pragma GCC ivdep
        for (i64 i = 0; i < columns; ++i) {
            u[i] = z[i];
            w[i] = minus_laplacian(z + i, pitch, inverse_h2);
        }
        ru.add_products(r, u, columns);
        wu.add_products(w, u, columns);
        rr.add_products(r, r, columns);
    }
    dots[0] = ru.total();
    dots[1] = wu.total();
    dots[2] = rr.total();
}

void chebyshev_laplacian(const array<double> &r, i64 pad, array<double> &u, array<double> &w, array<double> &dots,
                         double inverse_h2, double inverse_theta, const array<double> &coefficients, int threads) {
    const Shape rs = shape_of(r, pad, "r"), us = shape_of(u, 0, "u");
    require_same(rs, us, "u");
    require_same(rs, shape_of(w, 0, "w"), "w");
    if (coefficients.ndim() != 2 || coefficients.shape(1) != 2)
        throw std::invalid_argument("coefficients: expected (degree, 2)");
    const i64 degree = coefficients.shape(0);
    if (pad < degree + 1) throw std::invalid_argument("r: the halo must be at least the degree plus 1");
    if (dots.ndim() != 2 || dots.shape(0) != rs.blocks || dots.shape(1) != 3)
        throw std::invalid_argument("dots: expected (blocks, 3)");
    const double *rd = r.data(), *cd = coefficients.data();
    double *ud = u.mutable_data(), *wd = w.mutable_data(), *out = dots.mutable_data();
#pragma omp parallel num_threads(threads) if (threads > 1)
    {
        std::vector<double> z(rs.stride()), d(rs.stride());
        const i64 first = rs.interior(0);
#pragma omp for schedule(static)
        for (i64 b = 0; b < rs.blocks; ++b)
            chebyshev_block(rd + rs.interior(b), rs.pitch(), rs.rows, rs.columns, degree, inverse_theta, cd, inverse_h2,
                            z.data() + first, d.data() + first, ud + us.interior(b), wd + us.interior(b), out + 3 * b);
    }
}

FPNA_CLONES
double dot_block(const double *a, i64 ap, const double *b, i64 bp, i64 rows, i64 columns) {
    Lanes lanes;
    for (i64 j = 0; j < rows; ++j, a += ap, b += bp) lanes.add_products(a, b, columns);
    return lanes.total();
}

void block_dots(const array<double> &a, i64 a_pad, const array<double> &b, i64 b_pad, array<double> &out) {
    const Shape as = shape_of(a, a_pad, "a"), bs = shape_of(b, b_pad, "b");
    require_same(as, bs, "b");
    if (out.ndim() != 1 || out.shape(0) != as.blocks) throw std::invalid_argument("out: expected (blocks,)");
    for (i64 k = 0; k < as.blocks; ++k)
        out.mutable_data()[k] =
            dot_block(a.data() + as.interior(k), as.pitch(), b.data() + bs.interior(k), bs.pitch(), as.rows, as.columns);
}

}  // namespace

void register_stencil(py::module_ &m) {
    // noconvert: a silent conversion would write into a copy.
    m.def("copy_runs", &copy_runs, py::arg("src").noconvert(), py::arg("dst").noconvert(),
          py::arg("runs").noconvert());
    m.def("cg_update", &cg_update, py::arg("alpha"), py::arg("beta"), py::arg("u").noconvert(),
          py::arg("w").noconvert(), py::arg("p").noconvert(), py::arg("s").noconvert(), py::arg("x").noconvert(),
          py::arg("x_pad"), py::arg("r").noconvert(), py::arg("r_pad"), py::arg("threads"));
    m.def("poisson_residual", &poisson_residual, py::arg("b").noconvert(), py::arg("x").noconvert(), py::arg("x_pad"),
          py::arg("r").noconvert(), py::arg("r_pad"), py::arg("inverse_h2"), py::arg("threads"));
    m.def("chebyshev_laplacian", &chebyshev_laplacian, py::arg("r").noconvert(), py::arg("pad"),
          py::arg("u").noconvert(), py::arg("w").noconvert(), py::arg("dots").noconvert(), py::arg("inverse_h2"),
          py::arg("inverse_theta"), py::arg("coefficients").noconvert(), py::arg("threads"));
    m.def("block_dots", &block_dots, py::arg("a").noconvert(), py::arg("a_pad"), py::arg("b").noconvert(),
          py::arg("b_pad"), py::arg("out").noconvert());
}
