// The data of a call: its MPI buffers, a 128-bit hash of their contents, and the sizes of their numbers.
#pragma once

#include <cfloat>
#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <vector>

#include <mpi.h>

#include "numbers.hpp"
#include "running.hpp"

namespace fpna {

struct Span {
    const void *start;
    MPI_Aint count;
    MPI_Datatype type;
};
using Spans = std::vector<Span>;

// A communicator of this library that returns errors: only the program's own call may report an error of the program.
inline MPI_Comm own_comm = MPI_COMM_NULL;

constexpr MPI_Aint PACKED_BYTES = 1 << 20;

struct Hashed {
    std::uint8_t digest[16] = {};
    std::int64_t bytes = 0;
    bool packed = false;
    Basic basic = Basic::NONE;
    Sizes sizes = {};
};

// Whether the elements of a type are contiguous; writes the size of one in bytes.
// `known`: answer true only for the type of the last call.
inline bool dense(MPI_Datatype type, MPI_Aint &size, bool known = false) {
    static thread_local MPI_Datatype last = MPI_DATATYPE_NULL;  // most programs use one or two, predefined and never freed
    static thread_local MPI_Aint last_size = 0;
    if (type == last) return size = last_size, true;
    if (known) return false;
    MPI_Count bytes = 0;
    MPI_Aint lower, extent;
    PMPI_Type_size_x(type, &bytes);
    PMPI_Type_get_extent(type, &lower, &extent);
    size = MPI_Aint(bytes);
    if (lower != 0 || extent != size) return false;
    const int combiner = made(type, false).combiner;
    if (combiner == MPI_COMBINER_NAMED) last = type, last_size = size;
    return combiner == MPI_COMBINER_NAMED || combiner == MPI_COMBINER_CONTIGUOUS;
}

// Whether a type is predefined: the program may free others as soon as a call has begun.
inline bool lasting(MPI_Datatype type) {
    MPI_Aint size;
    return type == MPI_DATATYPE_NULL || dense(type, size, true) || predefined_or_kind(made(type, false).combiner);
}

// Duplicates the types of receive buffers, which the program may free before the call ends.
inline void hold(Spans &spans) {
    MPI_Datatype last = MPI_DATATYPE_NULL, own = MPI_DATATYPE_NULL;
    for (Span &span : spans) {
        if (lasting(span.type)) continue;
        if (span.type != last) {
            last = span.type;
            PMPI_Type_dup(last, &own);
        }
        span.type = own;
    }
}

inline void release(Spans &spans) {
    for (std::size_t i = 0; i < spans.size(); ++i) {
        MPI_Datatype type = spans[i].type;
        if (lasting(type)) continue;
        for (std::size_t j = i; j < spans.size(); ++j)
            if (spans[j].type == type) spans[j].type = MPI_DATATYPE_NULL;
        PMPI_Type_free(&type);
    }
}

// The address `elements` after the beginning of a buffer.
inline const void *part(const void *buffer, MPI_Aint elements, MPI_Datatype type) {
    MPI_Aint lower, extent;
    if (type == MPI_DATATYPE_NULL) return buffer;
    PMPI_Type_get_extent(type, &lower, &extent);
    return static_cast<const char *>(buffer) + elements * extent;
}

// Whether the span has data: a null pointer is a valid address only for types with absolute addresses (MPI_BOTTOM).
inline bool readable(const Span &span) {
    if (span.count <= 0 || span.type == MPI_DATATYPE_NULL) return false;
    if (span.start) return true;
    MPI_Aint lower = 0, extent = 0;
    PMPI_Type_get_true_extent(span.type, &lower, &extent);
    return lower != 0;
}

inline void put(XXH128_hash_t hash, std::uint8_t *digest) {
    XXH128_canonical_t canonical;
    XXH128_canonicalFromHash(&canonical, hash);
    std::memcpy(digest, canonical.digest, 16);
}

// Packed data of one type on its way to the hash and to the sizes: of pairs (MPI_DOUBLE_INT) the values alone are measured,
// and the bytes of a long double that are no part of its number are hashed as zeros.
class Content {
  public:
    Content(Basic basic, const Pair &pair)
        : pair_(pair), arithmetic_(measured(basic, pair)), numbers_(measured(basic, pair)) {
        XXH3_128bits_reset(&state());
        const Basic of = measured(basic, pair);
        padded_ = SIGNIFICANT < sizeof(long double) && (of == Basic::LONGDOUBLE || of == Basic::CLONGDOUBLE);
        each_ = pair.bytes ? pair.bytes : sizeof(long double);
    }

    // Whether data of the type can be hashed as it is, and all of it are numbers.
    static bool plain(Basic basic, const Pair &pair) {
        return !pair.bytes && basic != Basic::LONGDOUBLE && basic != Basic::CLONGDOUBLE;
    }

    // `bytes` of whole elements.
    void take(const void *start, std::size_t bytes) {
        const char *data = static_cast<const char *>(start);
        if (padded_) {
            clean_.assign(data, data + bytes);
            for (std::size_t at = 0; at + sizeof(long double) <= bytes; at += each_)
                std::memset(clean_.data() + at + SIGNIFICANT, 0, sizeof(long double) - SIGNIFICANT);
            data = clean_.data();
        }
        XXH3_128bits_update(&state(), data, bytes);
        if (!pair_.bytes) return numbers_.take(data, bytes);
        values_.clear();
        with_numbers(pair_.value, [&](auto zero) {
            for (std::size_t at = 0; at < bytes; at += pair_.bytes)
                values_.insert(values_.end(), data + at, data + at + sizeof zero);
        });
        numbers_.take(values_.data(), values_.size());
    }

    void put(Hashed &result) {
        fpna::put(XXH3_128bits_digest(&state()), result.digest);
        result.sizes = numbers_.sizes();
    }

  private:
    static constexpr std::size_t SIGNIFICANT = LDBL_MANT_DIG == 64 ? 10 : sizeof(long double);  // bytes of a long double

    static Basic measured(Basic basic, const Pair &pair) { return pair.bytes ? pair.value : basic; }
    static XXH3_state_t &state() {
        static XXH3_state_t own;
        return own;
    }

    Pair pair_;
    Arithmetic arithmetic_;
    Numbers numbers_;
    bool padded_ = false;
    std::size_t each_ = 0;
    std::vector<char> clean_, values_;
};

// Hashes several spans, one after the other, without the gaps of types. Of a pair type, `basic` is NONE, with the sizes of the
// values. The caller holds the lock.
inline Hashed hash(const Span *spans, std::size_t n) {
    Hashed result;
    MPI_Aint size;
    result.basic = n ? basic_of(spans->type) : Basic::NONE;
    Pair pair = n && result.basic == Basic::NONE ? pair_of(spans->type) : Pair{};
    if (n == 1 && spans->start && readable(*spans) && dense(spans->type, size) && Content::plain(result.basic, pair)) {
        result.bytes = size * spans->count;
        put(XXH3_128bits(spans->start, std::size_t(result.bytes)), result.digest);
        result.sizes = sizes_of(result.basic, spans->start, std::size_t(result.bytes));
        return result;
    }
    static std::vector<char> packed;
    for (std::size_t i = 1; i < n; ++i) {
        if (basic_of(spans[i].type) != result.basic) result.basic = Basic::NONE;
        if (spans[i].type != spans->type) pair = {};
    }
    Content content(result.basic, pair);
    for (std::size_t i = 0; i < n; ++i) {
        const Span &span = spans[i];
        if (!readable(span)) continue;
        const bool flat = dense(span.type, size);
        result.bytes += size * span.count;
        if (flat) {
            content.take(span.start, std::size_t(size * span.count));
            continue;
        }
        result.packed = true;
        const MPI_Aint each = PACKED_BYTES / (size > 0 ? size : 1) + 1;  // elements at once
        for (MPI_Aint at = 0; at < span.count; at += each) {
            const int some = int(each < span.count - at ? each : span.count - at);
            int length = 0, position = 0;
            if (PMPI_Pack_size(some, span.type, own_comm, &length) != MPI_SUCCESS || length < 0) break;
            packed.resize(std::size_t(length) + 1);
            if (PMPI_Pack(part(span.start, at, span.type), some, span.type, packed.data(), length, &position, own_comm) !=
                MPI_SUCCESS)
                break;  // a type that was not committed: the library refuses the call, too
            content.take(packed.data(), std::size_t(position));
        }
    }
    content.put(result);
    return result;
}

inline Hashed hash(std::initializer_list<Span> spans) { return hash(spans.begin(), spans.size()); }

}  // namespace fpna
