// Integers packed into as few bits as a block of them needs, without loss: the wire `packed` (kernels/wires/packed.py).
//
// A vector of n elements of `width` words is cut into blocks of 64 elements. The words of one place in the elements of
// a block form a group, since limbs of a number differ in size, but limbs of the same place do not. A group is written
// as
//
//     one byte   the zero bits at the low end that all words have, at most 63
//     one byte   bits of a word between these and its sign, the sign included; 0 where all are zero
//     that many bits of each word, one after the other, up to a whole byte
//
// Words of more than 56 bits are written as 64. Reading and writing move 8 bytes at once: buffers are 8 bytes longer
// than their content.
#include <cstring>
#include <stdexcept>

#include "kernels.hpp"

namespace {

using i64 = std::int64_t;
using u64 = std::uint64_t;
using u8 = std::uint8_t;

constexpr std::size_t GROUP = 64;  // words
constexpr int WHOLE = 64, MOST_PACKED = 56;
constexpr std::size_t SLACK = 8;

inline std::size_t bytes_of(std::size_t count, int bits) { return (count * bits + 7) / 8; }

template <std::size_t STRIDE>
inline __attribute__((always_inline)) u8 *pack_group(const i64 *x, std::size_t stride, std::size_t count, u8 *out) {
    if (STRIDE) stride = STRIDE;
    u64 any = 0, spread = 0;
    for (std::size_t i = 0; i < count; ++i) {
        const i64 v = x[i * stride];
        any |= u64(v);
        spread |= u64(v ^ (v >> 63));
    }
    const int zeros = any ? __builtin_ctzll(any) : 0;
    int bits = any ? (spread ? WHOLE - __builtin_clzll(spread) : 0) + 1 - zeros : 0;
    if (bits > MOST_PACKED) bits = WHOLE;
    *out++ = u8(bits == WHOLE ? 0 : zeros);
    *out++ = u8(bits);
    if (!bits) return out;
    if (bits == WHOLE) {
        for (std::size_t i = 0; i < count; ++i, out += 8) std::memcpy(out, x + i * stride, 8);
        return out;
    }
    const u64 mask = (u64(1) << bits) - 1;
    u8 *const end = out + bytes_of(count, bits);
    u64 held = 0;
    int fill = 0;
    for (std::size_t i = 0; i < count; ++i) {
        held |= ((u64(x[i * stride]) >> zeros) & mask) << fill;
        std::memcpy(out, &held, 8);
        const int whole = (fill + bits) >> 3;
        out += whole;
        held >>= 8 * whole;
        fill = (fill + bits) & 7;
    }
    return end;
}

template <std::size_t STRIDE>
inline __attribute__((always_inline)) const u8 *unpack_group(const u8 *in, const u8 *limit, std::size_t stride,
                                                             std::size_t count, i64 *x) {
    if (STRIDE) stride = STRIDE;
    if (limit - in < 2) return nullptr;
    const int zeros = in[0], bits = in[1];
    in += 2;
    const std::size_t bytes = bits == WHOLE ? 8 * count : bytes_of(count, bits);
    if (zeros > 63 || (bits > MOST_PACKED && bits != WHOLE) || std::size_t(limit - in) < bytes) return nullptr;
    if (!bits) {
        for (std::size_t i = 0; i < count; ++i) x[i * stride] = 0;
        return in;
    }
    if (bits == WHOLE) {
        for (std::size_t i = 0; i < count; ++i) std::memcpy(x + i * stride, in + 8 * i, 8);
        return in + bytes;
    }
    const int unused = WHOLE - bits;
    for (std::size_t i = 0; i < count; ++i) {
        u64 word;
        std::memcpy(&word, in + (i * bits >> 3), 8);
        x[i * stride] = i64(u64(i64((word >> (i * bits & 7)) << unused) >> unused) << zeros);
    }
    return in + bytes;
}

FPNA_CLONES std::size_t pack_all(const i64 *x, std::size_t n, std::size_t width, u8 *out) {
    u8 *const begin = out;
    for (std::size_t first = 0; first < n; first += GROUP) {
        const std::size_t count = n - first < GROUP ? n - first : GROUP;
        if (width == 1)
            out = pack_group<1>(x + first, 1, count, out);
        else
            for (std::size_t k = 0; k < width; ++k) out = pack_group<0>(x + first * width + k, width, count, out);
    }
    return std::size_t(out - begin);
}

// Whether the bytes were those of n elements.
FPNA_CLONES bool unpack_all(const u8 *in, std::size_t bytes, std::size_t n, std::size_t width, i64 *x) {
    const u8 *const limit = in + bytes;
    for (std::size_t first = 0; first < n; first += GROUP) {
        const std::size_t count = n - first < GROUP ? n - first : GROUP;
        for (std::size_t k = 0; k < width; ++k) {
            in = width == 1 ? unpack_group<1>(in, limit, 1, count, x + first)
                            : unpack_group<0>(in, limit, width, count, x + first * width + k);
            if (!in) return false;
        }
    }
    return true;
}

void require(std::size_t words, std::size_t width) {
    if (width == 0 || words % width) throw std::invalid_argument("words are not a whole number of elements");
}

}  // namespace

std::size_t packed_bytes(std::size_t n, std::size_t width) {
    return width * (8 * n + 2 * ((n + GROUP - 1) / GROUP)) + SLACK;
}

std::size_t pack(array<i64> words, std::size_t width, array<u8> out) {
    require(words.size(), width);
    const std::size_t n = words.size() / width;
    if (std::size_t(out.size()) < packed_bytes(n, width)) throw std::invalid_argument("the buffer is too short");
    return pack_all(words.data(), n, width, out.mutable_data());
}

void unpack(array<u8> packed, std::size_t width, array<i64> out) {
    require(out.size(), width);
    if (std::size_t(packed.size()) < SLACK) throw std::invalid_argument("the buffer is too short");
    if (!unpack_all(packed.data(), packed.size() - SLACK, out.size() / width, width, out.mutable_data()))
        throw std::invalid_argument("the bytes are not packed words of so many elements");
}
