// Tells which pages of another process are in memory, from /proc/PID/pagemap.
//
// A reader must not read untouched pages through /proc/PID/mem: the kernel would then give the
// process page tables and its zero page for them. The zero page is not memory of the process: where
// the kernel tells (Linux 6.7 and newer), it counts as no page.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <vector>

namespace heapwright::diagnose {

class PageMap {
 public:
  explicit PageMap(pid_t pid);
  ~PageMap();
  PageMap(const PageMap&) = delete;
  PageMap& operator=(const PageMap&) = delete;

  enum class Page : std::uint8_t { kNone, kResident, kSwapped };

  // Whether the kernel tells anything.
  [[nodiscard]] bool readable() const { return file_ >= 0; }
  [[nodiscard]] std::uint64_t page_bytes() const { return page_bytes_; }
  // The state of each page that the addresses from `begin` to `end` touch. Unreadable pages are
  // kNone. Empty if `end` is not above `begin`, as in a structure that changed while it was read.
  [[nodiscard]] std::vector<Page> pages(std::uint64_t begin, std::uint64_t end) const;
  // How many bytes of these pages are in memory.
  [[nodiscard]] std::uint64_t resident_bytes(std::uint64_t begin, std::uint64_t end) const;

 private:
  int file_;
  std::uint64_t page_bytes_;
};

}  // namespace heapwright::diagnose
