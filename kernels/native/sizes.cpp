// Sizes of arrays (kernels/sizes.py defines them): a row of six numbers for each array.
#include "../include/sizes.hpp"

#include <map>
#include <stdexcept>
#include <string>
#include <utility>

#include "kernels.hpp"

namespace {

template <typename Element>
void rows(const void *from, std::int64_t n, std::int64_t count, std::int64_t sample, double *to) {
    for (std::int64_t i = 0; i < n; ++i, to += 6) {
        const auto *start = static_cast<const char *>(from) + std::size_t(i * count) * sizeof(Element);
        const Sizes sizes = sizes::of<Element>(start, count, sample);
        to[0] = sizes.l1;
        to[1] = sizes.largest;
        for (int k = 0; k < 4; ++k) to[2 + k] = sizes.p[k];
    }
}

using Run = void (*)(const void *, std::int64_t, std::int64_t, std::int64_t, double *);

template <typename Element>
constexpr std::pair<Run, std::int64_t> of_type = {rows<Element>, std::int64_t(sizeof(Element))};

const std::map<std::string, std::pair<Run, std::int64_t>> TYPES = {
    {"float64", of_type<double>}, {"float32", of_type<float>}, {"float16", of_type<float16>},
    {"bfloat16", of_type<bfloat16>}, {"int8", of_type<std::int8_t>}, {"int16", of_type<std::int16_t>},
    {"int32", of_type<std::int32_t>}, {"int64", of_type<std::int64_t>}, {"uint8", of_type<std::uint8_t>},
    {"uint16", of_type<std::uint16_t>}, {"uint32", of_type<std::uint32_t>}, {"uint64", of_type<std::uint64_t>},
    {"bool", of_type<std::uint8_t>}};

}  // namespace

Made<double> sizes_of(const Array &x, const std::string &type, std::int64_t n, std::int64_t count,
                      std::int64_t sample) {
    if (!x.contiguous()) throw std::invalid_argument("x: expected a contiguous array");
    const auto found = TYPES.find(type);
    if (found == TYPES.end()) throw std::invalid_argument("type: unknown, " + type);
    const auto [run, bytes] = found->second;
    if (n < 0 || count < 0 || n * count * bytes != x.nbytes()) throw std::invalid_argument("x: another size");
    if (sample < 1) throw std::invalid_argument("sample: 1 or more is expected");
    Made<double> result(6 * n);
    run(x.data(), n, count, sample, result.data());
    return result;
}
