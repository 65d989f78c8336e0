// Data of a call: buffers as MPI has them, 128 bits of hash of what is in them, and how large it is.
#pragma once

#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <vector>

#include <mpi.h>

#include "numbers.hpp"

#define XXH_INLINE_ALL  // the hash of the traces; Python's package of it brings no header, so it is here with its license
#include "third_party/xxhash.h"

namespace fpna {

struct Span {
    const void *start;
    MPI_Aint count;
    MPI_Datatype type;
};

struct Hashed {
    std::uint8_t digest[16] = {};
    std::int64_t bytes = 0;
    bool packed = false;
    Basic basic = Basic::NONE;
    Sizes sizes = {};
};

// Whether the elements of a type lie one after the other without gaps, and how long one is.
inline bool dense(MPI_Datatype type, MPI_Aint &size) {
    static MPI_Datatype last = MPI_DATATYPE_NULL;  // most programs use one or two, predefined and never freed
    static MPI_Aint last_size = 0;
    if (type == last) return size = last_size, true;
    int bytes = 0, integers, addresses, types, combiner;
    MPI_Aint lower, extent;
    PMPI_Type_size(type, &bytes);
    PMPI_Type_get_extent(type, &lower, &extent);
    size = bytes;
    if (lower != 0 || extent != bytes) return false;
    PMPI_Type_get_envelope(type, &integers, &addresses, &types, &combiner);
    if (combiner == MPI_COMBINER_NAMED) last = type, last_size = bytes;
    return combiner == MPI_COMBINER_NAMED || combiner == MPI_COMBINER_CONTIGUOUS;
}

inline void put(XXH128_hash_t hash, std::uint8_t *digest) {
    XXH128_canonical_t canonical;
    XXH128_canonicalFromHash(&canonical, hash);
    std::memcpy(digest, canonical.digest, 16);
}

// Of several spans, one after the other. Gaps of a type are not part of the data.
inline Hashed hash(const Span *spans, std::size_t n) {
    Hashed result;
    MPI_Aint size;
    if (n == 1 && spans->start && dense(spans->type, size)) {
        result.bytes = size * spans->count;
        put(XXH3_128bits(spans->start, std::size_t(result.bytes)), result.digest);
        result.basic = basic_of(spans->type);
        result.sizes = sizes_of(result.basic, spans->start, std::size_t(result.bytes));
        return result;
    }
    static XXH3_state_t state;
    static std::vector<char> packed;
    XXH3_128bits_reset(&state);
    result.basic = n ? basic_of(spans->type) : Basic::NONE;
    for (std::size_t i = 1; i < n; ++i)
        if (basic_of(spans[i].type) != result.basic) result.basic = Basic::NONE;
    const Arithmetic ours;
    Numbers numbers(result.basic);
    for (std::size_t i = 0; i < n; ++i) {
        const Span &span = spans[i];
        if (!span.start || span.count <= 0) continue;
        const bool flat = dense(span.type, size);
        result.bytes += size * span.count;
        if (flat) {
            XXH3_128bits_update(&state, span.start, std::size_t(size * span.count));
            numbers.take(span.start, std::size_t(size * span.count));
            continue;
        }
        int length = 0, position = 0;
        PMPI_Pack_size(int(span.count), span.type, MPI_COMM_SELF, &length);
        packed.resize(std::size_t(length));
        PMPI_Pack(span.start, int(span.count), span.type, packed.data(), length, &position, MPI_COMM_SELF);
        XXH3_128bits_update(&state, packed.data(), std::size_t(position));
        numbers.take(packed.data(), std::size_t(position));
        result.packed = true;
    }
    put(XXH3_128bits_digest(&state), result.digest);
    if (result.basic != Basic::NONE) result.sizes = numbers.sizes();
    return result;
}

inline Hashed hash(std::initializer_list<Span> spans) { return hash(spans.begin(), spans.size()); }

}  // namespace fpna
