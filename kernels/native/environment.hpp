// The floating-point environment of a kernel.
#pragma once
#include <cfenv>

// Rounding to nearest and subnormals kept while it lives, whatever the thread had chosen.
class DefaultEnvironment {
public:
    DefaultEnvironment() {
        std::fegetenv(&before);
        std::fesetenv(FE_DFL_ENV);
    }
    ~DefaultEnvironment() { std::fesetenv(&before); }
    DefaultEnvironment(const DefaultEnvironment &) = delete;
    DefaultEnvironment &operator=(const DefaultEnvironment &) = delete;

private:
    std::fenv_t before;
};
