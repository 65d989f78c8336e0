// The sum of a run of entries of a sparse matrix, each times its element of x: entry e of the run goes to lane e mod 4,
// every product rounded by itself, then the tree of lanes.hpp, which for four lanes is (l0 + l2) + (l1 + l3). Four chains
// of additions keep up with memory, and on a GPU four threads add a row.
#pragma once
#include <cstdint>
#include <cstring>

constexpr int ENTRY_LANES = 4;

// Adds entries begin ... end - 1. AHEAD: bytes by which data are prefetched, negative where rows are walked backwards;
// the prefetchers of the hardware stop at every page. An absent entry adds nothing; lanes begin at +0.0, so that no sum
// is -0.0.
template <int AHEAD, typename Number>
inline __attribute__((always_inline)) Number add_entries(const Number *data, const std::int32_t *indices,
                                                         const Number *x, std::int64_t begin, std::int64_t end) {
    typedef Number Lanes __attribute__((vector_size(ENTRY_LANES * sizeof(Number))));
    data += begin;
    indices += begin;
    const std::int64_t n = end - begin;
    Lanes lane = {}, values;
    std::int64_t e = 0;
    for (; e + ENTRY_LANES <= n; e += ENTRY_LANES) {
        __builtin_prefetch(reinterpret_cast<const char *>(data + e) + AHEAD);
        __builtin_prefetch(reinterpret_cast<const char *>(indices + e) + AHEAD / 2);
        std::memcpy(&values, data + e, sizeof values);
        lane += values * Lanes{x[indices[e]], x[indices[e + 1]], x[indices[e + 2]], x[indices[e + 3]]};
    }
    // Named, not indexed: lanes that pass through memory would be waited for.
    Number l0 = lane[0], l1 = lane[1], l2 = lane[2], l3 = lane[3];
    switch (n - e) {
        case 3: l2 += data[e + 2] * x[indices[e + 2]]; [[fallthrough]];
        case 2: l1 += data[e + 1] * x[indices[e + 1]]; [[fallthrough]];
        case 1: l0 += data[e] * x[indices[e]];
    }
    return (l0 + l2) + (l1 + l3);
}
