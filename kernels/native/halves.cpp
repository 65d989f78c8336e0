// Sums of the upper and of the lower bits of numbers, added as a plain loop adds, by the widest vectors that the processor
// has. Rounding errors are for the caller to see (exact_sums.hpp).
#include <cstring>

#include "../include/environment.hpp"
#include "cut.hpp"
#include "levels.hpp"

namespace {
#define FPNA_PER_LEVEL "halves_level.hpp"
#include "per_level.hpp"
}  // namespace

#if FPNA_LEVELS == 3
constexpr decltype(&base::add_halves) LEVELS[] = {base::add_halves, v3::add_halves, v4::add_halves};
#else
constexpr decltype(&base::add_halves) LEVELS[] = {base::add_halves};
#endif

void add_halves(const double *x, std::size_t n, double *sums, int level) {
    static const int best = levels_here() - 1;
    LEVELS[level < 0 ? best : level](x, n, sums);
}

bool errors_show() {
    static const bool shown = [] {
        double x[64], sums[2];
        for (int i = 0; i < 64; ++i) x[i] = i < 32 ? 1 : 0x1p-60;
        ErrorFlags::clear();
        add_halves(x, 64, sums);
        return ErrorFlags::set();
    }();
    return shown;
}
