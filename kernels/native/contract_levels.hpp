// Includes the file that FPNA_PER_LEVEL names once for each instruction set, in the namespace `contract`: per_level.hpp
// lists what it may use.
#include "levels.hpp"

namespace contract {
namespace {
#include "per_level.hpp"
}  // namespace
}  // namespace contract
