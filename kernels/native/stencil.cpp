// Block stencils: one field is (blocks, rows + 2 pad, columns + 2 pad), each block with its own halo.
//
// Every block is computed by the same instructions whoever owns it: one thread per block, dot products in the
// fixed 64-lane order of lanes.hpp. So the bits of a block depend on the block alone.
#include "lanes.hpp"
#include "native.hpp"

#include <cstring>
#include <stdexcept>
#include <string>

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
void update_block(double alpha, double beta, double *r, i64 rp, const double *w, double *p, double *s, double *x,
                  i64 xp, i64 rows, i64 columns) {
    for (i64 j = 0; j < rows; ++j, r += rp, x += xp, w += columns, p += columns, s += columns) {
#pragma GCC ivdep
        for (i64 i = 0; i < columns; ++i) {
            const double pi = r[i] + beta * p[i];
            const double si = w[i] + beta * s[i];
            p[i] = pi;
            s[i] = si;
            x[i] += alpha * pi;
            r[i] -= alpha * si;
        }
    }
}

void cg_update(double alpha, double beta, array<double> &r, i64 r_pad, const array<double> &w, array<double> &p,
               array<double> &s, array<double> &x, i64 x_pad, int threads) {
    const Shape rs = shape_of(r, r_pad, "r"), xs = shape_of(x, x_pad, "x"), ws = shape_of(w, 0, "w");
    require_same(rs, xs, "x");
    require_same(rs, ws, "w");
    require_same(rs, shape_of(p, 0, "p"), "p");
    require_same(rs, shape_of(s, 0, "s"), "s");
    double *rd = r.mutable_data(), *pd = p.mutable_data(), *sd = s.mutable_data(), *xd = x.mutable_data();
    const double *wd = w.data();
#pragma omp parallel for num_threads(threads) if (threads > 1) schedule(static)
    for (i64 b = 0; b < rs.blocks; ++b)
        update_block(alpha, beta, rd + rs.interior(b), rs.pitch(), wd + ws.interior(b), pd + ws.interior(b),
                     sd + ws.interior(b), xd + xs.interior(b), xs.pitch(), rs.rows, rs.columns);
}

// w = -laplace(r), and the partial sums (r, r) and (w, r) of the block.
FPNA_CLONES
void laplacian_block(const double *r, i64 pitch, double *w, i64 rows, i64 columns, double inverse_h2, double *dots) {
    Lanes rr, wr;
    for (i64 j = 0; j < rows; ++j, r += pitch, w += columns) {
        const double *north = r + pitch, *south = r - pitch;
#pragma GCC ivdep
        for (i64 i = 0; i < columns; ++i)
            w[i] = (4.0 * r[i] - ((r[i - 1] + r[i + 1]) + (south[i] + north[i]))) * inverse_h2;
        rr.add_products(r, r, columns);
        wr.add_products(w, r, columns);
    }
    dots[0] = rr.total();
    dots[1] = wr.total();
}

void laplacian_dots(const array<double> &r, i64 pad, array<double> &w, array<double> &dots, double inverse_h2,
                    int threads) {
    const Shape rs = shape_of(r, pad, "r"), ws = shape_of(w, 0, "w");
    require_same(rs, ws, "w");
    if (pad < 1) throw std::invalid_argument("r: the Laplacian needs a halo of at least 1");
    if (dots.ndim() != 2 || dots.shape(0) != rs.blocks || dots.shape(1) != 2)
        throw std::invalid_argument("dots: expected (blocks, 2)");
    const double *rd = r.data();
    double *wd = w.mutable_data(), *out = dots.mutable_data();
#pragma omp parallel for num_threads(threads) if (threads > 1) schedule(static)
    for (i64 b = 0; b < rs.blocks; ++b)
        laplacian_block(rd + rs.interior(b), rs.pitch(), wd + ws.interior(b), rs.rows, rs.columns, inverse_h2,
                        out + 2 * b);
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
    m.def("cg_update", &cg_update, py::arg("alpha"), py::arg("beta"), py::arg("r").noconvert(), py::arg("r_pad"),
          py::arg("w").noconvert(), py::arg("p").noconvert(), py::arg("s").noconvert(), py::arg("x").noconvert(),
          py::arg("x_pad"), py::arg("threads"));
    m.def("laplacian_dots", &laplacian_dots, py::arg("r").noconvert(), py::arg("pad"), py::arg("w").noconvert(),
          py::arg("dots").noconvert(), py::arg("inverse_h2"), py::arg("threads"));
    m.def("block_dots", &block_dots, py::arg("a").noconvert(), py::arg("a_pad"), py::arg("b").noconvert(),
          py::arg("b_pad"), py::arg("out").noconvert());
}
