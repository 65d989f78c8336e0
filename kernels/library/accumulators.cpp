// Exact sums that a program fills piece by piece, keeps and sends (fpna.h).
#include <algorithm>
#include <limits>

#include "errors.hpp"
#include "over_ranks.hpp"

namespace fpna {
namespace {

static_assert(sizeof(fpna_acc) == sizeof(superaccumulator::Sum), "the words of kernels.exact");

long long *words_of(fpna_acc *sum) { return reinterpret_cast<long long *>(sum->words); }

template <typename Real>
void add(fpna_acc *sum, size_t n, const Real *x, ptrdiff_t stride, const Real *y, ptrdiff_t stride_y) {
    const DefaultEnvironment environment;
    Operands<Real> in;
    in.n = n;
    in.step = stride;
    in.step_y = stride_y;
    in.totals = {{{x, y}}};
    std::vector<Exact::State> own(1);
    Exact::add(in, own, 0, n);
    long long *words = words_of(sum);
    for (int k = 0; k < WORDS; ++k) words[k] += own[0].words[k];
    carry(words);
}

template <typename Real>
Real value(const fpna_acc *sum) {
    const DefaultEnvironment environment;
    long long words[WORDS];
    std::copy_n(sum->words, WORDS, words);
    return round_words<Real>(words, words);
}

}  // namespace
}  // namespace fpna

extern "C" {

void fpna_acc_add_s(fpna_acc *sum, size_t n, const float *x, ptrdiff_t stride) {
    fpna::add<float>(sum, n, x, stride, nullptr, 0);
}
void fpna_acc_add_d(fpna_acc *sum, size_t n, const double *x, ptrdiff_t stride) {
    fpna::add<double>(sum, n, x, stride, nullptr, 0);
}
void fpna_acc_dot_s(fpna_acc *sum, size_t n, const float *x, ptrdiff_t stride, const float *y, ptrdiff_t stride_y) {
    fpna::add<float>(sum, n, x, stride, y, stride_y);
}
void fpna_acc_dot_d(fpna_acc *sum, size_t n, const double *x, ptrdiff_t stride, const double *y, ptrdiff_t stride_y) {
    fpna::add<double>(sum, n, x, stride, y, stride_y);
}

void fpna_acc_merge(fpna_acc *sum, const fpna_acc *other) {
    for (int k = 0; k < FPNA_WORDS; ++k) sum->words[k] += other->words[k];
    carry(fpna::words_of(sum));
}

void fpna_acc_normalise(fpna_acc *sum) { carry(fpna::words_of(sum)); }

float fpna_acc_value_s(const fpna_acc *sum) { return fpna::value<float>(sum); }
double fpna_acc_value_d(const fpna_acc *sum) { return fpna::value<double>(sum); }

int fpna_acc_allreduce(fpna_acc *sums, size_t count, fpna_comm comm) {
    return fpna::outcome("fpna_acc_allreduce", [&] {
        fpna::require_communicator(comm);
        constexpr size_t MOST = std::numeric_limits<int>::max() / FPNA_WORDS;
        std::string wrong;
        if (count > MOST) wrong = std::to_string(count) + " accumulators: one call adds at most " + std::to_string(MOST);
        if (count && !sums) wrong = "sums is NULL";
        fpna::agree({fpna::Of::ACC_ALLREDUCE, 'd', FPNA_EXACT, "accumulators", std::int64_t(count)}, wrong, comm);
        const fpna::Promised promised(FPNA_EXACT);
        if (count) fpna::join(sums->words, count * FPNA_WORDS, fpna::Join::SUM, comm);
        for (size_t k = 0; k < count; ++k) carry(fpna::words_of(sums + k));
    });
}
}
