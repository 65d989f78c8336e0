// The smallest and the largest element of all ranks, and where it is (fpna.h).
#include <cmath>
#include <limits>

#include "call.hpp"
#include "errors.hpp"

namespace fpna {
namespace {

constexpr std::int64_t NOWHERE = std::numeric_limits<std::int64_t>::max(), LEAST = std::numeric_limits<std::int64_t>::min();

// Integers in the order of the numbers, a NaN before all of them; zeros of both signs are one.
std::int64_t key_of(double x) {
    if (x != x) return LEAST;
    if (x == 0) return 0;
    const auto bits = std::int64_t(bits_of(std::fabs(x)));
    return x < 0 ? -bits : bits;
}

// The least key of all ranks, then the smallest number that has it, and with that the sign of a zero.
template <typename Real>
void find(bool largest, fpna_comm comm, size_t n, const Real *x, ptrdiff_t stride, const std::int64_t *numbers,
          Real *value, std::int64_t *number, std::string own) {
    require_communicator(comm);
    agree({largest ? Of::MAXLOC : Of::MINLOC, letter_of<Real>(1)}, "", comm);
    if (n && (!x || !numbers)) own = std::string(x ? "numbers" : "x") + " is NULL, and n is " + std::to_string(n);
    if (!value || !number) own = std::string(value ? "number" : "value") + " is NULL";
    std::int64_t best = NOWHERE, at = NOWHERE;
    bool negative = false;
    for (size_t i = 0; i < n && own.empty(); ++i) {
        const double each = x[ptrdiff_t(i) * stride];
        const std::int64_t key = key_of(largest ? -each : each);
        if (key > best || (key == best && numbers[i] >= at)) continue;
        best = key;
        at = numbers[i];
        negative = std::signbit(each);
        if (at < 0) own = "number " + std::to_string(at) + " of element " + std::to_string(i) + " is below 0";
    }
    std::int64_t first[] = {-best, !own.empty()};  // the largest of -key
    if (best == LEAST) first[0] = NOWHERE;
    join(first, 2, Join::MAX, comm);
    require_taken(own, first[1], comm);
    const std::int64_t all = first[0] == NOWHERE ? LEAST : -first[0];
    std::int64_t place = best == all && at != NOWHERE ? -(at * 2 + negative) : LEAST;
    join(&place, 1, Join::MAX, comm);
    if (place == LEAST) {
        *number = -1;
        *value = std::numeric_limits<Real>::quiet_NaN();
        return;
    }
    *number = -place / 2;
    if (all == LEAST)
        *value = std::numeric_limits<Real>::quiet_NaN();
    else {
        const double size = double_of_bits((unsigned long long)(all < 0 ? -all : all));
        *value = Real(-place % 2 ? -size : size);
    }
}

}  // namespace

template <typename Real>
int locate(const char *who, bool largest, fpna_comm comm, size_t n, const Real *x, ptrdiff_t stride,
           const std::int64_t *numbers, Real *value, std::int64_t *number, const char *refused) {
    return outcome(who, [&] { find(largest, comm, n, x, stride, numbers, value, number, refused ? refused : ""); });
}

template int locate(const char *, bool, fpna_comm, size_t, const float *, ptrdiff_t, const std::int64_t *, float *,
                    std::int64_t *, const char *);
template int locate(const char *, bool, fpna_comm, size_t, const double *, ptrdiff_t, const std::int64_t *, double *,
                    std::int64_t *, const char *);

}  // namespace fpna

#define FPNA_LOCATE(LETTER, REAL, WHICH, LARGEST)                                                                         \
    int fpna_##WHICH##loc_##LETTER(fpna_comm comm, size_t n, const REAL *x, ptrdiff_t stride, const int64_t *numbers,     \
                                   REAL *value, int64_t *number) {                                                       \
        return fpna::locate("fpna_" #WHICH "loc_" #LETTER, LARGEST, comm, n, x, stride, numbers, value, number);          \
    }

extern "C" {
FPNA_LOCATE(s, float, min, false)
FPNA_LOCATE(d, double, min, false)
FPNA_LOCATE(s, float, max, true)
FPNA_LOCATE(d, double, max, true)
}
