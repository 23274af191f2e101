#include "resident.h"

#include <algorithm>
#include <cstring>

#include "filling.h"
#include "system.h"

namespace heapwright::recorder {

namespace {

// Nanoseconds; the interval starts at 1/100 of it and doubles.
constexpr std::uint64_t kReadEvery = 10'000'000;

// Converts nanoseconds into units of the clock.
std::uint64_t units(std::uint64_t ns) {
  const FileHeader& h = *session->header;
  const std::uint64_t passed_ns = h.last_ns.load(std::memory_order_relaxed) - h.first_ns;
  const std::uint64_t passed = h.last_stamp.load(std::memory_order_relaxed) - h.first_stamp;
  if (clock_kind == ClockKind::kMonotonic || passed == 0 || passed_ns < 1000) {
    return ns >> (clock_kind == ClockKind::kMonotonic ? kNanosecondsShift : kTicksShift - 1);
  }
  return static_cast<std::uint64_t>(static_cast<double>(ns) * static_cast<double>(passed) /
                                    static_cast<double>(passed_ns));
}

// Records how much of the resident memory is malloc's, if this is worth its time: at the beginning
// of a forked child and at the end of the process, and else when resident memory has grown by 2%
// since the last time. The pauses between are 200 times as long as the measurements, so that they
// take at most 0.5% of the time.
void put_heap_size(Writer& writer, std::uint64_t resident, bool last) {
  if (std::strncmp(session->header->allocator, "glibc ", 6) != 0) {
    return;
  }
  const std::uint64_t begin = monotonic_ns();
  std::uint64_t next = session->next_heap_ns.load(std::memory_order_relaxed);
  const std::uint64_t before = session->measured_resident.load(std::memory_order_relaxed);
  const bool first_of_fork = next == 0 && session->header->forked != 0;
  if (next == 0) {
    next = session->header->first_ns + kReadEvery;
  }
  if (!last && !first_of_fork && (begin < next || resident < before + before / 50)) {
    return;
  }
  HeapSize heap;
  if (!session->gauge.measure(session->large, heap)) {
    return;
  }
  session->measured_resident.store(resident, std::memory_order_relaxed);
  const std::uint64_t end = monotonic_ns();
  session->next_heap_ns.store(end + 200 * (end - begin), std::memory_order_relaxed);
  put_other(writer, Other::kUntouched, heap.untouched);
  put_other(writer, Other::kHeap, heap.resident);
}

}  // namespace

void update_clock_pair() {
  FileHeader& h = *session->header;
  h.last_ns.store(monotonic_ns(), std::memory_order_relaxed);
  h.last_stamp.store(clock_now<false>(), std::memory_order_relaxed);
}

void begin_readings() {
  session->memory_reading_interval.store(units(kReadEvery / 100), std::memory_order_relaxed);
}

void put_resident(Writer& writer, bool last) {
  sys::Resident resident = sys::resident_memory();
  if (resident.all == 0) {
    return;
  }
  // Subtract the recorder's own memory: the pages of each mapped block that were written to. They
  // are pages of a file.
  const auto page = std::uint64_t{session->header->page_size};
  std::uint64_t ours = 0;
  for (std::uint32_t i = 0; i < session->used.load(std::memory_order_relaxed); ++i) {
    const Writer& other = session->writers[i];
    const auto filled = static_cast<std::uint64_t>(other.at - other.block);
    // A writer of a sample is taken only during an event; its block stays.
    const bool has_block =
        kSampling ? other.block != nullptr : other.taken.load(std::memory_order_relaxed) != 0;
    if (has_block && filled <= kBlockBytes) {
      ours += (filled + page - 1) / page * page;
    }
  }
  if (resident.files >= ours) {
    resident.all -= ours;
    resident.files -= ours;
  }
  resident.all -= std::min(session->chosen.resident_bytes(), resident.all - resident.files);
  put_heap_size(writer, resident.all, last);
  put_other(writer, Other::kFiles, resident.files);
  put_other(writer, Other::kResident, resident.all);
}

namespace {

// Claims the reading that is due at `now` for this thread. Returns false if none is due, or if
// another thread takes it. `next` gets the time of the next reading. Times are in units of the
// clock.
bool claim_reading(std::uint64_t now, std::uint64_t& next) {
  next = session->next_memory_reading.load(std::memory_order_relaxed);
  const std::uint64_t interval = session->memory_reading_interval.load(std::memory_order_relaxed);
  if (now < next || !session->next_memory_reading.compare_exchange_strong(next, now + interval,
                                                                          std::memory_order_relaxed)) {
    return false;
  }
  next = now + interval;
  update_clock_pair();
  const std::uint64_t max_interval = units(kReadEvery);
  session->memory_reading_interval.store(2 * interval < max_interval ? 2 * interval : max_interval,
                                         std::memory_order_relaxed);
  return true;
}

}  // namespace

void read_resident(Writer& writer, std::uint64_t now) {
  const sys::KeepErrno keep;
  if (claim_reading(now, writer.read_memory_at)) {
    put_resident(writer, false);
    if (!kSampling) {
      put_filling(writer);
    }
  }
}

void read_resident_by_level(ThreadState& self, std::uint64_t now) {
  const sys::KeepErrno keep;
  std::uint64_t next = 0;
  if (!claim_reading(now, next)) {
    return;
  }
  // In a bounded file, every second reading has the lowest level, every second one of the others
  // the next one …: levels that are dropped because the file is full thin the readings evenly. Else
  // none is dropped.
  const std::uint64_t number = session->readings.fetch_add(1, std::memory_order_relaxed) + 1;
  const auto lowest = static_cast<std::uint32_t>(session->header->min_level.load(std::memory_order_relaxed));
  const std::uint32_t level =
      session->max_blocks == 0 ? kTopLevel : lowest + static_cast<std::uint32_t>(__builtin_ctzll(number));
  Writer* const writer = borrow_at_level(self, level < kTopLevel ? level : kTopLevel, now);
  if (writer != nullptr) {
    put_resident(*writer, false);
    return_writer(*writer);
  }
}

}  // namespace heapwright::recorder
