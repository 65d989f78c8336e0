// Products of matrices whose bits depend on the contracted length alone (kernels/contract says what they promise).
//
// An element of the result is a chain: fused multiply-adds, k ascending, from +0.0, in pieces of PIECE; the pieces are
// added in order. Where the operands lie, how they are packed, which tile an element belongs to, the width of vectors
// and the threads decide speed alone, since a lane holds one element and no operation joins lanes.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "native.hpp"

namespace contract {

using i64 = std::int64_t;

constexpr i64 PIECE = 256;

// c[i][j] = (add ? c[i][j] : nothing) + the chain over k < depth of a[k * rows + i] * b[k * b_pitch + j]
template <typename T>
struct Tile {
    i64 depth;
    const T *a;
    const T *b;
    i64 b_pitch;
    T *c;
    i64 c_pitch;
    bool add;
};

// The kernels of one instruction set for one type.
template <typename T>
struct Kernels {
    i64 lanes, rows;  // of a vector; at most of a tile
    void (*tile)(const Tile<T> &, i64 rows, i64 vectors);  // 1 or 2 vectors of columns
    // to[k * width + i] = from[i * stride + k] for i < count <= width, others 0; writes up to `lanes` elements beyond
    void (*transpose)(T *to, i64 width, const T *from, i64 stride, i64 count, i64 depth);
};

int checked_level(int level);  // -1: the best here; std::invalid_argument for one that this processor lacks
template <typename T>
const Kernels<T> &kernels_of(int level);

// One factor of a product: lines along k, of which some neighbours are packed side by side.
template <typename T>
class Operand {
public:
    virtual ~Operand() = default;
    // to[k * width + i] = element k0 + k of line first + i, for i < count <= width and k < depth; 0 for the other i.
    // May write up to `lanes` elements beyond.
    virtual void pack(const Kernels<T> &, T *to, i64 width, i64 first, i64 count, i64 k0, i64 depth) const = 0;
    // Where element k0 of line `first` lies, if lines lie side by side; `pitch`: from one k to the next. Else null.
    virtual const T *side_by_side(i64, i64, i64 &) const { return nullptr; }
};

// Lines of a matrix in memory.
template <typename T>
class Lines final : public Operand<T> {
public:
    Lines(const T *at, i64 line, i64 along) : at_(at), line_(line), along_(along) {}
    void pack(const Kernels<T> &, T *to, i64 width, i64 first, i64 count, i64 k0, i64 depth) const override;
    const T *side_by_side(i64 first, i64 k0, i64 &pitch) const override {
        pitch = along_;
        return line_ == 1 ? at_ + first + k0 * along_ : nullptr;
    }

private:
    const T *at_;
    i64 line_, along_;
};

// Where the elements of the result lie: those of a row at `columns`, or a step apart.
template <typename T>
struct Result {
    T *at;
    i64 row, column;
    const i64 *columns;  // ascending; null: a multiple of `column`

    i64 offset(i64 j) const { return columns ? columns[j] : j * column; }
};

template <typename T>
struct Product {
    i64 rows, columns, depth;
    const Operand<T> *a, *b;  // lines of a: rows; of b: columns
    Result<T> c;
};

// All of these, by so many threads.
template <typename T>
void multiply(const std::vector<Product<T>> &products, int threads, int level);

}  // namespace contract

void register_contract(py::module_ &m);
void register_contract_conv(py::module_ &m);
