// Exact sums held as a few float64 numbers: for several contributions of a rank, and for the messages of a
// schedule (kernels/allreduce/accumulate.py, execution/handover.py). Numbers are added by cascades of TwoSum, whose errors
// are numbers again, so that nothing is ever rounded (Shewchuk 1997).
//
// Two layouts. Rows (PARTS, n), as many as are needed, for the contributions of a rank: `expand`. Words (n, width) side
// by side, which schedules move: `load`, `merge` and `store`. If the numbers do not suffice, `expand` returns the rest
// with its place, and a word becomes a marked NaN, which stays one (cascade.hpp).
#include "cascade.hpp"
#include "kernels.hpp"

namespace {

constexpr std::size_t PARTS = EXACT_PARTS;  // rows of `expand`
constexpr std::size_t MOST_WIDTH = 3;  // words of `merge`
constexpr double LARGE = 0x1p1000;     // sums of 2^23 smaller numbers are finite

using Rows = double (*)[BLOCK];

// Numbers as they are, or narrow ones as float32, in `room`: one cascade serves both.
inline const double *widened(const double *x, std::size_t, float *) { return x; }
inline const float *widened(const float *x, std::size_t, float *) { return x; }

template <typename Narrow>
FPNA_CLONES const float *widened(const Narrow *x, std::size_t n, float *room) {
    for (std::size_t i = 0; i < n; ++i) room[i] = widen(x[i]);
    return room;
}

// ---------------------------------------------------------------- rows

// Adds x to the first R rows; `rest` gets the remainders. Returns whether there are any.
template <int R, typename Number>
FPNA_CLONES bool push(const Number *x, std::size_t n, Rows row, double *rest) {
    long long any = 0;
    for (std::size_t i = 0; i < n; ++i) {
        double v = x[i];
        for (int p = 0; p < R; ++p) {
            const double sum = row[p][i] + v;
            v = error_of(row[p][i], v, sum);
            row[p][i] = sum;
        }
        rest[i] = v;
        any |= v == 0 ? 0 : 1;
    }
    return any;
}

template <typename Number>
bool push(int rows, const Number *x, std::size_t n, Rows row, double *rest) {
    switch (rows) {
        case 0: return push<0>(x, n, row, rest);
        case 1: return push<1>(x, n, row, rest);
        case 2: return push<2>(x, n, row, rest);
        case 3: return push<3>(x, n, row, rest);
        default: return push<PARTS>(x, n, row, rest);
    }
}

// Whether some are NaN, infinite, or so large that a sum might overflow.
template <typename Number>
FPNA_CLONES bool some_large(const Number *x, std::size_t n) {
    long long any = 0;
    for (std::size_t i = 0; i < n; ++i) any |= std::fabs(x[i]) < LARGE ? 0 : 1;
    return any;
}

// Adds the rows of x (k, n) to the first `used` rows of parts (PARTS, n); other rows are not read. Returns how many are
// then in use, at least one.
template <typename Number>
int expand(const Number *x, std::size_t k, std::size_t n, double *parts, int used, Beside &beside) {
    alignas(64) double row[PARTS][BLOCK], rest[BLOCK], small[BLOCK];
    alignas(64) float room[BLOCK];
    const int before = used;
    for (std::size_t from = 0; from < n; from += BLOCK) {
        const std::size_t count = std::min(BLOCK, n - from);
        int rows = before;
        for (int p = 0; p < rows; ++p) std::copy_n(parts + p * n + from, count, row[p]);
        for (std::size_t q = 0; q < k; ++q) {
            const auto *next = widened(x + q * n + from, count, room);
            bool any;
            if (some_large(next, count)) {
                for (std::size_t i = 0; i < count; ++i) {
                    small[i] = next[i];
                    if (std::fabs(small[i]) < LARGE) continue;
                    beside.add(from + i, small[i]);
                    small[i] = 0;
                }
                any = push(rows, small, count, row, rest);
            } else {
                any = push(rows, next, count, row, rest);
            }
            if (!any) continue;
            if (rows < int(PARTS))
                std::copy_n(rest, count, row[rows++]);
            else
                for (std::size_t i = 0; i < count; ++i)
                    if (rest[i] != 0) beside.add(from + i, rest[i]);
        }
        for (; used < rows; ++used) std::fill_n(parts + used * n, from, 0.0);
        for (int p = 0; p < rows; ++p) std::copy_n(row[p], count, parts + p * n + from);
        for (int p = rows; p < used; ++p) std::fill_n(parts + p * n + from, count, 0.0);
    }
    if (used) return used;
    std::fill_n(parts, n, 0.0);
    return 1;
}

// ---------------------------------------------------------------- single elements

// Splits the sum in `words` into `width` numbers, each the rounded rest of the ones before. Returns whether they
// suffice; if not, marks the first. The words are used up.
bool split(long long *words, int width, double *out) {
    long long room[CHUNKS];
    std::fill_n(out, width, 0.0);
    if (words[NOT_A_NUMBER] || words[PLUS_INF] || words[MINUS_INF]) {
        out[0] = round_words<double>(words, room);
        return true;
    }
    for (int p = 0; p < width; ++p) {
        out[p] = round_words<double>(words, room);
        if (out[p] == 0) return true;
        if (!std::isfinite(out[p])) break;
        deposit(words, -out[p]);
    }
    if (std::isfinite(out[width - 1]) && round_words<double>(words, room) == 0) return true;
    std::fill_n(out, width, 0.0);
    out[0] = mark(double());
    return false;
}

// The sum of a few numbers as `width` of them, which depend on the sum alone; marked if one of them is.
void gather(const double *x, int count, int width, double *out) {
    long long words[WORDS] = {};
    for (int i = 0; i < count; ++i) {
        if (is_mark(x[i])) {
            std::fill_n(out, width, 0.0);
            out[0] = x[i];
            return;
        }
        deposit(words, x[i]);
    }
    split(words, width, out);
}

// ---------------------------------------------------------------- words

struct Sums {
    alignas(64) double row[MOST_WIDTH][BLOCK];
    alignas(64) long long unsure[BLOCK];
};

template <int W>
inline __attribute__((always_inline)) void take(const double *x, std::size_t n, Rows row) {
    for (std::size_t i = 0; i < n; ++i)
        for (int p = 0; p < W; ++p) row[p][i] = x[W * i + p];
}

// row += next. Row and next may change places, so that ranks that add in either order mark the same elements.
template <int W>
FPNA_CLONES bool merge_rows(Rows row, const double *next, std::size_t n, long long *unsure) {
    long long any = 0;
    for (std::size_t i = 0; i < n; ++i) {
        double s[W], e[W];
        for (int p = 0; p < W; ++p) {
            const double a = row[p][i], b = next[W * i + p];
            s[p] = a + b;
            e[p] = error_of(a, b, s[p]);
        }
        long long left = 0;
        for (int p = 0; p < W; ++p) {
            double v = e[p];
            for (int q = p + 1; q < W; ++q) {
                const double sum = s[q] + v;
                v = error_of(s[q], v, sum);
                s[q] = sum;
            }
            left |= v == 0 ? 0 : 1;
        }
        for (int p = 0; p + 1 < W; ++p) {
            const double sum = s[p] + s[p + 1];
            s[p + 1] = error_of(s[p], s[p + 1], sum);
            s[p] = sum;
        }
        unsure[i] = left;
        any |= left;
        // If something is left, the old numbers are still needed.
        for (int p = 0; p < W; ++p) row[p][i] = left ? row[p][i] : s[p];
    }
    return any;
}

template <int W>
void merge(const double *const *x, std::size_t sources, std::size_t n, double *out) {
    Sums sums;
    for (std::size_t from = 0; from < n; from += BLOCK) {
        const std::size_t count = std::min(BLOCK, n - from);
        take<W>(x[0] + W * from, count, sums.row);
        for (std::size_t q = 1; q < sources; ++q) {
            const double *next = x[q] + W * from;
            if (!merge_rows<W>(sums.row, next, count, sums.unsure)) continue;
            for (std::size_t i = 0; i < count; ++i) {
                if (!sums.unsure[i]) continue;
                double both[2 * W], sum[W];
                for (int p = 0; p < W; ++p) both[p] = sums.row[p][i];
                std::copy_n(next + W * i, W, both + W);
                gather(both, 2 * W, W, sum);
                for (int p = 0; p < W; ++p) sums.row[p][i] = sum[p];
            }
        }
        for (std::size_t i = 0; i < count; ++i)
            for (int p = 0; p < W; ++p) out[W * (from + i) + p] = sums.row[p][i];
    }
}

template <int W, typename Number>
FPNA_CLONES bool push_row(const Number *x, std::size_t n, Sums &to) {
    long long any = 0;
    for (std::size_t i = 0; i < n; ++i) {
        double v = x[i];
        for (int p = 0; p < W; ++p) {
            const double sum = to.row[p][i] + v;
            v = error_of(to.row[p][i], v, sum);
            to.row[p][i] = sum;
        }
        to.unsure[i] |= v == 0 ? 0 : 1;
        any |= to.unsure[i];
    }
    return any;
}

// The rows of x (k, n) as words; `marks`: x was made by `expand`, and its marks stay.
template <int W, typename Number>
void load(const Number *x, std::size_t k, std::size_t n, double *out, bool marks) {
    Sums sums;
    alignas(64) float room[BLOCK];
    for (std::size_t from = 0; from < n; from += BLOCK) {
        const std::size_t count = std::min(BLOCK, n - from);
        for (int p = 0; p < W; ++p) std::fill_n(sums.row[p], count, 0.0);
        std::fill_n(sums.unsure, count, 0);
        bool any = false;
        for (std::size_t q = 0; q < k; ++q) any = push_row<W>(widened(x + q * n + from, count, room), count, sums);
        if (any)
            for (std::size_t i = 0; i < count; ++i) {
                if (!sums.unsure[i]) continue;
                double sum[W] = {};
                long long words[WORDS] = {};
                bool marked = false;
                deposit_all(words, k, [&](std::size_t q) {
                    const double v = widen(x[q * n + from + i]);
                    marked |= marks && is_mark(v);
                    return v;
                });
                if (marked)
                    sum[0] = mark(double());
                else
                    split(words, W, sum);
                for (int p = 0; p < W; ++p) sums.row[p][i] = sum[p];
            }
        for (std::size_t i = 0; i < count; ++i)
            for (int p = 0; p < W; ++p) out[W * (from + i) + p] = sums.row[p][i];
    }
}

template <int W, typename Float>
void store(const double *words, std::size_t n, Float *out) {
    Sums sums;
    const double *rows[W];
    for (int p = 0; p < W; ++p) rows[p] = sums.row[p];
    for (std::size_t from = 0; from < n; from += BLOCK) {
        const std::size_t count = std::min(BLOCK, n - from);
        take<W>(words + W * from, count, sums.row);
        exact_sum(rows, W, count, out + from, true);
    }
}

// ---------------------------------------------------------------- arrays

template <typename Function>
void with_width(std::size_t width, const Function &function) {
    switch (width) {
        case 1: return function(std::integral_constant<int, 1>());
        case 2: return function(std::integral_constant<int, 2>());
        case 3: return function(std::integral_constant<int, 3>());
        default: throw std::invalid_argument("a sum has one to three words");
    }
}

}  // namespace

int exact_expand(const Array &x, array<double> parts, int used, Beside &beside) {
    const std::size_t n = parts.shape(1), k = x.shape(0);
    if (parts.shape(0) != PARTS || std::size_t(x.size()) != k * n || used < 0 || used > int(PARTS))
        throw std::invalid_argument("parts must be (4, n) for contributions (k, n), of which 0 to 4 are used");
    double *to = parts.mutable_data();
    with_type_of(x, [&](auto zero) { used = expand(pointer<decltype(zero)>(x), k, n, to, used, beside); }, "contributions");
    return used;
}

int exact_expand_words(array<long long> words, array<double> parts, Beside &beside) {
    const std::size_t n = parts.shape(1);
    if (parts.shape(0) != PARTS || std::size_t(words.size()) != n * WORDS)
        throw std::invalid_argument("parts must be (4, n) for words (n, 70)");
    const long long *from = words.data();
    double *to = parts.mutable_data();
    int used = 1;
    for (std::size_t i = 0; i < n; ++i, from += WORDS) {
        long long w[WORDS];
        double part[PARTS];
        std::copy_n(from, WORDS, w);
        carry(w);
        if (!split(w, PARTS, part) || !std::isfinite(part[0])) {
            std::fill_n(part, PARTS, 0.0);
            beside.add(i, 0);
        }
        for (std::size_t p = 0; p < PARTS; ++p) {
            to[p * n + i] = part[p];
            if (part[p] != 0 && int(p) >= used) used = p + 1;
        }
    }
    return used;
}

std::vector<long long> exact_marked(const Array &x) {
    std::vector<long long> places;
    with_type_of(x, [&](auto zero) {
        const auto *from = pointer<decltype(zero)>(x);
        const std::size_t n = x.size();
        for (std::size_t begin = 0; begin < n; begin += BLOCK) {
            const std::size_t end = std::min(n, begin + BLOCK);
            bool any = false;
            for (std::size_t i = begin; i < end; ++i) any |= is_mark(from[i]);
            for (std::size_t i = begin; any && i < end; ++i)
                if (is_mark(from[i])) places.push_back((long long)i);
        }
    }, "a total");
    return places;
}

void expansion_load(const Array &x, std::size_t width, array<double> words, bool marks) {
    const std::size_t k = x.shape(0), n = words.size() / width;
    if (std::size_t(x.size()) != k * n || n * width != std::size_t(words.size()))
        throw std::invalid_argument("there must be `width` words per element");
    double *to = words.mutable_data();
    with_type_of(x, [&](auto zero) {
        const auto *from = pointer<decltype(zero)>(x);
        with_width(width, [&](auto w) { load<decltype(w)::value>(from, k, n, to, marks); });
    }, "contributions");
}

void expansion_sum(const Sources &sources, std::size_t width, array<double> out) {
    const auto x = sources_of<double>(sources, out.size());
    double *to = out.mutable_data();
    with_width(width, [&](auto w) { merge<decltype(w)::value>(x.data(), x.size(), out.size() / width, to); });
}

void expansion_store(array<double> words, std::size_t width, const Array &total) {
    const std::size_t n = total.size();
    if (std::size_t(words.size()) != n * width) throw std::invalid_argument("there must be `width` words per element");
    with_type_of(total, [&](auto zero) {
        auto *to = mutable_pointer<decltype(zero)>(total);
        with_width(width, [&](auto w) { store<decltype(w)::value>(words.data(), n, to); });
    }, "the total");
}

double exact_mark() { return mark(double()); }
