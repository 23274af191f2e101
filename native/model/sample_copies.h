// The state of the expander of samples: the live objects of the sample, and their copies.
#pragma once

#include <cstdint>
#include <functional>
#include <queue>
#include <utility>
#include <vector>

#include "trace/event.h"

namespace heapwright::model {

inline constexpr std::uint32_t kNone = ~std::uint32_t{0};

// Values with indices that stay; a freed index is used again.
template <typename Value>
class Pool {
 public:
  std::uint32_t add(Value value) {
    if (free_.empty()) {
      values_.push_back(std::move(value));
      return static_cast<std::uint32_t>(values_.size() - 1);
    }
    const std::uint32_t index = free_.back();
    free_.pop_back();
    values_[index] = std::move(value);
    return index;
  }
  void remove(std::uint32_t index) {
    values_[index] = Value{};
    free_.push_back(index);
  }
  Value& operator[](std::uint32_t index) { return values_[index]; }
  const Value& operator[](std::uint32_t index) const { return values_[index]; }

 private:
  std::vector<Value> values_;
  std::vector<std::uint32_t> free_;
};

// The free of a sampled object, and when its copies are freed.
struct ScheduledFree {
  enum class How : std::uint8_t {
    kUnknown,   // no free of the object has been read yet
    kOwnTicks,  // `after` ticks of the copy's thread after the copy's allocation
    kAllTicks,  // `after` ticks of all threads after the copy's allocation
    kSpread,    // at a moment between `from` and `to`
  };
  How how = How::kUnknown;
  std::uint64_t after = 0;
  double from = 0;
  double to = 0;
  std::uint64_t moment = 0;  // of the free of the object
  trace::Event event;        // the free of the object
  bool own = false;          // the thread that allocated the object freed it
};

// A live object of the sample.
struct Sampled {
  std::uint64_t output = 0;  // its number in the expanded trace
  double weight = 1;
  std::uint64_t largest = 0;  // bytes, so far
  trace::Event allocation;
  std::uint64_t tick = 0;            // of its thread, at its allocation
  std::uint64_t position = 0;        // at its allocation
  std::vector<std::uint64_t> sizes;  // that its copies do not have yet: at allocation, after each resize
  std::uint64_t steps = 0;           // of these, in the block under way
  std::vector<std::uint32_t> copies;
  ScheduledFree scheduled_free;
  bool offered = false;  // its copies have taken part in an exchange (sample_exchange.h)
};

struct Copy {
  std::uint64_t output = 0;
  std::uint64_t size = 0;
  std::uint32_t sampled = kNone;  // index of its object, as long as that has something to do
  std::uint32_t thread = 0;       // of its allocation
  float offset = 0;               // from the place of its object, in items
  std::uint32_t place = 0;        // in the list of its object
  std::uint64_t ticks = 0;        // of its thread, after its allocation
  std::uint64_t position = 0;     // after its allocation
  std::uint32_t steps = 0;        // allocation and resizes still to do in this block
  std::uint32_t last_step = 0;    // of the object's steps in this block
  std::uint32_t tokens = 0;       // ticks in which they are done
  bool allocated = false;
  bool moved = false;          // another thread allocates it than its object
  bool exchanged = false;      // it was allocated for another object
  bool listed = true;          // among the copies of its object
  bool due = false;            // to be freed once the steps are done
  std::uint64_t deadline = 0;  // number of the schedule of its free; 0: none
  std::uint32_t freer = kNone;
  trace::Kind free_kind = trace::Kind::kFree;
  std::uint64_t free_size = 0;
  std::uint64_t touched = trace::kUnknown;
};

// The right of a copy to be allocated or resized in a slot.
struct Token {
  double place = 0;
  std::uint32_t copy = 0;
};

// Copies to be freed, earliest first; of equal ones, the one that was added first.
class Deadlines {
 public:
  struct Entry {
    std::uint64_t when = 0;
    std::uint64_t number = 0;  // of the schedule; a copy that was scheduled again has another one
    std::uint32_t copy = kNone;
    bool operator>(const Entry& other) const {
      return when != other.when ? when > other.when : number > other.number;
    }
  };
  void add(const Entry& entry) { queue_.push(entry); }
  // Takes an entry that is due at `until` or before. Returns false if there is none.
  bool pop(std::uint64_t until, Entry& entry) {
    if (queue_.empty() || queue_.top().when > until) {
      return false;
    }
    entry = queue_.top();
    queue_.pop();
    return true;
  }

 private:
  std::priority_queue<Entry, std::vector<Entry>, std::greater<>> queue_;
};

}  // namespace heapwright::model
