// Defines the bodies of glibc's functions that report on an allocator: mallinfo, malloc_stats,
// malloc_info.
#pragma once

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstddef>
#include <cstdio>

#include "../core/message.h"
#include "../core/statistics.h"
#include "../platform/c_library.h"

namespace heapwright::alloc::entry {

inline struct mallinfo2 information2(const Statistics& s) {
  struct mallinfo2 result{};
  result.arena = s.region.region_bytes + s.region.kept_bytes;
  result.ordblks = s.region.dirty_bytes / kSuperblockBytes;
  result.hblks = s.large_count;
  result.hblkhd = s.large_bytes;
  result.uordblks = s.live_bytes - s.large_bytes;
  result.fordblks = s.region.used_bytes - std::min(result.uordblks, s.region.used_bytes) + s.free_bytes();
  result.keepcost = s.free_bytes();
  return result;
}

// The older form has ints: a value that does not fit becomes the largest int.
inline struct mallinfo information(const Statistics& s) {
  const struct mallinfo2 wide = information2(s);
  const auto fit = [](std::size_t value) { return value > INT_MAX ? INT_MAX : static_cast<int>(value); };
  struct mallinfo result{};
  result.arena = fit(wide.arena);
  result.ordblks = fit(wide.ordblks);
  result.hblks = fit(wide.hblks);
  result.hblkhd = fit(wide.hblkhd);
  result.uordblks = fit(wide.uordblks);
  result.fordblks = fit(wide.fordblks);
  result.keepcost = fit(wide.keepcost);
  return result;
}

inline void print_statistics(const char* name, const Statistics& s) {
  Message message;
  message << name << ": " << s.live_bytes << " bytes live (" << s.live_blocks << " blocks of a size class, "
          << s.large_count << " large of " << s.large_bytes << " bytes)\n"
          << name << ": " << s.region.used_bytes << " bytes in superblocks, " << s.cached_bytes
          << " in the thread cache, " << s.region.dirty_bytes << " in free superblocks, "
          << s.region.kept_bytes << " in freed large blocks, " << s.region.purged_bytes << " purged in "
          << s.region.purges << " calls\n";
  message.write();
}

inline int write_xml(int options, std::FILE* file, const char* name, const Statistics& s) {
  if (options != 0) {
    return EINVAL;  // as glibc does
  }
  const int written = std::fprintf(
      file,
      "<malloc version=\"1\">\n<allocator name=\"%s\"/>\n<total type=\"live\" size=\"%zu\"/>\n"
      "<total type=\"mmap\" count=\"%zu\" size=\"%zu\"/>\n<system type=\"current\" size=\"%zu\"/>\n"
      "<total type=\"free\" size=\"%zu\"/>\n<total type=\"purged\" count=\"%zu\" size=\"%zu\"/>\n</malloc>\n",
      name, s.live_bytes, s.large_count, s.large_bytes, s.region.used_bytes + s.free_bytes(), s.free_bytes(),
      s.region.purges, s.region.purged_bytes);
  return written < 0 ? -1 : 0;
}

}  // namespace heapwright::alloc::entry
