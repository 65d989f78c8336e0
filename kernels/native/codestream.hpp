// Codes of 1 to 8 bits, one byte each, to a stream of bits and back: element i is bits [i BITS, (i + 1) BITS), low bits
// first. 8 codes are BITS bytes; neighbours are moved together in three steps, which are vector code over many such.
#pragma once
#include <cstdint>
#include <cstring>
#include <type_traits>

namespace codestream {

using u8 = std::uint8_t;
using u64 = std::uint64_t;

// A mask of the lower `kept` of each `width` bits of a word.
constexpr u64 lower(int kept, int width) {
    u64 mask = 0;
    for (int at = 0; at < 64; at += width) mask |= (kept == 64 ? ~u64(0) : (u64(1) << kept) - 1) << at;
    return mask;
}

// In each 2 * WIDTH bits, moves the lower KEPT bits of the upper half down to those of the lower half.
template <int KEPT, int WIDTH>
inline __attribute__((always_inline)) u64 join(u64 w) {
    constexpr u64 mask = lower(KEPT, 2 * WIDTH);
    return (w & mask) | (w >> (WIDTH - KEPT) & mask << KEPT);
}

template <int KEPT, int WIDTH>
inline __attribute__((always_inline)) u64 split(u64 w) {
    constexpr u64 mask = lower(KEPT, 2 * WIDTH);
    return (w & mask) | (w & mask << KEPT) << (WIDTH - KEPT);
}

template <int BITS>
inline __attribute__((always_inline)) u64 together(u64 w) {
    return join<4 * BITS, 32>(join<2 * BITS, 16>(join<BITS, 8>(w)));
}

template <int BITS>
inline __attribute__((always_inline)) u64 apart(u64 w) {
    return split<BITS, 8>(split<2 * BITS, 16>(split<4 * BITS, 32>(w)));
}

// BITS bytes of a word, by one instruction where there is one: loops over it become vector code.
template <int BITS>
inline __attribute__((always_inline)) void put(u8 *out, u64 w) {
    using Whole = std::conditional_t<BITS == 1, u8, std::conditional_t<BITS == 2, std::uint16_t, std::uint32_t>>;
    if constexpr (BITS <= 4 && BITS != 3) {
        const Whole whole = static_cast<Whole>(w);
        std::memcpy(out, &whole, BITS);
    } else
        std::memcpy(out, &w, BITS);
}

// `codes` are followed by 7 bytes of 0.
template <int BITS>
inline __attribute__((always_inline)) void pack(const u8 *__restrict codes, std::size_t m, u8 *__restrict out) {
    const std::size_t groups = m / 8;
    for (std::size_t g = 0; g < groups; ++g) {
        u64 w;
        std::memcpy(&w, codes + 8 * g, 8);
        put<BITS>(out + BITS * g, together<BITS>(w));
    }
    if (m % 8 == 0) return;
    u64 w;
    std::memcpy(&w, codes + 8 * groups, 8);
    w = together<BITS>(w);
    std::memcpy(out + BITS * groups, &w, (BITS * (m % 8) + 7) / 8);
}

// Writes up to 7 bytes beyond m codes.
template <int BITS>
inline __attribute__((always_inline)) void unpack(const u8 *in, std::size_t m, u8 *codes) {
    const std::size_t bytes = (BITS * m + 7) / 8, groups = (m + 7) / 8, whole = bytes < 8 ? 0 : (bytes - 8) / BITS;
    std::size_t g = 0;
    for (; g < whole; ++g) {  // 8 bytes at once, of which BITS count
        u64 w;
        std::memcpy(&w, in + BITS * g, 8);
        w = apart<BITS>(w);
        std::memcpy(codes + 8 * g, &w, 8);
    }
    for (; g < groups; ++g) {
        u64 w = 0;
        std::memcpy(&w, in + BITS * g, bytes - BITS * g < 8 ? bytes - BITS * g : 8);
        w = apart<BITS>(w);
        std::memcpy(codes + 8 * g, &w, 8);
    }
}

}  // namespace codestream
