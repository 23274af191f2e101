#include "sampling.h"

#include <pthread.h>

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <utility>

#include "blocks.h"
#include "real.h"
#include "system.h"
#include "touched.h"
#include "window.h"

namespace heapwright::recorder {

thread_local constinit SampleThread sample_self;

namespace {

double raise(double base, std::uint64_t exponent) {
  double result = 1;
  for (; exponent != 0; exponent >>= 1, base *= base) {
    result *= (exponent & 1) != 0 ? base : 1;
  }
  return result;
}

// 1 - (1 - 1/rate)^draws
double chance(std::uint64_t draws, std::uint64_t rate) {
  return rate <= 1 ? 1 : 1 - raise(1 - 1 / static_cast<double>(rate), draws);
}

// xorshift64*; its high bits are the better ones.
std::uint64_t random_bits(SampleThread& thread) {
  thread.random ^= thread.random >> 12;
  thread.random ^= thread.random << 25;
  thread.random ^= thread.random >> 27;
  return thread.random * 0x2545f4914f6cdd1dU;
}

std::uint32_t lowest_level() {
  const std::uint64_t level = recording() ? session->header->min_level.load(std::memory_order_relaxed) : 0;
  return level < kTopLevel ? static_cast<std::uint32_t>(level) : kTopLevel;
}

// Draws the place of the chosen request in the next run of a group.
//
// counted  requests from the last chosen one on that `left` has, or of a first run none
void draw_run(SampleThread& thread, std::size_t group, std::uint32_t level, std::int64_t counted) {
  constexpr std::uint64_t kLongest = std::uint64_t{1} << 40;
  const std::uint64_t length = std::min(sampling.rate << level, kLongest);
  const std::uint64_t place = random_bits(thread) % length;
  SampleThread::Run& run = thread.runs[group];
  thread.put_off(group, run.rest + static_cast<std::int64_t>(place) + counted);
  run.rest = static_cast<std::int64_t>(length - 1 - place);
  run.level = level;
}

// A run has ended. It was drawn at its level; each level that was dropped since then keeps half of
// the requests that it would have chosen.
bool survives_drops(SampleThread& thread, const SampleThread::Run& run, std::uint32_t level) {
  const std::uint32_t dropped = level - run.level;
  return dropped == 0 || (dropped < 64 && random_bits(thread) >> (64 - dropped) == 0);
}

// Returns the level of a small chosen object. Of two objects of a group that reach a level, one
// reaches the next level too: the first or the second, at random.
//
// level  the lowest of the sample, which it has at least
std::uint32_t small_level(SampleThread& thread, SampleThread::Run& run, std::uint32_t level) {
  for (; level < kTopLevel; ++level) {
    const std::uint64_t bit = std::uint64_t{1} << level;
    const bool second = (run.waiting & bit) != 0;
    const bool goes_on = second ? (run.promoted & bit) == 0 : random_bits(thread) >> 63 != 0;
    run.waiting ^= bit;
    run.promoted = goes_on ? run.promoted | bit : run.promoted & ~bit;
    if (!goes_on) {
      break;
    }
  }
  return level;
}

// Returns the level of a large object: the highest of those with a chance above its number. If none
// is, from the lowest of the sample on, the object is not chosen: -1.
int large_level(double number, std::uint64_t draws, std::uint32_t lowest) {
  int found = -1;
  for (std::uint32_t level = lowest; level <= kTopLevel && number < chance(draws, sampling.rate << level);
       ++level) {
    found = static_cast<int>(level);
  }
  return found;
}

// Stops the countdowns of this thread, so that it chooses no more small requests.
void stop_countdowns(SampleThread& thread) {
  constexpr std::int64_t kLong = std::int64_t{1} << 50;
  for (std::size_t group = 0; group < kSmallGroups; ++group) {
    thread.put_off(group, kLong - thread.left[group]);
  }
}

std::uint64_t cpu_ns() {
  timespec now{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return static_cast<std::uint64_t>(now.tv_sec) * 1'000'000'000 + static_cast<std::uint64_t>(now.tv_nsec);
}

// Counts a call on a chosen object. Drops a level if the calls since the last drop exceed their
// share of the CPU time since then.
void count_chosen_call(SampleThread& thread) {
  constexpr std::uint32_t kAtOnce = 64;
  if (++thread.uncounted < kAtOnce) {
    return;
  }
  thread.uncounted = 0;
  if (sampling.max_percent == 0 || sampling.rate <= 1) {
    return;
  }
  // docs/results/record.md: a call on a chosen object costs 0.5 to 1.2 µs, with the cache lines
  // that it displaces; all other calls together cost up to 2% of a program that does little but
  // allocate.
  constexpr std::uint64_t kCallNs = 1200;
  constexpr std::uint64_t kOtherPermille = 20;
  const std::uint64_t all = 10 * sampling.max_percent;
  const std::uint64_t permille = std::max(all / 3, all - std::min(all, kOtherPermille));
  const std::uint64_t calls = session->chosen_calls.fetch_add(kAtOnce, std::memory_order_relaxed) + kAtOnce;
  std::uint64_t before = session->calls_at_drop.load(std::memory_order_relaxed);
  // So many calls are allowed in any case. A dropped level never comes back, and a busy start says
  // little about the rest of the program. So the first calls, some 10 ms, are an advance: they
  // count against the share of later CPU time.
  const bool at_start = before == 0;
  const std::uint64_t least = at_start ? 16384 : 2048;
  if (calls < before + least) {  // or another thread has just dropped a level
    return;
  }
  const std::uint64_t now = cpu_ns();
  const std::uint64_t used = now - session->cpu_ns_at_drop.load(std::memory_order_relaxed);
  const std::uint64_t allowed = used / 1000 * permille / kCallNs;
  if (calls - before > (at_start ? std::max(least, allowed) : least + allowed) &&
      session->calls_at_drop.compare_exchange_strong(before, calls, std::memory_order_relaxed)) {
    session->cpu_ns_at_drop.store(now, std::memory_order_relaxed);
    (void)drop_lowest_level();
  }
}

bool is_over() {
  if (session == nullptr) {
    return real_is_found();  // else the environment was not read yet
  }
  return session->state.load(std::memory_order_relaxed) == State::kStopped ||
         session->window.load(std::memory_order_relaxed) == WindowState::kAfter;
}

void record_object(ThreadState& self, const Call& call) {
  if (call.level < lowest_level()) {
    return;
  }
  sample_self.top_level = std::max(sample_self.top_level, std::uint32_t{call.level});
  count_chosen_call(sample_self);
  if (!window_open()) {
    return;
  }
  std::uint64_t now = clock_now<true>();
  if (HEAPWRIGHT_UNLIKELY(now >= session->next_memory_reading.load(std::memory_order_relaxed))) {
    read_resident_by_level(self, now);  // first: a block that is being freed is still resident
    now = clock_now<true>();            // the streams of the levels are joined by time
  }
  record_at_level(self, call, now);
}

}  // namespace

int choose(SampleThread& thread, std::size_t size) {
  if (thread.random == 0 && !real_is_found()) {
    find_real();  // it reads the environment, which has the rate
    if (!real_is_found()) {
      return -1;  // it makes this request itself
    }
  }
  const bool small = size < kDrawBytes;
  const std::uint32_t level = lowest_level();
  if (thread.random == 0) {
    const auto place = static_cast<std::uint64_t>(reinterpret_cast<std::uintptr_t>(&thread));
    thread.random = (clock_now<false>() * 0x9e3779b97f4a7c15U ^ place << 16) | 1;  // 0: not begun
    (void)random_bits(thread);
    for (std::size_t group = 0; group < kSmallGroups; ++group) {
      // This request, the first of its run, was counted already. Others were made before the rate was known.
      const std::int64_t counted = small && group == size / kGroupBytes ? -1 : 0;
      thread.put_off(group, counted - thread.left[group]);
      draw_run(thread, group, level, 0);
    }
    for (sample_choice::EvenNumbers& numbers : thread.numbers) {
      numbers.begin(random_bits(thread));
    }
    thread.in_window = !sampling.windowed || (recording() && window_open());
    watch_thread_exit(self_state);
  }
  if (is_over()) {
    stop_countdowns(thread);
    return -1;
  }
  if (!small) {
    const double number = thread.numbers[sample_choice::sample_group(size) - kSmallGroups].next();
    const int found = large_level(number, 1 + size / kDrawBytes, level);
    return found < 0 || sampling.may_thin() ? found : 0;
  }
  const std::size_t group = size / kGroupBytes;
  if (thread.left[group] >= 0) {
    return -1;
  }
  SampleThread::Run& run = thread.runs[group];
  const bool chosen = survives_drops(thread, run, level);
  draw_run(thread, group, level, 1);
  if (!chosen) {
    return -1;
  }
  return sampling.may_thin() ? static_cast<int>(small_level(thread, run, level)) : 0;
}

void on_chosen(ThreadState& self, Tag kind, const void* block, LargeBlock made, int alignment_log2,
               int level) {
  if (!begin_thread(self)) {
    return;
  }
  if (sampling.windowed) {
    check_window(self);
  }
  const std::size_t size = made.size;
  ChosenObject object;
  if (may_be_chosen(block)) {
    (void)session->chosen.remove(block, object);  // its free was not seen
  }
  object = {.size = size,
            .order = sampling.windowed ? session->births.fetch_add(1, std::memory_order_relaxed) : 0,
            .thread = self.thread,
            .kind = kind,
            .level = static_cast<std::uint8_t>(level),
            .alignment_log2 = static_cast<std::int8_t>(alignment_log2)};
  if (!session->chosen.insert(block, object)) {
    return;
  }
  if (size >= kLarge) {
    session->large.insert(block, made);
  }
  record_object(self, {.kind = kind,
                       .block = block,
                       .size = size,
                       .alignment_log2 = alignment_log2,
                       .level = object.level,
                       .ticks = sample_self.ticks() - 1});
}

bool end_chosen(ThreadState& self, Tag kind, const void* block, ChosenObject& object) {
  if (!recording() || !session->chosen.remove(block, object)) {
    return false;
  }
  const sys::KeepErrno keep;
  const InRecorder in_recorder(self);
  Call call{.kind = kind, .block = block, .level = object.level, .ticks = sample_self.ticks()};
  if (object.size >= kLarge) {
    const LargeBlock large = session->large.find(block);
    call.touched = end_touching(reinterpret_cast<std::uintptr_t>(block), object.size, large.touching);
  }
  if (sampling.windowed) {
    check_window(self);
  }
  record_object(self, call);
  if (object.size >= kLarge) {  // only now: a reading of memory before the free counts the block as malloc's
    session->large.remove(block);
  }
  return true;
}

void on_possible_free(ThreadState& self, Tag kind, const void* block) {
  ChosenObject object;
  (void)end_chosen(self, kind, block, object);
}

namespace {

// As all our variables of threads: the loader has no part in a read of it, and allocates nothing.
[[gnu::tls_model("initial-exec")]] thread_local constinit SampleThread before_fork;

// Before a fork: sets the counts of this thread to zero. Requests of other fork handlers in the
// child are then the child's, whether they run before ours or after.
void on_fork() { before_fork = std::exchange(sample_self, SampleThread{}); }

// After a fork, in the parent.
void on_fork_in_parent() {
  const SampleThread& before = before_fork;
  const SampleThread meanwhile = std::exchange(sample_self, before);
  sample_self.ticks_at_zero += static_cast<std::int64_t>(meanwhile.ticks());  // of fork handlers
  sample_self.top_level = std::max(before.top_level, meanwhile.top_level);
  sample_self.uncounted += meanwhile.uncounted;
}

}  // namespace

void watch_forks() { pthread_atfork(on_fork, on_fork_in_parent, reset_window_signal); }

void record_thread_end(ThreadState& self) {
  if (!recording() || !window_open()) {
    return;
  }
  const SampleThread& thread = sample_self;
  if (thread.in_window) {
    const std::uint32_t place = self.thread == kNoThread ? 0 : 1 + thread.top_level;
    session->header->ended_ticks[place].fetch_add(thread.ticks(), std::memory_order_relaxed);
  }
  if (self.thread == kNoThread) {
    return;
  }
  Writer* const writer = borrow_at_level(self, thread.top_level, clock_now<true>());
  if (writer != nullptr) {
    put_other(*writer, Other::kTicks, thread.as_record(thread.ticks()));
    put_other(*writer, Other::kThreadEnd, self.thread);
    return_writer(*writer);
  }
}

}  // namespace heapwright::recorder
