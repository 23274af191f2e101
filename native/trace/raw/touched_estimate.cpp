#include "touched_estimate.h"

#include <algorithm>

namespace heapwright::trace {

void TouchedEstimate::on_untouched(std::uint64_t bytes, std::uint64_t objects) {
  untouched_ = {bytes, objects};
  resident_then_ = 0;  // the next resident reading belongs to this one
}

void TouchedEstimate::on_resident(std::uint64_t bytes, std::uint64_t objects) {
  resident_ = {bytes, objects};
  if (resident_then_ == 0) {
    resident_then_ = bytes;
  }
}

void TouchedEstimate::on_free(std::uint64_t object, std::uint64_t size, std::uint64_t touched) {
  if (object < untouched_.objects) {
    untouched_.bytes -= std::min(untouched_.bytes, size - std::min(size, touched));
  }
}

void TouchedEstimate::finish(std::vector<Block>& blocks) const {
  if (untouched_.objects == 0) {
    blocks.clear();
    return;
  }
  std::erase_if(blocks, [this](const Block& block) {
    return block.object >= std::max(untouched_.objects, resident_.objects);
  });
  std::sort(blocks.begin(), blocks.end(), [](const Block& a, const Block& b) { return a.object < b.object; });
  std::uint64_t read = 0;
  std::uint64_t later = 0;
  for (const Block& block : blocks) {
    (block.object < untouched_.objects ? read : later) += block.size;
  }
  const std::uint64_t growth = resident_.bytes - std::min(resident_.bytes, resident_then_);
  const auto part = [](std::uint64_t touched, std::uint64_t all) {
    return all == 0 ? 0.0 : static_cast<double>(touched) / static_cast<double>(all);
  };
  const double part_read = part(read - std::min(read, untouched_.bytes), read);
  const double part_later = part(std::min(later, growth), later);
  for (Block& block : blocks) {
    block.touched = static_cast<std::uint64_t>(static_cast<double>(block.size) *
                                               (block.object < untouched_.objects ? part_read : part_later));
  }
}

}  // namespace heapwright::trace
