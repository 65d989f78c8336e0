// What a sum met (fpna_report): the first NaN or infinity, what its order lost, its time.
#pragma once
#include <chrono>
#include <cmath>
#include <limits>

#include "over_ranks.hpp"

namespace fpna {

// Seconds since it was made, and of these in calls of the MPI library on this thread.
class Clock {
    using steady = std::chrono::steady_clock;
    steady::time_point began_ = steady::now();
    double waited_ = waited();

  public:
    double seconds() const { return std::chrono::duration<double>(steady::now() - began_).count(); }
    double waiting() const { return waited() - waited_; }
};

// A term that is not finite; field < 0: none.
struct Special {
    std::int64_t field = -1, rank = 0, number = 0;
    double value = 0;
};

// The first of this rank: of the first field that has any, the one with the smallest number.
template <typename Real>
Special first_special(const Operands<Real> &in, const std::int64_t *numbers, int rank) {
    Special found;
    std::int64_t before = 0;  // elements before the tile
    size_t last = 0;
    for_parts(in, 0, in.n, [&](size_t t, size_t p, const Real *x, const Real *y, size_t n) {
        if (t == 0 && p == 0) before += std::int64_t(last);
        last = n;
        for (size_t i = 0; i < n; ++i) {
            const double term = y ? double(x[i]) * double(y[i]) : double(x[i]);
            if (std::fabs(term) <= std::numeric_limits<Real>::max()) continue;
            const std::int64_t at = before + std::int64_t(i), number = numbers ? numbers[at] : at;
            const auto field = std::int64_t(t);
            if (found.field < 0 || field < found.field || (field == found.field && number < found.number))
                found = {field, rank, number, term};
        }
    });
    return found;
}

// The largest difference of the totals from those without error, in units in the last place of these.
template <typename Real>
double lost(const std::vector<Real> &values, const std::vector<Real> &exact) {
    double most = 0;
    for (size_t t = 0; t < values.size(); ++t) {
        const Real size = std::fabs(exact[t]);
        if (values[t] == exact[t] || !(size <= std::numeric_limits<Real>::max())) continue;
        const Real unit = std::nextafter(size, std::numeric_limits<Real>::infinity()) - size;
        most = std::max(most, std::fabs(double(values[t]) - double(exact[t])) / double(unit));
    }
    return most;
}

// Collective. `width`: totals of a field.
template <typename Real>
void fill(fpna_report &to, const Operands<Real> &in, const std::vector<Real> &values, int guarantee, int width,
          const fpna_options &options, fpna_comm comm, const Clock &clock) {
    double times[] = {clock.seconds(), clock.waiting()};
    Special first;
    for (const Special &each : all_of<Special>({first_special(in, options.numbers, rank_of(comm))}, comm)) {
        if (each.field < 0) continue;
        const bool sooner = options.numbers && each.number < first.number;
        if (first.field < 0 || each.field < first.field || (each.field == first.field && sooner)) first = each;
    }
    to.field = int(first.field < 0 ? -1 : first.field / width);
    to.rank = first.field < 0 ? -1 : int(first.rank);
    to.number = first.number;
    to.value = first.value;
    to.lost = guarantee == FPNA_EXACT ? 0 : lost(values, exact_totals(in, options.threads, {}, comm).values);
    join(times, 2, Join::MAX, comm);
    to.seconds = times[0];
    to.seconds_waiting = times[1];
}

}  // namespace fpna
