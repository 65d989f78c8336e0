// Numbers as their bits, shared by the C++ and the CUDA kernels.
#pragma once
#include "device.hpp"

FPNA_POINT unsigned long long bits_of(double x) {
    union {
        double number;
        unsigned long long bits;
    } both = {x};
    return both.bits;
}

FPNA_POINT unsigned bits_of_float(float x) {
    union {
        float number;
        unsigned bits;
    } both = {x};
    return both.bits;
}

FPNA_POINT double double_of_bits(unsigned long long bits) {
    union {
        unsigned long long bits;
        double number;
    } both = {bits};
    return both.number;
}

FPNA_POINT float float_of_bits(unsigned bits) {
    union {
        unsigned bits;
        float number;
    } both = {bits};
    return both.number;
}
