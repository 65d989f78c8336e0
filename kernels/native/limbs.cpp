// Exact sums of float32 as a few words of 64 bits, in which partial sums travel (kernels/exact/limbs.py). Limb k of a
// sum counts multiples of 2^(unit + bits k); two more words may count infinities and NaN. Sums of words do not depend
// on order, and each sum is rounded once, from its own words alone.
#include <algorithm>
#include <stdexcept>
#include <vector>

#include "integer_sums.hpp"
#include "kernels.hpp"

namespace {

using i64 = std::int64_t;
using u64 = std::uint64_t;
using Found = Extremes<float>;

constexpr int PLUS = 0, MINUS = 1;  // the words after the limbs; a NaN counts in both
constexpr i64 BLOCK = 64;           // columns

// The format for the numbers of a table, on which all ranks agree.
struct Limbs {
    int unit, bits, count, words;
};

struct Seen {
    bool special, beyond;  // infinities or NaN; numbers that the limbs cannot hold
};

// Adds up to BLOCK numbers to their limbs, which lie `apart`, the highest first. Scaling by powers of two is exact, and
// a number of 24 bits has a remainder of fewer: nothing is rounded but to whole limbs, by adding SHIFT, on vectors of
// any width.
FPNA_CLONES Seen add_block(const float *x, i64 n, double scale, double limit, int count, i64 apart, i64 *to) {
    constexpr double SHIFT = 0x1.8p52;
    double y[BLOCK];
    i64 special = 0, beyond = 0;
    for (i64 c = 0; c < n; ++c) {
        const bool finite = x[c] - x[c] == 0;
        y[c] = finite ? double(x[c]) * scale : 0;
        special |= finite ? 0 : 1;
        beyond |= std::fabs(y[c]) < limit ? 0 : 1;
    }
    for (int limb = count - 1; limb >= 0; --limb) {
        i64 *words = to + limb * apart;
        for (i64 c = 0; c < n; ++c) {
            const double whole = y[c] + SHIFT;
            words[c] += i64(bits_of(whole) - bits_of(SHIFT));
            y[c] = (y[c] - (whole - SHIFT)) * limit;
        }
    }
    for (i64 c = 0; c < n; ++c) beyond |= y[c] == 0 ? 0 : 1;
    return {special != 0, beyond != 0};
}

// Adds rows x[i] to the words of bin index[i]; returns false if these cannot hold a number.
bool add(const float *x, const i64 *index, i64 n, i64 columns, const Limbs &limbs, i64 *out) {
    const double scale = std::ldexp(1.0, -limbs.unit - limbs.bits * (limbs.count - 1)), limit = std::ldexp(1.0, limbs.bits);
    bool fit = true;
    for (i64 i = 0; i < n; ++i, x += columns) {
        i64 *to = out + index[i] * limbs.words * columns;
        bool special = false;
        for (i64 c = 0; c < columns; c += BLOCK) {
            const Seen seen = add_block(x + c, std::min(BLOCK, columns - c), scale, limit, limbs.count, columns, to + c);
            special |= seen.special;
            fit &= !seen.beyond;
        }
        if (!special) continue;
        if (limbs.words == limbs.count) return false;
        for (i64 c = 0; c < columns; ++c) {
            if (std::isfinite(x[c])) continue;
            i64 *counts = to + limbs.count * columns + c;
            if (!(x[c] < 0)) counts[PLUS * columns] += 1;
            if (!(x[c] > 0)) counts[MINUS * columns] += 1;
        }
    }
    return fit;
}

// The rounded sum in words that lie `apart`. `w`: room for the limbs and a last word for carries.
float rounded(const i64 *words, const Limbs &limbs, i64 apart, std::vector<i64> &w) {
    if (limbs.words > limbs.count) {
        const bool plus = words[(limbs.count + PLUS) * apart], minus = words[(limbs.count + MINUS) * apart];
        if (plus && minus) return std::numeric_limits<float>::quiet_NaN();
        if (plus || minus) return with_sign<float>(Found::INFINITY_BITS, minus);
    }
    const u64 mask = (u64(1) << limbs.bits) - 1;
    const auto carry = [&] {
        i64 over = 0;
        for (int k = 0; k < limbs.count; ++k) {
            const i64 word = w[k] + over;
            over = word >> limbs.bits;
            w[k] = i64(u64(word) & mask);
        }
        w[limbs.count] += over;
    };
    for (int k = 0; k < limbs.count; ++k) w[k] = words[k * apart];
    w[limbs.count] = 0;
    carry();
    const bool negative = w[limbs.count] < 0;
    if (negative) {
        for (i64 &word : w) word = -word;
        carry();
    }
    int at = limbs.count;
    while (at > 0 && !w[at]) --at;
    // The leading bits, up to 128 of them, and whether there is anything below.
    u128 window = u64(w[at]);
    int lowest = limbs.unit + limbs.bits * at;
    while (at > 0 && window >> (128 - limbs.bits) == 0) {
        window = window << limbs.bits | u64(w[--at]);
        lowest -= limbs.bits;
    }
    bool below = false;
    while (at > 0) below |= w[--at] != 0;
    if (!window) return 0;
    const u64 top = u64(window >> 64);
    const int zeros = top ? __builtin_clzll(top) : 64 + __builtin_clzll(u64(window));
    window <<= zeros;
    below |= u64(window) != 0;
    return with_sign<float>(nearest<float>(u64(window >> 64), below, lowest + 64 - zeros), negative);
}

}  // namespace

std::tuple<int, int, bool> limb_range(array<float> x) {
    constexpr int NONE = 1 << 20;
    const Found found = extremes_of(x.data(), i64(x.size()));
    const bool none = found.empty();
    return {none ? -NONE : found.exponent(), none ? NONE : found.unit(), !found.finite()};
}

bool limb_add(array<float> x, array<i64> index, int unit, int bits, int count, array<i64> out) {
    const Limbs limbs{unit, bits, count, int(out.shape(1))};
    return add(x.data(), index.data(), i64(index.size()), i64(out.shape(2)), limbs, out.mutable_data());
}

void limb_round(array<i64> words, int unit, int bits, int count, array<float> out) {
    const i64 bins = words.shape(0), columns = words.shape(2);
    const Limbs limbs{unit, bits, count, int(words.shape(1))};
    float *to = out.mutable_data();
    std::vector<i64> w(count + 1);
    for (i64 b = 0; b < bins; ++b)
        for (i64 c = 0; c < columns; ++c)
            to[b * columns + c] = rounded(words.data() + b * limbs.words * columns + c, limbs, columns, w);
}
