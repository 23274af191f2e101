// The part of the expander that chooses how many copies each object of a block gets, and in which
// ticks they are allocated and resized.
#include <algorithm>
#include <cmath>
#include <span>

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
  add_copies();
  const double last = static_cast<double>(block_.items.size()) + 1;
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
    if (event.kind == Kind::kRealloc && event.size > object.largest && header_.sample_growth) {
      grow(object, block_.items[i]);
    }
    const double place = static_cast<double>(i) + 1;
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

// Creates the copies of the objects that are allocated in the block.
void SampleExpander::add_copies() {
  std::uint64_t room = block_.before_window
                           ? kMaxCopiesBeforeWindow
                           : kMaxCopies + kMaxCopiesPerTick * (block_.slots.size() + block_.items.size());
  std::int64_t ahead = ahead_of_ticks_;
  auto slot = block_.slots.begin();
  for (std::size_t begin = 0; begin < block_.items.size();) {
    std::size_t end = begin;
    for (std::uint64_t ticks = 0; end < block_.items.size() && ticks < kTicksPerAdjustment; ++end) {
      ticks += is_tick(block_.items[end].event.kind) ? 1 : 0;
    }
    std::uint64_t slot_ticks = 0;
    const bool last = end == block_.items.size();
    for (; slot != block_.slots.end() && (last || slot->place < static_cast<double>(end)); ++slot) {
      slot_ticks += slot->ticks;
    }
    ahead = add_copies(begin, end, slot_ticks, ahead, room);
    begin = end;
  }
  places_.choose(static_cast<double>(block_.items.size()) + 1, [this](std::uint32_t copy, double offset) {
    copies_[copy].offset = static_cast<float>(offset);
  });
}

// Creates the copies of the objects that are allocated in the items [begin, end) of the block.
//
// slot_ticks  ticks meanwhile that are not of sampled objects
// ahead       ticks that are made for the items before, more than the program's; returns those after
// room        the copies that may still be made for the block
std::int64_t SampleExpander::add_copies(std::size_t begin, std::size_t end, std::uint64_t slot_ticks,
                                        std::int64_t ahead, std::uint64_t& room) {
  const auto weight_of = [this](std::uint64_t object) {
    const std::uint32_t* const index = numbers_.find(object);
    return index == nullptr ? 0 : sampled_[*index].weight;
  };
  const std::span<const SampleItem> items(block_.items.data() + begin, end - begin);
  const double change = block_.before_window ? 0 : adjustment(items, slot_ticks, ahead, weight_of);
  double resizes = 0;
  ahead -= static_cast<std::int64_t>(slot_ticks);
  for (std::size_t i = begin; i < end; ++i) {
    const Event& event = block_.items[i].event;
    const std::uint32_t* const index = is_tick(event.kind) ? numbers_.find(event.object) : nullptr;
    if (index == nullptr) {
      continue;
    }
    Sampled& object = sampled_[*index];
    if (!is_allocation(event.kind)) {
      resizes += object.weight - 1;
      continue;
    }
    rounding_ += copies_of(object.weight, change);
    const double count = std::floor(rounding_);
    rounding_ -= count;
    const auto copies = static_cast<std::uint64_t>(std::min(count, static_cast<double>(room)));
    room -= copies;
    ahead += static_cast<std::int64_t>(copies);
    const std::uint64_t kind = SamplePlaces::kind_of(event.size, event.thread);
    const double lifetime = lifetime_of(object, i);
    for (std::uint64_t k = 0; k < copies; ++k) {
      Copy copy;
      copy.sampled = *index;
      copy.thread = object.allocation.thread;
      copy.place = static_cast<std::uint32_t>(object.copies.size());
      object.copies.push_back(copies_.add(copy));
      places_.add(object.copies.back(), kind, static_cast<double>(i) + 1, lifetime);
    }
    if (object.weight > static_cast<double>(rate_) / 2) {
      filler_ = event.size;
    }
  }
  // Resizes take the ticks that are left. Then objects that are freed at once do, up to a bound.
  ahead += std::clamp(std::llround(resizes), 0LL, std::max<long long>(0, -ahead));
  return std::max(ahead, -kMaxBehind * static_cast<std::int64_t>(rate_));
}

// Returns the items from the allocation of an object, item `index` of the block, to its free, or to
// the last one that has been read if it is not freed up to there.
double SampleExpander::lifetime_of(const Sampled& object, std::size_t index) const {
  const ScheduledFree& end = object.scheduled_free;
  if (end.how == ScheduledFree::How::kOwnTicks || end.how == ScheduledFree::How::kAllTicks) {
    return SamplePlaces::kBrief;
  }
  const std::uint64_t until = end.how == ScheduledFree::How::kUnknown ? items_read_ : end.item;
  return static_cast<double>(until - block_.first_item - index);
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
  const std::uint64_t size = object.sizes[copy.last_step - copy.steps];
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
