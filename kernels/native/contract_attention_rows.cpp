// The kernels of attention, once per instruction set.
#include <algorithm>
#include <type_traits>
#include <utility>

#include "contract_attention.hpp"

#define FPNA_PER_LEVEL "contract_attention_rows.hpp"
#include "contract_levels.hpp"

namespace contract {

template <typename T>
const RowKernels<T> &row_kernels_of(int level) {
#if FPNA_LEVELS == 3
    if (level == 2) return v4::ROW_KERNELS<T>;
    if (level == 1) return v3::ROW_KERNELS<T>;
#endif
    return base::ROW_KERNELS<T>;
}

template const RowKernels<float> &row_kernels_of<float>(int);
template const RowKernels<double> &row_kernels_of<double>(int);

}  // namespace contract
