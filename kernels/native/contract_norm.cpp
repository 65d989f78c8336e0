// Layer norm and softmax, forward and backward (contract_norm.hpp).
#include <omp.h>

#include <algorithm>
#include <cmath>
#include <type_traits>

#include "contract_norm.hpp"
#include "kernels.hpp"

namespace contract {
inline float root(float x) { return __builtin_sqrtf(x); }
inline double root(double x) { return __builtin_sqrt(x); }
}  // namespace contract

#define FPNA_PER_LEVEL "contract_norm_rows.hpp"
#include "contract_levels.hpp"

namespace contract {
namespace {

constexpr i64 ENOUGH = 1 << 15;  // elements per thread that are worth waking it

template <typename T>
const NormKernels<T> &norm_kernels_of(int level) {
#if FPNA_LEVELS == 3
    if (level == 2) return v4::NORM_KERNELS<T>;
    if (level == 1) return v3::NORM_KERNELS<T>;
#endif
    return base::NORM_KERNELS<T>;
}

template <typename T>
T *elements(const std::optional<Array> &x) {
    return x ? static_cast<T *>(const_cast<void *>(x->data())) : nullptr;
}

// Sums over rows are chains over PIECE rows; the sums of pieces are added in order.
template <typename T>
void layer_norm(const std::vector<std::optional<Array>> &given, double eps, int threads, int level) {
    const auto array = [&](int k) { return elements<T>(given[k]); };
    const NormKernels<T> &kernels = norm_kernels_of<T>(level);
    const i64 rows = given[4]->size(), columns = rows ? given[0]->size() / rows : 0;
    const bool back = given.size() > 6;
    const Norm<T> of{columns, T(eps), array(0), array(1), array(2), array(3), array(4), array(5),
                     back ? array(6) : nullptr, back ? array(7) : nullptr};
    const i64 pieces = (rows + PIECE - 1) / PIECE;
    T *const totals[] = {back ? array(8) : nullptr, back ? array(9) : nullptr};
    std::vector<T> sums(back ? 2 * pieces * columns : 0);
    const i64 team = std::min<i64>({threads, pieces, rows * columns / ENOUGH});
#pragma omp parallel num_threads(int(team)) if (team > 1)
    {
        const DefaultEnvironment environment;
#pragma omp for schedule(static)
        for (i64 p = 0; p < pieces; ++p) {
            const i64 begin = p * PIECE, end = std::min(rows, begin + PIECE);
            T *const own = sums.data() + 2 * p * columns;
            if (back)
                kernels.backward(of, begin, end, totals[0] ? own : nullptr, totals[1] ? own + columns : nullptr);
            else
                kernels.forward(of, begin, end);
        }
    }
    for (int k = 0; k < 2; ++k) {
        if (!totals[k]) continue;
        std::fill_n(totals[k], columns, T(0));
        for (i64 p = 0; p < pieces; ++p)
            for (i64 j = 0; j < columns; ++j) {
                const T sum = totals[k][j] + sums[(2 * p + k) * columns + j];
                totals[k][j] = sum == sum ? sum : T(__builtin_nanf(""));
            }
    }
}

template <typename T>
void softmax(const Array &x, const std::optional<Array> &slopes, const Array &y, i64 columns, bool log, int threads, int level) {
    const NormKernels<T> &kernels = norm_kernels_of<T>(level);
    const Softmax<T> of{columns, elements<T>(x), elements<T>(slopes), elements<T>(y), log};
    const i64 rows = x.size() / columns;
    const i64 team = std::max<i64>(1, std::min<i64>({threads, rows, x.size() / ENOUGH}));
#pragma omp parallel num_threads(int(team)) if (team > 1)
    {
        const DefaultEnvironment environment;
#pragma omp for schedule(static)
        for (i64 p = 0; p < team; ++p) kernels.softmax(of, rows * p / team, rows * (p + 1) / team);
    }
}

}  // namespace
}  // namespace contract

void contract_softmax(const Array &x, const std::optional<Array> &slopes, const Array &y, std::int64_t columns, bool log,
                      int threads, int level) {
    if (!x.size()) return;
    const auto softmax = x.itemsize() == sizeof(double) ? contract::softmax<double> : contract::softmax<float>;
    softmax(x, slopes, y, columns, log, threads > 0 ? threads : omp_get_max_threads(), contract::checked_level(level));
}

void contract_layer_norm(const std::vector<std::optional<Array>> &arrays, double eps, int threads, int level) {
    const auto layer_norm = arrays[0]->itemsize() == sizeof(double) ? contract::layer_norm<double> : contract::layer_norm<float>;
    layer_norm(arrays, eps, threads > 0 ? threads : omp_get_max_threads(), contract::checked_level(level));
}
