// Attention: blocks of queries, threads, and the functions for Python (docs/explanation/contract.md has the sums).
#include "contract_attention.hpp"
#include "kernels.hpp"

#include <omp.h>

#include <algorithm>
#include <cstring>
#include <new>
#include <stdexcept>


namespace contract {
namespace {

constexpr i64 BLOCK = 64;  // queries whose scores are held at once; divides PIECE

// A matrix in memory: element (i, j) at i * row + j * column.
template <typename T>
struct Matrix {
    T *at;
    i64 row, column;
};

// Memory that a thread keeps between calls, aligned to lines of the cache.
template <typename T>
class Room {
public:
    ~Room() { release(); }
    T *of(i64 elements) {
        if (elements > size_) {
            release();
            at_ = static_cast<T *>(::operator new(elements * sizeof(T), std::align_val_t(64)));
            size_ = elements;
        }
        return at_;
    }

private:
    void release() { ::operator delete(at_, std::align_val_t(64)); }
    T *at_ = nullptr;
    i64 size_ = 0;
};

i64 rounded_up(i64 n, i64 to) { return (n + to - 1) / to * to; }

// Sizes that all heads share: `queries` and `keys` are numbers of rows, `depth` is the width of q and k, `width` that
// of v.
template <typename T>
struct Sizes {
    i64 queries, keys, depth, width;
    bool causal;
    T scale;
    const RowKernels<T> &kernels;
    const Kernels<T> &tiles;

    i64 panel() const { return 2 * kernels.lanes; }
    i64 pitch() const { return rounded_up(keys, 2 * SUMS) + SUMS; }  // of scores; not a power of two
    i64 padded(i64 columns) const { return rounded_up(columns, kernels.lanes); }
    i64 seen(i64 query) const { return causal ? std::min(keys, query + 1) : keys; }  // keys, by a query
};

// Rows of whole vectors: the matrix itself, or a copy with zeros behind its columns.
template <typename T>
Matrix<const T> in_vectors(const Sizes<T> &of, Room<T> &room, const Matrix<const T> &x, i64 rows, i64 columns) {
    const i64 pitch = of.padded(columns);
    if (x.column == 1 && pitch == columns) return x;
    T *to = room.of(rows * pitch);
    for (i64 i = 0; i < rows; ++i)
        for (i64 j = 0; j < pitch; ++j) to[i * pitch + j] = j < columns ? x.at[i * x.row + j * x.column] : T(0);
    return {to, pitch, 1};
}

// Panels of a transposed matrix: element k of row p * panel + j at p * panel * depth + k * panel + j.
template <typename T>
const T *in_panels(const Sizes<T> &of, Room<T> &room, const Matrix<const T> &x, i64 rows, i64 depth) {
    const i64 panel = of.panel();
    T *to = room.of(rounded_up(rows, panel) * depth + MOST_LANES);
    for (i64 j = 0; j < rows; j += panel) {
        const i64 count = std::min(panel, rows - j);
        const T *from = x.at + j * x.row;
        if (x.column == 1) {
            of.tiles.transpose(to + j * depth, panel, from, x.row, count, depth);
            continue;
        }
        for (i64 k = 0; k < depth; ++k)
            for (i64 i = 0; i < panel; ++i) to[j * depth + k * panel + i] = i < count ? from[i * x.row + k * x.column] : T(0);
    }
    return to;
}

// Chains for all columns of some rows, in vectors.
template <typename T>
void across(const Sizes<T> &of, Chains<T> chains, i64 rows, i64 columns) {
    for (i64 j = 0; j < columns; j += of.panel(), chains.b += of.panel(), chains.c += of.panel())
        of.kernels.chains(chains, rows, columns - j > of.kernels.lanes ? 2 : 1);
}

// Calls some(first, count) for groups of rows that fit into tiles, as equal as possible.
template <typename T, typename Some>
void in_groups(const Sizes<T> &of, i64 first, i64 rows, const Some &some) {
    for (i64 left = (rows + of.kernels.rows - 1) / of.kernels.rows; left > 0; --left) {
        const i64 count = (rows + left - 1) / left;
        some(first, count);
        first += count;
        rows -= count;
    }
}

// scores[i - first][j] = the product of row i of x and row j of the panels, for the keys that are seen.
template <typename T>
void products(const Sizes<T> &of, const Matrix<const T> &x, const T *panels, i64 depth, i64 first, i64 rows, T *scores) {
    const i64 panel = of.panel(), pitch = of.pitch();
    in_groups(of, first, rows, [&](i64 i, i64 count) {
        for (i64 j = 0, seen = of.seen(i + count - 1); j < seen; j += panel) {
            i64 k = 0;
            do {
                const i64 end = std::min(k + PIECE, depth);
                of.kernels.chains({x.at + i * x.row, x.row, x.column, panels + j * depth, panel,
                                   scores + (i - first) * pitch + j, pitch, k, k, end, end, 0, k ? Begin::add : Begin::zero},
                                  count, seen - j > of.kernels.lanes ? 2 : 1);
            } while ((k += PIECE) < depth);
        }
    });
}

// sums[i - first] = the sum over the keys j that i sees of scores[i - first][j] times row j of y.
template <typename T>
void over_keys(const Sizes<T> &of, const T *scores, const Matrix<const T> &y, i64 columns, i64 first, i64 rows, T *sums) {
    const i64 pitch = of.pitch(), width = of.padded(columns);
    in_groups(of, first, rows, [&](i64 i, i64 count) {
        const i64 last = of.seen(i + count - 1);
        i64 k = 0;
        do {
            const i64 end = std::min(k + PIECE, last), till = std::clamp(of.seen(i), k, end);
            across(of, {scores + (i - first) * pitch, pitch, 1, y.at, y.row, sums + (i - first) * width, width, k, k, till,
                        end, i, k ? Begin::add : Begin::zero},
                   count, width);
        } while ((k += PIECE) < last);
    });
}

// A sum for each key over queries, which come in blocks, in pieces.
template <typename T>
class OverQueries {
public:
    OverQueries(const Sizes<T> &of, i64 columns, Room<T> &room) : of_(of), width_(of.padded(columns)) {
        const i64 elements = of.keys * width_;
        total_ = room.of(2 * elements);
        piece_ = total_ + elements;
        std::memset(total_, 0, 2 * elements * sizeof(T));
    }

    // Row j of the sums grows by scores[i - first][j] times row i of y, for the queries i of a block that see j.
    void add(const T *scores, const Matrix<const T> &y, i64 first, i64 rows) {
        const i64 pitch = of_.pitch(), end = first + rows;
        in_groups(of_, 0, of_.seen(end - 1), [&](i64 j, i64 count) {
            const i64 begin = of_.causal ? std::max<i64>(0, j - first) : 0;  // in the block
            const i64 from = of_.causal ? std::clamp(j + count - 1 - first, begin, rows) : 0;
            across(of_, {scores + j, 1, pitch, y.at + first * y.row, y.row, piece_ + j * width_, width_, begin, from, rows,
                         rows, j - first, Begin::resume},
                   count, width_);
        });
        if (end % PIECE && end < of_.queries) return;
        for (i64 e = 0; e < of_.keys * width_; ++e) total_[e] += piece_[e], piece_[e] = 0;
    }

    void write(const Matrix<T> &to, i64 columns, T factor) const {
        of_.kernels.scaled(to.at, to.row, total_, width_, of_.keys, columns, &factor, 0);
    }

private:
    const Sizes<T> &of_;
    i64 width_;
    T *total_, *piece_;
};

// scale * scores + mask in place of the scores, each operation rounded.
template <typename T>
void masked(const Sizes<T> &of, const Matrix<const T> &mask, i64 first, i64 rows, T *scores) {
    for (i64 i = first; i < first + rows; ++i, scores += of.pitch()) {
        const T *more = mask.at + i * mask.row;
        for (i64 j = 0, n = of.seen(i); j < n; ++j) scores[j] = scores[j] * of.scale + more[j * mask.column];
    }
}

// A head: `mask.at` is null where there is none.
template <typename T>
struct Head {
    Matrix<const T> q, k, v, mask;
    Matrix<T> out;
    T *logs;
    // of the backward pass
    Matrix<const T> gradient;
    Matrix<T> q_gradient, k_gradient, v_gradient;
};

template <typename T>
Scores<T> scores_of(const Sizes<T> &of, const Head<T> &head, const T *panels, i64 first, T *scores) {
    const i64 rows = std::min(BLOCK, of.queries - first);
    products(of, head.q, panels, of.depth, first, rows, scores);
    if (head.mask.at) masked(of, head.mask, first, rows, scores);
    return {scores, of.pitch(), rows, of.keys, of.causal ? first : -1, head.mask.at ? T(1) : of.scale};
}

template <typename T>
void forward(const Sizes<T> &of, const Head<T> &head) {
    thread_local Room<T> panels_room, values_room, scores_room, sums_room;
    const T *panels = in_panels(of, panels_room, head.k, of.keys, of.depth);
    const Matrix<const T> values = in_vectors(of, values_room, head.v, of.keys, of.width);
    const i64 width = of.padded(of.width);
    T *scores = scores_room.of(BLOCK * of.pitch()), *sums = sums_room.of(BLOCK * width);
    T over[BLOCK] = {}, logs[BLOCK] = {};
    for (i64 first = 0; first < of.queries; first += BLOCK) {
        const Scores<T> block = scores_of(of, head, panels, first, scores);
        of.kernels.softmax(block, over, logs);
        over_keys(of, scores, values, of.width, first, block.rows, sums);
        of.kernels.scaled(head.out.at + first * head.out.row, head.out.row, sums, width, block.rows, of.width, over, 1);
        std::copy(logs, logs + block.rows, head.logs + first);
    }
}

template <typename T>
void backward(const Sizes<T> &of, const Head<T> &head) {
    thread_local Room<T> keys_room, values_room, rows_room[4], scores_room, sums_room, totals_room[2];
    const T *key_panels = in_panels(of, keys_room, head.k, of.keys, of.depth);
    const T *value_panels = in_panels(of, values_room, head.v, of.keys, of.width);
    const Matrix<const T> out = in_vectors(of, rows_room[0], {head.out.at, head.out.row, head.out.column}, of.queries, of.width);
    const Matrix<const T> gradient = in_vectors(of, rows_room[1], head.gradient, of.queries, of.width);
    const Matrix<const T> q = in_vectors(of, rows_room[2], head.q, of.queries, of.depth);
    const Matrix<const T> k = in_vectors(of, rows_room[3], head.k, of.keys, of.depth);
    const i64 width = of.padded(of.depth);
    T *scores = scores_room.of(2 * BLOCK * of.pitch()), *g = scores + BLOCK * of.pitch();
    T *sums = sums_room.of(BLOCK * width), dots[BLOCK];
    OverQueries<T> of_keys(of, of.depth, totals_room[0]), of_values(of, of.width, totals_room[1]);
    for (i64 first = 0; first < of.queries; first += BLOCK) {
        const Scores<T> block = scores_of(of, head, key_panels, first, scores);
        products(of, gradient, value_panels, of.width, first, block.rows, g);
        of.kernels.dots(dots, gradient.at + first * gradient.row, gradient.row, out.at + first * out.row, out.row, block.rows,
                        of.padded(of.width));
        of.kernels.weights(block, g, head.logs + first, dots);
        over_keys(of, g, k, of.depth, first, block.rows, sums);
        of.kernels.scaled(head.q_gradient.at + first * head.q_gradient.row, head.q_gradient.row, sums, width, block.rows,
                          of.depth, &of.scale, 0);
        of_values.add(scores, gradient, first, block.rows);
        of_keys.add(g, q, first, block.rows);
    }
    of_values.write(head.v_gradient, of.width, T(1));
    of_keys.write(head.k_gradient, of.depth, of.scale);
}

// ---- heads of arrays --------------------------------------------------------------------------------------

// The matrix of sample b and head h of an array (samples, heads, rows, columns).
template <typename T, typename Element = const T>
Matrix<Element> matrix_of(const Array &x, i64 b, i64 h) {
    constexpr i64 SIZE = sizeof(T);
    T *at = static_cast<T *>(const_cast<void *>(x.data())) + b * (x.strides(0) / SIZE) + h * (x.strides(1) / SIZE);
    return {at, x.strides(2) / SIZE, x.strides(3) / SIZE};
}

// Types, shapes and strides are checked in kernels/contract/attention.py; logsumexp (samples, heads, queries) has no gaps.
template <typename T>
void attend(const std::vector<Array> &x, const std::optional<Array> &mask, const Array &logs, double scale, bool causal,
            int threads, int level) {
    const Array &q = x[0], &k = x[1], &v = x[2], &out = x[3];
    const bool back = x.size() > 4;
    const Sizes<T> of{q.shape(2), k.shape(2), q.shape(3), v.shape(3), causal, T(scale), row_kernels_of<T>(level),
                      kernels_of<T>(level)};
    const i64 heads = q.shape(1), n = q.shape(0) * heads;
    std::vector<Head<T>> each;
    each.reserve(n);
    T *log = static_cast<T *>(const_cast<void *>(logs.data()));
    for (i64 i = 0; i < n; ++i, log += of.queries) {
        const i64 b = i / heads, h = i % heads;
        Head<T> head{matrix_of<T>(q, b, h), matrix_of<T>(k, b, h), matrix_of<T>(v, b, h), {}, matrix_of<T, T>(out, b, h), log,
                     {}, {}, {}, {}};
        if (mask) head.mask = matrix_of<T>(*mask, b, h);
        if (back) {
            head.gradient = matrix_of<T>(x[4], b, h);
            head.q_gradient = matrix_of<T, T>(x[5], b, h);
            head.k_gradient = matrix_of<T, T>(x[6], b, h);
            head.v_gradient = matrix_of<T, T>(x[7], b, h);
        }
        each.push_back(head);
    }
    const int team = int(std::min<i64>(threads, n));
#pragma omp parallel num_threads(team) if (team > 1)
    {
        const DefaultEnvironment environment;
#pragma omp for schedule(dynamic, 1)
        for (i64 i = 0; i < n; ++i) back ? backward(of, each[i]) : forward(of, each[i]);
    }
}

}  // namespace
}  // namespace contract

void contract_attention(const std::vector<Array> &arrays, const std::optional<Array> &mask, const Array &logs, double scale,
                        bool causal, int threads, int level) {
    const auto attend = logs.itemsize() == sizeof(double) ? contract::attend<double> : contract::attend<float>;
    attend(arrays, mask, logs, scale, causal, threads > 0 ? threads : omp_get_max_threads(), contract::checked_level(level));
}
