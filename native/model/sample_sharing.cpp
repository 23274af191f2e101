// The part of the expander that chooses how many copies each object of a block gets, and in which
// ticks they are allocated and resized.
#include <algorithm>
#include <cmath>

#include "draw.h"
#include "sample_expander.h"
#include "sample_weights.h"
#include "trace/sample.h"

namespace heapwright::model {

using trace::Event;
using trace::Kind;

namespace {

// A damaged file may state any rate, and copies take memory. A block gets at most so many for each
// of its ticks and items, and more only at the start of a window, whose objects have no ticks.
constexpr std::uint64_t kMaxCopiesPerTick = 64;
constexpr std::uint64_t kMaxCopies = std::uint64_t{1} << 16;
constexpr std::uint64_t kMaxCopiesBeforeWindow = std::uint64_t{1} << 20;
// Copies are allocated at most so many items before or after their objects.
constexpr double kMix = 16;

bool by_place(const Token& a, const Token& b) { return a.place < b.place; }

// Hands out a number of things over a number of turns, as evenly as possible: returns how many have
// been handed out before a turn.
std::uint64_t up_to(std::uint64_t turn, std::uint64_t turns, std::uint64_t things) {
  return static_cast<std::uint64_t>(static_cast<unsigned __int128>(turn) * things / turns);
}

}  // namespace

// Creates the copies of the objects that are allocated in the block, and the tokens of all
// allocations and resizes.
void SampleExpander::add_tokens() {
  const double change = adjustment(block_, ahead_of_ticks_, [this](std::uint64_t object) {
    const std::uint32_t* const index = numbers_.find(object);
    return index == nullptr ? 0 : sampled_[*index].weight;
  });
  const double last = static_cast<double>(block_.items.size()) + 1;
  std::uint64_t room = block_.before_window
                           ? kMaxCopiesBeforeWindow
                           : kMaxCopies + kMaxCopiesPerTick * (block_.slots.size() + block_.items.size());
  for (std::size_t i = 0; i < block_.items.size(); ++i) {
    const Event& event = block_.items[i].event;
    const std::uint32_t* const index = is_tick(event.kind) ? numbers_.find(event.object) : nullptr;
    if (index == nullptr) {
      continue;
    }
    Sampled& object = sampled_[*index];
    if (object.steps++ == 0) {
      changed_.push_back(*index);
    }
    const double place = static_cast<double>(i) + 1;
    if (is_allocation(event.kind)) {
      rounding_ += copies_of(object.weight, change);
      const double count = std::floor(rounding_);
      rounding_ -= count;
      const auto copies = static_cast<std::uint64_t>(std::min(count, static_cast<double>(room)));
      room -= copies;
      add_copies(*index, copies, place);
      if (object.weight > static_cast<double>(rate_) / 2) {
        filler_ = event.size;
      }
    }
    if (event.kind == Kind::kRealloc && event.size > object.largest && header_.sample_growth) {
      grow(object, block_.items[i]);
    }
    for (const std::uint32_t number : object.copies) {
      Copy& copy = copies_[number];
      ++copy.steps;
      ++copy.tokens;
      copy.last_step = static_cast<std::uint32_t>(object.steps - 1);
      const bool own = event.thread == object.allocation.thread && !threads_[copy.thread].ended;
      activate(own ? copy.thread : event.thread)
          .tokens.push_back({std::clamp(place + static_cast<double>(copy.offset), 0.0, last), number});
    }
  }
}

// Notes that an object grows. It has a smaller weight then, because other objects that grow like it
// are in the sample from now on. So it loses copies.
void SampleExpander::grow(Sampled& object, const SampleItem& item) {
  const double weight = 1 / trace::chance(item.event.size, rate_);
  const double lost = share_lost(object.weight, weight);
  object.weight = weight;
  object.largest = item.event.size;
  const std::vector<std::uint32_t> copies = object.copies;
  for (const std::uint32_t number : copies) {
    dropping_ += lost;
    if (dropping_ >= 1) {
      dropping_ -= 1;
      Copy& copy = copies_[number];
      copy.deadline = ++deadlines_;
      copy.freer = item.event.thread;
      copy.free_kind = Kind::kFree;
      scheduled_frees_.add({item.moment(), copy.deadline, number});
      unlist(copy);
    }
  }
}

void SampleExpander::add_copies(std::uint32_t index, std::uint64_t count, double place) {
  Sampled& object = sampled_[index];
  const double last = static_cast<double>(block_.items.size()) + 1;
  for (std::uint64_t i = 0; i < count; ++i) {
    Copy copy;
    copy.sampled = index;
    copy.thread = object.allocation.thread;
    const double at = std::clamp(place + kMix * (2 * uniform() - 1), 0.0, last);
    copy.offset = static_cast<float>(at - place);
    copy.place = static_cast<std::uint32_t>(object.copies.size());
    object.copies.push_back(copies_.add(copy));
  }
}

SampleExpander::Thread& SampleExpander::activate(std::uint32_t number) {
  Thread& thread = threads_[number];
  if (!thread.active) {
    thread.active = true;
    active_.push_back(number);
  }
  return thread;
}

// Takes tokens away from copies that have several, which then do several steps at once.
void SampleExpander::merge_resizes(std::uint64_t surplus) {
  std::uint64_t several = 0;
  for (const std::uint32_t number : active_) {
    for (const Token& token : threads_[number].tokens) {
      several += copies_[token.copy].tokens > 1 ? 1 : 0;
    }
  }
  if (several == 0) {
    return;
  }
  Share share(std::min(1.0, static_cast<double>(surplus) / static_cast<double>(several)));
  for (const std::uint32_t number : active_) {
    std::erase_if(threads_[number].tokens, [&](const Token& token) {
      Copy& copy = copies_[token.copy];
      const bool taken = copy.tokens > 1 && share.next();
      copy.tokens -= taken ? 1 : 0;
      return taken;
    });
  }
}

// Divides the tokens among the slots.
void SampleExpander::share_tokens() {
  std::uint64_t tokens = 0;
  for (const Slot& slot : block_.slots) {
    ++activate(slot.thread).slots;
  }
  for (const std::uint32_t number : active_) {
    tokens += threads_[number].tokens.size();
  }
  const auto surplus =
      static_cast<std::int64_t>(tokens) - static_cast<std::int64_t>(block_.slots.size()) + ahead_of_ticks_;
  if (surplus > 0 && !block_.before_window) {
    merge_resizes(static_cast<std::uint64_t>(surplus));
  }
  spare_ = spare_used_ = 0;
  std::uint64_t over = 0;
  for (const std::uint32_t number : active_) {
    Thread& thread = threads_[number];
    std::stable_sort(thread.tokens.begin(), thread.tokens.end(), by_place);
    const std::uint64_t too_many = surplus_of(thread);
    thread.takes_moved = too_many == 0;
    spare_ += thread.takes_moved ? thread.slots - thread.tokens.size() : 0;
    over += too_many;
  }
  moved_.clear();
  next_moved_ = 0;
  if (over > 0) {
    give_away(std::min(spare_, over), over);
  }
}

// Returns how many tokens a thread has that are more than its slots. The slots that make up for
// ticks that it has already made too many do not count.
std::uint64_t SampleExpander::surplus_of(const Thread& thread) {
  const std::uint64_t lost =
      std::min(thread.slots, static_cast<std::uint64_t>(std::max<std::int64_t>(0, thread.ahead)));
  const std::uint64_t slots = thread.slots - lost;
  return thread.tokens.size() - std::min<std::uint64_t>(slots, thread.tokens.size());
}

// Moves tokens of threads with too few slots, evenly chosen, to threads with slots to spare. The
// tokens that stay get extra slots.
//
// moving  how many tokens to move
// over    how many tokens are more than their threads have slots for
void SampleExpander::give_away(std::uint64_t moving, std::uint64_t over) {
  std::uint64_t seen = 0;  // of `over`
  const std::size_t slots = block_.slots.size();
  for (const std::uint32_t number : active_) {
    Thread& thread = threads_[number];
    const std::uint64_t count = thread.tokens.size();
    const std::uint64_t own_over = surplus_of(thread);
    if (own_over == 0) {
      continue;
    }
    const std::uint64_t goes = up_to(seen + own_over, over, moving) - up_to(seen, over, moving);
    seen += own_over;
    std::vector<Token> kept;
    for (std::uint64_t i = 0; i < count; ++i) {
      const bool moves = up_to(i + 1, count, goes) > up_to(i, count, goes);
      (moves ? moved_ : kept).push_back(thread.tokens[i]);
    }
    thread.tokens = std::move(kept);
    const std::uint64_t stay = thread.tokens.size() - std::min(thread.slots, thread.tokens.size());
    for (std::uint64_t i = 0; i < stay; ++i) {
      block_.slots.push_back({thread.tokens[up_to(i, stay, thread.tokens.size())].place, number, 0});
    }
    advance(thread, block_.before_window ? 0 : static_cast<std::int64_t>(stay));
    thread.slots += stay;
  }
  std::stable_sort(moved_.begin(), moved_.end(), by_place);
  if (block_.slots.size() > slots) {
    std::stable_sort(block_.slots.begin(), block_.slots.end(),
                     [](const Slot& a, const Slot& b) { return a.place < b.place; });
  }
}

// Uses a slot: for a token of its thread, for a moved one, or for an object that is freed at once.
void SampleExpander::run_slot(const Slot& slot, std::uint64_t time) {
  Thread& thread = threads_[slot.thread];
  const std::uint64_t used = thread.slots_used++;
  const std::uint64_t tokens = thread.tokens.size();
  position_ += slot.ticks;
  order_ = slot.ticks == 0 ? order_ : 0;
  if (up_to(used + 1, thread.slots, tokens) > up_to(used, thread.slots, tokens)) {
    run_token(thread.tokens[thread.next_token++], slot.thread, time);
  } else if (thread.takes_moved && up_to(++spare_used_, spare_, moved_.size()) > next_moved_) {
    run_token(moved_[next_moved_++], slot.thread, time);
  } else {
    advance(thread, -1);
    catch_up(slot.thread, kMaxBehind * static_cast<std::int64_t>(rate_), time);
  }
  run_frees(slot.thread, time);
}

void SampleExpander::run_token(const Token& token, std::uint32_t number, std::uint64_t time) {
  Copy& copy = copies_[token.copy];
  const Sampled& object = sampled_[copy.sampled];
  const std::uint32_t thread = running(number, number);
  copy.steps -= (copy.steps + copy.tokens - 1) / copy.tokens;
  --copy.tokens;
  const std::uint64_t size = copy.size = object.sizes[copy.last_step - copy.steps];
  threads_[thread].ticks += block_.before_window ? 0 : 1;
  if (copy.allocated) {
    put({.kind = Kind::kRealloc, .object = copy.output, .size = size}, thread, time);
  } else {
    copy.allocated = true;
    copy.moved = thread != copy.thread;
    copy.output = objects_++;
    copy.thread = thread;
    copy.ticks = threads_[thread].ticks;
    copy.position = position_;
    put({.kind = object.allocation.kind,
         .object = copy.output,
         .size = size,
         .alignment = object.allocation.alignment},
        thread, time);
    if (object.scheduled_free.how != ScheduledFree::How::kUnknown) {
      schedule(token.copy, object.scheduled_free);
    }
  }
  if (copy.due && copy.steps == 0) {
    free_copy(token.copy, thread, time);
  }
}

void SampleExpander::advance(Thread& thread, std::int64_t ticks) {
  thread.ahead += ticks;
  ahead_of_ticks_ += ticks;
}

// Makes a thread that is behind the program's ticks catch up, until it is only `behind` ticks
// behind.
void SampleExpander::catch_up(std::uint32_t number, std::int64_t behind, std::uint64_t time) {
  for (Thread& thread = threads_[number]; thread.ahead < -behind; advance(thread, 1)) {
    fill(number, time);
  }
}

// Makes a tick that changes nothing: an object that is freed at once.
void SampleExpander::fill(std::uint32_t number, std::uint64_t time) {
  const std::uint32_t thread = running(number, number);
  ++threads_[thread].ticks;
  const std::uint64_t object = objects_++;
  put({.kind = Kind::kMalloc, .object = object, .size = filler_}, thread, time);
  put({.kind = Kind::kFree, .object = object}, thread, time);
}

}  // namespace heapwright::model
