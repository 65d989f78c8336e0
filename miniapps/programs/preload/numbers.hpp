// The kind of numbers in data of an MPI type, and their sizes (kernels/include/sizes.hpp).
#pragma once

#include <complex>
#include <cstdint>
#include <unordered_map>
#include <vector>

#include <mpi.h>

#include "include/environment.hpp"
#include "include/sizes.hpp"

namespace fpna {

// The type of the elements. Numbered as in rawlog.BASICS.
enum class Basic : std::uint16_t {
    NONE, FLOAT64, FLOAT32, FLOAT16, LONGDOUBLE, COMPLEX128, COMPLEX64, CLONGDOUBLE, INT8, INT16, INT32, INT64, UINT8, UINT16,
    UINT32, UINT64, BOOL,
};

template <typename Handle>
std::uint64_t number_of(Handle handle);

// Predefined types by class; class and size give the type of the elements.
inline Basic predefined(MPI_Datatype type) {
    enum Class { REAL, COMPLEX, SIGNED, UNSIGNED, LOGICAL };
    static const std::pair<Class, std::vector<MPI_Datatype>> classes[] = {
        {REAL, {MPI_DOUBLE, MPI_FLOAT, MPI_LONG_DOUBLE, MPI_DOUBLE_PRECISION, MPI_REAL, MPI_REAL4, MPI_REAL8}},
        {COMPLEX, {MPI_C_COMPLEX, MPI_C_FLOAT_COMPLEX, MPI_C_DOUBLE_COMPLEX, MPI_C_LONG_DOUBLE_COMPLEX, MPI_CXX_FLOAT_COMPLEX,
                   MPI_CXX_DOUBLE_COMPLEX, MPI_CXX_LONG_DOUBLE_COMPLEX, MPI_COMPLEX, MPI_DOUBLE_COMPLEX, MPI_COMPLEX8,
                   MPI_COMPLEX16}},
        {SIGNED, {MPI_INT, MPI_LONG, MPI_LONG_LONG, MPI_SHORT, MPI_SIGNED_CHAR, MPI_INT8_T, MPI_INT16_T, MPI_INT32_T,
                  MPI_INT64_T, MPI_AINT, MPI_OFFSET, MPI_COUNT, MPI_INTEGER, MPI_INTEGER1, MPI_INTEGER2, MPI_INTEGER4,
                  MPI_INTEGER8}},
        {UNSIGNED, {MPI_UNSIGNED, MPI_UNSIGNED_LONG, MPI_UNSIGNED_LONG_LONG, MPI_UNSIGNED_SHORT, MPI_UNSIGNED_CHAR, MPI_UINT8_T,
                    MPI_UINT16_T, MPI_UINT32_T, MPI_UINT64_T}},
        {LOGICAL, {MPI_C_BOOL, MPI_CXX_BOOL}}};
    static const std::unordered_map<std::uint64_t, Class> known = [] {
        std::unordered_map<std::uint64_t, Class> found;
        for (const auto &[of, types] : classes)
            for (MPI_Datatype each : types)
                if (each != MPI_DATATYPE_NULL) found.emplace(number_of(each), of);
        return found;
    }();
    const auto place = known.find(number_of(type));
    if (place == known.end()) return Basic::NONE;
    int bytes = 0;
    PMPI_Type_size(type, &bytes);
    const auto whole = [&](Basic first) { return bytes == 1   ? first
                                                 : bytes == 2 ? Basic(int(first) + 1)
                                                 : bytes == 4 ? Basic(int(first) + 2)
                                                 : bytes == 8 ? Basic(int(first) + 3)
                                                              : Basic::NONE; };
    switch (place->second) {
        case REAL:
            return type == MPI_LONG_DOUBLE && bytes == sizeof(long double) ? Basic::LONGDOUBLE
                   : bytes == 8                                           ? Basic::FLOAT64
                   : bytes == 4                                           ? Basic::FLOAT32
                   : bytes == 2                                           ? Basic::FLOAT16
                                                                          : Basic::NONE;
        case COMPLEX:
            return bytes == 16                             ? Basic::COMPLEX128
                   : bytes == 8                            ? Basic::COMPLEX64
                   : bytes == int(2 * sizeof(long double)) ? Basic::CLONGDOUBLE
                                                           : Basic::NONE;
        case SIGNED: return whole(Basic::INT8);
        case UNSIGNED: return whole(Basic::UINT8);
        default: return bytes == 1 ? Basic::BOOL : Basic::NONE;
    }
}

// The combiner of a type, and its parts. Types made by large-count functions need large-count queries.
struct Made {
    int combiner = MPI_COMBINER_NAMED;
    std::vector<MPI_Datatype> parts;  // the caller frees those that are not predefined
};

inline bool predefined_or_kind(int combiner) {
    return combiner == MPI_COMBINER_NAMED || combiner == MPI_COMBINER_F90_REAL || combiner == MPI_COMBINER_F90_COMPLEX ||
           combiner == MPI_COMBINER_F90_INTEGER;
}

inline Made made(MPI_Datatype type, bool with_parts) {
    Made made;
#if MPI_VERSION >= 4
    MPI_Count integers = 0, addresses = 0, large = 0, types = 0;
    PMPI_Type_get_envelope_c(type, &integers, &addresses, &large, &types, &made.combiner);
#else
    int integers = 0, addresses = 0, types = 0;
    PMPI_Type_get_envelope(type, &integers, &addresses, &types, &made.combiner);
#endif
    if (!with_parts || predefined_or_kind(made.combiner)) return made;
    made.parts.assign(std::size_t(types) + 1, MPI_DATATYPE_NULL);
    std::vector<int> ints(std::size_t(integers) + 1);
    std::vector<MPI_Aint> places(std::size_t(addresses) + 1);
#if MPI_VERSION >= 4
    std::vector<MPI_Count> counts(std::size_t(large) + 1);
    PMPI_Type_get_contents_c(type, integers, addresses, large, types, ints.data(), places.data(), counts.data(),
                             made.parts.data());
#else
    PMPI_Type_get_contents(type, integers, addresses, types, ints.data(), places.data(), made.parts.data());
#endif
    made.parts.pop_back();
    return made;
}

// The common basic type of all elements of a type; NONE for other types and for mixtures.
inline Basic basic_of(MPI_Datatype type) {
    static MPI_Datatype last = MPI_DATATYPE_NULL;  // most programs use one or two, predefined and never freed
    static Basic last_basic = Basic::NONE;
    static int keyval = MPI_KEYVAL_INVALID;  // an attribute of the program's types keeps the result until they are freed
    if (type == last) return last_basic;
    if (type == MPI_DATATYPE_NULL) return Basic::NONE;
    const int combiner = made(type, false).combiner;
    if (combiner == MPI_COMBINER_NAMED) {
        last = type;
        return last_basic = predefined(type);
    }
    if (predefined_or_kind(combiner)) {
        int bytes = 0;
        PMPI_Type_size(type, &bytes);
        const bool real = combiner == MPI_COMBINER_F90_REAL, complex = combiner == MPI_COMBINER_F90_COMPLEX;
        if (real) return bytes == 8 ? Basic::FLOAT64 : bytes == 4 ? Basic::FLOAT32 : Basic::NONE;
        if (complex) return bytes == 16 ? Basic::COMPLEX128 : bytes == 8 ? Basic::COMPLEX64 : Basic::NONE;
        return bytes == 8 ? Basic::INT64 : bytes == 4 ? Basic::INT32 : bytes == 2 ? Basic::INT16 : Basic::NONE;
    }
    if (keyval == MPI_KEYVAL_INVALID) PMPI_Type_create_keyval(MPI_TYPE_DUP_FN, MPI_TYPE_NULL_DELETE_FN, &keyval, nullptr);
    void *value = nullptr;
    int there = 0;
    PMPI_Type_get_attr(type, keyval, &value, &there);
    if (there) return Basic(reinterpret_cast<std::uintptr_t>(value));
    Made whole = made(type, true);
    const Basic first = whole.parts.empty() ? Basic::NONE : basic_of(whole.parts[0]);
    Basic all = first;
    for (MPI_Datatype &part : whole.parts) {
        if (basic_of(part) != first) all = Basic::NONE;
        if (!predefined_or_kind(made(part, false).combiner)) PMPI_Type_free(&part);
    }
    PMPI_Type_set_attr(type, keyval, reinterpret_cast<void *>(std::uintptr_t(all)));
    return all;
}

// A type of a value and its index, as of MPI_MINLOC: the type of the value, and the bytes of both without the gap.
struct Pair {
    Basic value = Basic::NONE;
    std::size_t bytes = 0;
};

inline Pair pair_of(MPI_Datatype type) {
    static const std::pair<MPI_Datatype, MPI_Datatype> pairs[] = {
        {MPI_DOUBLE_INT, MPI_DOUBLE}, {MPI_FLOAT_INT, MPI_FLOAT}, {MPI_LONG_INT, MPI_LONG}, {MPI_2INT, MPI_INT},
        {MPI_SHORT_INT, MPI_SHORT}, {MPI_LONG_DOUBLE_INT, MPI_LONG_DOUBLE}, {MPI_2REAL, MPI_REAL},
        {MPI_2DOUBLE_PRECISION, MPI_DOUBLE_PRECISION}, {MPI_2INTEGER, MPI_INTEGER}};
    if (type == MPI_DATATYPE_NULL) return {};
    for (const auto &[pair, value] : pairs) {
        if (pair != type) continue;
        int bytes = 0;
        PMPI_Type_size(type, &bytes);
        return {basic_of(value), std::size_t(bytes)};
    }
    return {};
}

// The floating-point environment for measuring numbers of this type.
class Arithmetic : DefaultEnvironment {
  public:
    explicit Arithmetic(Basic basic) : DefaultEnvironment(basic == Basic::LONGDOUBLE || basic == Basic::CLONGDOUBLE) {}
};

// Calls `with(Number())` for the real numbers in elements of this type.
template <typename With>
void with_numbers(Basic basic, With with) {
    switch (basic) {
        case Basic::NONE: return;
        case Basic::FLOAT64:
        case Basic::COMPLEX128: return with(double());
        case Basic::FLOAT32:
        case Basic::COMPLEX64: return with(float());
        case Basic::FLOAT16: return with(float16());
        case Basic::LONGDOUBLE:
        case Basic::CLONGDOUBLE: return with((long double)(0));
        case Basic::INT8: return with(std::int8_t());
        case Basic::INT16: return with(std::int16_t());
        case Basic::INT32: return with(std::int32_t());
        case Basic::INT64: return with(std::int64_t());
        case Basic::UINT16: return with(std::uint16_t());
        case Basic::UINT32: return with(std::uint32_t());
        case Basic::UINT64: return with(std::uint64_t());
        case Basic::UINT8:
        case Basic::BOOL: return with(std::uint8_t());
    }
}

// The sizes of contiguous data.
inline Sizes sizes_of(Basic basic, const void *start, std::size_t bytes) {
    const Arithmetic ours(basic);
    Sizes found;
    with_numbers(basic, [&](auto zero) {
        found = sizes::of<decltype(zero)>(start, std::int64_t(bytes / sizeof zero));
    });
    return found;
}

// The sizes of data in pieces.
class Numbers {
  public:
    explicit Numbers(Basic basic) : basic_(basic) {}

    void take(const void *start, std::size_t bytes) {
        with_numbers(basic_, [&](auto zero) { measured_.take<decltype(zero)>(start, bytes / sizeof zero); });
    }

    Sizes sizes() { return measured_.sizes(); }

  private:
    Basic basic_;
    sizes::Measured measured_;
};

}  // namespace fpna
