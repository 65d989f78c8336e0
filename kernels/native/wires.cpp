// Codecs of wires with loss (kernels/wires): cells of float32 to bytes and back, with the bits of
// kernels/wires/reference.py. Each cell is encoded by itself, in one thread.
#include <cmath>
#include <cstring>
#include <stdexcept>
#include <string>

#include "native.hpp"

using std::sqrt;
#include "../include/codes.hpp"
#include "codestream.hpp"

#pragma GCC diagnostic ignored "-Wpsabi"  // vectors are passed within this file alone

namespace {

using i64 = std::int64_t;
using u8 = std::uint8_t;

constexpr std::size_t CELL = 4096, LANES = 16, SLACK = 8;

#define FPNA_INLINE inline __attribute__((always_inline))

template <typename T>
FPNA_INLINE T load(const void *from) {
    T value;
    std::memcpy(&value, from, sizeof(T));
    return value;
}

template <typename T>
FPNA_INLINE void store(void *to, T value) {
    std::memcpy(to, &value, sizeof(T));
}

struct Put {
    FPNA_INLINE static void to(float *at, float value) { *at = value; }
};

struct Add {
    FPNA_INLINE static void to(float *at, float value) { *at += value; }
};

FPNA_CLONES int largest_magnitude(const float *x, std::size_t m) {
    int largest = 0;
    for (std::size_t i = 0; i < m; ++i) {
        const int magnitude = magnitude_of(x[i]);
        largest = magnitude > largest ? magnitude : largest;
    }
    return largest;
}

FPNA_CLONES int largest_finite(const float *x, std::size_t m) {
    int largest = 0;
    for (std::size_t i = 0; i < m; ++i) {
        const int magnitude = magnitude_of(x[i]), finite = magnitude < INFINITE ? magnitude : 0;
        largest = finite > largest ? finite : largest;
    }
    return largest;
}

// Float64 sums of LANES lanes, in vectors that every compiler knows.
typedef float Floats __attribute__((vector_size(32)));
typedef int Ints __attribute__((vector_size(32)));
typedef double Doubles __attribute__((vector_size(64)));
constexpr std::size_t WIDTH = 8;

struct Lanes {
    Doubles low = {}, high = {};

    FPNA_INLINE double total() const {
        Doubles sum = low + high;
        for (int w = 4; w > 0; w /= 2)
            for (int i = 0; i < w; ++i) sum[i] += sum[i + w];
        return sum[0];
    }
};

// term(elements) added for all of x, each Floats of it; what is missing of the last row is zero.
template <typename Each>
FPNA_INLINE void in_rows(const float *x, std::size_t m, Each each) {
    std::size_t i = 0;
    for (; i + LANES <= m; i += LANES) each(load<Floats>(x + i), load<Floats>(x + i + WIDTH));
    if (i == m) return;
    float rest[LANES] = {};
    std::memcpy(rest, x + i, (m - i) * sizeof(float));
    each(load<Floats>(rest), load<Floats>(rest + WIDTH));
}

FPNA_INLINE Doubles wide(Floats x) { return __builtin_convertvector(x, Doubles); }

FPNA_CLONES double sum_of_squares(const float *x, std::size_t m) {
    Lanes sum;
    in_rows(x, m, [&](Floats low, Floats high) __attribute__((always_inline)) {
        sum.low += wide(low) * wide(low);
        sum.high += wide(high) * wide(high);
    });
    return sum.total();
}

FPNA_CLONES void add_floats(const u8 *data, std::size_t m, float *into) {
    for (std::size_t i = 0; i < m; ++i) into[i] += load<float>(data + 4 * i);
}

// Encodes m elements; those of casts are multiplied by `by` first.
using Encode = void (*)(const float *x, std::size_t m, float by, u8 *out);
// Decodes m elements, multiplies them by `by` and puts them to `out` or adds them.
using Decode = void (*)(const u8 *data, std::size_t m, float by, float *out);

template <typename Cast>
FPNA_INLINE void encode_cast(const float *x, std::size_t m, float by, u8 *out) {
    using Code = typename Cast::Code;
    for (std::size_t i = 0; i < m; ++i) store(out + sizeof(Code) * i, Cast::code(x[i] * by));
}

template <typename Cast, typename To>
FPNA_INLINE void decode_cast(const u8 *data, std::size_t m, float by, float *out) {
    using Code = typename Cast::Code;
    for (std::size_t i = 0; i < m; ++i) To::to(out + i, Cast::value(load<Code>(data + sizeof(Code) * i)) * by);
}

template <typename Whole, int BITS>
FPNA_INLINE void encode_whole(const float *x, std::size_t m, u8 *out) {
    const int largest = largest_magnitude(x, m), e = unit_exponent(largest, BITS);
    if (largest >= INFINITE) {
        store(out, QUIET_NAN);
        std::memset(out + 4, 0, m * sizeof(Whole));
        return;
    }
    const float unit = power_of_two(e), inverse = 1.0f / unit;
    store(out, unit);
    for (std::size_t i = 0; i < m; ++i)
        store(out + 4 + sizeof(Whole) * i, static_cast<Whole>(whole_of<BITS>(x[i] * inverse)));
}

template <typename Whole, typename To>
FPNA_INLINE void decode_whole(const u8 *data, std::size_t m, float by, float *out) {
    const float unit = load<float>(data);
    for (std::size_t i = 0; i < m; ++i)
        To::to(out + i, static_cast<float>(load<Whole>(data + 4 + sizeof(Whole) * i)) * unit * by);
}

FPNA_INLINE void encode_sign(const float *x, std::size_t m, u8 *out) {
    Lanes positive, negative;
    in_rows(x, m, [&](Floats low, Floats high) __attribute__((always_inline)) {
        const Ints a = Ints(low), b = Ints(high), a_sign = a >> 31, b_sign = b >> 31;
        positive.low += wide(Floats(a & ~a_sign));
        positive.high += wide(Floats(b & ~b_sign));
        negative.low += wide(Floats(a & a_sign));
        negative.high += wide(Floats(b & b_sign));
    });
    u8 codes[CELL + SLACK];
    int count = 0;
    for (std::size_t i = 0; i < m; ++i) codes[i] = u8(bits_of_float(x[i]) >> 31);
    for (std::size_t i = 0; i < m; ++i) count += codes[i];
    std::memset(codes + m, 0, SLACK);
    codestream::pack<1>(codes, m, out + 8);
    const double sums[] = {positive.total(), negative.total()}, counts[] = {double(m) - count, double(count)};
    const bool finite = sums[0] - sums[0] == 0 && sums[1] - sums[1] == 0;
    for (int s = 0; s < 2; ++s) {
        const float mean = counts[s] > 0 ? float(sums[s] / counts[s]) : 0.0f;
        store(out + 4 * s, finite ? bits_of_float(mean) : QUIET_NAN);
    }
}

template <typename To>
FPNA_INLINE void decode_sign(const u8 *data, std::size_t m, float by, float *out) {
    const Ints bit = {1, 2, 4, 8, 16, 32, 64, 128};
    Floats positive, negative;
    for (std::size_t l = 0; l < WIDTH; ++l) {
        positive[l] = load<float>(data) * by;
        negative[l] = load<float>(data + 4) * by;
    }
    const u8 *signs = data + 8;
    for (std::size_t i = 0; i < m; i += WIDTH) {
        const Floats value = (bit & int(signs[i / WIDTH])) != 0 ? negative : positive;
        const std::size_t count = m - i < WIDTH ? m - i : WIDTH;
        if (count == WIDTH)
            for (std::size_t l = 0; l < WIDTH; ++l) To::to(out + i + l, value[l]);
        else
            for (std::size_t l = 0; l < count; ++l) To::to(out + i + l, value[l]);
    }
}

// The percentiles of finite elements, as bfloat16.
template <int ENTRIES>
FPNA_INLINE void percentiles(const float *x, std::size_t m, int least, unsigned short *table) {
    constexpr std::size_t TURNS = 4;  // neighbours are counted apart: they are often of one bin
    unsigned short bins[CELL], counts[TURNS][BINS] = {};
    for (std::size_t i = 0; i < m; ++i) bins[i] = static_cast<unsigned short>(bin_of(magnitude_of(x[i]), least));
    std::size_t i = 0;
    for (; i + TURNS <= m; i += TURNS)
        for (std::size_t t = 0; t < TURNS; ++t) ++counts[t][bins[i + t]];
    for (; i < m; ++i) ++counts[0][bins[i]];
    int bin = 0, below = 0;
    const auto count = [&](int b) { return counts[0][b] + counts[1][b] + counts[2][b] + counts[3][b]; };
    below = count(0);
    for (int k = 1; k <= ENTRIES; ++k) {
        const int needed = rank_of(k, ENTRIES, int(m));
        while (below < needed) below += count(++bin);
        table[k - 1] = entry_of(bin, least);
    }
}

template <int BITS>
FPNA_INLINE void encode_table(const float *x, std::size_t m, u8 *out) {
    constexpr int ENTRIES = 1 << (BITS - 1), HEAD = 2 * ENTRIES;
    unsigned short table[ENTRIES];
    float middle[ENTRIES];
    u8 codes[CELL + SLACK];
    const int largest = largest_magnitude(x, m);
    if (largest >= INFINITE)
        for (unsigned short &entry : table) entry = QUIET_NAN >> 16;
    else
        percentiles<ENTRIES>(x, m, least_bin(largest), table);
    std::memcpy(out, table, HEAD);
    for (int j = 0; j + 1 < ENTRIES; ++j) middle[j] = (widen(bfloat16{table[j]}) + widen(bfloat16{table[j + 1]})) * 0.5f;
    for (std::size_t i = 0; i < m; ++i) {
        const float magnitude = float_of_bits(unsigned(magnitude_of(x[i])));
        int place = 0;
        if (BITS <= 5)
            for (int j = 0; j + 1 < ENTRIES; ++j) place += magnitude > middle[j];
        else
            for (int step = ENTRIES / 2; step > 0; step /= 2) place += magnitude > middle[place + step - 1] ? step : 0;
        codes[i] = u8(unsigned(place) | bits_of_float(x[i]) >> 31 << (BITS - 1));
    }
    std::memset(codes + m, 0, SLACK);
    codestream::pack<BITS>(codes, m, out + HEAD);
}

template <int BITS, typename To>
FPNA_INLINE void decode_table(const u8 *data, std::size_t m, float by, float *out) {
    constexpr int ENTRIES = 1 << (BITS - 1), HEAD = 2 * ENTRIES;
    float values[2 * ENTRIES];
    u8 codes[CELL + SLACK];
    for (int j = 0; j < ENTRIES; ++j) {
        values[j] = widen(bfloat16{load<unsigned short>(data + 2 * j)}) * by;
        values[j + ENTRIES] = -values[j];
    }
    codestream::unpack<BITS>(data + HEAD, m, codes);
    for (std::size_t i = 0; i < m; ++i) To::to(out + i, values[codes[i]]);
}

// target_clones does not go with templates, so each codec has functions of its own.
#define FPNA_CODEC(NAME, ENCODE, DECODE)                                                                       \
    FPNA_CLONES void encode_##NAME(const float *x, std::size_t m, float by, u8 *out) { ENCODE; }               \
    FPNA_CLONES void decode_##NAME(const u8 *data, std::size_t m, float by, float *out) { using To = Put; DECODE; } \
    FPNA_CLONES void add_##NAME(const u8 *data, std::size_t m, float by, float *out) { using To = Add; DECODE; }
#define FPNA_CAST(NAME, CAST) \
    FPNA_CODEC(NAME, (encode_cast<CAST>(x, m, by, out)), (decode_cast<CAST, To>(data, m, by, out)))
#define FPNA_WHOLE(NAME, WHOLE, BITS) \
    FPNA_CODEC(NAME, (encode_whole<WHOLE, BITS>(x, m, out)), (decode_whole<WHOLE, To>(data, m, by, out)))
#define FPNA_TABLE(BITS) \
    FPNA_CODEC(table_##BITS, (encode_table<BITS>(x, m, out)), (decode_table<BITS, To>(data, m, by, out)))
FPNA_CAST(float16, AsFloat16)
FPNA_CAST(bfloat16, AsBfloat16)
FPNA_CAST(e4m3, AsE4m3)
FPNA_CAST(e5m2, AsE5m2)
FPNA_CAST(fp8, AsFp8)
FPNA_WHOLE(int8, std::int8_t, 7)
FPNA_WHOLE(int16, std::int16_t, 15)
FPNA_CODEC(sign, (encode_sign(x, m, out)), (decode_sign<To>(data, m, by, out)))
FPNA_TABLE(1)
FPNA_TABLE(2)
FPNA_TABLE(3)
FPNA_TABLE(4)
FPNA_TABLE(5)
FPNA_TABLE(6)
FPNA_TABLE(7)
FPNA_TABLE(8)

void encode_floats(const float *x, std::size_t m, float, u8 *out) { std::memcpy(out, x, 4 * m); }
void decode_floats(const u8 *data, std::size_t m, float, float *out) { std::memcpy(out, data, 4 * m); }
void add_all_floats(const u8 *data, std::size_t m, float, float *into) { add_floats(data, m, into); }

struct Codec {
    const char *name;
    int n, bits;
    std::size_t head;  // bytes of a cell before its stream
    int top;           // of casts
    Encode encode;
    Decode decode, add;

    std::size_t nbytes(std::size_t m) const { return head + (bits * m + 7) / 8; }
};

#define FPNA_ROW(NAME, BITS, HEAD, TOP) {#NAME, 0, BITS, HEAD, TOP, encode_##NAME, decode_##NAME, add_##NAME}
#define FPNA_TABLE_ROW(BITS) {"table", BITS, BITS, 2u << (BITS - 1), 0, encode_table_##BITS, decode_table_##BITS, add_table_##BITS}
const Codec FLOATS = {"float32", 0, 32, 0, 0, encode_floats, decode_floats, add_all_floats};
const Codec CODECS[] = {
    FLOATS,
    FPNA_ROW(float16, 16, 0, AsFloat16::TOP),
    FPNA_ROW(bfloat16, 16, 0, AsBfloat16::TOP),
    FPNA_ROW(e4m3, 8, 0, AsE4m3::TOP),
    FPNA_ROW(e5m2, 8, 0, AsE5m2::TOP),
    FPNA_ROW(fp8, 8, 0, AsFp8::TOP),
    FPNA_ROW(int8, 8, 4, 0),
    FPNA_ROW(int16, 16, 4, 0),
    FPNA_ROW(sign, 1, 8, 0),
    FPNA_TABLE_ROW(1),
    FPNA_TABLE_ROW(2),
    FPNA_TABLE_ROW(3),
    FPNA_TABLE_ROW(4),
    FPNA_TABLE_ROW(5),
    FPNA_TABLE_ROW(6),
    FPNA_TABLE_ROW(7),
    FPNA_TABLE_ROW(8),
};

enum class Scale { NONE, TENSOR, MATCH };

// Codec and scale by name, and the cells that they are for.
struct Plan {
    const Codec *codec = nullptr;
    Scale scale = Scale::NONE;
    const i64 *starts;
    const bool *plain;
    std::size_t count;

    Plan(const std::string &name, int n, const std::string &scaled, const array<i64> &begins, const array<bool> &plains)
        : starts(begins.data()), plain(plains.data()), count(plains.size()) {
        for (const Codec &each : CODECS)
            if (name == each.name && n == each.n) codec = &each;
        if (!codec) throw std::invalid_argument("no codec " + name + " of " + std::to_string(n) + " bits");
        if (scaled == "tensor") scale = Scale::TENSOR;
        if (scaled == "match") scale = Scale::MATCH;
        if (std::size_t(begins.size()) != count + 1 || starts[0] != 0) throw std::invalid_argument("starts are no cells");
        for (std::size_t c = 0; c < count; ++c)
            if (starts[c + 1] <= starts[c] || (!plain[c] && starts[c + 1] - starts[c] > i64(CELL)))
                throw std::invalid_argument("cell " + std::to_string(c) + " has no elements or more than 4096");
    }

    std::size_t size(std::size_t c) const { return std::size_t(starts[c + 1] - starts[c]); }

    std::size_t nbytes(std::size_t c) const {
        if (plain[c]) return 4 * size(c);
        return (scale == Scale::NONE ? 0 : 4) + codec->nbytes(size(c));
    }

    void require(std::size_t elements, std::size_t bytes) const {
        std::size_t needed = 0;
        for (std::size_t c = 0; c < count; ++c) needed += nbytes(c);
        if (elements != std::size_t(starts[count]) || bytes != needed)
            throw std::invalid_argument(std::to_string(elements) + " elements and " + std::to_string(bytes) + " bytes: the cells have " +
                                        std::to_string(starts[count]) + " and " + std::to_string(needed));
    }
};

void encode_cell(const Codec &codec, Scale scale, const float *x, std::size_t m, u8 *out) {
    float by = 1;
    u8 *const scaled = out;
    if (scale != Scale::NONE) out += 4;
    if (scale == Scale::TENSOR) {
        const float s = power_of_two(exponent_of(largest_finite(x, m)) - (codec.top - 1));
        store(scaled, s);
        by = 1.0f / s;
    }
    codec.encode(x, m, by, out);
    if (scale == Scale::MATCH) {
        float decoded[CELL];
        codec.decode(out, m, 1.0f, decoded);
        store(scaled, factor_of(sum_of_squares(x, m), sum_of_squares(decoded, m)));
    }
}

template <Decode Codec::*DECODE>
void decode_cells(const Plan &plan, const u8 *data, float *out) {
    for (std::size_t c = 0; c < plan.count; data += plan.nbytes(c++)) {
        const bool scaled = !plan.plain[c] && plan.scale != Scale::NONE;
        const Codec &codec = plan.plain[c] ? FLOATS : *plan.codec;
        (codec.*DECODE)(data + (scaled ? 4 : 0), plan.size(c), scaled ? load<float>(data) : 1.0f, out + plan.starts[c]);
    }
}

template <Decode Codec::*DECODE>
void decode(const std::string &name, int n, const std::string &scale, const array<u8> &data, const array<i64> &starts,
            const array<bool> &plain, array<float> out) {
    const Plan plan(name, n, scale, starts, plain);
    plan.require(out.size(), data.size());
    const u8 *from = data.data();
    float *to = out.mutable_data();
    py::gil_scoped_release release;
    decode_cells<DECODE>(plan, from, to);
}

}  // namespace

void register_wires(py::module_ &m) {
    m.def(
        "encode_cells",
        [](const std::string &name, int n, const std::string &scale, const array<float> &x, const array<i64> &starts,
           const array<bool> &plain, array<u8> out) {
            const Plan plan(name, n, scale, starts, plain);
            plan.require(x.size(), out.size());
            const float *from = x.data();
            u8 *to = out.mutable_data();
            py::gil_scoped_release release;
            for (std::size_t c = 0; c < plan.count; to += plan.nbytes(c++))
                encode_cell(plan.plain[c] ? FLOATS : *plan.codec, plan.plain[c] ? Scale::NONE : plan.scale,
                            from + plan.starts[c], plan.size(c), to);
        },
        py::arg("name"), py::arg("n"), py::arg("scale"), py::arg("x").noconvert(), py::arg("starts").noconvert(),
        py::arg("plain").noconvert(), py::arg("out").noconvert(), "The cells of x as bytes; see kernels.wires.codecs.");
    m.def("decode_cells", &decode<&Codec::decode>, py::arg("name"), py::arg("n"), py::arg("scale"),
          py::arg("data").noconvert(), py::arg("starts").noconvert(), py::arg("plain").noconvert(),
          py::arg("out").noconvert(), "The elements that bytes stand for.");
    m.def("decode_add_cells", &decode<&Codec::add>, py::arg("name"), py::arg("n"), py::arg("scale"),
          py::arg("data").noconvert(), py::arg("starts").noconvert(), py::arg("plain").noconvert(),
          py::arg("into").noconvert(), "Adds the elements that bytes stand for.");
}
