// Products of matrices: blocks, threads, and the functions for Python (see contract.hpp for the sums).
#include "contract.hpp"

#include <omp.h>

#include <algorithm>
#include <cstring>
#include <deque>
#include <new>
#include <stdexcept>

#include "kernels.hpp"
#include "levels.hpp"

namespace contract {

template <typename T>
Scratch<T>::Scratch() {
    constexpr i64 B = B_BYTES / i64(sizeof(T)) + MOST_LANES, A = MOST_ROWS * PITCH;
    b = static_cast<T *>(::operator new((B + A + MOST_ROWS * 2 * MOST_LANES) * sizeof(T), std::align_val_t(64)));
    a = b + B;
    tile = a + A;
}

template <typename T>
Scratch<T>::~Scratch() {
    ::operator delete(b, std::align_val_t(64));
}

// Whether lines so many elements apart share few sets of a first-level cache.
template <typename T>
bool crowded(i64 step) {
    return step * i64(sizeof(T)) % 512 == 0 && step * i64(sizeof(T)) > 1024;
}

template <typename T>
const i64 *Lines<T>::rows(Scratch<T> &scratch, i64 first, i64 count, i64 k0, i64 depth, bool again) const {
    const T *from = at_ + first * line_ + k0 * along_;
    if (!again || (along_ == 1 && !crowded<T>(line_))) {
        for (i64 i = 0; i < count; ++i) scratch.rows[i] = from + i * line_;
        scratch.a_line = line_, scratch.a_step = along_;
        return scratch.a_at.of(along_);
    }
    if (line_ == 1 && along_ != 1) {
        for (i64 i = 0; i < count; ++i) scratch.rows[i] = scratch.a + i;
        scratch.a_line = 1, scratch.a_step = count;
        for (i64 k = 0; k < depth; ++k) std::memcpy(scratch.a + k * count, from + k * along_, count * sizeof(T));
        return scratch.a_at.of(count);
    }
    for (i64 i = 0; i < count; ++i, from += line_) {
        T *to = scratch.a + i * PITCH;
        scratch.rows[i] = to;
        if (along_ == 1)
            std::memcpy(to, from, depth * sizeof(T));
        else
            for (i64 k = 0; k < depth; ++k) to[k] = from[k * along_];
    }
    scratch.a_line = PITCH, scratch.a_step = 1;
    return scratch.a_at.of(1);
}

template <typename T>
const T *Lines<T>::panel(const Kernels<T> &kernels, Scratch<T> &scratch, T *to, i64 width, i64 first, i64 count, i64 k0,
                         i64 depth, bool again, const i64 *&at) const {
    const T *from = at_ + first * line_ + k0 * along_;
    if (line_ == 1 && count == width && !(again && crowded<T>(along_))) {
        scratch.b_step = along_;
        at = scratch.b_at.of(along_);
        return from;
    }
    scratch.b_step = width;
    at = scratch.b_at.of(width);
    if (along_ == 1) {
        kernels.transpose(to, width, from, line_, count, depth);
        return to;
    }
    for (i64 k = 0; k < depth; ++k, from += along_) {
        T *row = to + k * width;
        if (line_ == 1)
            std::memcpy(row, from, count * sizeof(T));
        else
            for (i64 j = 0; j < count; ++j) row[j] = from[j * line_];
        for (i64 j = count; j < width; ++j) row[j] = 0;
    }
    return to;
}

namespace {

constexpr i64 ENOUGH = 1 << 18;  // products per thread that are worth waking it

struct Range {
    i64 begin, end;
    i64 size() const { return end - begin; }
};

// Columns of a panel that are neighbours in memory.
struct Segment {
    i64 first, count;  // in the panel
    i64 at;            // of the first in a row of the result
};

template <typename T>
void segments_of(const Result<T> &c, i64 column, i64 columns, std::vector<Segment> &found) {
    found.clear();
    if (!c.columns && c.column == 1) return found.push_back({0, columns, column});
    for (i64 j = 0; j < columns; ++j) {
        const i64 at = c.offset(column + j);
        if (at == NOWHERE) continue;
        if (!found.empty() && found.back().first + found.back().count == j && found.back().at + found.back().count == at)
            ++found.back().count;
        else
            found.push_back({j, 1, at});
    }
}

template <typename T>
void copy(const T *from, i64 count, T *to) {
    if (count == 1)  // often, and then a call is slow
        *to = *from;
    else
        std::memcpy(to, from, count * sizeof(T));
}

// Adds the chains of a step into a tile; returns whether a sum is NaN. Chains that wait for others lie in `slots`, whose rows are neighbours in the
// caches; a chain is joined with all that wait for it while it is in registers.
template <typename T>
bool add_chains(const Kernels<T> &kernels, Tile<T> tile, const Step &step, i64 rows, i64 vectors, T *slots, bool raw) {
    const Tile<T> whole = tile;
    tile.on = false;
    tile.left_pitch = vectors * kernels.lanes;
    bool nan = false;
    for (const Step &chain : step.chains) {
        const bool last = &chain == &step.chains.back(), block = chain.how == Store::block;
        tile.depth = chain.depth;
        tile.first = chain.first;
        tile.raw = raw && !last;
        tile.looks = raw && last;
        tile.left = slots + (block ? chain.slot : chain.slot - 1) * SLOT;
        tile.joins = chain.joins + block;
        tile.c = last ? whole.c : slots + (chain.slot - chain.joins) * SLOT;
        tile.c_pitch = last ? whole.c_pitch : tile.left_pitch;
        nan = kernels.tile(tile, rows, vectors);
    }
    return nan;
}

// Computes a tile and stores it at `tile.c` as `step.how` says. A NaN of a chain loses sign and payload before it is
// added to another, which costs time for each chain. So only the sum is searched for NaN; if one is there, all are
// added again.
template <typename T>
void compute(const Kernels<T> &kernels, Tile<T> tile, const Step &step, i64 rows, i64 vectors, T *slots) {
    const i64 full = vectors * kernels.lanes;
    if (step.chains.empty()) {
        tile.on = step.how == Store::piece;
        tile.left = tile.c;
        tile.left_pitch = tile.c_pitch;
        tile.joins = step.how == Store::block;
        kernels.tile(tile, rows, vectors);
        return;
    }
    Tile<T> sum = tile;
    if (step.how == Store::block) sum.c = slots, sum.c_pitch = full;
    if (add_chains(kernels, sum, step, rows, vectors, slots, true)) add_chains(kernels, sum, step, rows, vectors, slots, false);
    if (step.how == Store::block) kernels.add(tile.c, tile.c_pitch, slots, full, rows, full);
}

// Computes a tile of the result, directly, or in `aside` if its columns are no full vectors in memory.
template <typename T>
void finish(const Kernels<T> &kernels, Tile<T> tile, const Step &step, T *c, i64 c_row, i64 rows, i64 columns,
            const std::vector<Segment> &segments, T *aside, T *slots) {
    const i64 vectors = columns > kernels.lanes ? 2 : 1, full = vectors * kernels.lanes;
    if (segments.size() == 1 && segments[0].count == full) {
        tile.c = c + segments[0].at;
        tile.c_pitch = c_row;
        return compute(kernels, tile, step, rows, vectors, slots);
    }
    tile.c = aside;
    tile.c_pitch = full;
    if (step.how != Store::set)
        for (i64 i = 0; i < rows; ++i)
            for (const Segment &s : segments) copy(c + i * c_row + s.at, s.count, aside + i * full + s.first);
    compute(kernels, tile, step, rows, vectors, slots);
    for (i64 i = 0; i < rows; ++i)
        for (const Segment &s : segments) copy(aside + i * full + s.first, s.count, c + i * c_row + s.at);
}

// Computes these rows and columns of a product: packs a piece of B, as wide as fits, and takes the rows of A some at a
// time. If all rows fit into one tile, columns are read once, and packed a panel at a time. Sums of blocks that wait
// for others lie in `waiting`, one slot after the other.
template <typename T>
void part(const Kernels<T> &kernels, const Product<T> &p, const Order &order, Range rows, Range columns) {
    thread_local Scratch<T> scratch;
    thread_local std::vector<Segment> segments[Scratch<T>::PANELS];
    thread_local std::vector<T> slots, waiting;
    const i64 panel = 2 * kernels.lanes, groups = (rows.size() + kernels.rows - 1) / kernels.rows;
    const i64 wide = groups == 1 ? panel : Scratch<T>::B_BYTES / i64(sizeof(T)) / PIECE;
    slots.resize(std::max(slots.size(), std::size_t(order.inner_slots * SLOT)));
    waiting.resize(std::max(waiting.size(), std::size_t((order.slots - 1) * rows.size() * wide)));
    const T *panels[Scratch<T>::PANELS];
    i64 b_steps[Scratch<T>::PANELS];
    const bool even = p.a->even() && p.b->even();
    for (i64 left = columns.begin; left < columns.end; left += wide) {
        const Range block{left, std::min(left + wide, columns.end)};
        for (i64 j = left; j < block.end; j += panel)
            segments_of(p.c, j, std::min(panel, block.end - j), segments[(j - left) / panel]);
        for (const Step &step : order.steps()) {
            const i64 *b_at = nullptr;  // the same for all panels of a block
            for (i64 j = block.begin; j < block.end; j += panel) {
                panels[(j - left) / panel] = p.b->panel(kernels, scratch, scratch.b + (j - left) * PIECE, panel, j,
                                                        std::min(panel, block.end - j), step.first, step.depth, groups > 1, b_at);
                b_steps[(j - left) / panel] = scratch.b_step;
            }
            const i64 ahead = groups == 1 ? panel : 0;  // few rows wait for memory: the next panel
            T *const aside = waiting.data() + (step.slot - 1) * rows.size() * wide;
            for (i64 i = rows.begin, g = groups; g > 0; --g) {
                const i64 now = (rows.end - i + g - 1) / g;
                const i64 *a_at = p.a->rows(scratch, i, now, step.first, step.depth, block.size() > panel);
                for (i64 j = block.begin; j < block.end; j += panel) {
                    const Tile<T> tile{step.depth, scratch.rows, a_at, panels[(j - left) / panel], b_at, ahead,
                                       even, scratch.a_line, scratch.a_step, b_steps[(j - left) / panel]};
                    const i64 some = std::min(panel, block.end - j);
                    if (step.slot)
                        finish(kernels, tile, step, aside + (i - rows.begin) * wide, wide, now, panel, {{0, panel, j - left}},
                               scratch.tile, slots.data());
                    else
                        finish(kernels, tile, step, p.c.at + i * p.c.row, p.c.row, now, some, segments[(j - left) / panel],
                               scratch.tile, slots.data());
                }
                i += now;
            }
            for (i64 slot = step.slot; slot > step.slot - step.joins; --slot) {
                const T *from = waiting.data() + (slot - 1) * rows.size() * wide;
                if (slot > 1) {
                    kernels.add(waiting.data() + (slot - 2) * rows.size() * wide, wide, from, wide, rows.size(), block.size());
                    continue;
                }
                for (i64 j = block.begin; j < block.end; j += panel)
                    for (const Segment &s : segments[(j - left) / panel])
                        kernels.add(p.c.at + rows.begin * p.c.row + s.at, p.c.row, from + j - left + s.first, wide, rows.size(), s.count);
            }
        }
    }
}

template <typename T>
void clear(const Product<T> &p) {
    for (i64 i = 0; i < p.rows; ++i)
        for (i64 j = 0; j < p.columns; ++j)
            if (p.c.offset(j) != NOWHERE) p.c.at[i * p.c.row + p.c.offset(j)] = 0;
}

// The numbers of parts of rows and columns for which `parts` threads have equal shares and pack little twice.
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
        const Order *order;
        Range rows, columns;
    };
    std::deque<Order> orders;
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
        const std::vector<i64> ends = p.ends.empty() ? std::vector<i64>{p.depth} : p.ends;
        if (orders.empty() || orders.back().ends() != ends) orders.emplace_back(ends, PIECE);
        const Grid grid = grid_of(p, (team + count - 1) / count, kernels);
        const i64 panel = 2 * kernels.lanes, panels = (p.columns + panel - 1) / panel;
        for (i64 r = 0; r < grid.rows; ++r)
            for (i64 c = 0; c < grid.columns; ++c)
                parts.push_back({&p, &orders.back(),
                                 {p.rows * r / grid.rows, p.rows * (r + 1) / grid.rows},
                                 {panels * c / grid.columns * panel,
                                  std::min(p.columns, panels * (c + 1) / grid.columns * panel)}});
    }
    const i64 n = i64(parts.size());
#pragma omp parallel num_threads(int(std::min(team, n))) if (std::min(team, n) > 1)
    {
        const DefaultEnvironment environment;
#pragma omp for schedule(dynamic, 1)
        for (i64 i = 0; i < n; ++i) part(kernels, *parts[i].product, *parts[i].order, parts[i].rows, parts[i].columns);
    }
}

template class Lines<float>;
template class Lines<double>;
template void multiply(const std::vector<Product<float>> &, int, int);
template void multiply(const std::vector<Product<double>> &, int, int);

namespace {

template <typename T>
i64 step(const Array &x, i64 dim) {
    return x.strides(dim) / i64(sizeof(T));
}

// Where the matrix of batch `number` begins, for the batches of an array (..., rows, columns) in row-major order.
template <typename T>
i64 batch_at(const Array &x, i64 number) {
    i64 at = 0;
    for (i64 dim = x.ndim() - 3; dim >= 0; number /= x.shape(dim--)) at += number % x.shape(dim) * step<T>(x, dim);
    return at;
}

// c (..., rows, columns) of a (..., rows, depth) and b (..., depth, columns), strided as they like. Types and shapes are
// checked in kernels/contract/operands.py.
template <typename T>
void matmul(const Array &a, const Array &b, const Array &c, int threads, int level, const std::vector<i64> &ends) {
    const i64 row = c.ndim() - 2, column = c.ndim() - 1;
    i64 batches = 1;
    for (i64 dim = 0; dim < row; ++dim) batches *= c.shape(dim);
    std::vector<Lines<T>> as, bs;
    std::vector<Product<T>> products;
    as.reserve(batches), bs.reserve(batches), products.reserve(batches);
    for (i64 i = 0; i < batches; ++i) {
        as.emplace_back(static_cast<const T *>(a.data()) + batch_at<T>(a, i), step<T>(a, row), step<T>(a, column));
        bs.emplace_back(static_cast<const T *>(b.data()) + batch_at<T>(b, i), step<T>(b, column), step<T>(b, row));
        T *at = static_cast<T *>(c.mutable_data()) + batch_at<T>(c, i);
        products.push_back({c.shape(row), c.shape(column), a.shape(column), &as.back(), &bs.back(),
                            {at, step<T>(c, row), step<T>(c, column), nullptr}, ends});
    }
    multiply(products, threads, level);
}

}  // namespace
}  // namespace contract

void contract_matmul(const Array &a, const Array &b, const Array &c, int threads, int level,
                     const std::vector<std::int64_t> &ends) {
    const auto matmul = c.itemsize() == sizeof(double) ? contract::matmul<double> : contract::matmul<float>;
    matmul(a, b, c, threads > 0 ? threads : omp_get_max_threads(), contract::checked_level(level), ends);
}

std::vector<std::string> contract_levels() { return {LEVEL_NAMES, LEVEL_NAMES + levels_here()}; }

std::int64_t contract_piece() { return contract::PIECE; }
