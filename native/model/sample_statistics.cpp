#include "sample_statistics.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "sample_block.h"
#include "sample_weights.h"
#include "trace/live_table.h"
#include "trace/sample.h"

namespace heapwright::model {

using trace::Event;
using trace::Kind;

namespace {

// Of one report of ticks in a block: they only tell where the ticks are between the items.
constexpr std::uint64_t kSlots = 4;
// A lifetime of at most so many times the sample's rate, in ticks of its thread, is known by those.
// The ticks of other threads between two items that are so near are not.
constexpr std::uint64_t kBrief = 2;

// A live object of the sample.
struct Object {
  double weight = 1;
  std::uint64_t largest = 0;  // bytes, so far
  std::uint64_t copies = 0;   // it stands for itself and so many others
  std::uint64_t tick = 0;     // of its thread, at its allocation
  std::uint64_t position = 0;
  std::uint32_t thread = 0;
};

// Rounds a sequence of numbers to whole ones with the same sum.
class Rounding {
 public:
  std::uint64_t operator()(double value) {
    rest_ += value;
    const double whole = std::floor(rest_);
    rest_ -= whole;
    return static_cast<std::uint64_t>(whole);
  }

 private:
  double rest_ = 0.5;
};

class SampleCounter {
 public:
  SampleCounter(trace::EventSource& sample, Statistics& statistics)
      : sample_(sample), statistics_(statistics), reader_(sample, kSlots), rate_(sample.header().sample) {}

  void run();

 private:
  struct Thread {
    std::int64_t ahead = 0;          // ticks that are counted more than the program made
    std::uint64_t block_ticks = 0;   // in the block under way
    std::uint64_t block_number = 0;  // the block that these are of
  };

  void note(const SampleBlock& block);
  void count(const SampleItem& item);
  void allocate(const Event& event);
  void resize(const Event& event, Object& object);
  void release(const SampleItem& item, const Object& object);
  void made(std::uint32_t thread, std::uint64_t ticks);
  void catch_up(std::uint32_t thread, std::int64_t behind);
  Thread& thread_of(std::uint32_t thread);

  trace::EventSource& sample_;
  Statistics& statistics_;
  SampleBlockReader reader_;
  std::uint64_t rate_;
  trace::LiveTable<Object> objects_;
  std::vector<Thread> threads_;
  std::uint64_t blocks_ = 0;
  std::uint64_t block_ticks_ = 0;  // of all threads, in the block under way
  bool before_window_ = false;
  double adjustment_ = 0;
  double resize_share_ = 1;  // of the resizes of copies in the block that are ticks of their own
  std::int64_t ahead_ = 0;   // of all threads
  double expected_ = 0;      // ticks of copies that are still to come in the block
  Rounding copies_;
  Rounding lost_;
  Rounding resizes_;
  Event filler_{.kind = Kind::kMalloc, .size = 16};  // the last small object
};

SampleCounter::Thread& SampleCounter::thread_of(std::uint32_t number) {
  if (number >= threads_.size()) {
    threads_.resize(number + std::size_t{1});
  }
  Thread& thread = threads_[number];
  if (thread.block_number != blocks_) {
    thread.block_number = blocks_;
    thread.block_ticks = 0;
  }
  return thread;
}

void SampleCounter::run() {
  for (SampleBlock block; reader_.read(block);) {
    note(block);
    for (const SampleItem& item : block.items) {
      count(item);
    }
    expected_ = 0;
    for (const Slot& slot : block.slots) {
      catch_up(slot.thread, kMaxBehind * static_cast<std::int64_t>(rate_));
    }
  }
  for (std::uint32_t thread = 0; thread < threads_.size(); ++thread) {
    catch_up(thread, 0);
  }
}

// Notes the allocations of a block and the ticks of its threads, and compares their number with the
// weights.
void SampleCounter::note(const SampleBlock& block) {
  ++blocks_;
  before_window_ = block.before_window;
  block_ticks_ = block.slot_ticks;
  for (const Slot& slot : block.slots) {
    Thread& thread = thread_of(slot.thread);
    thread.block_ticks += slot.ticks;
    thread.ahead -= static_cast<std::int64_t>(slot.ticks);
  }
  ahead_ -= static_cast<std::int64_t>(block.slot_ticks);
  for (const SampleItem& item : block.items) {
    const Event& event = item.event;
    Thread& thread = thread_of(event.thread);
    if (is_tick(event.kind)) {
      ++thread.block_ticks;
      ++block_ticks_;
    }
    if (is_allocation(event.kind)) {
      objects_.insert(event.object, {.weight = 1 / trace::chance(event.size, rate_),
                                     .largest = event.size,
                                     .tick = item.tick,
                                     .position = item.position,
                                     .thread = event.thread});
    }
  }
  const std::int64_t ahead = ahead_ + static_cast<std::int64_t>(block.slot_ticks);
  adjustment_ = adjustment(block, ahead, [this](std::uint64_t number) {
    const Object* const object = objects_.find(number);
    return object == nullptr ? 0 : object->weight;
  });
  double births = 0;
  double resizes = 0;
  for (const SampleItem& item : block.items) {
    const Object* const object = is_tick(item.event.kind) ? objects_.find(item.event.object) : nullptr;
    if (object != nullptr && item.event.kind == Kind::kRealloc) {
      resizes += static_cast<double>(object->copies);
    } else if (object != nullptr) {
      births += copies_of(object->weight, adjustment_);
    }
  }
  // Copies do several resizes at once if there are fewer ticks. An object of this block has no
  // copies yet, so its resizes are all counted.
  const double surplus = static_cast<double>(ahead_) + births + resizes;
  resize_share_ = resizes == 0 ? 1 : std::clamp(1 - surplus / resizes, 0.0, 1.0);
  expected_ = before_window_ ? 0 : births + resize_share_ * resizes;
}

void SampleCounter::count(const SampleItem& item) {
  const Event& event = item.event;
  if (is_allocation(event.kind)) {
    allocate(event);
    return;
  }
  Object* const object = uses_object(event.kind) ? objects_.find(event.object) : nullptr;
  if (object == nullptr) {
    if (event.kind == Kind::kThreadEnd) {
      catch_up(event.thread, 0);
    }
    statistics_.add(event);
  } else if (event.kind == Kind::kRealloc) {
    resize(event, *object);
  } else if (is_free(event.kind)) {
    release(item, *object);
    objects_.erase(event.object);
  } else {
    statistics_.add(event, {.objects = object->copies + 1});
  }
}

void SampleCounter::allocate(const Event& event) {
  Object& object = *objects_.find(event.object);
  object.copies = copies_(copies_of(object.weight, adjustment_));
  if (object.weight > static_cast<double>(rate_) / 2) {
    filler_.size = event.size;
  }
  made(event.thread, object.copies);
  statistics_.add(event, {.objects = object.copies + 1});
}

// An object that grows loses copies, because other objects that grow like it are in the sample
// from now on.
void SampleCounter::resize(const Event& event, Object& object) {
  if (event.size > object.largest && sample_.header().sample_growth) {
    const double weight = 1 / trace::chance(event.size, rate_);
    const double lost = share_lost(object.weight, weight) * static_cast<double>(object.copies);
    const std::uint64_t copies = std::min(lost_(lost), object.copies);
    object.copies -= copies;
    object.weight = weight;
    object.largest = event.size;
    statistics_.free_some(event, copies);
  }
  const std::uint64_t ticks = resizes_(resize_share_ * static_cast<double>(object.copies));
  made(event.thread, ticks);
  statistics_.add(event, {.objects = object.copies + 1, .ticks = ticks + 1});
}

void SampleCounter::release(const SampleItem& item, const Object& object) {
  const std::uint64_t own = item.tick - std::min(item.tick, object.tick + 1);
  std::uint64_t lifetime = item.position - std::min(item.position, object.position + 1);
  if (item.event.thread == object.thread && own <= kBrief * rate_) {
    const Thread& thread = thread_of(object.thread);
    const std::uint64_t ticks = std::max<std::uint64_t>(1, thread.block_ticks);
    const double others = static_cast<double>(block_ticks_) / static_cast<double>(ticks);
    lifetime = static_cast<std::uint64_t>(static_cast<double>(own) * std::fmax(1.0, others));
  }
  statistics_.add(item.event, {.objects = object.copies + 1, .lifetime = lifetime});
}

// Notes that copies were allocated or resized in so many ticks.
void SampleCounter::made(std::uint32_t thread, std::uint64_t ticks) {
  if (!before_window_) {
    thread_of(thread).ahead += static_cast<std::int64_t>(ticks);
    ahead_ += static_cast<std::int64_t>(ticks);
    expected_ -= static_cast<double>(ticks);
  }
}

// Counts objects that are freed at once until a thread is at most `behind` ticks behind the
// program, as long as all threads together will be behind at the end of the block.
void SampleCounter::catch_up(std::uint32_t number, std::int64_t behind) {
  const std::int64_t of_all = -ahead_ - std::llround(std::fmax(0.0, expected_));
  const std::int64_t lacking = std::min(-thread_of(number).ahead, of_all) - behind;
  if (lacking > 0) {
    filler_.thread = number;
    statistics_.add_freed_at_once(filler_, static_cast<std::uint64_t>(lacking));
    thread_of(number).ahead += lacking;
    ahead_ += lacking;
  }
}

}  // namespace

void count_sample(trace::EventSource& sample, Statistics& statistics) {
  SampleCounter(sample, statistics).run();
}

}  // namespace heapwright::model
