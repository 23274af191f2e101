#include "player.h"

#include <fcntl.h>
#include <malloc.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <new>

extern "C" void free_sized(void* block, std::size_t size) __attribute__((weak));

namespace heapwright::replay {
namespace {

Replay* all = nullptr;

// The calls themselves.
struct Real {
  static void* make(std::size_t size) { return std::malloc(size); }
  static void* make_zeroed(std::size_t size) { return std::calloc(1, size); }
  static void* make_aligned(std::size_t alignment, std::size_t size) {
    if (alignment < sizeof(void*)) {
      return std::malloc(size);
    }
    void* block = nullptr;
    return ::posix_memalign(&block, alignment, size) == 0 ? block : nullptr;
  }
  static void* remake(void* block, std::size_t size) { return std::realloc(block, size == 0 ? 1 : size); }
  static void end(void* block) { std::free(block); }
  static void end_sized(void* block, std::size_t size) {
    if (free_sized != nullptr) {
      free_sized(block, size);
    } else {
      std::free(block);
    }
  }
  static std::size_t usable(void* block) { return ::malloc_usable_size(block); }
};

// In their place: nothing, to see what the rest costs.
struct Dry {
  static inline Word cell = 0;
  static void* make(std::size_t) { return &cell; }
  static void* make_zeroed(std::size_t) { return &cell; }
  static void* make_aligned(std::size_t, std::size_t) { return &cell; }
  static void* remake(void* block, std::size_t) { return block; }
  static void end(void*) {}
  static void end_sized(void*, std::size_t) {}
  static std::size_t usable(void*) { return 0; }
};

// Writes to a block's bytes from `from` to `to`: its first word where it is new, and every page it has a part in.
template <Touch How>
void touch(void* block, std::uint64_t from, std::uint64_t to, std::size_t page) {
  auto* bytes = static_cast<char*>(block);
  if (How == Touch::kNone || from >= to) {
    return;
  }
  if (How == Touch::kFull) {
    std::memset(bytes + from, 0x55, to - from);
    return;
  }
  if (from == 0) {
    if (to >= sizeof(Word)) {
      const Word value = 0x5555;
      std::memcpy(bytes, &value, sizeof value);
    } else {
      bytes[0] = 0x55;
    }
  }
  // Most blocks lie within a page and are done.
  const std::uint64_t into_page = (reinterpret_cast<std::uintptr_t>(bytes) + from) & (page - 1);
  for (std::uint64_t at = from + page - into_page; at < to; at += page) {
    bytes[at] = 0x55;  // NOLINT(clang-analyzer-security.ArrayBound): at < to, which is within the block
  }
}

[[noreturn]] void no_sense(const char* what, std::uint64_t number) {
  char line[128];  // NOLINT(modernize-avoid-c-arrays)
  (void)std::snprintf(line, sizeof line, "the operations file makes no sense: %s ", what);
  die(line, number, "; make it again");
}

void read_chunk(const Replay& replay, std::uint64_t chunk, Word* window) {
  const auto place = static_cast<off_t>(replay.plan.first_chunk + chunk * kChunkBytes);
  ssize_t got = 0;
  do {
    got = ::pread(replay.file, window, kChunkBytes, place);
  } while (got < 0 && errno == EINTR);
  if (got < static_cast<ssize_t>(sizeof(Word))) {
    die("the operations file ends too early, at chunk ", chunk, "; make it again");
  }
}

void leave(Replay& replay, std::uint32_t epoch, std::uint64_t parts) {
  if (parts == 0) {
    return;
  }
  if (parts > 1) {
    if (replay.arrived.fetch_add(1, std::memory_order_acq_rel) + 1 != parts) {
      return;
    }
    replay.arrived.store(0, std::memory_order_relaxed);
  }
  pass_on(replay.epoch, epoch + 1);
}

void* run_thread(void* plan);

template <typename Call, Touch How>
class Player {
 public:
  Player(Replay& replay, std::uint32_t thread)
      : replay_(replay),
        lane_(replay.lanes[replay.threads[thread].lane]),
        slots_(lane_.slots),
        thread_(thread),
        page_(replay.page) {}

  void run() {
    read_chunk(replay_, replay_.threads[thread_].chunk, lane_.window);
    const Word* at = lane_.window;
    std::uint64_t events = 0;
    for (;;) {
      const Word w = *at++;
      __builtin_prefetch(static_cast<const void*>(&slots_[slot_of(at[7])]));
      const std::uint64_t size = argument_of(w);
      switch (op_of(w)) {
        case kMalloc: {
          void* block = Call::make(size);
          check(block, size);
          touch<How>(block, 0, size, page_);
          slots_[slot_of(w)] = block;
          events++;
          break;
        }
        case kCalloc: {
          void* block = Call::make_zeroed(size);
          check(block, size);
          touch<How>(block, 0, size, page_);
          slots_[slot_of(w)] = block;
          events++;
          break;
        }
        case kFree:
          Call::end(slots_[slot_of(w)]);
          events++;
          break;
        case kRealloc: {
          void*& slot = slots_[slot_of(w)];
          void* block = Call::remake(slot, size);
          check(block, size);
          touch<How>(block, *at++, size, page_);
          slot = block;
          events++;
          break;
        }
        case kNext:
          read_chunk(replay_, size, lane_.window);
          at = lane_.window;
          break;
        case kEnd:
          replay_.events.fetch_add(events);
          leave(replay_, epoch_, parts_);
          return;
        case kEpoch:
          leave(replay_, epoch_, parts_);
          epoch_ = static_cast<std::uint32_t>(size);
          parts_ = slot_of(w);
          wait_for(replay_.epoch, epoch_);
          break;
        case kSpawn:
          spawn(static_cast<std::uint32_t>(size));
          break;
        case kJoin:
          check_thread(size);
          (void)::pthread_join(replay_.handles[size], nullptr);
          break;
        case kSample:
          take_reading(number_of(w));
          break;
        default:
          at = rare(at - 1);
          events++;
          break;
      }
    }
  }

 private:
  static void check(const void* block, std::uint64_t size) {
    if (__builtin_expect(static_cast<long>(block == nullptr), 0) != 0 && size != 0) {
      die("the allocator has no memory for a block of ", size, " bytes; the replay ends here");
    }
  }

  void take_reading(std::uint64_t recorded) {
    if (replay_.readings_taken >= replay_.plan.readings) {
      no_sense("more readings than", replay_.plan.readings);
    }
    replay_.readings[replay_.readings_taken++] = read_now(replay_, recorded);
  }

  // So that the compiler does not leave out the call.
  static void keep(std::size_t value) { asm volatile("" : : "r"(value)); }

  void check_thread(std::uint64_t thread) const {
    if (thread >= replay_.plan.threads || replay_.threads[thread].starts == 0) {
      no_sense("thread", thread);
    }
  }

  void spawn(std::uint32_t thread) {
    check_thread(thread);
    Lane& lane = replay_.lanes[replay_.threads[thread].lane];
    wait_for(lane.busy, 0);
    lane.busy.store(1, std::memory_order_relaxed);
    const int problem =
        ::pthread_create(&replay_.handles[thread], nullptr, run_thread, &replay_.threads[thread]);
    if (problem != 0) {
      die("a thread cannot be started: error ", static_cast<std::uint64_t>(problem),
          "; raise the limit of processes");
    }
  }

  // An operation that something stands before, and those that are rare. Returns where the next one is.
  __attribute__((noinline)) const Word* rare(const Word* at) {
    std::uint64_t upper = 0;
    std::uint64_t limit = ~std::uint64_t{0};
    SharedSlot* shared = nullptr;
    std::uint32_t turn = 0;
    bool is_shared = false;
    for (;; at++) {
      if (op_of(*at) == kWide) {
        upper = argument_of(*at) << 32;
      } else if (op_of(*at) == kTouch) {
        limit = number_of(*at);
      } else if (op_of(*at) == kShared) {
        is_shared = true;
        turn = static_cast<std::uint32_t>(argument_of(*at));
      } else {
        break;
      }
    }
    const Word w = *at++;
    if (is_shared) {
      if (slot_of(w) >= replay_.plan.shared_slots) {
        no_sense("shared slot", slot_of(w));
      }
      shared = &replay_.shared[slot_of(w)];
      wait_for(shared->turn, turn);
    }
    void*& slot = is_shared ? shared->block : slots_[slot_of(w)];
    const std::uint64_t size = upper | argument_of(w);
    const std::uint64_t end = size < limit ? size : limit;
    switch (op_of(w)) {
      case kMalloc:
        slot = Call::make(size);
        check(slot, size);
        touch<How>(slot, 0, end, page_);
        break;
      case kCalloc:
        slot = Call::make_zeroed(size);
        check(slot, size);
        touch<How>(slot, 0, end, page_);
        break;
      case kAligned:
        slot = Call::make_aligned(*at++, size);
        check(slot, size);
        touch<How>(slot, 0, end, page_);
        break;
      case kRealloc: {
        void* block = Call::remake(slot, size);
        check(block, size);
        slot = block;
        touch<How>(slot, *at++, end, page_);
        break;
      }
      case kFree:
        Call::end(slot);
        break;
      case kFreeSized:
        Call::end_sized(slot, size);
        break;
      case kUsable:
        keep(Call::usable(slot));
        break;
      default:
        no_sense("operation", op_of(w));
    }
    if (is_shared) {
      pass_on(shared->turn, turn + 1);
    }
    return at;
  }

  Replay& replay_;
  Lane& lane_;
  void** slots_;
  std::uint32_t thread_;
  std::size_t page_;
  std::uint32_t epoch_ = 0;
  std::uint64_t parts_ = 0;
};

std::uint64_t nanoseconds(clockid_t which) {
  timespec time{};
  (void)::clock_gettime(which, &time);
  return static_cast<std::uint64_t>(time.tv_sec) * 1'000'000'000 + static_cast<std::uint64_t>(time.tv_nsec);
}

void run_stream(Replay& replay, std::uint32_t thread) {
  if (replay.dry) {
    Player<Dry, Touch::kNone>(replay, thread).run();
  } else if (replay.touch == Touch::kNone) {
    Player<Real, Touch::kNone>(replay, thread).run();
  } else if (replay.touch == Touch::kPage) {
    Player<Real, Touch::kPage>(replay, thread).run();
  } else {
    Player<Real, Touch::kFull>(replay, thread).run();
  }
}

void* run_thread(void* plan) {
  Replay& replay = *all;
  auto* mine = static_cast<ThreadPlan*>(plan);
  run_stream(replay, static_cast<std::uint32_t>(mine - replay.threads));
  if (mine->ends != 0) {
    pass_on(replay.lanes[mine->lane].busy, 0);
    one_more(replay.finished);
    return nullptr;  // here the allocator takes the thread's cache apart, as it did in the program
  }
  one_more(replay.finished);
  for (;;) {
    ::pause();  // still there when the trace ended: its cache stays
  }
}

}  // namespace

void die(const char* what, std::uint64_t number, const char* then) {
  char line[256];  // NOLINT(modernize-avoid-c-arrays): no memory of the allocator's
  const int length = std::snprintf(line, sizeof line, "heapwright-replay: %s%llu%s\n", what,
                                   static_cast<unsigned long long>(number), then);
  (void)!::write(2, line, static_cast<std::size_t>(length));
  ::_exit(1);
}

Reading read_now(const Replay& replay, std::uint64_t recorded) {
  char text[128];  // NOLINT(modernize-avoid-c-arrays)
  const ssize_t got = ::pread(replay.statm, text, sizeof text - 1, 0);
  text[got < 0 ? 0 : got] = '\0';
  const char* second = std::strchr(text, ' ');
  const std::uint64_t resident = second == nullptr ? 0 : std::strtoull(second + 1, nullptr, 10) * replay.page;
  return {recorded, resident, nanoseconds(CLOCK_PROCESS_CPUTIME_ID), nanoseconds(CLOCK_MONOTONIC)};
}

bool prepare(Replay& replay) {
  replay.page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  replay.statm = ::open("/proc/self/statm", O_RDONLY | O_CLOEXEC);
  Plan& plan = replay.plan;
  if (::pread(replay.file, &plan, sizeof plan, 0) != static_cast<ssize_t>(sizeof plan) ||
      plan.magic != kOpsMagic || plan.threads == 0 || plan.lanes == 0 || plan.lanes > plan.threads ||
      plan.threads >= kMaxSlots || plan.readings >= kMaxSlots || plan.shared_slots > kMaxSlots) {
    return false;
  }
  // What the plan tells of must be there before memory is taken for it.
  const off_t length = ::lseek(replay.file, 0, SEEK_END);
  if (plan.chunks == 0 || plan.chunks > UINT32_MAX || plan.first_chunk > static_cast<std::uint64_t>(length) ||
      plan.first_chunk < sizeof plan + plan.threads * sizeof(ThreadPlan) + plan.lanes * sizeof(LanePlan) ||
      plan.first_chunk + (plan.chunks - 1) * kChunkBytes >= static_cast<std::uint64_t>(length)) {
    return false;
  }
  const auto threads_at = static_cast<off_t>(sizeof plan);
  const auto lanes_at = threads_at + static_cast<off_t>(plan.threads * sizeof(ThreadPlan));
  const auto lane_slots = [&replay, lanes_at](std::uint64_t lane) {
    LanePlan found;
    const auto place = lanes_at + static_cast<off_t>(lane * sizeof found);
    return ::pread(replay.file, &found, sizeof found, place) == static_cast<ssize_t>(sizeof found) &&
                   found.slots <= kMaxSlots
               ? found.slots
               : 0;
  };
  constexpr std::uint64_t kWindow =
      kChunkBytes + kGroup * sizeof(Word);  // the look ahead goes beyond the end
  std::uint64_t bytes = plan.readings * sizeof(Reading) +
                        plan.threads * (sizeof(ThreadPlan) + sizeof(pthread_t)) + plan.lanes * sizeof(Lane) +
                        plan.shared_slots * sizeof(SharedSlot) + plan.lanes * kWindow;
  std::uint64_t places = plan.readings + plan.shared_slots;
  for (std::uint64_t lane = 0; lane < plan.lanes; lane++) {
    places += lane_slots(lane);
    bytes += lane_slots(lane) * sizeof(void*);
  }
  if (places > plan.chunks * kChunkWords + plan.lanes) {
    return false;  // each is in some word
  }
  bytes = (bytes + replay.page - 1) / replay.page * replay.page;
  void* memory = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) {
    die("no memory for tables of ", bytes, " bytes");
  }
  replay.own_bytes = bytes;
  auto* at = static_cast<char*>(memory);
  const auto take = [&at](std::uint64_t size) {
    char* taken = at;
    at += size;
    return taken;
  };
  replay.shared = reinterpret_cast<SharedSlot*>(take(plan.shared_slots * sizeof(SharedSlot)));
  replay.readings = reinterpret_cast<Reading*>(take(plan.readings * sizeof(Reading)));
  replay.lanes = reinterpret_cast<Lane*>(take(plan.lanes * sizeof(Lane)));
  replay.threads = reinterpret_cast<ThreadPlan*>(take(plan.threads * sizeof(ThreadPlan)));
  replay.handles = reinterpret_cast<pthread_t*>(take(plan.threads * sizeof(pthread_t)));
  for (std::uint64_t lane = 0; lane < plan.lanes; lane++) {
    replay.lanes[lane].window = reinterpret_cast<Word*>(take(kWindow));
    replay.lanes[lane].slots = reinterpret_cast<void**>(take(lane_slots(lane) * sizeof(void*)));
  }
  const std::uint64_t size = plan.threads * sizeof(ThreadPlan);
  bool good = ::pread(replay.file, replay.threads, size, threads_at) == static_cast<ssize_t>(size);
  for (std::uint64_t thread = 0; good && thread < plan.threads; thread++) {
    good = replay.threads[thread].lane < plan.lanes;
    replay.others += thread != 0 && replay.threads[thread].starts != 0 ? 1 : 0;
  }
  return good;
}

void play(Replay& replay) {
  all = &replay;
  replay.lanes[replay.threads[0].lane].busy.store(1);
  run_stream(replay, 0);
  wait_for(replay.finished, replay.others);
}

}  // namespace heapwright::replay
