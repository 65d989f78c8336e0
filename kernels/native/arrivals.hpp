// Orders of arrival from a seed, as a GPU might serve its blocks: units are issued by ascending index, `resident` of
// them are in flight at once, and each time one of these, drawn at random, is served. The generator is written here, so
// that a seed means the same order on every machine.
#pragma once
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <vector>

// splitmix64 (Steele, Lea & Flood 2014).
struct Random {
    std::uint64_t state;

    std::uint64_t next() {
        std::uint64_t z = state += 0x9E3779B97F4A7C15u;
        z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
        z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
        return z ^ (z >> 31);
    }

    // One of 0 ... n - 1, all equally likely (Lemire 2019).
    std::uint64_t below(std::uint64_t n) {
        for (;;) {
            const auto scaled = static_cast<unsigned __int128>(next()) * n;
            const auto low = static_cast<std::uint64_t>(scaled);
            if (low >= n || low >= -n % n) return static_cast<std::uint64_t>(scaled >> 64);
        }
    }
};

// Calls serve(unit) for each of `units` units. A served unit's place goes to the next one issued; when all are
// issued, to the unit in the last place. resident = 0: all units are in flight from the start.
template <typename Serve>
void in_order_of_arrival(std::size_t units, std::size_t resident, std::uint64_t seed, Serve &&serve) {
    Random random{seed};
    std::vector<std::size_t> flying(resident == 0 || resident > units ? units : resident);
    std::iota(flying.begin(), flying.end(), std::size_t(0));
    std::size_t issued = flying.size();
    while (!flying.empty()) {
        const std::size_t place = random.below(flying.size()), unit = flying[place];
        if (issued < units) {
            flying[place] = issued++;
        } else {
            flying[place] = flying.back();
            flying.pop_back();
        }
        serve(unit);
    }
}
