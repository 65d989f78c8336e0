// How fast memory can be read by code that does nothing else: the measure of every sum (benchmarks/sums.py).
#include <cstring>

#include "kernels.hpp"
#include "tiles.hpp"

namespace {

// Exclusive or of all words: one operation for eight of them, which no compiler may leave out.
FPNA_CLONES u64 read_words(const char *x, std::size_t bytes) {
    typedef unsigned long long Words __attribute__((vector_size(64)));
    Words all[4] = {}, v;
    std::size_t i = 0;
    for (; i + sizeof all <= bytes; i += sizeof all)
        for (int k = 0; k < 4; ++k) {
            __builtin_prefetch(x + i + k * sizeof v + (16 << 10));  // as the sums do
            std::memcpy(&v, x + i + k * sizeof v, sizeof v);
            all[k] ^= v;
        }
    for (; i < bytes; i += sizeof v) {
        v = Words{};
        std::memcpy(&v, x + i, std::min(sizeof v, bytes - i));
        all[0] ^= v;
    }
    u64 word = 0;
    for (const Words &words : all)
        for (int l = 0; l < 8; ++l) word ^= words[l];
    return word;
}

}  // namespace

std::uint64_t read_memory(const Array &x, int threads) {
    if (!x.contiguous()) throw std::invalid_argument("x: expected a contiguous array");
    const auto *from = static_cast<const char *>(x.data());
    return in_parts(
        x.nbytes(), 1, threads, u64(0),
        [from](u64 &word, std::size_t begin, std::size_t end) { word ^= read_words(from + begin, end - begin); },
        [](u64 &into, u64 word) { into ^= word; });
}
