// Brings elements to their bins: one thread at a time gives a bin its elements, in the order of the input.
//
// Elements are taken in parts that stay in cache. Each share of a part is counted by bucket (a range of bins), then
// written to its buckets, stably; then one thread takes each bucket. The elements of a bin and their order depend on
// neither threads, nor parts, nor buckets.
#pragma once
#include <omp.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <type_traits>
#include <utility>
#include <vector>

#include "../include/environment.hpp"

// Indices of 32 or 64 bits. Distinguished here, not by a template: kernels for each would take twice as long to
// compile.
struct Indices {
    const void *first;
    bool wide;  // 64 bits

    template <typename Place>
    const Place *as() const { return static_cast<const Place *>(first); }
    std::int64_t operator[](std::int64_t i) const { return wide ? as<std::int64_t>()[i] : as<std::int32_t>()[i]; }
    Indices from(std::int64_t i) const {
        if (wide) return {as<std::int64_t>() + i, wide};
        return {as<std::int32_t>() + i, wide};
    }
};

// n elements to be added to `bins` bins: rows of `columns` numbers, or single numbers.
template <typename Number, bool OF_ROWS>
struct Scatter {
    using Element = Number;
    static constexpr bool ROWS = OF_ROWS;
    const Element *x;
    Indices index;
    std::int64_t n, bins, wide;

    std::int64_t columns() const { return ROWS ? wide : 1; }
    bool fits(std::int64_t i) const { return std::uint64_t(index[i]) < std::uint64_t(bins); }
    std::int64_t bin(std::int64_t i) const { return index[i]; }
    const Element *row(std::int64_t i) const { return x + i * columns(); }
    Scatter part(std::int64_t begin, std::int64_t count) const { return {x + begin * columns(), index.from(begin), count, bins, wide}; }
};

// As a Scatter of rows, which lie in a table: addition i is row rows[i] of x. All of `rows` are in the table.
template <typename Number>
struct Lookup {
    using Element = Number;
    static constexpr bool ROWS = true;
    const Element *x;
    Indices index;
    std::int64_t n, bins, wide;
    Indices rows;
    std::int64_t table;  // rows of it

    std::int64_t columns() const { return wide; }
    bool fits(std::int64_t i) const { return std::uint64_t(index[i]) < std::uint64_t(bins); }
    std::int64_t bin(std::int64_t i) const { return index[i]; }
    const Element *row(std::int64_t i) const { return x + rows[i] * wide; }
    Lookup part(std::int64_t begin, std::int64_t count) const {
        return {x, index.from(begin), count, bins, wide, rows.from(begin), table};
    }
};

constexpr std::int64_t NONE_BAD = -1;        // no index is out of range
constexpr std::int64_t FEW = 1 << 13;        // elements that take less time than waking a team of threads
constexpr std::int64_t SHARE = 1 << 14;      // elements that one thread sorts at once
constexpr std::int64_t SHARE_BYTES = 1 << 17;  // of rows, which stay where they are
constexpr int SHARES = 64;                   // of a part, at least: a thread that is held up holds up little
constexpr int MOST_BUCKETS = 256;

template <typename Carried>
struct __attribute__((packed)) Item {
    Carried carried;     // a number, or the place of a row in its part
    std::uint32_t bin;   // within the bucket
};

struct Buckets {
    int shift;
    std::int64_t count;
};

// As many buckets as threads share evenly; no more, as additions to few bins wait for one another.
inline Buckets buckets(std::int64_t bins, int threads) {
    int bits = 0, wanted = 16;
    while ((std::int64_t(1) << bits) < bins) ++bits;
    while (wanted < std::min(8 * threads, MOST_BUCKETS)) wanted *= 2;
    const int shift = std::max(bits - __builtin_ctz(wanted), 0);
    return {shift, ((bins - 1) >> shift) + 1};
}

// sums.add(bin, i, x): element i, at x, goes to the bin. Sums::MOVES: single numbers are moved to where they are added;
// else they stay, and x is in the input. Returns the place of the first index that is out of range, or NONE_BAD.
template <typename In, typename Sums>
std::int64_t in_turn(const In &in, Sums &sums) {
    for (std::int64_t i = 0; i < in.n; ++i) {
        if (!in.fits(i)) return i;
        sums.add(in.bin(i), i, in.row(i));
    }
    return NONE_BAD;
}

// Writes elements from ... to - 1 of a part that begins at `begin`, in the order of their buckets, to items[first] and
// on; start[b]: where bucket b begins. An item carries the element, or its place in the part. Returns `to`, or the
// place of the first index that is out of range. Not inlined: it is the same for all sums of a type.
template <typename Carried, typename Element, typename Place>
__attribute__((noinline)) std::int64_t sort_share(const Place *index, std::int64_t bins, const Element *x, std::int64_t begin,
                                                  std::int64_t from, std::int64_t to, Buckets of, std::int64_t first,
                                                  std::uint32_t *start, Item<Carried> *items) {
    using i64 = std::int64_t;
    std::uint32_t next[MOST_BUCKETS] = {}, before = std::uint32_t(first);
    for (i64 i = from; i < to; ++i) {
        if (std::uint64_t(i64(index[i])) >= std::uint64_t(bins)) return i;
        ++next[i64(index[i]) >> of.shift];
    }
    for (i64 b = 0; b < of.count; ++b) {
        start[b] = before;
        before += std::exchange(next[b], before);
    }
    start[of.count] = before;
    const std::uint32_t mask = (std::uint32_t(1) << of.shift) - 1;
    for (i64 i = from; i < to; ++i) {
        const i64 bin = index[i];
        Item<Carried> &item = items[next[bin >> of.shift]++];
        if constexpr (std::is_same_v<Carried, Element>)
            item.carried = x[i];
        else
            item.carried = Carried(i - begin);
        item.bin = std::uint32_t(bin) & mask;
    }
    return to;
}

template <typename In, typename Sums>
std::int64_t in_buckets(const In &in, Sums &sums, int threads) {
    using i64 = std::int64_t;
    constexpr bool MOVED = Sums::MOVES && !In::ROWS;
    using Carried = std::conditional_t<MOVED, typename In::Element, std::uint32_t>;
    const Buckets of = buckets(in.bins, threads);
    const i64 bytes = MOVED ? 1 : in.columns() * i64(sizeof(*in.x));
    const i64 share = std::clamp<i64>(SHARE_BYTES / std::max<i64>(bytes, 1), 256, SHARE);
    const i64 shares = std::min((in.n + share - 1) / share, std::max<i64>(SHARES, 4 * threads)), part = shares * share;
    const std::unique_ptr<Item<Carried>[]> items(new Item<Carried>[part]);
    std::vector<std::uint32_t> starts(shares * (of.count + 1));
    i64 bad = in.n;
#pragma omp parallel num_threads(threads)
    {
        const DefaultEnvironment environment;
        for (i64 begin = 0; begin < in.n; begin += part) {
#pragma omp for schedule(dynamic) reduction(min : bad)
            for (i64 s = 0; s < shares; ++s) {
                const i64 from = std::min(in.n, begin + s * share), to = std::min(in.n, from + share);
                const auto sorted = [&](const auto *index) {
                    return sort_share<Carried>(index, in.bins, in.x, begin, from, to, of, s * share,
                                               starts.data() + s * (of.count + 1), items.get());
                };
                const i64 end = in.index.wide ? sorted(in.index.template as<i64>()) : sorted(in.index.template as<std::int32_t>());
                if (end < to) bad = std::min(bad, end);
            }
            if (bad < in.n) break;  // all threads see the same
#pragma omp for schedule(dynamic)
            for (i64 b = 0; b < of.count; ++b) {
                const i64 first = b << of.shift;
                for (i64 s = 0; s < shares; ++s) {
                    const std::uint32_t *start = starts.data() + s * (of.count + 1) + b;
                    for (const Item<Carried> *item = &items[start[0]], *end = &items[start[1]]; item < end; ++item) {
                        const Carried carried = item->carried;
                        if constexpr (MOVED)
                            sums.add(first + item->bin, 0, &carried);
                        else
                            sums.add(first + item->bin, begin + carried, in.row(begin + carried));
                    }
                }
            }
        }
    }
    return bad < in.n ? bad : NONE_BAD;
}

template <typename In, typename Sums>
std::int64_t by_bin(const In &in, Sums &sums, int threads) {
    // In a bucket of few bins additions wait for one another: one thread overlaps more of them than a few threads do.
    const bool narrow = !In::ROWS && threads <= 8 && in.bins < 64 * buckets(in.bins, threads).count;
    if (in.n < FEW || threads == 1 || narrow) return in_turn(in, sums);
    return in_buckets(in, sums, threads);
}
