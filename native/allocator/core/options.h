// Reads options from an environment variable such as 'limit=2g,purge_delay=1000'.
//
// An option that cannot be used is reported in one line on stderr and keeps its default. A program
// may have options built in (`heapwright link` does that). The variable is read after them and
// takes precedence.
#pragma once

#include <cstddef>
#include <cstdint>

#include "inlining.h"

namespace heapwright::alloc {

struct Options {
  std::size_t limit = SIZE_MAX;        // limit=SIZE: the most memory obtained from the kernel
  std::size_t keep = 2 * 1024 * 1024;  // keep=SIZE: free superblocks may always hold this much
  std::uint64_t purge_delay = 1000;    // purge_delay=MS: memory needed again within it was purged prematurely
  // cache=SIZE, or its older name front=SIZE: of each list of the thread cache; 0: the default.
  std::size_t cache_bytes_per_class = 0;
  enum class Huge : std::uint8_t {
    kAuto,
    kNever,
    kAlways
  } huge_pages = Huge::kAuto;  // huge_pages=auto|never|always
  // Hardened builds only. quarantine=SIZE: how much each thread's quarantine holds. wipe=0|1:
  // whether freed memory is wiped. on_mismatch: what to do about a free that does not fit the
  // allocation, such as free() of a block from new.
  std::size_t quarantine = 128 * 1024;
  bool wipe = true;
  enum class Mismatch : std::uint8_t {
    kAbort,
    kReport,
    kIgnore
  } mismatch = Mismatch::kAbort;  // abort|report|ignore
  bool report = false;            // on_error=abort|report: true if a wrong pointer is only reported
  bool statistics = false;        // stats=0|1: print statistics at exit
};

// Returns `options` changed by the options in `text`, which may be nullptr. `variable`: the name
// for messages.
HEAPWRIGHT_COLD Options read_options(const char* variable, const char* text, Options options = {});

// Returns the options that the program has built in; nullptr: none.
const char* built_in_options();

inline constexpr const char* kBuiltInOptions = "heapwright_built_in_options";

}  // namespace heapwright::alloc
