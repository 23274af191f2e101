// Fuzzes the options of exgen and reaper, and the meter's command line. Each option is accepted or
// named in an error, and options that are not set keep their defaults.
#include "core/options.h"

#include <getopt.h>

#include <vector>

#include "input.h"
#include "meter/options.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace heapwright;
  if (size == 0) {
    return 0;
  }
  const std::string text(reinterpret_cast<const char*>(data) + 1, size - 1);
  if (data[0] % 2 == 0) {
    const alloc::Options options = alloc::read_options("FUZZ_OPTIONS", text.c_str());
    PROMISE(options.limit > 0);
    PROMISE(options.huge_pages <= alloc::Options::Huge::kAlways);
    if (text.find('=') == std::string::npos) {
      PROMISE(options.limit == SIZE_MAX && options.cache_bytes_per_class == 0 && !options.report &&
              !options.statistics);
    }
    return 0;
  }
  std::vector<std::string> words{"heapwright-meter"};
  for (std::size_t at = 0; at <= text.size() && words.size() < 100;) {
    const std::size_t end = std::min(text.find('\0', at), text.size());
    words.push_back(text.substr(at, end - at));
    at = end + 1;
  }
  std::vector<char*> pointers;
  for (std::string& word : words) {
    pointers.push_back(word.data());
  }
  pointers.push_back(nullptr);
  optind = 0;  // makes glibc's getopt start again
  meter::Options options;
  std::string error;
  const bool good = meter::parse_options(static_cast<int>(words.size()), pointers.data(), options, error);
  PROMISE(good == error.empty());
  PROMISE(!good || (options.interval_ms >= 1 && options.timeout_s >= 0 &&
                    (options.probe || options.command.size() > 1)));
  return 0;
}
