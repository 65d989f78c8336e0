// Products of matrices whose bits depend on the contracted length alone (kernels/contract has their guarantees).
//
// An element of the result is a chain: fused multiply-adds, k ascending, from +0.0, in pieces of PIECE; the pieces are
// added in order. A product over blocks has a chain for each block, and a tree adds these; its zeros have no sign, like
// those of an all-reduce. The places of operands, their packing, the tile of an element, the width of vectors and the
// threads affect speed alone, since a lane holds one element and no operation joins lanes.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "arrays.hpp"
#include "contract_tree.hpp"

namespace contract {

constexpr i64 PIECE = 256;
constexpr i64 SUMS = 16;  // partial sums of a row: sum t has the terms t, t + SUMS, ...
constexpr i64 LOOK = 8;  // terms between the multiplied and the prefetched ones
constexpr i64 MOST_ROWS = 16, MOST_LANES = 16;  // of a tile, of a vector
constexpr i64 SLOT = MOST_ROWS * 2 * MOST_LANES;    // elements of a tile
constexpr i64 PITCH = PIECE + MOST_LANES;  // from row to row of packed rows: not a power of two, for the caches

// c[i * c_pitch + j] = the chain over depth terms from k = first of a[i][a_at[k]] * b[b_at[k] + j], added to c if it goes
// `on`. With `even` steps these are a[0][i * a_line + k * a_step] * b[k * b_step + j], which takes fewer loads. Then
// left[i * left_pitch + j] is added from the left, then left[i * left_pitch + j - SLOT], and so on, `joins` times; no
// zero then has a sign
template <typename T>
struct Tile {
    i64 depth;
    const T *const *a;
    const i64 *a_at;
    const T *b;
    const i64 *b_at;  // LOOK more than depth
    i64 ahead;        // elements between those of b that are read LOOK terms later and the prefetched ones
    bool even = false;
    i64 a_line = 0, a_step = 0, b_step = 0, first = 0;
    T *c = nullptr;
    i64 c_pitch = 0;
    bool on = false, raw = false;  // raw: a NaN keeps its sign and payload
    bool looks = false;            // for a NaN among the results
    const T *left = nullptr;
    i64 left_pitch = 0, joins = 0;
};

// The kernels of one instruction set for one type.
template <typename T>
struct Kernels {
    i64 lanes, rows;  // of a vector; at most of a tile
    bool (*tile)(const Tile<T> &, i64 rows, i64 vectors);  // 1 or 2 vectors of columns; whether it saw a NaN
    // to[k * width + i] = from[i * stride + k] for i < count <= width, others 0; writes up to `lanes` elements beyond
    void (*transpose)(T *to, i64 width, const T *from, i64 stride, i64 count, i64 depth);
    // to[i * to_row + j] += from[i * row + j] for i < rows, j < columns; no zero then has a sign
    void (*add)(T *to, i64 to_row, const T *from, i64 row, i64 rows, i64 columns);
    // sums[j] = sums[j] + from[j] + from[row + j] + ... from the left, over `rows` rows
    void (*add_rows)(T *sums, i64 n, const T *from, i64 row, i64 rows);
    // sums[i] = sums[i] + from[i][0] + from[i][1] + ... from the left, i < count <= lanes, over `terms` terms
    void (*add_lines)(T *sums, i64 count, const T *const *from, i64 terms);
};

int checked_level(int level);  // -1: the best here; throws std::invalid_argument for one that this processor lacks
template <typename T>
const Kernels<T> &kernels_of(int level);

// 0, step, 2 step, ...: the places of elements that are `step` apart.
class Multiples {
public:
    const i64 *of(i64 step) {
        if (step != step_)
            for (i64 k = 0; k < PIECE + LOOK; ++k) at_[k] = k * step;
        step_ = step;
        return at_;
    }

private:
    i64 step_ = 0, at_[PIECE + LOOK] = {};
};

// The memory that a thread packs into; kept between calls.
template <typename T>
class Scratch {
public:
    static constexpr i64 B_BYTES = 1 << 19;  // of a packed piece of B: half of a second-level cache
    static constexpr i64 PANELS = B_BYTES / i64(sizeof(T)) / PIECE / 4;  // of two vectors of 2 lanes or more

    Scratch();
    ~Scratch();
    Scratch(const Scratch &) = delete;
    Scratch &operator=(const Scratch &) = delete;

    T *b, *a, *tile;  // pieces of columns, of rows; a tile
    const T *rows[MOST_ROWS];
    Multiples a_at, b_at;
    i64 a_line, a_step, b_step;  // of the last rows and panel if these are even (Operand::even)
};

// One factor of a product: lines along k, taken one by one (as rows) or side by side (as columns).
template <typename T>
class Operand {
public:
    virtual ~Operand() = default;
    // Whether `rows` and `panel` set the steps of their lines and terms in `scratch`.
    virtual bool even() const { return false; }
    // Sets scratch.rows to the lines first ... first + count - 1. Returns the places of elements k0 + k in any line,
    // for k < depth. `again`: they will be read more than once, so that packing them into scratch.a may pay.
    virtual const i64 *rows(Scratch<T> &scratch, i64 first, i64 count, i64 k0, i64 depth, bool again) const = 0;
    // Returns a pointer from which line first + j lies at at[k] + j, for j < width; lines from `count` on have any
    // elements. Packs into `to`, which has room for depth * width + lanes elements, if it must, or if they are read
    // `again` and would crowd a few sets of the cache. `at` has LOOK more places than depth; the last ones may be anywhere.
    virtual const T *panel(const Kernels<T> &, Scratch<T> &scratch, T *to, i64 width, i64 first, i64 count, i64 k0, i64 depth,
                           bool again, const i64 *&at) const = 0;
};

// Lines of a matrix in memory: element k of line i at i * line + k * along.
template <typename T>
class Lines final : public Operand<T> {
public:
    Lines(const T *at, i64 line, i64 along) : at_(at), line_(line), along_(along) {}
    const i64 *rows(Scratch<T> &, i64 first, i64 count, i64 k0, i64 depth, bool again) const override;
    const T *panel(const Kernels<T> &, Scratch<T> &, T *to, i64 width, i64 first, i64 count, i64 k0, i64 depth, bool again,
                   const i64 *&at) const override;
    bool even() const override { return true; }

private:
    const T *at_;
    i64 line_, along_;
};

constexpr i64 NOWHERE = INT64_MIN;  // a column of no use, which is dropped

// The places of the elements of the result: in a row at `columns`, or a step apart.
template <typename T>
struct Result {
    T *at;
    i64 row, column;
    const i64 *columns;  // some of them NOWHERE; null: multiples of `column`

    i64 offset(i64 j) const { return columns ? columns[j] : j * column; }
};

template <typename T>
struct Product {
    i64 rows, columns, depth;
    const Operand<T> *a, *b;  // lines of a: rows; of b: columns
    Result<T> c;
    std::vector<i64> ends;  // of the blocks of depth; none: it is one
};

// Computes all of these with that many threads.
template <typename T>
void multiply(const std::vector<Product<T>> &products, int threads, int level);

}  // namespace contract
