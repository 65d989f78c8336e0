// The processor as libraries see it when they choose kernels: maker, family, and the instruction sets among those that
// glibc, OpenBLAS, MKL, ATen, oneDNN and NumPy ask for. By cpuid, since /proc/cpuinfo states the host's under an emulator.
#pragma once
#include <cstdint>
#include <cstdio>
#include <string>

#if defined(__x86_64__)
#include <cpuid.h>
#elif defined(__aarch64__) && defined(__linux__)
#include <sys/auxv.h>
#endif

struct Processor {
    std::string vendor, family, flags;  // flags: names as in /proc/cpuinfo, in a fixed order, with blanks between them
};

#if defined(__x86_64__)
namespace processor_sets {
enum Register { EAX, EBX, ECX, EDX };
// Registers that the system must save, as bits of XCR0.
constexpr std::uint64_t PLAIN = 0, AVX = 0x6, AVX512 = 0xe6, AMX = 0x60000;
struct Set {
    const char *name;
    std::uint32_t leaf, subleaf;
    Register in;
    int bit;
    std::uint64_t needs;
};
constexpr Set SETS[] = {
    {"sse3", 1, 0, ECX, 0, PLAIN},           {"ssse3", 1, 0, ECX, 9, PLAIN},          {"sse4_1", 1, 0, ECX, 19, PLAIN},
    {"sse4_2", 1, 0, ECX, 20, PLAIN},        {"movbe", 1, 0, ECX, 22, PLAIN},         {"popcnt", 1, 0, ECX, 23, PLAIN},
    {"abm", 0x80000001, 0, ECX, 5, PLAIN},   {"bmi1", 7, 0, EBX, 3, PLAIN},           {"bmi2", 7, 0, EBX, 8, PLAIN},
    {"avx", 1, 0, ECX, 28, AVX},             {"f16c", 1, 0, ECX, 29, AVX},            {"fma", 1, 0, ECX, 12, AVX},
    {"xop", 0x80000001, 0, ECX, 11, AVX},    {"fma4", 0x80000001, 0, ECX, 16, AVX},   {"avx2", 7, 0, EBX, 5, AVX},
    {"avx_vnni", 7, 1, EAX, 4, AVX},         {"avx_ifma", 7, 1, EAX, 23, AVX},        {"avx_vnni_int8", 7, 1, EDX, 4, AVX},
    {"avx_ne_convert", 7, 1, EDX, 5, AVX},   {"avx512f", 7, 0, EBX, 16, AVX512},      {"avx512dq", 7, 0, EBX, 17, AVX512},
    {"avx512cd", 7, 0, EBX, 28, AVX512},     {"avx512bw", 7, 0, EBX, 30, AVX512},     {"avx512vl", 7, 0, EBX, 31, AVX512},
    {"avx512ifma", 7, 0, EBX, 21, AVX512},   {"avx512vbmi", 7, 0, ECX, 1, AVX512},    {"avx512_vbmi2", 7, 0, ECX, 6, AVX512},
    {"avx512_vnni", 7, 0, ECX, 11, AVX512},  {"avx512_bitalg", 7, 0, ECX, 12, AVX512},
    {"avx512_vpopcntdq", 7, 0, ECX, 14, AVX512}, {"avx512_vp2intersect", 7, 0, EDX, 8, AVX512},
    {"avx512_bf16", 7, 1, EAX, 5, AVX512},   {"avx512_fp16", 7, 0, EDX, 23, AVX512},  {"avx10", 7, 1, EDX, 19, AVX512},
    {"amx_tile", 7, 0, EDX, 24, AMX},        {"amx_int8", 7, 0, EDX, 25, AMX},        {"amx_bf16", 7, 0, EDX, 22, AMX},
    {"amx_fp16", 7, 1, EAX, 21, AMX},
};

inline std::uint64_t saved() {
    std::uint32_t low = 0, high = 0, r[4] = {};
    if (!__get_cpuid(1, &r[0], &r[1], &r[2], &r[3]) || !(r[ECX] >> 27 & 1)) return 0;
    asm volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    return std::uint64_t(high) << 32 | low;
}
}  // namespace processor_sets

inline Processor this_processor() {
    using namespace processor_sets;
    Processor own;
    std::uint32_t r[4] = {};
    __get_cpuid(0, &r[EAX], &r[EBX], &r[ECX], &r[EDX]);
    for (Register word : {EBX, EDX, ECX})
        for (int i = 0; i < 4; ++i) own.vendor += char(r[word] >> 8 * i & 0xff);
    while (!own.vendor.empty() && (own.vendor.back() == '\0' || own.vendor.back() == ' ')) own.vendor.pop_back();
    __get_cpuid(1, &r[EAX], &r[EBX], &r[ECX], &r[EDX]);
    const std::uint32_t family = r[EAX] >> 8 & 0xf;
    own.family = std::to_string(family == 0xf ? family + (r[EAX] >> 20 & 0xff) : family);
    const std::uint64_t registers = saved();
    for (const Set &set : SETS) {
        std::uint32_t q[4] = {};
        if ((registers & set.needs) != set.needs || !__get_cpuid_count(set.leaf, set.subleaf, &q[0], &q[1], &q[2], &q[3])) continue;
        if (q[set.in] >> set.bit & 1) own.flags += (own.flags.empty() ? "" : " ") + std::string(set.name);
    }
    return own;
}
#elif defined(__aarch64__) && defined(__linux__)
// The maker and the part by MIDR_EL1, which the kernel lets programs read where it says so, and the kernel's words of sets.
inline Processor this_processor() {
    Processor own;
    const unsigned long sets = getauxval(AT_HWCAP), more = getauxval(AT_HWCAP2);
    char text[64];
    constexpr unsigned long CPUID = 1ul << 11;
    if (sets & CPUID) {
        std::uint64_t midr;
        asm("mrs %0, MIDR_EL1" : "=r"(midr));
        std::snprintf(text, sizeof text, "0x%02x", unsigned(midr >> 24 & 0xff));
        own.vendor = text;
        std::snprintf(text, sizeof text, "0x%03x", unsigned(midr >> 4 & 0xfff));
        own.family = text;
    }
    std::snprintf(text, sizeof text, "hwcap:%lx hwcap2:%lx", sets, more);
    own.flags = text;
    return own;
}
#else
inline Processor this_processor() { return {}; }
#endif
