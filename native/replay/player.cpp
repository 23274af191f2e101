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
#include <utility>

#include "chunks.h"
#include "clock.h"

extern "C" void free_sized(void* block, std::size_t size) __attribute__((weak));

namespace heapwright::replay {
namespace {

Replay* the_replay = nullptr;  // for threads, which get only their entry

// Makes the calls.
struct Real {
  static void* allocate(std::size_t size) { return std::malloc(size); }
  static void* allocate_zeroed(std::size_t size) { return std::calloc(1, size); }
  static void* allocate_aligned(std::size_t alignment, std::size_t size) {
    if (alignment < sizeof(void*)) {
      return std::malloc(size);
    }
    void* block = nullptr;
    return ::posix_memalign(&block, alignment, size) == 0 ? block : nullptr;
  }
  static void* resize(void* block, std::size_t size) { return std::realloc(block, size == 0 ? 1 : size); }
  static void release(void* block) { std::free(block); }
  static void release_sized(void* block, std::size_t size) {
    if (free_sized != nullptr) {
      free_sized(block, size);
    } else {
      std::free(block);
    }
  }
  static std::size_t usable(void* block) { return ::malloc_usable_size(block); }
};

// Makes no call, to measure the cost of the replayer itself (--dry).
struct Dry {
  static inline Word cell = 0;
  static void* allocate(std::size_t) { return &cell; }
  static void* allocate_zeroed(std::size_t) { return &cell; }
  static void* allocate_aligned(std::size_t, std::size_t) { return &cell; }
  static void* resize(void* block, std::size_t) { return block; }
  static void release(void*) {}
  static void release_sized(void*, std::size_t) {}
  static std::size_t usable(void*) { return 0; }
};

// Writes to the bytes [from, to) of a block: to its first word if it is new, and to each page that
// it is part of.
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
  // Most blocks lie within one page, and the loop does not run.
  const std::uint64_t into_page = (reinterpret_cast<std::uintptr_t>(bytes) + from) & (page - 1);
  for (std::uint64_t at = from + page - into_page; at < to; at += page) {
    bytes[at] = 0x55;  // NOLINT(clang-analyzer-security.ArrayBound): at < to, which is within the block
  }
}

// Ends the part of one thread in an epoch; the last of its participants begins the next epoch.
void leave_epoch(Replay& replay, std::uint32_t epoch, std::uint64_t participants) {
  if (participants == 0) {
    return;
  }
  if (participants > 1) {
    if (replay.arrived.fetch_add(1, std::memory_order_acq_rel) + 1 != participants) {
      return;
    }
    replay.arrived.store(0, std::memory_order_relaxed);
  }
  set_and_wake(replay.epoch, epoch + 1);
}

void* run_thread(void* entry);

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
    read_chunk(replay_, replay_.threads[thread_].chunk, lane_);
    const Word* at = lane_.window;
    std::uint64_t events = 0;
    for (;;) {
      const Word w = *at++;
      __builtin_prefetch(static_cast<const void*>(&slots_[slot_of(at[7])]));
      const std::uint64_t size = argument_of(w);
      switch (op_of(w)) {
        case kMalloc: {
          void* block = Call::allocate(size);
          check(block, size);
          touch<How>(block, 0, size, page_);
          slots_[slot_of(w)] = block;
          events++;
          break;
        }
        case kCalloc: {
          void* block = Call::allocate_zeroed(size);
          check(block, size);
          touch<How>(block, 0, size, page_);
          slots_[slot_of(w)] = block;
          events++;
          break;
        }
        case kFree:
          Call::release(slots_[slot_of(w)]);
          events++;
          break;
        case kRealloc: {
          void*& slot = slots_[slot_of(w)];
          void* block = Call::resize(slot, size);
          check(block, size);
          touch<How>(block, *at++, size, page_);
          slot = block;
          events++;
          break;
        }
        case kNext:
          if (w == kStreamEnd) {
            replay_.events.fetch_add(events);
            leave_epoch(replay_, epoch_, participants_);
            return;
          }
          read_chunk(replay_, size, lane_);
          at = lane_.window;
          break;
        case kEpoch:
          leave_epoch(replay_, epoch_, participants_);
          epoch_ = static_cast<std::uint32_t>(size);
          participants_ = slot_of(w);
          wait_for(replay_.epoch, epoch_);
          break;
        case kSpawn:
          spawn(static_cast<std::uint32_t>(size));
          break;
        case kJoin:
          check_thread(size);
          wait_for(replay_.started[size].created, 1);  // another thread may still be starting it
          (void)::pthread_join(replay_.started[size].handle, nullptr);
          break;
        case kClock:
          set_clock(number_of(w) >> 1);
          if ((number_of(w) & 1) != 0) {
            take_reading(number_of(w) >> 1);
          }
          break;
        default:
          at = run_rare_op(at - 1, events);
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
    if (replay_.readings_taken >= replay_.header.readings) {
      die_of_bad_file("more readings than", replay_.header.readings);
    }
    replay_.readings[replay_.readings_taken++] = read_now(replay_, recorded - replay_.last_reading);
    replay_.last_reading = recorded;
  }

  // Keeps the compiler from removing the call whose result this is.
  static void keep(std::size_t value) { asm volatile("" : : "r"(value)); }

  void check_thread(std::uint64_t thread) const {
    if (thread >= replay_.header.threads || replay_.threads[thread].starts == 0) {
      die_of_bad_file("thread", thread);
    }
  }

  void spawn(std::uint32_t thread) {
    check_thread(thread);
    Lane& lane = replay_.lanes[replay_.threads[thread].lane];
    wait_for(lane.busy, 0);
    lane.busy.value.store(1, std::memory_order_relaxed);
    const int problem =
        ::pthread_create(&replay_.started[thread].handle, nullptr, run_thread, &replay_.threads[thread]);
    if (problem != 0) {
      die("a thread cannot be started: error ", static_cast<std::uint64_t>(problem),
          "; raise the limit of processes");
    }
    set_and_wake(replay_.started[thread].created, 1);
  }

  // Runs an operation with prefixes, or a rare one, and counts calls in `events`. Returns the
  // address of the next operation.
  __attribute__((noinline)) const Word* run_rare_op(const Word* at, std::uint64_t& events) {
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
      if (slot_of(w) >= replay_.header.shared_slots) {
        die_of_bad_file("shared slot", slot_of(w));
      }
      shared = &replay_.shared[slot_of(w)];
      wait_for(shared->turn, turn);
    }
    void*& slot = is_shared ? shared->block : slots_[slot_of(w)];
    const std::uint64_t size = upper | argument_of(w);
    const std::uint64_t end = size < limit ? size : limit;
    events += op_of(w) == kFill ? 0 : 1;
    switch (op_of(w)) {
      case kMalloc:
        slot = Call::allocate(size);
        check(slot, size);
        touch<How>(slot, 0, end, page_);
        break;
      case kCalloc:
        slot = Call::allocate_zeroed(size);
        check(slot, size);
        touch<How>(slot, 0, end, page_);
        break;
      case kAligned: {
        const Word alignment = *at++;
        if (alignment != 0 || !replay_.has_libstdcxx) {
          slot = Call::allocate_aligned(alignment, size);
          check(slot, size);
          touch<How>(slot, 0, end, page_);
        }
        break;
      }
      case kRealloc: {
        void* block = Call::resize(slot, size);
        check(block, size);
        slot = block;
        touch<How>(slot, *at++, end, page_);
        break;
      }
      case kFree:
        Call::release(slot);
        break;
      case kFreeSized:
        Call::release_sized(slot, size);
        break;
      case kUsable:
        keep(Call::usable(slot));
        break;
      case kFill:
        if (slot != nullptr) {
          touch<How>(slot, at[0], at[1], page_);
        }
        at += 2;
        break;
      default:
        die_of_bad_file("operation", op_of(w));
    }
    if (is_shared) {
      set_and_wake(shared->turn, turn + 1);
    }
    return at;
  }

  Replay& replay_;
  Lane& lane_;
  void** slots_;
  std::uint32_t thread_;
  std::size_t page_;
  std::uint32_t epoch_ = 0;
  std::uint64_t participants_ = 0;
};

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

void* run_thread(void* entry) {
  Replay& replay = *the_replay;
  auto* mine = static_cast<ThreadEntry*>(entry);
  run_stream(replay, static_cast<std::uint32_t>(mine - replay.threads));
  if (mine->ends != 0) {
    set_and_wake(replay.lanes[mine->lane].busy, 0);
    increment_and_wake(replay.finished);
    return nullptr;  // the allocator now frees the thread's cache, as it did in the program
  }
  increment_and_wake(replay.finished);
  for (;;) {
    ::pause();  // the thread existed when the trace ended: its cache stays
  }
}

}  // namespace

void die(const char* what, std::uint64_t number, const char* then) {
  char line[256];  // NOLINT(modernize-avoid-c-arrays): must not allocate
  const int length = std::snprintf(line, sizeof line, "heapwright-replay: %s%llu%s\n", what,
                                   static_cast<unsigned long long>(number), then);
  (void)!::write(2, line, static_cast<std::size_t>(length));
  ::_exit(1);
}

namespace {

// Reads the header, and checks that the file is as long as it says before memory is mapped for it.
bool read_header(Replay& replay) {
  OpsHeader& header = replay.header;
  if (::pread(replay.file, &header, sizeof header, 0) != static_cast<ssize_t>(sizeof header) ||
      header.magic != kOpsMagic || header.threads == 0 || header.lanes == 0 ||
      header.lanes > header.threads || header.threads >= kMaxSlots || header.readings >= kMaxSlots ||
      header.shared_slots > kMaxSlots) {
    return false;
  }
  const auto length = static_cast<std::uint64_t>(::lseek(replay.file, 0, SEEK_END));
  return header.chunks != 0 && header.chunks <= UINT32_MAX && header.first_chunk <= length &&
         header.first_chunk >=
             sizeof header + header.threads * sizeof(ThreadEntry) + header.lanes * sizeof(LaneEntry) &&
         header.first_chunk + (header.chunks - 1) * kChunkBytes < length;
}

}  // namespace

bool prepare(Replay& replay) {
  replay.page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  replay.statm = ::open("/proc/self/statm", O_RDONLY | O_CLOEXEC);
  if (!read_header(replay)) {
    return false;
  }
  const OpsHeader& header = replay.header;
  const auto threads_at = static_cast<off_t>(sizeof header);
  const auto lanes_at = threads_at + static_cast<off_t>(header.threads * sizeof(ThreadEntry));
  const auto lane_slots = [&replay, lanes_at](std::uint64_t lane) {
    LaneEntry found;
    const auto place = lanes_at + static_cast<off_t>(lane * sizeof found);
    return ::pread(replay.file, &found, sizeof found, place) == static_cast<ssize_t>(sizeof found) &&
                   found.slots <= kMaxSlots
               ? found.slots
               : 0;
  };
  constexpr std::uint64_t kWindow =
      kChunkBytes + kMaxOpWords * sizeof(Word);  // the prefetch reads words beyond the end of the chunk
  std::uint64_t bytes =
      header.readings * sizeof(Reading) + header.threads * (sizeof(ThreadEntry) + sizeof(Started)) +
      header.lanes * sizeof(Lane) + header.shared_slots * sizeof(SharedSlot) + header.lanes * kWindow;
  std::uint64_t slots_and_readings = header.readings + header.shared_slots;
  for (std::uint64_t lane = 0; lane < header.lanes; lane++) {
    slots_and_readings += lane_slots(lane);
    bytes += lane_slots(lane) * sizeof(void*);
  }
  if (slots_and_readings > header.chunks * kChunkWords + header.lanes) {
    return false;  // each reading and each slot is in at least one word
  }
  bytes = (bytes + replay.page - 1) / replay.page * replay.page;
  void* memory = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) {
    die("no memory for tables of ", bytes, " bytes: free memory, or replay a smaller trace");
  }
  replay.own_bytes = bytes;
  auto* at = static_cast<char*>(memory);
  const auto take = [&at](std::uint64_t size) { return std::exchange(at, at + size); };
  replay.shared = reinterpret_cast<SharedSlot*>(take(header.shared_slots * sizeof(SharedSlot)));
  replay.readings = reinterpret_cast<Reading*>(take(header.readings * sizeof(Reading)));
  replay.lanes = reinterpret_cast<Lane*>(take(header.lanes * sizeof(Lane)));
  replay.threads = reinterpret_cast<ThreadEntry*>(take(header.threads * sizeof(ThreadEntry)));
  replay.started = reinterpret_cast<Started*>(take(header.threads * sizeof(Started)));
  for (std::uint64_t lane = 0; lane < header.lanes; lane++) {
    replay.lanes[lane].window = reinterpret_cast<Word*>(take(kWindow));
    replay.lanes[lane].slot_count = lane_slots(lane);
    replay.lanes[lane].slots = reinterpret_cast<void**>(take(lane_slots(lane) * sizeof(void*)));
  }
  const std::uint64_t size = header.threads * sizeof(ThreadEntry);
  bool good = ::pread(replay.file, replay.threads, size, threads_at) == static_cast<ssize_t>(size);
  for (std::uint64_t thread = 0; good && thread < header.threads; thread++) {
    good = replay.threads[thread].lane < header.lanes;
    replay.others += thread != 0 && replay.threads[thread].starts != 0 ? 1 : 0;
  }
  return good;
}

void play(Replay& replay) {
  the_replay = &replay;
  replay.lanes[replay.threads[0].lane].busy.value.store(1);
  run_stream(replay, 0);
  wait_for(replay.finished, replay.others);
}

}  // namespace heapwright::replay
