// Products of matrices: blocks, threads, and what Python calls (see contract.hpp for the sums).
#include "contract.hpp"

#include <omp.h>

#include <algorithm>
#include <cstring>
#include <new>
#include <stdexcept>

#include "environment.hpp"
#include "levels.hpp"

namespace contract {

template <typename T>
void Lines<T>::pack(const Kernels<T> &kernels, T *to, i64 width, i64 first, i64 count, i64 k0, i64 depth) const {
    const T *from = at_ + first * line_ + k0 * along_;
    if (along_ == 1 && count > 1) return kernels.transpose(to, width, from, line_, count, depth);
    for (i64 k = 0; k < depth; ++k, to += width, from += along_) {
        if (line_ == 1)
            std::memcpy(to, from, count * sizeof(T));
        else
            for (i64 i = 0; i < count; ++i) to[i] = from[i * line_];
        for (i64 i = count; i < width; ++i) to[i] = 0;
    }
}

namespace {

constexpr i64 ENOUGH = 1 << 18;                // products per thread that are worth waking it
constexpr i64 B_BYTES = 1 << 19;               // of a packed piece of B: half of a second-level cache
constexpr i64 MOST_ROWS = 16, MOST_LANES = 16;  // of a tile and a vector

// What a thread packs into; kept between calls.
template <typename T>
class Scratch {
public:
    Scratch() : memory_(static_cast<T *>(::operator new(SIZE * sizeof(T), std::align_val_t(64)))) {}
    ~Scratch() { ::operator delete(memory_, std::align_val_t(64)); }
    Scratch(const Scratch &) = delete;
    Scratch &operator=(const Scratch &) = delete;

    T *b() const { return memory_; }
    T *a() const { return memory_ + B; }
    T *tile() const { return memory_ + B + A; }

private:
    static constexpr i64 B = B_BYTES / sizeof(T) + 2 * MOST_LANES, A = PIECE * MOST_ROWS + MOST_LANES;
    static constexpr i64 SIZE = B + A + MOST_ROWS * 2 * MOST_LANES;
    T *memory_;
};

struct Range {
    i64 begin, end;
    i64 size() const { return end - begin; }
};

// A tile of the result, directly or by way of `aside` where the columns are no full vectors in memory.
template <typename T>
void finish(const Kernels<T> &kernels, Tile<T> tile, const Result<T> &c, i64 row, i64 rows, i64 column, i64 columns,
            T *aside) {
    const i64 vectors = columns > kernels.lanes ? 2 : 1, full = vectors * kernels.lanes;
    T *at = c.at + row * c.row;
    if (columns == full && c.offset(column + full - 1) - c.offset(column) == full - 1) {
        tile.c = at + c.offset(column);
        tile.c_pitch = c.row;
        return kernels.tile(tile, rows, vectors);
    }
    tile.c = aside;
    tile.c_pitch = full;
    if (tile.add)
        for (i64 i = 0; i < rows; ++i)
            for (i64 j = 0; j < full; ++j)
                aside[i * full + j] = j < columns ? at[i * c.row + c.offset(column + j)] : T(0);
    kernels.tile(tile, rows, vectors);
    for (i64 i = 0; i < rows; ++i)
        for (i64 j = 0; j < columns; ++j) at[i * c.row + c.offset(column + j)] = aside[i * full + j];
}

// These rows and columns of a product. A piece of B, as wide as fits, is packed; the rows of A are packed some at a
// time. Where these rows fit into one tile, B is read once, so that it is packed only where it must be, vectors at a time.
template <typename T>
void part(const Kernels<T> &kernels, const Product<T> &p, Range rows, Range columns) {
    thread_local const Scratch<T> scratch;
    const i64 panel = 2 * kernels.lanes, groups = (rows.size() + kernels.rows - 1) / kernels.rows;
    const i64 wide = groups == 1 ? panel : B_BYTES / i64(sizeof(T)) / PIECE;
    for (i64 left = columns.begin; left < columns.end; left += wide) {
        const Range block{left, std::min(left + wide, columns.end)};
        for (i64 k = 0; k < p.depth; k += PIECE) {
            const i64 depth = std::min(PIECE, p.depth - k);
            i64 pitch = panel;
            const T *direct = groups == 1 && block.size() == panel ? p.b->side_by_side(left, k, pitch) : nullptr;
            if (!direct) {
                pitch = panel;
                for (i64 j = block.begin; j < block.end; j += panel)
                    p.b->pack(kernels, scratch.b() + (j - left) * PIECE, panel, j, std::min(panel, block.end - j), k, depth);
            }
            for (i64 i = rows.begin, g = groups; g > 0; --g) {
                const i64 now = (rows.end - i + g - 1) / g;
                p.a->pack(kernels, scratch.a(), now, i, now, k, depth);
                for (i64 j = block.begin; j < block.end; j += panel) {
                    const T *b = direct ? direct : scratch.b() + (j - left) * PIECE;
                    finish(kernels, Tile<T>{depth, scratch.a(), b, pitch, nullptr, 0, k > 0}, p.c, i, now, j,
                           std::min(panel, block.end - j), scratch.tile());
                }
                i += now;
            }
        }
    }
}

template <typename T>
void clear(const Product<T> &p) {
    for (i64 i = 0; i < p.rows; ++i)
        for (i64 j = 0; j < p.columns; ++j) p.c.at[i * p.c.row + p.c.offset(j)] = 0;
}

// Into how many parts rows and columns are cut so that `parts` threads have equal shares and pack little twice.
struct Grid {
    i64 rows, columns;
};

template <typename T>
Grid grid_of(const Product<T> &p, i64 parts, const Kernels<T> &kernels) {
    Grid best{1, 1};
    const i64 tiles = (p.rows + kernels.rows - 1) / kernels.rows;
    const i64 panels = (p.columns + 2 * kernels.lanes - 1) / (2 * kernels.lanes);
    i64 least = tiles * panels;
    for (i64 r = 1; r <= std::min(parts, tiles); ++r) {
        const i64 c = std::min(parts / r, panels);
        const i64 longest = ((tiles + r - 1) / r) * ((panels + c - 1) / c);
        if (longest < least) best = {r, c}, least = longest;
    }
    return best;
}

}  // namespace

template <typename T>
void multiply(const std::vector<Product<T>> &products, int threads, int level) {
    const Kernels<T> &kernels = kernels_of<T>(level);
    struct Part {
        const Product<T> *product;
        Range rows, columns;
    };
    double work = 0;
    for (const Product<T> &p : products) work += double(p.rows) * double(p.columns) * double(p.depth);
    const i64 count = i64(products.size());
    const i64 team = std::max<i64>(1, std::min<i64>(threads, i64(std::min(work / ENOUGH, 1e6))));
    std::vector<Part> parts;
    for (const Product<T> &p : products) {
        if (!p.rows || !p.columns) continue;
        if (!p.depth) {
            clear(p);
            continue;
        }
        const Grid grid = grid_of(p, (team + count - 1) / count, kernels);
        const i64 panel = 2 * kernels.lanes, panels = (p.columns + panel - 1) / panel;
        for (i64 r = 0; r < grid.rows; ++r)
            for (i64 c = 0; c < grid.columns; ++c)
                parts.push_back({&p,
                                 {p.rows * r / grid.rows, p.rows * (r + 1) / grid.rows},
                                 {panels * c / grid.columns * panel,
                                  std::min(p.columns, panels * (c + 1) / grid.columns * panel)}});
    }
    const i64 n = i64(parts.size());
#pragma omp parallel num_threads(int(std::min(team, n))) if (std::min(team, n) > 1)
    {
        const DefaultEnvironment environment;
#pragma omp for schedule(dynamic, 1)
        for (i64 i = 0; i < n; ++i) part(kernels, *parts[i].product, parts[i].rows, parts[i].columns);
    }
}

template void multiply(const std::vector<Product<float>> &, int, int);
template void multiply(const std::vector<Product<double>> &, int, int);

namespace {

template <typename T>
i64 step(const py::array &x, py::ssize_t dim) {
    return x.strides(dim) / i64(sizeof(T));
}

// Where the matrix of batch `number` begins, for the batches of an array (..., rows, columns) in row-major order.
template <typename T>
i64 batch_at(const py::array &x, i64 number) {
    i64 at = 0;
    for (py::ssize_t dim = x.ndim() - 3; dim >= 0; number /= x.shape(dim--)) at += number % x.shape(dim) * step<T>(x, dim);
    return at;
}

// c (..., rows, columns) of a (..., rows, depth) and b (..., depth, columns), strided as they like. Types and shapes are
// checked in kernels/contract/operands.py.
template <typename T>
void matmul(const py::array &a, const py::array &b, py::array &c, int threads, int level) {
    const py::ssize_t row = c.ndim() - 2, column = c.ndim() - 1;
    i64 batches = 1;
    for (py::ssize_t dim = 0; dim < row; ++dim) batches *= c.shape(dim);
    std::vector<Lines<T>> as, bs;
    std::vector<Product<T>> products;
    as.reserve(batches), bs.reserve(batches), products.reserve(batches);
    for (i64 i = 0; i < batches; ++i) {
        as.emplace_back(static_cast<const T *>(a.data()) + batch_at<T>(a, i), step<T>(a, row), step<T>(a, column));
        bs.emplace_back(static_cast<const T *>(b.data()) + batch_at<T>(b, i), step<T>(b, column), step<T>(b, row));
        T *at = static_cast<T *>(c.mutable_data()) + batch_at<T>(c, i);
        products.push_back({c.shape(row), c.shape(column), a.shape(column), &as.back(), &bs.back(),
                            {at, step<T>(c, row), step<T>(c, column), nullptr}});
    }
    py::gil_scoped_release release;
    multiply(products, threads, level);
}

}  // namespace
}  // namespace contract

void register_contract(py::module_ &m) {
    m.def(
        "contract_matmul",
        [](const py::array &a, const py::array &b, py::array &c, int threads, int level) {
            threads = threads > 0 ? threads : omp_get_max_threads();
            level = contract::checked_level(level);
            if (c.itemsize() == sizeof(double))
                contract::matmul<double>(a, b, c, threads, level);
            else
                contract::matmul<float>(a, b, c, threads, level);
        },
        py::arg("a"), py::arg("b"), py::arg("c"), py::arg("threads"), py::arg("level") = -1);
    py::dict known;
    py::list levels;
    for (int k = 0; k < levels_here(); ++k) levels.append(LEVEL_NAMES[k]);
    known["levels"] = levels;
    known["piece"] = contract::PIECE;
    m.attr("CONTRACT") = known;
    register_contract_conv(m);
}
