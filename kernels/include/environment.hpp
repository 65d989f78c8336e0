// The floating-point environment of a sum: rounding to nearest, subnormals kept, nothing trapped.
#pragma once
#include <cstdint>

#if !defined(__x86_64__) && !defined(__aarch64__)
#include <cfenv>
#endif

// The floating-point flags of operations that rounded, overflowed, underflowed or were invalid. If none is set after
// clear(), no operation since then had an error; the results must be stored in memory before set() is asked, since compilers
// move other operations past it. Clearing takes some ten times as long as reading, so flags are cleared only where they are
// set. For code in a DefaultEnvironment, which restores the flags of the caller.
class ErrorFlags {
public:
    static bool set() { return current() & FLAGS; }
    static void clear() {
        if (set()) write(current() & ~FLAGS);
    }

private:
#if defined(__x86_64__)
    using Register = std::uint32_t;
    static constexpr Register FLAGS = 0x39;
    static Register current() {
        Register value;
        asm volatile("stmxcsr %0" : "=m"(value) : : "memory");
        return value;
    }
    static void write(Register value) { asm volatile("ldmxcsr %0" : : "m"(value) : "memory"); }
#elif defined(__aarch64__)
    using Register = std::uint64_t;
    static constexpr Register FLAGS = 0x1d;
    static Register current() {
        Register value;
        asm volatile("mrs %0, fpsr" : "=r"(value) : : "memory");
        return value;
    }
    static void write(Register value) { asm volatile("msr fpsr, %0" : : "r"(value) : "memory"); }
#else
    static constexpr int FLAGS = FE_INEXACT | FE_OVERFLOW | FE_UNDERFLOW | FE_INVALID;
    static int current() { return std::fetestexcept(FLAGS); }
    static void write(int) { std::feclearexcept(FLAGS); }
#endif
};

// Sets the default environment while it lives, whatever the thread has chosen. Then the thread gets its own back, with
// its flags. Reading the registers costs a few cycles and writing them many, so they are written only where they
// differ.
class DefaultEnvironment {
public:
    DefaultEnvironment(const DefaultEnvironment &) = delete;
    DefaultEnvironment &operator=(const DefaultEnvironment &) = delete;

    // From here on the thread has the default environment.
    static void set() {
        DefaultEnvironment now;
        now.leave();
    }

#if defined(__x86_64__)
    DefaultEnvironment() : DefaultEnvironment(false) {}
    // extended: the x87 may be used, by long double or by the C library to raise flags, so its flags are restored as
    // well.
    explicit DefaultEnvironment(bool extended) : vector_(vector()), extended_(extended), own_(x87() != X87) {
        if ((vector_ & ~FLAGS) != VECTOR) set_vector(VECTOR | (vector_ & FLAGS));
        if (own_) {
            asm volatile("fnstenv %0" : "=m"(kept_) : : "memory");  // and masks all traps
            asm volatile("fldcw %0" : : "m"(X87) : "memory");
        } else if (extended_) {
            flags_ = status() & FLAGS;
        }
    }
    ~DefaultEnvironment() {
        if (vector() != vector_) set_vector(vector_);
        if (own_) {
            asm volatile("fldenv %0" : : "m"(kept_) : "memory");
        } else if (extended_ && (status() & FLAGS) != flags_) {
            asm volatile("fnstenv %0" : "=m"(kept_) : : "memory");
            kept_.words[1] = (kept_.words[1] & ~FLAGS) | flags_;
            asm volatile("fldenv %0" : : "m"(kept_) : "memory");
        }
    }

private:
    static constexpr std::uint32_t FLAGS = 0x3f, VECTOR = 0x1f80;
    static constexpr std::uint16_t X87 = 0x37f;  // 64 bits of mantissa

    static std::uint32_t vector() {
        std::uint32_t value;
        asm volatile("stmxcsr %0" : "=m"(value) : : "memory");
        return value;
    }
    static void set_vector(std::uint32_t value) { asm volatile("ldmxcsr %0" : : "m"(value) : "memory"); }
    static std::uint16_t x87() {
        std::uint16_t value;
        asm volatile("fnstcw %0" : "=m"(value) : : "memory");
        return value;
    }
    static std::uint16_t status() {
        std::uint16_t value;
        asm volatile("fnstsw %0" : "=m"(value) : : "memory");
        return value;
    }
    void leave() {
        vector_ = VECTOR | (vector_ & FLAGS);
        own_ = false;
    }

    std::uint32_t vector_, flags_ = 0;
    bool extended_, own_;
    struct {
        std::uint32_t words[7];  // control, status, ...
    } kept_;
#elif defined(__aarch64__)
    explicit DefaultEnvironment(bool = false) : control_(control()), status_(status()) {
        if (control_) set_control(0);
    }
    ~DefaultEnvironment() {
        if (status() != status_) asm volatile("msr fpsr, %0" : : "r"(status_) : "memory");
        if (control_) set_control(control_);
    }

private:
    static std::uint64_t control() {
        std::uint64_t value;
        asm volatile("mrs %0, fpcr" : "=r"(value) : : "memory");
        return value;
    }
    static void set_control(std::uint64_t value) { asm volatile("msr fpcr, %0" : : "r"(value) : "memory"); }
    static std::uint64_t status() {
        std::uint64_t value;
        asm volatile("mrs %0, fpsr" : "=r"(value) : : "memory");
        return value;
    }
    void leave() { control_ = 0; }

    std::uint64_t control_, status_;
#else
    explicit DefaultEnvironment(bool = false) {
        std::fegetenv(&before_);
        std::fesetenv(FE_DFL_ENV);
    }
    ~DefaultEnvironment() { std::fesetenv(&before_); }

private:
    void leave() { std::fegetenv(&before_); }

    std::fenv_t before_;
#endif
};
