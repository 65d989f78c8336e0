// Includes the file that FPNA_PER_LEVEL names once for each instruction set of levels.hpp, inside a namespace and under a
// target of its own: base, and on x86-64 v3 and v4. To be included in a namespace; no include guard. The file may use
// BYTES (of a vector), REGISTERS (that hold vectors), ROWS (of a tile whose sums by `fused`, two vectors a row, stay in
// registers) and fused(a, b, c): a * b + c of vectors, rounded once.
//
// All levels use a multiply-add that rounds once, so that their bits are the same; x86-64 without FMA has none in
// hardware, and its level calls std::fma, which is slow and right.

namespace base {
#if defined(__aarch64__)
constexpr int BYTES = 16, REGISTERS = 32, ROWS = 12;
FPNA_INLINE float32x4_t fused(float32x4_t a, float32x4_t b, float32x4_t c) { return vfmaq_f32(c, a, b); }
FPNA_INLINE float64x2_t fused(float64x2_t a, float64x2_t b, float64x2_t c) { return vfmaq_f64(c, a, b); }
#else
constexpr int BYTES = 16, REGISTERS = 16, ROWS = 4;
template <typename V>
FPNA_INLINE V fused(const V &a, const V &b, const V &c) {
    V sum;
    for (unsigned i = 0; i < sizeof(V) / sizeof a[0]; ++i) sum[i] = std::fma(a[i], b[i], c[i]);
    return sum;
}
#endif
#include FPNA_PER_LEVEL
}  // namespace base

#if FPNA_LEVELS == 3
#pragma GCC push_options
#pragma GCC target("arch=x86-64-v3")
namespace v3 {
constexpr int BYTES = 32, REGISTERS = 16, ROWS = 6;
FPNA_INLINE __m256 fused(__m256 a, __m256 b, __m256 c) { return _mm256_fmadd_ps(a, b, c); }
FPNA_INLINE __m256d fused(__m256d a, __m256d b, __m256d c) { return _mm256_fmadd_pd(a, b, c); }
#include FPNA_PER_LEVEL
}  // namespace v3
#pragma GCC pop_options
#pragma GCC push_options
#pragma GCC target("arch=x86-64-v4")
namespace v4 {
constexpr int BYTES = 64, REGISTERS = 32, ROWS = 14;
FPNA_INLINE __m512 fused(__m512 a, __m512 b, __m512 c) { return _mm512_fmadd_ps(a, b, c); }
FPNA_INLINE __m512d fused(__m512d a, __m512d b, __m512d c) { return _mm512_fmadd_pd(a, b, c); }
#include FPNA_PER_LEVEL
}  // namespace v4
#pragma GCC pop_options
#endif
