// Reads a sample block by block, and turns each block into events. sample_sharing.cpp chooses the
// copies and the ticks in which they are allocated and resized.
#include "sample_expander.h"

#include <algorithm>
#include <cmath>

#include "trace/sample.h"

namespace heapwright::model {

using trace::Event;
using trace::Kind;

namespace {

// A lifetime of at most so many times the sample's rate, in ticks, is copied as it is. A longer one
// is longer than the distance of a copy's allocation from that of its object.
constexpr std::uint64_t kExactLifetimes = 2;

constexpr std::uint64_t less(std::uint64_t a, std::uint64_t b) { return a - std::min(a, b); }

}  // namespace

SampleExpander::SampleExpander(std::unique_ptr<trace::EventSource> sample, std::uint64_t seed)
    : sample_(std::move(sample)),
      header_(sample_->header()),
      rate_(std::max<std::uint64_t>(1, header_.sample)),
      reader_(*sample_),
      bits_(seed),
      exchange_(sampled_, copies_, bits_),
      rounding_(uniform()) {
  header_.sample = 0;
  read_ahead();
}

bool SampleExpander::next(Event& event) {
  while (!pending_.pop(event)) {
    if (finished_) {
      return false;
    }
    if (!has_ahead_) {
      finish();
      continue;
    }
    std::swap(block_, ahead_);
    read_ahead();
    expand_block();
  }
  return true;
}

void SampleExpander::read_ahead() {
  has_ahead_ = reader_.read(ahead_);
  if (has_ahead_) {
    note(ahead_);
    note_frees(ahead_);
  }
}

SampleExpander::Thread& SampleExpander::thread_of(std::uint32_t thread) {
  if (thread >= threads_.size()) {
    threads_.resize(thread + std::size_t{1});
  }
  return threads_[thread];
}

// Notes the allocations and resizes of a block.
void SampleExpander::note(SampleBlock& block) {
  for (SampleItem& item : block.items) {
    const Event& event = item.event;
    (void)thread_of(event.thread);
    if (is_allocation(event.kind)) {
      Sampled object;
      object.weight = 1 / trace::chance(event.size, rate_);
      object.largest = event.size;
      object.allocation = event;
      object.tick = item.tick;
      object.position = item.position;
      object.sizes.push_back(event.size);
      numbers_.insert(event.object, sampled_.add(std::move(object)));
    } else if (event.kind == Kind::kRealloc) {
      if (const std::uint32_t* const index = numbers_.find(event.object)) {
        sampled_[*index].sizes.push_back(event.size);
      }
    }
  }
  for (const Slot& slot : block.slots) {
    (void)thread_of(slot.thread);
  }
}

// Decides for each free of a block when the copies of the object are freed.
void SampleExpander::note_frees(SampleBlock& block) {
  std::vector<std::uint32_t> threads;
  threads.reserve(block.slots.size());
  for (const Slot& slot : block.slots) {
    threads.push_back(slot.thread);
  }
  std::sort(threads.begin(), threads.end());
  const auto active =
      std::max<std::ptrdiff_t>(1, std::unique(threads.begin(), threads.end()) - threads.begin());

  std::vector<std::pair<const SampleItem*, ScheduledFree>> spread;
  for (const SampleItem& item : block.items) {
    const std::uint32_t* const index = is_free(item.event.kind) ? numbers_.find(item.event.object) : nullptr;
    if (index == nullptr) {
      continue;
    }
    ScheduledFree scheduled = free_of(sampled_[*index], item, static_cast<std::uint64_t>(active));
    if (scheduled.how == ScheduledFree::How::kSpread) {
      spread.emplace_back(&item, scheduled);
    } else {
      note_free(item, scheduled);
    }
  }
  for (std::size_t i = 0; i < spread.size(); ++i) {
    auto& [item, scheduled] = spread[i];
    std::uint64_t gap = less(item->moment(), i == 0 ? last_long_free_ : spread[i - 1].first->moment());
    if (i + 1 < spread.size()) {
      gap = std::min(gap, spread[i + 1].first->moment() - item->moment());
    }
    const double half = static_cast<double>(gap) / 2;
    scheduled.from = static_cast<double>(item->moment()) - half;
    scheduled.to = static_cast<double>(item->moment()) + half;
    note_free(*item, scheduled);
  }
  if (!spread.empty()) {
    last_long_free_ = spread.back().first->moment();
  }
}

ScheduledFree SampleExpander::free_of(const Sampled& object, const SampleItem& item,
                                      std::uint64_t threads) const {
  ScheduledFree scheduled;
  scheduled.moment = item.moment();
  scheduled.event = item.event;
  scheduled.own = item.event.thread == object.allocation.thread;
  const std::uint64_t own = less(item.tick, object.tick + 1);
  const std::uint64_t all = less(item.position, object.position + 1);
  if (scheduled.own && own <= kExactLifetimes * rate_) {
    scheduled.how = ScheduledFree::How::kOwnTicks;
    scheduled.after = own;
  } else if (!scheduled.own && all <= kExactLifetimes * rate_ * threads) {
    scheduled.how = ScheduledFree::How::kAllTicks;
    scheduled.after = all;
  } else {
    scheduled.how = ScheduledFree::How::kSpread;
  }
  return scheduled;
}

void SampleExpander::note_free(const SampleItem& item, const ScheduledFree& scheduled) {
  Sampled& object = sampled_[*numbers_.find(item.event.object)];
  object.scheduled_free = scheduled;
  for (const std::uint32_t copy : object.copies) {
    if (copies_[copy].allocated) {
      schedule(copy, object.scheduled_free);
    }
  }
}

void SampleExpander::schedule(std::uint32_t index, const ScheduledFree& scheduled) {
  Copy& copy = copies_[index];
  if (copy.deadline != 0) {
    return;
  }
  copy.deadline = ++deadlines_;
  copy.freer = scheduled.own ? copy.thread : scheduled.event.thread;
  copy.free_kind = scheduled.event.kind;
  copy.free_size = scheduled.event.size;
  copy.touched = scheduled.event.touched;
  // The ticks of the object's thread tell nothing about another thread, which may be idle.
  const bool own_ticks = scheduled.how == ScheduledFree::How::kOwnTicks && !copy.moved;
  if (copy.exchanged && scheduled.how != ScheduledFree::How::kSpread) {
    scheduled_frees_.add({scheduled.moment, copy.deadline, index});
  } else if (own_ticks) {
    thread_of(copy.thread).scheduled_frees.add({copy.ticks + scheduled.after, copy.deadline, index});
  } else if (scheduled.how != ScheduledFree::How::kSpread) {
    scheduled_frees_.add({(copy.position + scheduled.after) * SampleItem::kOrders, copy.deadline, index});
  } else {
    const double at = scheduled.from + uniform() * (scheduled.to - scheduled.from);
    scheduled_frees_.add({static_cast<std::uint64_t>(std::max(0.0, at)), copy.deadline, index});
  }
}

void SampleExpander::expand_block() {
  position_ = block_.begin;
  changed_.clear();
  ended_.clear();
  add_tokens();
  share_tokens();
  run_block();
  end_block();
}

// Puts the slots and the items of the block in order. Times of slots lie evenly between those of
// the items before and after.
void SampleExpander::run_block() {
  std::size_t next = 0;
  const auto run_slots = [&](double from, double until, std::uint64_t time) {
    for (; next < block_.slots.size() && block_.slots[next].place < until; ++next) {
      const double share = std::clamp(block_.slots[next].place - from, 0.0, 1.0);
      const double passed = share * static_cast<double>(less(time, time_));
      run_slot(block_.slots[next], time_ + static_cast<std::uint64_t>(passed));
    }
  };
  for (std::size_t i = 0; i < block_.items.size(); ++i) {
    const SampleItem& item = block_.items[i];
    run_slots(static_cast<double>(i), static_cast<double>(i) + 1, item.event.time);
    run_item(item);
    time_ = std::max(time_, item.event.time);
  }
  const bool more = has_ahead_ && !ahead_.items.empty();
  const auto last = static_cast<double>(block_.items.size());
  run_slots(last, last + 2, more ? ahead_.items.front().event.time : time_);
}

void SampleExpander::run_item(const SampleItem& item) {
  const Event& event = item.event;
  order_ = item.order;
  run_frees(event.thread, event.time);
  if (is_allocation(event.kind) || uses_object(event.kind)) {
    if (const std::uint32_t* const index = numbers_.find(event.object)) {
      put_use(item, sampled_[*index]);
      if (is_free(event.kind)) {
        ended_.push_back(*index);
      }
    }
  } else if (event.kind == Kind::kThreadEnd) {
    end_thread(event.thread, event.time);
    put(event, event.thread, event.time);
    threads_[event.thread].ended = true;
  } else {
    put(event, event.thread, event.time);
  }
  run_frees(event.thread, event.time);
}

// Puts an event of a sampled object, and those events of its copies that take no tick.
void SampleExpander::put_use(const SampleItem& item, Sampled& object) {
  Event event = item.event;
  if (is_allocation(event.kind)) {
    object.output = objects_++;
  }
  event.object = object.output;
  put(event, event.thread, event.time);
  if (is_tick(event.kind) && !block_.before_window) {
    ++threads_[event.thread].ticks;
    ++position_;
    order_ = 0;
  }
  if (event.kind == Kind::kUsableSize || event.kind == Kind::kTouched || event.kind == Kind::kTouchedSoFar) {
    for (const std::uint32_t copy : object.copies) {
      if (copies_[copy].allocated) {
        event.object = copies_[copy].output;
        put(event, event.thread, event.time);
      }
    }
  }
}

// Makes the last ticks of a thread, and frees the copies that wait for further ones.
void SampleExpander::end_thread(std::uint32_t thread, std::uint64_t time) {
  catch_up(thread, 0, time);
  free_due(threads_[thread].scheduled_frees, ~std::uint64_t{0}, thread, time);
}

void SampleExpander::run_frees(std::uint32_t thread, std::uint64_t time) {
  free_due(threads_[thread].scheduled_frees, threads_[thread].ticks, thread, time);
  free_due(scheduled_frees_, position_ * SampleItem::kOrders + order_, thread, time);
}

// Frees the copies that are due at `until` or before. If the thread that should free one does not
// run, `thread` frees it.
void SampleExpander::free_due(Deadlines& frees, std::uint64_t until, std::uint32_t thread,
                              std::uint64_t time) {
  for (Deadlines::Entry due; frees.pop(until, due);) {
    if (copies_[due.copy].deadline == due.number) {
      free_copy(due.copy, thread, time);
    }
  }
}

void SampleExpander::free_copy(std::uint32_t index, std::uint32_t thread, std::uint64_t time) {
  Copy& copy = copies_[index];
  if (copy.steps > 0) {
    copy.due = true;
    return;
  }
  // A free with a size must name that of the copy, not that of the object that it has now.
  const bool own_size = copy.exchanged && copy.free_kind == Kind::kFreeSized;
  const std::uint64_t size = own_size ? copy.size : copy.free_size;
  put({.kind = copy.free_kind, .object = copy.output, .size = size, .touched = copy.touched},
      running(copy.freer, thread), time);
  unlist(copy);
  copies_.remove(index);
}

// Takes a copy off the list of its object.
void SampleExpander::unlist(Copy& copy) {
  if (copy.sampled != kNone && copy.listed) {
    std::vector<std::uint32_t>& others = sampled_[copy.sampled].copies;
    others[copy.place] = others.back();
    copies_[others[copy.place]].place = copy.place;
    others.pop_back();
    copy.listed = false;
  }
}

// Forgets what the block has done.
void SampleExpander::end_block() {
  exchange_.add_block(changed_);
  for (const std::uint32_t index : changed_) {
    Sampled& object = sampled_[index];
    object.sizes.erase(object.sizes.begin(),
                       object.sizes.begin() + static_cast<std::ptrdiff_t>(object.steps));
    object.steps = 0;
  }
  for (const std::uint32_t number : active_) {
    Thread& thread = threads_[number];
    thread.active = false;
    thread.tokens.clear();
    thread.next_token = 0;
    thread.slots = thread.slots_used = 0;
  }
  active_.clear();
  for (const std::uint32_t index : ended_) {
    for (const std::uint32_t copy : sampled_[index].copies) {
      copies_[copy].sampled = kNone;
    }
    numbers_.erase(sampled_[index].allocation.object);
    sampled_.remove(index);
  }
}

// Frees the copies of objects that have been freed.
void SampleExpander::finish() {
  finished_ = true;
  for (std::uint32_t thread = 0; thread < threads_.size(); ++thread) {
    if (threads_[thread].started && !threads_[thread].ended) {
      end_thread(thread, time_);
    }
  }
  free_due(scheduled_frees_, ~std::uint64_t{0}, 0, time_);
}

// Returns `wanted` if this thread runs, else `otherwise` if that does, else a thread that does.
std::uint32_t SampleExpander::running(std::uint32_t wanted, std::uint32_t otherwise) const {
  const auto runs = [this](std::uint32_t thread) {
    return thread < threads_.size() && threads_[thread].started && !threads_[thread].ended;
  };
  if (runs(wanted) || runs(otherwise)) {
    return runs(wanted) ? wanted : otherwise;
  }
  for (std::uint32_t thread = 0; thread < threads_.size(); ++thread) {
    if (runs(thread)) {
      return thread;
    }
  }
  return otherwise;
}

void SampleExpander::put(Event event, std::uint32_t thread, std::uint64_t time) {
  Thread& by = thread_of(thread);
  event.thread = thread;
  by.time = event.time = std::max(time, by.time);
  by.started = true;
  pending_.push(event);
}

}  // namespace heapwright::model
