#include "sample_block.h"

#include <algorithm>
#include <utility>

namespace heapwright::model {

using trace::Event;
using trace::Kind;

namespace {

// Of one block, because slots take memory. The rest of the ticks comes in the next blocks.
constexpr std::uint64_t kMaxSlots = std::uint64_t{1} << 22;

bool is_window_mark(const Event& event, const trace::Header& header) {
  return event.kind == Kind::kPhase && event.value < header.phases.size() &&
         header.phases[event.value] == "window";
}

bool by_place(const Slot& a, const Slot& b) { return a.place < b.place; }

}  // namespace

SampleBlockReader::SampleBlockReader(trace::EventSource& source, std::uint64_t max_slots)
    : source_(source), max_slots_(max_slots), before_window_(source.header().window_begin.has_value()) {}

SampleBlockReader::Thread& SampleBlockReader::thread_of(std::uint32_t thread) {
  if (thread >= threads_.size()) {
    threads_.resize(thread + std::size_t{1});
  }
  Thread& found = threads_[thread];
  if (found.block != block_) {
    found.block = block_;
    found.from = 0;
  }
  return found;
}

bool SampleBlockReader::read(SampleBlock& block) {
  block.items.clear();
  block.slots.clear();
  block.slot_ticks = 0;
  block.begin = position_;
  block.before_window = before_window_;
  ++block_;
  std::uint64_t ticks = 0;
  for (Event event; ticks < kSampledTicksPerBlock && block.slots.size() < kMaxSlots && next(event);) {
    if (event.kind == Kind::kTicks) {
      add_slots(block, event);
      continue;
    }
    add_item(block, event);
    ticks += is_tick(event.kind) ? 1 : 0;
    if (before_window_ && is_window_mark(event, source_.header())) {
      before_window_ = false;
      break;
    }
  }
  number(block);
  return !block.items.empty() || !block.slots.empty();
}

bool SampleBlockReader::next(Event& event) {
  if (rest_.value == 0) {
    return source_.next(event);
  }
  event = std::exchange(rest_, {});
  return true;
}

// Spreads the ticks that an event of kind kTicks reports, as far as they are not of sampled
// objects, over the block from the last event of the thread to here.
void SampleBlockReader::add_slots(SampleBlock& block, const Event& ticks) {
  Thread& thread = thread_of(ticks.thread);
  const std::uint64_t all = ticks.value - std::min(ticks.value, thread.sampled);
  const std::uint64_t count =
      max_slots_ == kSlotForEachTick ? std::min(all, kMaxSlots - block.slots.size()) : all;
  const std::uint64_t slots = std::min(count, max_slots_);
  const double to = static_cast<double>(block.items.size()) + 1;
  const double step = (to - thread.from) / static_cast<double>(std::max<std::uint64_t>(slots, 1));
  for (std::uint64_t i = 0; i < slots; ++i) {
    const std::uint64_t of_slot = count / slots + (i < count % slots ? 1 : 0);
    block.slots.push_back({thread.from + (static_cast<double>(i) + 0.5) * step, ticks.thread, of_slot});
  }
  rest_ = ticks;
  rest_.value = all - count;
  block.slot_ticks += count;
  thread.ticks += count;
  thread.sampled = 0;
  thread.from = to - 1;
}

void SampleBlockReader::add_item(SampleBlock& block, const Event& event) {
  Thread& thread = thread_of(event.thread);
  block.items.push_back({event, thread.ticks, 0});
  if (is_tick(event.kind) && !before_window_) {
    ++thread.ticks;
    ++thread.sampled;
  }
  // Before other events kTicks may be missing, so they do not tell that the thread made no tick.
  if (is_allocation(event.kind) || uses_object(event.kind) || event.kind == Kind::kThreadStart) {
    thread.from = static_cast<double>(block.items.size());
  }
}

// Sorts the slots, and numbers the ticks of all threads.
void SampleBlockReader::number(SampleBlock& block) {
  if (!std::is_sorted(block.slots.begin(), block.slots.end(), by_place)) {
    std::stable_sort(block.slots.begin(), block.slots.end(), by_place);
  }
  std::size_t slot = 0;
  for (std::size_t i = 0; i < block.items.size(); ++i) {
    SampleItem& item = block.items[i];
    for (; slot < block.slots.size() && block.slots[slot].place < static_cast<double>(i) + 1; ++slot) {
      position_ += block.slots[slot].ticks;
      order_ = 0;
    }
    item.position = position_;
    item.order = order_;
    order_ = std::min(order_ + 1, SampleItem::kOrders - 1);
    if (is_tick(item.event.kind) && !block.before_window) {
      ++position_;
      order_ = 0;
    }
  }
  for (; slot < block.slots.size(); ++slot) {
    position_ += block.slots[slot].ticks;
    order_ = 0;
  }
}

}  // namespace heapwright::model
