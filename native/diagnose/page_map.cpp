// Reads /proc/PID/pagemap, and asks newer kernels for zero pages. See page_map.h.
#include "page_map.h"

#include <fcntl.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <string>

namespace heapwright::diagnose {

namespace {

// Bits of an entry: Documentation/admin-guide/mm/pagemap.rst.
constexpr std::uint64_t kPresent = std::uint64_t{1} << 63U;
constexpr std::uint64_t kSwap = std::uint64_t{1} << 62U;
constexpr std::uint64_t kFile = std::uint64_t{1} << 61U;  // or memory shared by a file descriptor
constexpr std::uint64_t kExclusive = std::uint64_t{1} << 56U;
constexpr std::size_t kAtOnce = std::size_t{16} << 10U;  // entries

// PAGEMAP_SCAN of Linux 6.7. Its header, linux/fs.h, is older on many build machines.
struct Region {
  std::uint64_t begin;
  std::uint64_t end;
  std::uint64_t categories;
};
struct ScanArguments {
  std::uint64_t size;
  std::uint64_t flags;
  std::uint64_t begin;
  std::uint64_t end;
  std::uint64_t walk_end;
  std::uint64_t vector;
  std::uint64_t vector_length;
  std::uint64_t max_pages;
  std::uint64_t category_inverted;
  std::uint64_t category_mask;
  std::uint64_t category_anyof_mask;
  std::uint64_t return_mask;
};
constexpr std::uint64_t kZeroPage = std::uint64_t{1} << 5U;
constexpr std::size_t kRegionsAtOnce = 512;

// Takes the kernel's zero page out of `pages`, which begin at `begin`: a page that the process has
// only read. Older kernels do not tell.
void remove_zero_pages(int file, std::uint64_t begin, std::uint64_t page_bytes,
                       std::vector<PageMap::Page>& pages) {
  std::vector<Region> regions(kRegionsAtOnce);
  const std::uint64_t end = begin + pages.size() * page_bytes;
  for (std::uint64_t from = begin; from < end;) {
    ScanArguments scan{};
    scan.size = sizeof scan;
    scan.begin = from;
    scan.end = end;
    scan.vector = reinterpret_cast<std::uint64_t>(regions.data());
    scan.vector_length = regions.size();
    scan.category_mask = kZeroPage;
    scan.return_mask = kZeroPage;
    const int count = ::ioctl(file, _IOWR('f', 16, ScanArguments), &scan);
    if (count < 0 || scan.walk_end <= from) {
      return;
    }
    for (std::size_t i = 0; i < static_cast<std::size_t>(count); ++i) {
      for (std::uint64_t at = regions[i].begin; at < regions[i].end; at += page_bytes) {
        pages[(at - begin) / page_bytes] = PageMap::Page::kNone;
      }
    }
    from = scan.walk_end;
  }
}

}  // namespace

PageMap::PageMap(pid_t pid)
    : file_(::open(("/proc/" + std::to_string(pid) + "/pagemap").c_str(), O_RDONLY | O_CLOEXEC)),
      page_bytes_(static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE))) {}

PageMap::~PageMap() {
  if (file_ >= 0) {
    (void)::close(file_);
  }
}

std::vector<PageMap::Page> PageMap::pages(std::uint64_t begin, std::uint64_t end) const {
  if (end <= begin) {
    return {};
  }
  const std::uint64_t first = begin / page_bytes_;
  const std::uint64_t count = (end + page_bytes_ - 1) / page_bytes_ - first;
  std::vector<Page> found(count, Page::kNone);
  std::vector<std::uint64_t> entries(std::min<std::uint64_t>(count, kAtOnce));
  bool maybe_zero = false;
  for (std::uint64_t done = 0; done < count;) {
    const std::size_t wanted = std::min<std::uint64_t>(count - done, entries.size()) * sizeof entries[0];
    const ssize_t got =
        ::pread(file_, entries.data(), wanted, static_cast<off_t>((first + done) * sizeof entries[0]));
    if (got <= 0) {
      break;
    }
    const std::size_t read = static_cast<std::size_t>(got) / sizeof entries[0];
    for (std::size_t i = 0; i < read; ++i) {
      const Page swapped = (entries[i] & kSwap) != 0 ? Page::kSwapped : Page::kNone;
      maybe_zero |= (entries[i] & (kPresent | kFile | kExclusive)) == kPresent;
      found[done + i] = (entries[i] & kPresent) != 0 ? Page::kResident : swapped;
    }
    done += read;
  }
  if (maybe_zero) {
    remove_zero_pages(file_, first * page_bytes_, page_bytes_, found);
  }
  return found;
}

std::uint64_t PageMap::resident_bytes(std::uint64_t begin, std::uint64_t end) const {
  const std::vector<Page> found = pages(begin, end);
  return static_cast<std::uint64_t>(std::count(found.begin(), found.end(), Page::kResident)) * page_bytes_;
}

}  // namespace heapwright::diagnose
