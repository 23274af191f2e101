#include "filling.h"

#include <algorithm>
#include <iterator>

#include "clock.h"
#include "record.h"
#include "touched.h"

namespace heapwright::recorder {
namespace {

constexpr unsigned kBlocks = 8;
constexpr unsigned kMaxUnchanged = 32;  // observations
constexpr std::uint64_t kAllowedNs = 2'000'000;
constexpr std::uint64_t kAllowedShare = 100;  // of the time of the process: 1/100

struct FillingBlock {
  std::uintptr_t address;  // 0: not in use
  std::size_t size;
  std::size_t touched;  // at the last observation
  unsigned unchanged;   // observations since it last changed
};

struct FillingBlocks {
  FillingBlock blocks[kBlocks];
  unsigned next;  // to replace: the oldest
  std::uint64_t spent_ns;
};

// In the static TLS block, like self_state.
[[gnu::tls_model("initial-exec")]] thread_local constinit FillingBlocks filling = {};

// Returns the touched bytes of a block; its whole size if it need not be observed any longer.
std::size_t observe(FillingBlock& block) {
  const LargeBlock live = session->large.find(reinterpret_cast<const void*>(block.address));
  if (live.size != block.size || live.touching != Touching::kMeasured) {
    return block.size;  // freed
  }
  const std::size_t touched = resident_part(block.address, block.size);
  block.unchanged = touched == block.touched ? block.unchanged + 1 : 0;
  block.touched = touched;
  return block.unchanged > kMaxUnchanged || touched >= block.size - block.size / 16 ? block.size : touched;
}

}  // namespace

void begin_filling(const void* block, std::size_t size) {
  FillingBlock& oldest = filling.blocks[filling.next];
  filling.next = (filling.next + 1) % kBlocks;
  oldest = {.address = reinterpret_cast<std::uintptr_t>(block), .size = size, .touched = 0, .unchanged = 0};
}

bool observes_filling() {
  const FillingBlocks& mine = filling;
  return std::any_of(std::begin(mine.blocks), std::end(mine.blocks),
                     [](const FillingBlock& block) { return block.address != 0; });
}

void put_filling(Stream& writer) {
  FillingBlocks& mine = filling;
  std::uint64_t begin = 0;
  for (FillingBlock& block : mine.blocks) {
    if (block.address == 0) {
      continue;
    }
    if (begin == 0) {
      begin = monotonic_ns();
      const std::uint64_t passed = begin - session->header->first_ns;
      if (mine.spent_ns > kAllowedNs + passed / kAllowedShare) {
        return;
      }
    }
    if (writer.at + kMaxEventBytes >= writer.limit) {
      break;
    }
    const std::size_t touched = observe(block);
    if (touched == block.size) {
      block.address = 0;
    } else {
      put_other(writer, Other::kTouched, touched);
      put_other_address(writer, Other::kFilling, block.address);
    }
  }
  if (begin != 0) {
    mine.spent_ns += monotonic_ns() - begin;
  }
}

}  // namespace heapwright::recorder
