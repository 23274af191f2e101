#include "unseen_ticks.h"

#include <unordered_map>

#include "record_merge.h"

namespace heapwright::trace {
namespace {

struct FileThread {
  std::uint64_t ticks = 0;
  std::uint64_t further = 0;
  bool older = false;
  bool ended = false;
};

// Notes a record of a thread, as the reader does.
void note(FileThread& thread, const raw::TimedRecord& item) {
  if (item.ticks != ~std::uint64_t{0}) {
    thread.ticks = std::max(thread.ticks, item.ticks);
    thread.older = thread.older || item.older;
  }
  const raw::Tag tag = item.record.tag;
  if (tag == raw::Tag::kMalloc || tag == raw::Tag::kCalloc) {
    thread.further += further_draws(item.record.size);
  }
  thread.ended = thread.ended || (tag == raw::Tag::kOther && item.record.other == raw::Other::kThreadEnd);
}

}  // namespace

UnseenTicks::UnseenTicks(const raw::RawFile& file, std::uint64_t rate) : rate_(rate) {
  const raw::FileHeader& header = file.header();
  const std::uint64_t level = std::min<std::uint64_t>(header.min_level.load(), raw::kLevels);
  for (std::uint64_t i = 0; rate > 1 && i <= level; ++i) {
    left_ += std::min(header.ended_ticks[i].load(), kMax - left_);
  }
  if (left_ == 0) {
    return;
  }
  std::unordered_map<std::uint32_t, FileThread> threads;
  raw::RecordMerge records(file);
  for (raw::TimedRecord item; records.next(item, [](const raw::TimedRecord&) { return true; });) {
    note(threads[item.thread], item);
  }
  double all = 0;
  for (const auto& [number, thread] : threads) {
    if (thread.ended && !thread.older && thread.ticks != 0) {
      all += like(thread.ticks, thread.further);
    }
  }
  scale_ = all > 0 ? static_cast<double>(left_) / all : 0;
}

}  // namespace heapwright::trace
