// The return addresses of the callers of a function. Costs about 10 ns per caller, since the entry of a place in the
// unwind tables (.eh_frame) is read only once.
//
// On x86-64 this code follows the rules of the GNU and LLVM compilers; on other machines the compiler's library unwinds,
// which takes longer. The list of callers ends at a place without an entry, or with other rules.
#pragma once

#include <cstdint>
#include <cstring>
#include <unordered_map>

#include <pthread.h>
#include <unwind.h>

namespace fpna {

constexpr int CALLERS = 16;  // at most

#if defined(__x86_64__)

extern "C" {
struct dwarf_eh_bases {
    void *text, *data, *function;
};
const void *_Unwind_Find_FDE(void *place, struct dwarf_eh_bases *) __attribute__((weak));
}

// The end of a function's frame and its saved registers, at one place in the function.
struct Rule {
    enum Base : std::uint8_t { NONE, STACK, FRAME, KEPT } base = NONE;  // KEPT: the end is in memory, at rbp + end
    enum Saved : std::uint8_t { SAME, AT_END, AT_FRAME } saved = SAME;  // the place of the caller's rbp
    std::int64_t end = 0, address = -8, rbp = 0;                       // `end` from the base; the others from the end
};

// Reads the instructions of one function's table up to a place.
class Table {
  public:
    static Rule rule(std::uint64_t place) {
        dwarf_eh_bases bases{};
        const void *entry = _Unwind_Find_FDE ? _Unwind_Find_FDE(reinterpret_cast<void *>(place), &bases) : nullptr;
        if (!entry) return {};
        Table table;
        return table.read(static_cast<const std::uint8_t *>(entry), std::uint64_t(bases.function), place) ? table.now_.rule
                                                                                                         : Rule{};
    }

  private:
    static constexpr unsigned RBP = 6, RSP = 7, ADDRESS = 16;
    struct State {
        Rule rule;
        bool known = true, returns = true;
        unsigned base = RSP;
    };

    std::uint64_t unsigned_number() {
        std::uint64_t value = 0;
        for (int shift = 0;; shift += 7) {
            const std::uint8_t byte = *at_++;
            if (shift < 64) value |= std::uint64_t(byte & 127) << shift;
            if (!(byte & 128)) return value;
        }
    }
    std::int64_t signed_number() {
        std::int64_t value = 0;
        for (int shift = 0;;) {
            const std::uint8_t byte = *at_++;
            if (shift < 64) value |= std::int64_t(byte & 127) << shift;
            shift += 7;
            if (!(byte & 128)) return byte & 64 && shift < 64 ? value | -(std::int64_t(1) << shift) : value;
        }
    }
    template <typename Number>
    Number fixed() {
        Number value;
        std::memcpy(&value, at_, sizeof value);
        at_ += sizeof value;
        return value;
    }

    static std::size_t width(std::uint8_t encoding) {
        switch (encoding & 0x0f) {
        case 0x00: case 0x04: case 0x0c: return 8;
        case 0x03: case 0x0b: return 4;
        case 0x02: case 0x0a: return 2;
        default: return 0;
        }
    }

    bool read(const std::uint8_t *entry, std::uint64_t function, std::uint64_t place) {
        std::uint32_t length, back, common_length;
        std::memcpy(&length, entry, 4);
        std::memcpy(&back, entry + 4, 4);
        const std::uint8_t *common = entry + 4 - back;
        std::memcpy(&common_length, common, 4);
        if (length == 0xffffffff || common_length == 0xffffffff) return false;
        at_ = common + 8;
        const std::uint8_t version = *at_++;
        const char *letters = reinterpret_cast<const char *>(at_);
        at_ += std::strlen(letters) + 1;
        if (*letters && *letters != 'z') return false;
        code_ = unsigned_number();
        data_ = signed_number();
        if ((version == 1 ? *at_++ : unsigned_number()) != ADDRESS) return false;
        std::uint8_t encoding = 0;
        if (*letters) {
            const std::uint64_t bytes = unsigned_number();
            const std::uint8_t *instructions = at_ + bytes;
            for (const char *letter = letters + 1; *letter; ++letter) {
                if (*letter == 'R') encoding = *at_++;
                else if (*letter == 'L') ++at_;
                else if (*letter == 'P') { const std::size_t size = width(*at_++); if (!size) return false; at_ += size; }
                else return false;  // 'S': the frame of a signal
            }
            at_ = instructions;
        }
        if (!run(common + 4 + common_length, function, ~std::uint64_t(0))) return false;
        first_ = now_;
        const std::size_t size = width(encoding);
        if (!size) return false;
        at_ = entry + 8 + 2 * size;
        if (*letters) {
            const std::uint64_t bytes = unsigned_number();
            at_ += bytes;
        }
        if (!run(entry + 4 + length, function, place) || !now_.known || !now_.returns) return false;
        if (now_.rule.base != Rule::KEPT) {
            if (now_.base != RSP && now_.base != RBP) return false;
            now_.rule.base = now_.base == RSP ? Rule::STACK : Rule::FRAME;
        }
        return true;
    }

    void saved(std::uint64_t which, std::int64_t offset) {
        if (which == RBP) now_.rule.saved = Rule::AT_END, now_.rule.rbp = offset;
        if (which == ADDRESS) now_.rule.address = offset, now_.returns = true;
    }
    void restored(std::uint64_t which) {
        if (which == RBP) now_.rule.saved = first_.rule.saved, now_.rule.rbp = first_.rule.rbp;
        if (which == ADDRESS) now_.rule.address = first_.rule.address, now_.returns = first_.returns;
    }
    void lost(std::uint64_t which) {
        if (which == ADDRESS) now_.returns = false;
        if (which == RBP || which == RSP) now_.known = false;
    }

    // Reads an expression `rbp + n`, followed by a load from memory if `there`; false for any other expression.
    bool from_frame(std::int64_t &n, bool there) {
        const std::uint64_t bytes = unsigned_number();
        const std::uint8_t *end = at_ + bytes;
        bool plain = bytes >= 2 && *at_++ == 0x70 + RBP;
        if (plain) n = signed_number();
        if (plain && there) plain = at_ < end && *at_++ == 0x06;
        plain = plain && at_ == end;
        at_ = end;
        return plain;
    }

    // Runs instructions up to `end`, or up to the first one for addresses after `place`.
    bool run(const std::uint8_t *end, std::uint64_t location, std::uint64_t place) {
        State kept[8];
        int depth = 0;
        while (at_ < end) {
            const std::uint8_t code = *at_++, low = code & 63;
            std::uint64_t which, further = 0;
            switch (code >> 6) {
            case 1: further = low * code_; break;
            case 2: saved(low, std::int64_t(unsigned_number()) * data_); break;
            case 3: restored(low); break;
            default:
                switch (low) {
                case 0x00: break;
                case 0x02: further = fixed<std::uint8_t>() * code_; break;
                case 0x03: further = fixed<std::uint16_t>() * code_; break;
                case 0x04: further = fixed<std::uint32_t>() * code_; break;
                case 0x05: which = unsigned_number(); saved(which, std::int64_t(unsigned_number()) * data_); break;
                case 0x06: restored(unsigned_number()); break;
                case 0x07: lost(unsigned_number()); break;
                case 0x08: if (unsigned_number() == RBP) now_.rule.saved = Rule::SAME; break;
                case 0x09: which = unsigned_number(); unsigned_number(); lost(which); break;
                case 0x0a: if (depth == 8) return false; kept[depth++] = now_; break;
                case 0x0b: if (!depth) return false; now_ = kept[--depth]; break;
                case 0x0c: now_.base = unsigned(unsigned_number()); now_.rule.end = std::int64_t(unsigned_number());
                           now_.rule.base = Rule::NONE; break;
                case 0x0d: now_.base = unsigned(unsigned_number()); now_.rule.base = Rule::NONE; break;
                case 0x0e: now_.rule.end = std::int64_t(unsigned_number()); break;
                case 0x0f: if (!from_frame(now_.rule.end, true)) return false; now_.rule.base = Rule::KEPT; break;
                case 0x10: {
                    which = unsigned_number();
                    std::int64_t n = 0;
                    const bool plain = from_frame(n, false);
                    if (which == RBP && plain) now_.rule.saved = Rule::AT_FRAME, now_.rule.rbp = n;
                    else lost(which);
                    break;
                }
                case 0x11: which = unsigned_number(); saved(which, signed_number() * data_); break;
                case 0x12: now_.base = unsigned(unsigned_number()); now_.rule.end = signed_number() * data_;
                           now_.rule.base = Rule::NONE; break;
                case 0x13: now_.rule.end = signed_number() * data_; break;
                case 0x14: which = unsigned_number(); unsigned_number(); lost(which); break;
                case 0x15: which = unsigned_number(); signed_number(); lost(which); break;
                case 0x16: { which = unsigned_number(); const std::uint64_t bytes = unsigned_number(); at_ += bytes; lost(which); break; }
                case 0x2e: unsigned_number(); break;  // bytes of arguments
                default: return false;
                }
            }
            location += further;
            if (further && location > place) return true;
        }
        return true;
    }

    const std::uint8_t *at_ = nullptr;
    std::uint64_t code_ = 1;
    std::int64_t data_ = 1;
    State now_, first_;
};

// The end of this thread's stack; a value below any stack if unknown. Computed once per thread.
inline std::uint64_t stack_end() {
    static thread_local std::uint64_t end = 0;
    if (!end) {
        end = 1;
        pthread_attr_t attributes;
        if (!pthread_getattr_np(pthread_self(), &attributes)) {
            void *begin = nullptr;
            std::size_t bytes = 0;
            if (!pthread_attr_getstack(&attributes, &begin, &bytes)) end = std::uint64_t(begin) + bytes;
            pthread_attr_destroy(&attributes);
        }
    }
    return end;
}

// The callers of a function of this library, from its return address and its frame address (so that it saves rbp).
class Callers {
  public:
    Callers(std::uint64_t site, const void *frame) : place_(site), stack_(std::uint64_t(frame) + 16), end_(stack_end()) {
        std::uint64_t kept[2];
        std::memcpy(kept, frame, sizeof kept);
        rbp_ = kept[0];
        constexpr std::uint64_t MOST = std::uint64_t(1) << 30;  // a greater distance means the stack of a fiber
        if (kept[1] != site || end_ <= stack_ || end_ - stack_ > MOST) end_ = 0;
    }

    std::uint64_t place() const { return place_; }

    // Goes to the caller, by the rule of this place; false if there is none.
    bool next(const Rule &rule) {
        if (rule.base == Rule::NONE) return false;
        std::uint64_t end = (rule.base == Rule::STACK ? stack_ : rbp_) + std::uint64_t(rule.end);
        if (rule.base == Rule::KEPT && !load(end, end)) return false;
        std::uint64_t rbp = rbp_, address = 0;
        if (end <= stack_ || !load(end + std::uint64_t(rule.address), address) || !address) return false;
        if (rule.saved == Rule::AT_END && !load(end + std::uint64_t(rule.rbp), rbp)) return false;
        if (rule.saved == Rule::AT_FRAME && !load(rbp_ + std::uint64_t(rule.rbp), rbp)) return false;
        place_ = address, stack_ = end, rbp_ = rbp;
        return true;
    }

  private:
    // Loads only from this thread's stack, above the frames already left.
    bool load(std::uint64_t from, std::uint64_t &value) const {
        if (!end_ || from % 8 || from < stack_ || from > end_ - 8) return false;
        std::memcpy(&value, reinterpret_cast<const void *>(from), 8);
        return true;
    }

    std::uint64_t place_, stack_, rbp_ = 0, end_;
};

#else

struct Rule {};
struct Table {
    static Rule rule(std::uint64_t) { return {}; }
};

class Callers {
  public:
    Callers(std::uint64_t site, const void *) : site_(site) {
        _Unwind_Backtrace(note, this);
        if (!count_) places_[count_++] = site;
    }
    std::uint64_t place() const { return places_[at_]; }
    bool next(const Rule &) { return at_ + 1 < count_ && ++at_; }

  private:
    static _Unwind_Reason_Code note(_Unwind_Context *context, void *self) {
        auto &own = *static_cast<Callers *>(self);
        const auto place = std::uint64_t(_Unwind_GetIP(context));
        if (place == own.site_) own.found_ = true;
        if (own.found_ && place) own.places_[own.count_++] = place;
        return own.count_ == CALLERS || ++own.looked_ > 2 * CALLERS ? _URC_END_OF_STACK : _URC_NO_REASON;
    }

    std::uint64_t site_, places_[CALLERS];
    bool found_ = false;
    int count_ = 0, at_ = 0, looked_ = 0;
};

#endif

}  // namespace fpna
