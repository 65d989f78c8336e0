// Sums of numbers by cell, over all ranks, without error (fpna.h).
//
// All ranks agree on the range of their numbers, from the place of the last bit of the smallest to the largest. A sum is
// then a few words: word k counts multiples of 2^(unit + bits k), with room for all numbers. Integers are added in any
// order, by threads and by ranks. Two more words count infinities, and NaN in both.
#include <omp.h>

#include <cmath>
#include <limits>
#include <vector>

#include "../native/integer_sums.hpp"
#include "../native/tiles.hpp"
#include "call.hpp"
#include "errors.hpp"

namespace fpna {
namespace {

constexpr int WIDEST = 50;  // bits of a word that are not kept for carries
constexpr int SPECIAL = 2;
constexpr std::int64_t NONE = -(1 << 20);  // an exponent below all others

struct Limbs {
    int unit = 0, bits = WIDEST, count = 1;
    bool special = false;

    size_t words() const { return size_t(count + (special ? SPECIAL : 0)); }
};

// What all ranks agree on, by the largest of each.
struct Seen {
    std::int64_t exponent, minus_unit, special, numbers, cells, minus_cells, refused;
};

Limbs agreed(const Seen &all, int ranks) {
    Limbs format;
    const auto numbers = (unsigned long long)(std::max<std::int64_t>(all.numbers, 1)) * (unsigned long long)(ranks);
    format.bits = std::min(WIDEST, 62 - bit_length(numbers));
    format.special = all.special;
    if (all.exponent == NONE) return format;  // zeros alone
    format.unit = int(-all.minus_unit);
    format.count = int((all.exponent - format.unit + format.bits - 1) / format.bits);
    return format;
}

// Adds a finite number to the words of its cell.
template <typename Real>
void put(Real x, const Limbs &format, std::int64_t *words) {
    using Found = Extremes<Real>;
    const auto bits = magnitude_bits(x);
    if (bits == 0) return;
    const auto hidden = typename Found::Bits(1) << (Found::DIGITS - 1);
    const auto mantissa = u128((bits & (hidden - 1)) | (bits >= hidden ? hidden : 0));
    const int place = Found::last_place(bits) - format.unit, first = place / format.bits;
    u128 rest = mantissa << (place % format.bits);  // below 2^103
    const std::int64_t sign = -std::int64_t(std::signbit(x)), mask = (std::int64_t(1) << format.bits) - 1;
    for (int k = first; rest; ++k, rest >>= format.bits) words[k] += ((std::int64_t(rest) & mask) ^ sign) - sign;
}

template <typename Real>
void add_all(size_t n, const std::int64_t *cell, std::int64_t first, const Real *x, const Limbs &format,
             std::int64_t *words) {
    const size_t each = format.words();
    for (size_t i = 0; i < n; ++i) {
        std::int64_t *own = words + size_t(cell[i] - first) * each;
        if (std::isfinite(x[i])) {
            put(x[i], format, own);
        } else {
            if (!(x[i] < 0)) own[format.count] += 1;
            if (!(x[i] > 0)) own[format.count + 1] += 1;
        }
    }
}

template <typename Real>
Real rounded(const std::int64_t *words, const Limbs &format) {
    long long wide[WORDS] = {};
    if (format.special) {
        const bool plus = words[format.count] != 0, minus = words[format.count + 1] != 0;
        wide[NOT_A_NUMBER] = plus && minus;
        wide[PLUS_INF] = plus;
        wide[MINUS_INF] = minus;
    }
    for (int k = 0; k < format.count; ++k) deposit_units(wide, words[k], format.unit + format.bits * k);
    return round_words<Real>(wide, wide);
}

template <typename Real>
Seen seen_of(size_t n, const std::int64_t *cell, std::int64_t first, const Real *x, size_t cells, int threads,
             std::string &own) {
    Seen seen = {NONE, NONE, 0, std::int64_t(n), std::int64_t(cells), -std::int64_t(cells), 0};
    for (size_t i = 0; i < n && own.empty(); ++i)
        if (cell[i] < first || size_t(cell[i] - first) >= cells)
            own = "cell " + std::to_string(cell[i]) + " of element " + std::to_string(std::int64_t(i) + first) +
                  " is not from " + std::to_string(first) + " to " + std::to_string(std::int64_t(cells) - 1 + first);
    if (own.empty() && n) {
        const auto found = extremes_of(x, std::int64_t(n), threads);
        seen.special = !found.finite();
        if (!found.empty()) {
            seen.exponent = found.exponent();
            seen.minus_unit = -found.unit();
        }
    }
    seen.refused = !own.empty();
    return seen;
}

// The words of this rank. Each thread has its own, if that takes no more memory than the numbers.
template <typename Real>
std::vector<std::int64_t> own_words(size_t n, const std::int64_t *cell, std::int64_t first, const Real *x, size_t cells,
                                    const Limbs &format, int threads) {
    const size_t all = cells * format.words();
    const bool apart = all * sizeof(std::int64_t) <= n * sizeof(Real);
    const int team = apart ? team_of(n * (sizeof(Real) + sizeof *cell), threads) : 1;
    std::vector<std::int64_t> words(all);
#pragma omp parallel num_threads(team)
    {
        const DefaultEnvironment environment;
        const size_t parts = size_t(omp_get_num_threads()), part = size_t(omp_get_thread_num());
        const size_t from = n / parts * part, to = part + 1 == parts ? n : n / parts * (part + 1);
        std::vector<std::int64_t> mine(part ? all : 0);
        add_all(to - from, cell + from, first, x + from, format, part ? mine.data() : words.data());
#pragma omp barrier
#pragma omp critical
        for (size_t k = 0; k < mine.size(); ++k) words[k] += mine[k];
    }
    return words;
}

template <typename Real>
void add(fpna_comm comm, size_t n, const std::int64_t *cell, std::int64_t first, const Real *x, size_t cells, Real *total,
         int threads, std::string own) {
    require_communicator(comm);
    agree({Of::SCATTER_ADD, letter_of<Real>(1)}, "", comm);
    if (n && (!cell || !x)) own = std::string(cell ? "x" : "cell") + " is NULL, and n is " + std::to_string(n);
    if (cells && !total) own = "total is NULL";
    if (threads < 0) own = "threads is " + std::to_string(threads) + ": 0 is as many as OpenMP takes";
    Seen all = seen_of(n, cell, first, x, cells, threads, own);
    join(&all.exponent, sizeof all / sizeof all.exponent, Join::MAX, comm);
    require_taken(own, all.refused, comm);
    if (all.cells != -all.minus_cells)
        throw Refused("ranks pass from " + std::to_string(-all.minus_cells) + " to " + std::to_string(all.cells) + " cells");
    const Limbs format = agreed(all, size_of(comm));
    if (cells > size_t(std::numeric_limits<int>::max()) / format.words())
        throw Refused(std::to_string(cells) + " cells of " + std::to_string(format.words()) +
                      " words do not fit into one message of MPI: add the cells in parts");
    std::vector<std::int64_t> words = own_words(n, cell, first, x, cells, format, threads);
    const Promised promised(FPNA_EXACT);
    join(words.data(), words.size(), Join::SUM, comm);
    for (size_t c = 0; c < cells; ++c) total[c] = rounded<Real>(&words[c * format.words()], format);
}

}  // namespace

template <typename Real>
int scatter_add(const char *who, fpna_comm comm, size_t n, const std::int64_t *cell, std::int64_t first, const Real *x,
                size_t cells, Real *total, int threads, const char *refused) {
    return outcome(who, [&] { add(comm, n, cell, first, x, cells, total, threads, refused ? refused : ""); });
}

template int scatter_add(const char *, fpna_comm, size_t, const std::int64_t *, std::int64_t, const float *, size_t, float *,
                         int, const char *);
template int scatter_add(const char *, fpna_comm, size_t, const std::int64_t *, std::int64_t, const double *, size_t,
                         double *, int, const char *);

}  // namespace fpna

#define FPNA_SCATTER(LETTER, REAL)                                                                                       \
    int fpna_scatter_add_##LETTER(fpna_comm comm, size_t n, const int64_t *cell, const REAL *x, size_t cells,            \
                                  REAL *total, int threads) {                                                           \
        return fpna::scatter_add("fpna_scatter_add_" #LETTER, comm, n, cell, 0, x, cells, total, threads);               \
    }

extern "C" {
FPNA_SCATTER(s, float)
FPNA_SCATTER(d, double)
}
