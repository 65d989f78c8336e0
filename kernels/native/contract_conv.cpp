// Convolutions and their gradients as products whose panels are packed straight from the images (see contract.hpp).
//
// Images have three spatial dims here; those of fewer have dims of one element in front.
#include <omp.h>

#include <algorithm>
#include <array>
#include <deque>

#include <pybind11/stl.h>

#include "contract.hpp"

namespace contract {
namespace {

using Three = std::array<i64, 3>;

constexpr i64 MOST_LINES = 32;  // of a panel

i64 product(const Three &n) { return n[0] * n[1] * n[2]; }

// Samples of channels of points in memory.
template <typename T>
struct Images {
    T *at;
    i64 samples, channels;
    Three size;
    i64 sample, channel;
    Three step;
};

// Of one sample: neighbours in the last dim.
struct Run {
    i64 sample;
    Three from;
    i64 count;
};

// Positions (sample, o), and the elements of images that windows there see: that of channel c and tap t at point
// o * stride + taps[t], 0 outside of the image.
template <typename T>
struct Windows {
    Images<const T> x;
    Three positions, stride;
    std::vector<Three> taps;

    i64 count() const { return x.samples * product(positions); }
    i64 elements() const { return x.channels * i64(taps.size()); }

    void runs(i64 first, i64 count, std::vector<Run> &into) const {
        into.clear();
        i64 rest = first;
        Three o;
        for (int d = 2; d >= 0; --d) o[d] = rest % positions[d], rest /= positions[d];
        while (count > 0) {
            const i64 now = std::min(count, positions[2] - o[2]);
            into.push_back({rest, o, now});
            count -= now;
            o[2] = 0;
            for (int d = 1; d >= 0 && ++o[d] == positions[d]; --d) o[d] = 0;
            if (!o[0] && !o[1]) ++rest;
        }
    }

    // Element `element` (channel, tap) of the windows at these positions, side by side.
    void fill(T *to, i64 element, const std::vector<Run> &at) const {
        const i64 channel = element / i64(taps.size());
        const Three &tap = taps[element % i64(taps.size())];
        for (const Run &run : at) {
            const i64 i0 = run.from[0] * stride[0] + tap[0], i1 = run.from[1] * stride[1] + tap[1];
            const bool inside = i0 >= 0 && i0 < x.size[0] && i1 >= 0 && i1 < x.size[1];
            const i64 i2 = run.from[2] * stride[2] + tap[2], s = stride[2];
            // The positions q with 0 <= i2 + q * s < size.
            const i64 begin = std::min(run.count, i2 >= 0 ? 0 : (s - 1 - i2) / s);
            const i64 end = !inside ? begin : std::clamp((x.size[2] - i2 + s - 1) / s, begin, run.count);
            const i64 step = s * x.step[2];
            const T *sample = x.at + run.sample * x.sample + channel * x.channel;
            i64 q = 0;
            for (; q < begin; ++q) to[q] = 0;
            if (begin < end) {
                const T *from = sample + i0 * x.step[0] + i1 * x.step[1] + (i2 + begin * s) * x.step[2];
                if (step == 1)
                    for (; q < end; ++q) to[q] = *from++;
                else
                    for (; q < end; ++q, from += step) to[q] = *from;
            }
            for (; q < run.count; ++q) to[q] = 0;
            to += run.count;
        }
    }
};

// Lines are positions, k runs over the elements of a window.
template <typename T>
class ByPosition final : public Operand<T> {
public:
    explicit ByPosition(const Windows<T> &windows) : windows_(windows) {}
    void pack(const Kernels<T> &, T *to, i64 width, i64 first, i64 count, i64 k0, i64 depth) const override {
        thread_local std::vector<Run> runs;
        windows_.runs(first, count, runs);
        for (i64 k = 0; k < depth; ++k, to += width) {
            windows_.fill(to, k0 + k, runs);
            for (i64 i = count; i < width; ++i) to[i] = 0;
        }
    }

private:
    const Windows<T> &windows_;
};

// Lines are elements of a window, k runs over the positions.
template <typename T>
class ByElement final : public Operand<T> {
public:
    explicit ByElement(const Windows<T> &windows) : windows_(windows) {}
    void pack(const Kernels<T> &kernels, T *to, i64 width, i64 first, i64 count, i64 k0, i64 depth) const override {
        thread_local std::vector<Run> runs;
        windows_.runs(k0, depth, runs);
        T strip[MOST_LINES * PIECE];
        for (i64 i = 0; i < count; ++i) windows_.fill(strip + i * PIECE, first + i, runs);
        kernels.transpose(to, width, strip, PIECE, count, depth);
    }

private:
    const Windows<T> &windows_;
};

// Offsets of the points first + o * stride of all samples, for the columns of a result.
template <typename T>
std::vector<i64> offsets(const Images<T> &y, const Three &first, const Three &positions, const Three &stride) {
    std::vector<i64> all;
    all.reserve(y.samples * product(positions));
    for (i64 n = 0; n < y.samples; ++n)
        for (i64 i = 0; i < positions[0]; ++i)
            for (i64 j = 0; j < positions[1]; ++j)
                for (i64 k = 0; k < positions[2]; ++k)
                    all.push_back(n * y.sample + (first[0] + i * stride[0]) * y.step[0] +
                                  (first[1] + j * stride[1]) * y.step[1] + (first[2] + k * stride[2]) * y.step[2]);
    return all;
}

template <typename T>
Images<T> group_of(Images<T> x, i64 group, i64 groups) {
    x.channels /= groups;
    x.at += group * x.channels * x.channel;
    return x;
}

// A convolution: how windows move, and what Python passes on.
struct Convolution {
    Three window, stride, dilation, low;
    i64 groups;
    int threads, level;

    std::vector<Three> taps() const {
        std::vector<Three> all;
        for (i64 i = 0; i < window[0]; ++i)
            for (i64 j = 0; j < window[1]; ++j)
                for (i64 k = 0; k < window[2]; ++k)
                    all.push_back({i * dilation[0] - low[0], j * dilation[1] - low[1], k * dilation[2] - low[2]});
        return all;
    }
};

// y = x * w; w (output channels, channels of a group, window) without gaps.
template <typename T>
void forward(const Convolution &of, const Images<const T> &x, const T *w, const Images<T> &y) {
    const std::vector<i64> columns = offsets(y, {}, y.size, {1, 1, 1});
    std::deque<Windows<T>> windows;
    std::deque<ByPosition<T>> images;
    std::deque<Lines<T>> weights;
    std::vector<Product<T>> products;
    const i64 rows = y.channels / of.groups;
    for (i64 g = 0; g < of.groups; ++g) {
        windows.push_back({group_of(x, g, of.groups), y.size, of.stride, of.taps()});
        images.emplace_back(windows.back());
        const i64 depth = windows.back().elements();
        weights.emplace_back(w + g * rows * depth, depth, 1);
        products.push_back({rows, i64(columns.size()), depth, &weights.back(), &images.back(),
                            {group_of(y, g, of.groups).at, y.channel, 0, columns.data()}});
    }
    multiply(products, of.threads, of.level);
}

// The gradient of x. The points of x that equal taps reach are those of one phase: f, f + stride, ... in every dim. Each
// phase is a convolution of y with these taps, in steps of one.
template <typename T>
void input(const Convolution &of, const Images<const T> &y, const T *w, const Images<T> &x) {
    const i64 rows = x.channels / of.groups, channels = y.channels / of.groups, window = product(of.window);
    const std::vector<Three> taps = of.taps();
    std::deque<std::vector<i64>> columns;
    std::deque<std::vector<T>> weights;
    std::deque<Windows<T>> windows;
    std::deque<ByPosition<T>> images;
    std::deque<Lines<T>> lines;
    std::vector<Product<T>> products;
    Three f;
    for (f[0] = 0; f[0] < of.stride[0]; ++f[0])
        for (f[1] = 0; f[1] < of.stride[1]; ++f[1])
            for (f[2] = 0; f[2] < of.stride[2]; ++f[2]) {
                Three positions;
                for (int d = 0; d < 3; ++d) positions[d] = std::max<i64>(0, (x.size[d] - f[d] + of.stride[d] - 1) / of.stride[d]);
                std::vector<Three> reach;  // the points of y relative to the position, for each tap that has one
                std::vector<i64> numbers;
                for (i64 t = 0; t < window; ++t) {
                    Three at;
                    bool whole = true;
                    for (int d = 0; d < 3; ++d) {
                        const i64 distance = f[d] - taps[t][d];
                        whole = whole && distance % of.stride[d] == 0;
                        at[d] = distance / of.stride[d];
                    }
                    if (whole) reach.push_back(at), numbers.push_back(t);
                }
                columns.push_back(offsets(x, f, positions, of.stride));
                const i64 depth = channels * i64(numbers.size());
                for (i64 g = 0; g < of.groups; ++g) {
                    weights.emplace_back();
                    weights.back().reserve(rows * depth);
                    for (i64 i = 0; i < rows; ++i)
                        for (i64 c = 0; c < channels; ++c)
                            for (const i64 t : numbers)
                                weights.back().push_back(w[((g * channels + c) * rows + i) * window + t]);
                    windows.push_back({group_of(y, g, of.groups), positions, {1, 1, 1}, reach});
                    images.emplace_back(windows.back());
                    lines.emplace_back(weights.back().data(), depth, 1);
                    products.push_back({rows, i64(columns.back().size()), depth, &lines.back(), &images.back(),
                                        {group_of(x, g, of.groups).at, x.channel, 0, columns.back().data()}});
                }
            }
    multiply(products, of.threads, of.level);
}

// The gradient of w: sums over the positions of all samples.
template <typename T>
void weight(const Convolution &of, const Images<const T> &x, const Images<const T> &y, T *w) {
    std::deque<Windows<T>> windows;
    std::deque<ByElement<T>> factors;
    std::vector<Product<T>> products;
    const i64 rows = y.channels / of.groups;
    for (i64 g = 0; g < of.groups; ++g) {
        windows.push_back({group_of(y, g, of.groups), y.size, {1, 1, 1}, {Three{}}});
        const Windows<T> &points = windows.back();
        windows.push_back({group_of(x, g, of.groups), y.size, of.stride, of.taps()});
        const Windows<T> &seen = windows.back();
        factors.emplace_back(points);
        const Operand<T> *a = &factors.back();
        factors.emplace_back(seen);
        products.push_back({rows, seen.elements(), points.count(), a, &factors.back(),
                            {w + g * rows * seen.elements(), seen.elements(), 1, nullptr}});
    }
    multiply(products, of.threads, of.level);
}

// An array (samples, channels, three spatial dims) of any strides.
template <typename T>
Images<T> images_of(const py::array &x, T *at) {
    const auto step = [&x](int dim) { return i64(x.strides(dim)) / i64(sizeof(T)); };
    return {at, x.shape(0), x.shape(1), {x.shape(2), x.shape(3), x.shape(4)}, step(0), step(1), {step(2), step(3), step(4)}};
}

template <typename T>
void run(const std::string &what, const Convolution &of, py::array &x, py::array &w, py::array &y) {
    const bool of_x = what == "input", of_w = what == "weight";
    const auto data = [](py::array &array, bool written) {
        return static_cast<T *>(written ? array.mutable_data() : const_cast<void *>(array.data()));
    };
    const Images<T> xs = images_of(x, data(x, of_x)), ys = images_of(y, data(y, !of_x && !of_w));
    const auto read = [](const Images<T> &i) {
        return Images<const T>{i.at, i.samples, i.channels, i.size, i.sample, i.channel, i.step};
    };
    T *ws = data(w, of_w);
    py::gil_scoped_release release;
    if (of_x)
        input<T>(of, read(ys), ws, xs);
    else if (of_w)
        weight<T>(of, read(xs), read(ys), ws);
    else
        forward<T>(of, read(xs), ws, ys);
}

}  // namespace
}  // namespace contract

// `what` is the array that is written: output, input or weight. Types and shapes are checked in kernels/contract/shapes.py.
void register_contract_conv(py::module_ &m) {
    m.def("contract_conv", [](const std::string &what, py::array x, py::array w, py::array y, contract::Three stride,
                              contract::Three dilation, contract::Three low, std::int64_t groups, int threads, int level) {
        const contract::Convolution of{{w.shape(2), w.shape(3), w.shape(4)}, stride, dilation, low, groups,
                                       threads > 0 ? threads : omp_get_max_threads(), contract::checked_level(level)};
        if (x.itemsize() == sizeof(double))
            contract::run<double>(what, of, x, w, y);
        else
            contract::run<float>(what, of, x, w, y);
    }, py::arg("what"), py::arg("x"), py::arg("w"), py::arg("y"), py::arg("stride"), py::arg("dilation"), py::arg("low"),
       py::arg("groups"), py::arg("threads"), py::arg("level") = -1);
}
