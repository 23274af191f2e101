// Implements atomic operations of arm64 in two forms, chosen at run time: one instruction on
// processors with LSE atomics (ARMv8.1), a loop of exclusive loads and stores on others.
//
// With -moutline-atomics a compiler calls these functions, whose names and calls are part of the
// ABI of arm64. GCC brings them in libgcc. zig's run-time library fixes the choice when it is
// built, so tools/platforms links this file. The symbols are weak, because an archive of ours may
// meet libgcc's in one program.
//
// Until the constructor has run, and on processors without LSE, the exclusive form is used. Both
// forms can work on one word at the same time.
#if defined(__aarch64__)
#include <sys/auxv.h>

#include <cstdint>

namespace {

constexpr unsigned long kHwcapAtomics = 1UL << 8U;  // HWCAP_ATOMICS of the kernel

bool has_lse = false;

__attribute__((constructor(101))) void find_lse() { has_lse = (getauxval(AT_HWCAP) & kHwcapAtomics) != 0; }

}  // namespace

// NOLINTBEGIN(bugprone-macro-parentheses,bugprone-reserved-identifier): parts of names and instructions
#define OUTLINE extern "C" __attribute__((weak, visibility("hidden")))
// R is the form of a register (w: 32 bits, x: 64), S the suffix of the size, A the suffix of the
// order.
#define COMPARE_AND_SWAP(BYTES, TYPE, R, S, NAME, A, ORDER, FAILURE)                  \
  OUTLINE TYPE __aarch64_cas##BYTES##_##NAME(TYPE expected, TYPE desired, TYPE* at) { \
    if (has_lse) {                                                                    \
      __asm__ volatile(".arch_extension lse\n\tcas" A S " %" R "0, %" R "2, %1"       \
                       : "+r"(expected), "+Q"(*at)                                    \
                       : "r"(desired)                                                 \
                       : "memory");                                                   \
    } else {                                                                          \
      __atomic_compare_exchange_n(at, &expected, desired, false, ORDER, FAILURE);     \
    }                                                                                 \
    return expected;                                                                  \
  }
#define FETCH(OPERATION, BYTES, TYPE, R, S, NAME, A, ORDER, OTHERWISE)                  \
  OUTLINE TYPE __aarch64_##OPERATION##BYTES##_##NAME(TYPE value, TYPE* at) {            \
    if (has_lse) {                                                                      \
      TYPE before = 0;                                                                  \
      __asm__ volatile(".arch_extension lse\n\t" #OPERATION A S " %" R "2, %" R "0, %1" \
                       : "=r"(before), "+Q"(*at)                                        \
                       : "r"(value)                                                     \
                       : "memory");                                                     \
      return before;                                                                    \
    }                                                                                   \
    return OTHERWISE;                                                                   \
  }
#define OPERATIONS(BYTES, TYPE, R, S, NAME, A, ORDER, FAILURE)                          \
  COMPARE_AND_SWAP(BYTES, TYPE, R, S, NAME, A, ORDER, FAILURE)                          \
  FETCH(swp, BYTES, TYPE, R, S, NAME, A, ORDER, __atomic_exchange_n(at, value, ORDER))  \
  FETCH(ldadd, BYTES, TYPE, R, S, NAME, A, ORDER, __atomic_fetch_add(at, value, ORDER)) \
  FETCH(ldset, BYTES, TYPE, R, S, NAME, A, ORDER, __atomic_fetch_or(at, value, ORDER))  \
  FETCH(ldeor, BYTES, TYPE, R, S, NAME, A, ORDER, __atomic_fetch_xor(at, value, ORDER)) \
  FETCH(ldclr, BYTES, TYPE, R, S, NAME, A, ORDER, __atomic_fetch_and(at, static_cast<TYPE>(~value), ORDER))
#define SIZE_OF(BYTES, TYPE, R, S)                                             \
  OPERATIONS(BYTES, TYPE, R, S, relax, "", __ATOMIC_RELAXED, __ATOMIC_RELAXED) \
  OPERATIONS(BYTES, TYPE, R, S, acq, "a", __ATOMIC_ACQUIRE, __ATOMIC_ACQUIRE)  \
  OPERATIONS(BYTES, TYPE, R, S, rel, "l", __ATOMIC_RELEASE, __ATOMIC_RELAXED)  \
  OPERATIONS(BYTES, TYPE, R, S, acq_rel, "al", __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE)

SIZE_OF(1, std::uint8_t, "w", "b")
SIZE_OF(2, std::uint16_t, "w", "h")
SIZE_OF(4, std::uint32_t, "w", "")
SIZE_OF(8, std::uint64_t, "x", "")
// NOLINTEND(bugprone-macro-parentheses,bugprone-reserved-identifier)
#endif
