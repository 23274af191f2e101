// Options from an environment variable: 'limit=2g,purge_delay=1000'. What cannot be used is reported once, in
// one line on stderr, and left at its default. A program may have options built in (`heapwright link` does that); the
// variable is read after them and wins.
#pragma once

#include <cstddef>
#include <cstdint>

namespace heapwright::alloc {

struct Options {
  std::size_t limit = SIZE_MAX;        // limit=SIZE: of all memory obtained
  std::size_t keep = 2 * 1024 * 1024;  // keep=SIZE: what free superblocks may hold at least
  std::uint64_t purge_delay = 1000;    // purge_delay=MS: memory wanted again so soon was given back too early
  std::size_t cache_bytes_per_class =
      0;  // front=SIZE: of the list before each class; 0: the built-in default
  enum class Huge : std::uint8_t {
    kAuto,
    kNever,
    kAlways
  } huge_pages = Huge::kAuto;  // huge_pages=auto|never|always
  // Of hardened builds: quarantine=SIZE, of each thread's freed blocks; wipe=0|1, what is freed; on_mismatch, of new and
  // free and the like.
  std::size_t quarantine = 128 * 1024;
  bool wipe = true;
  enum class Mismatch : std::uint8_t {
    kAbort,
    kReport,
    kIgnore
  } mismatch = Mismatch::kAbort;  // abort|report|ignore
  bool report = false;            // on_error=abort|report: a wrong pointer is reported and ignored
  bool statistics = false;        // stats=0|1: print them at exit
};

// The options in `text`, which may be nullptr, on top of `options`. `variable` is its name, for messages.
Options read_options(const char* variable, const char* text, Options options = {});

// What the program has built in; nullptr: nothing.
const char* built_in_options();

inline constexpr const char* kBuiltInOptions = "heapwright_built_in_options";

}  // namespace heapwright::alloc
