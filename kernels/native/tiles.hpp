// The terms of the order-free sums, a tile at a time, and how threads share them.
#pragma once
#include <omp.h>

#include <algorithm>
#include <stdexcept>
#include <string>

#include "arrays.hpp"
#include "cut.hpp"

constexpr std::size_t TILE = 2048;        // numbers: 16 KiB, which stay in the first cache
constexpr std::size_t STRETCH = 8 * TILE;  // numbers whose tiles are added before the floating-point flags are read
constexpr std::size_t ENOUGH = 64 * 1024;  // bytes per thread that are worth waking it

// The elements of x, or with y the products of both.
template <typename Element>
struct Terms {
    const Element *x, *y;
};

// Numbers of one type, and with them, where products are not exact, their errors: at most 2^-53 of the largest number.
template <typename Number>
struct Tile {
    const Number *values;
    const double *errors;
    std::size_t n;
};

constexpr std::size_t PRODUCTS = 512;  // products at once: 8 KiB with their errors, beside the factors

struct TileMemory {
    alignas(64) double values[PRODUCTS];
    alignas(64) double errors[PRODUCTS];
};

// ERRORS: whether to compute the errors of products.
template <bool ERRORS, typename Element>
Tile<double> products_of(const Terms<Element> &terms, std::size_t from, std::size_t n, TileMemory &memory) {
    if constexpr (ERRORS && sizeof(Element) == sizeof(double)) {
        two_products(terms.x + from, terms.y + from, n, memory.values, memory.errors);
        return {memory.values, memory.errors, n};
    } else {
        products(terms.x + from, terms.y + from, n, memory.values);
        return {memory.values, nullptr, n};
    }
}

// f(tile) for all tiles of terms begin ... end; MOST: numbers of a tile.
template <bool ERRORS = true, std::size_t MOST = TILE, typename Element, typename F>
void for_tiles(const Terms<Element> &terms, std::size_t begin, std::size_t end, F &&f) {
    if (!terms.y) {
        for (std::size_t i = begin; i < end; i += MOST)
            f(Tile<Element>{terms.x + i, nullptr, std::min(MOST, end - i)});
        return;
    }
    TileMemory memory;
    for (std::size_t i = begin; i < end; i += PRODUCTS)
        f(products_of<ERRORS>(terms, i, std::min(PRODUCTS, end - i), memory));
}

// Threads for terms of so many bytes in all. threads = 0: at most as many as OpenMP would take.
inline int team_of(std::size_t bytes, int threads) {
    const std::size_t most = std::max<std::size_t>(1, bytes / ENOUGH);
    return int(std::min<std::size_t>(threads > 0 ? threads : omp_get_max_threads(), most));
}

// Calls add(state, begin, end) for parts of n terms of `bytes` each, one per thread, and merge(into, state), one at a
// time, in any order.
template <typename State, typename Add, typename Merge>
State in_parts(std::size_t n, std::size_t bytes, int threads, const State &empty, Add &&add, Merge &&merge) {
    const int team = team_of(n * bytes, threads);
    State total = empty;
    if (team == 1) {
        add(total, std::size_t(0), n);
        return total;
    }
#pragma omp parallel num_threads(team)
    {
        const DefaultEnvironment environment;
        const std::size_t parts = omp_get_num_threads(), part = omp_get_thread_num();
        const std::size_t tiles = (n + TILE - 1) / TILE;
        State mine = empty;
        add(mine, tiles * part / parts * TILE, std::min(n, tiles * (part + 1) / parts * TILE));
#pragma omp critical
        merge(total, mine);
    }
    return total;
}

template <typename Element>
Terms<Element> terms_of(const Array &x, const std::optional<Array> &y) {
    const auto data = [](const Array &a, const char *name) {
        if (a.ndim() != 1 || a.itemsize() != sizeof(Element) || !a.contiguous())
            throw std::invalid_argument(std::string(name) + ": expected a contiguous vector of elements of " +
                                        std::to_string(sizeof(Element)) + " bytes");
        return static_cast<const Element *>(a.data());
    };
    if (!y) return {data(x, "x"), nullptr};
    if (y->size() != x.size()) throw std::invalid_argument("y: expected as many elements as x has");
    return {data(x, "x"), data(*y, "y")};
}

// sum(terms, n); y: the other factors, if any; `element`: the type of both.
template <typename Sum>
double order_free(const Array &x, const std::optional<Array> &y, const std::string &element, const Sum &sum) {
    const std::size_t n = x.size();
    if (element == "float64") return sum(terms_of<double>(x, y), n);
    if (element == "float32") return sum(terms_of<float>(x, y), n);
    if (element == "float16") return sum(terms_of<float16>(x, y), n);
    if (element == "bfloat16") return sum(terms_of<bfloat16>(x, y), n);
    throw std::invalid_argument("element " + element + ": expected float64, float32, float16 or bfloat16");
}
