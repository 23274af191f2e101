// Fuzzes Massif's rules with any mapping calls, against a page-by-page count, and the parser of
// /proc/PID/statm.
#include "meter/massif.h"

#include <fcntl.h>

#include <map>

#include "input.h"
#include "meter/procfs.h"

namespace {

constexpr std::uint64_t kPage = 4096;

// Counts every page by itself, as a multiset.
class Pages {
 public:
  void add(std::uint64_t address, std::uint64_t length) {
    for (std::uint64_t at = address; at < address + length; at += kPage) {
      ++count_[at];
      ++total_;
    }
  }
  std::uint64_t remove(std::uint64_t address, std::uint64_t length) {
    std::uint64_t removed = 0;
    for (std::uint64_t at = address; at < address + length; at += kPage) {
      const auto found = count_.find(at);
      if (found != count_.end()) {
        ++removed;
        if (--found->second == 0) {
          count_.erase(found);
        }
      }
    }
    total_ -= removed;
    return removed * kPage;
  }
  std::uint64_t total() const { return total_ * kPage; }

 private:
  std::map<std::uint64_t, std::uint64_t> count_;
  std::uint64_t total_ = 0;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace heapwright;
  fuzz::Input in(data, size);
  if (in.byte() % 4 == 0) {
    const fuzz::MemoryFile file(in.rest());
    const int opened = ::open(file.path().c_str(), O_RDONLY | O_CLOEXEC);
    (void)meter::read_statm(opened);
    ::close(opened);
    return 0;
  }
  meter::PageMultiset real;
  Pages simple;
  meter::Massif massif(kPage);
  massif.start(8 * kPage, 0x1000000);
  massif.start_segment(0x400000, 3 * kPage);
  for (int steps = 0; !in.empty() && steps < 2000; ++steps) {
    const unsigned what = in.byte();
    const std::uint64_t address = (1 + in.byte()) * kPage;
    const std::uint64_t length = (1 + in.byte() % 64) * kPage;
    if (what % 2 == 0) {
      real.add(address, length);
      simple.add(address, length);
    } else {
      PROMISE(real.remove(address, length) == simple.remove(address, length));
    }
    PROMISE(real.total() == simple.total());
    PROMISE((real.runs() == 0) == (real.total() == 0));
    const std::uint64_t odd = in.any();
    switch (what / 2 % 7) {
      case 0:
        massif.mmap(odd & 0x7FFFFFFFF000, length + odd % kPage);
        break;
      case 1:
        massif.munmap(odd & 0x7FFFFFFFF000, length);
        break;
      case 2:
        massif.brk(odd & 0x7FFFFFFFFFFF);
        break;
      case 3:
        massif.mremap(address, length, odd & 0x7FFFFFFFF000, length / 2 + kPage, what % 3 == 0);
        break;
      case 4:
        massif.shmat(address, length);
        break;
      case 5:
        massif.shmdt(address);
        break;
      default:
        break;
    }
    PROMISE(massif.peak() >= massif.now());
  }
  return 0;
}
