// The tiles of products, once per instruction set.
#include <algorithm>
#include <stdexcept>
#include <utility>

#include "contract.hpp"

#define FPNA_PER_LEVEL "contract_tiles.hpp"
#include "contract_levels.hpp"

namespace contract {

int checked_level(int level) {
    if (level < -1 || level >= levels_here()) throw std::invalid_argument("level: this processor has none such");
    return level < 0 ? levels_here() - 1 : level;
}

template <typename T>
const Kernels<T> &kernels_of(int level) {
#if FPNA_LEVELS == 3
    if (level == 2) return v4::KERNELS<T>;
    if (level == 1) return v3::KERNELS<T>;
#endif
    return base::KERNELS<T>;
}

template const Kernels<float> &kernels_of<float>(int);
template const Kernels<double> &kernels_of<double>(int);

}  // namespace contract
