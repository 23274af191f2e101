#include "session.h"

#include <pthread.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>

#include "begin.h"
#include "system.h"

namespace heapwright::recorder {

Session* session = nullptr;
Writer no_writer;

namespace {

constexpr std::uint64_t kSampleEvery =
    10'000'000;              // nanoseconds; the interval starts at 1/100 of it and doubles
std::uint32_t sessions = 0;  // recordings begun in this process and in its ancestors by fork
pthread_key_t exit_key;
bool has_exit_key = false;

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

// Stores the present moment in the header on both clocks; the reader derives the length of a unit
// from it.
void update_clock_pair() {
  FileHeader& h = *session->header;
  h.last_ns.store(monotonic_ns(), std::memory_order_relaxed);
  h.last_stamp.store(clock_now<false>(), std::memory_order_relaxed);
}

// Destructor of the pthread key. libc calls the keys' destructors in up to
// PTHREAD_DESTRUCTOR_ITERATIONS rounds. The exit is recorded in the last round, so that allocations
// and frees of other keys' destructors still count as the thread's own.
void thread_exit_destructor(void* value) {
  const auto round = reinterpret_cast<std::uintptr_t>(value);
  if (round < PTHREAD_DESTRUCTOR_ITERATIONS) {
    pthread_setspecific(exit_key, reinterpret_cast<void*>(round + 1));
    return;
  }
  on_thread_exit(thread_state());
}

// Begins the recording if it has not begun. Returns whether events are to be recorded. Signals are
// blocked meanwhile: a handler that interrupted this thread here and called malloc would wait
// forever for the recording to begin.
bool ensure_recording() {
  for (;;) {
    State state = session->state.load(std::memory_order_acquire);
    if (state == State::kRecording) {
      return true;
    }
    if (state == State::kStopped) {
      return false;
    }
    if (state == State::kBeginning) {
      sched_yield();
      continue;
    }
    sigset_t all;
    sigset_t before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    if (session->state.compare_exchange_strong(state, State::kBeginning, std::memory_order_acq_rel)) {
      const bool forked = sessions > 0;
      if (!has_exit_key) {
        has_exit_key = pthread_key_create(&exit_key, thread_exit_destructor) == 0;
      }
      for (auto& counter : large_filter) {
        counter.store(0, std::memory_order_relaxed);
      }
      ++sessions;
      const bool begun = begin_file(*session, forked);
      session->state.store(begun ? State::kRecording : State::kStopped, std::memory_order_release);
      if (begun) {
        session->sample_interval.store(units(kSampleEvery / 100), std::memory_order_relaxed);
      }
    }
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
  }
}

// Returns a descriptor of the raw file, or -1. The program may have closed ours, or opened another
// file under its number; then the file is opened again.
int current_file() {
  const int file = session->file.load(std::memory_order_relaxed);
  struct stat is{};
  if (file >= 0 && fstat(file, &is) == 0 && is.st_dev == session->device && is.st_ino == session->inode) {
    return file;
  }
  const int again = move_to_high_descriptor(sys::open_file(session->path, O_RDWR));
  if (again >= 0) {
    session->file.store(again, std::memory_order_relaxed);
  }
  return again;
}

// Gives a writer its next block. Returns false if recording has stopped.
bool next_block(Writer& writer) {
  const sys::KeepErrno keep;
  const std::uint64_t index = session->header->blocks.fetch_add(1, std::memory_order_relaxed);
  const std::uint64_t where = (index + 1) * kBlockBytes;
  const int file = current_file();
  const int error = file < 0 ? errno : sys::reserve(file, where, kBlockBytes);
  if (error != 0) {
    stop_recording(error);
    return false;
  }
  void* const block =
      mmap(nullptr, kBlockBytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, static_cast<off_t>(where));
  if (block == MAP_FAILED) {
    stop_recording(errno);
    return false;
  }
  madvise(block, kBlockBytes, MADV_DONTFORK);
  std::uint8_t* const old = writer.block;
  writer.block = static_cast<std::uint8_t*>(block);
  begin_block(writer, block, static_cast<std::uint32_t>(&writer - session->writers), writer.sequence++,
              writer.thread);
  if (old != nullptr) {
    munmap(old, kBlockBytes);
  }
  return true;
}

// Claims a free writer with a number in [first, last); nullptr if there is none.
Writer* claim_writer(std::uint32_t first, std::uint32_t last) {
  for (std::uint32_t i = first; i < last; ++i) {
    Writer& writer = session->writers[i];
    if (writer.taken.load(std::memory_order_relaxed) != 0 ||
        writer.taken.exchange(1, std::memory_order_acquire) != 0) {
      continue;
    }
    std::uint32_t used = session->used.load(std::memory_order_relaxed);
    const bool only = used == 0;
    while (used <= i && !session->used.compare_exchange_weak(used, i + 1, std::memory_order_acq_rel)) {
    }
    // Set before the new thread records anything, so that a thread that sees its effects stamps the
    // events that follow.
    writer.stamp_every_event.store(only ? 0 : 1, std::memory_order_relaxed);
    if (!only) {
      session->writers[0].stamp_every_event.store(1, std::memory_order_seq_cst);
    }
    writer.countdown = 1;
    return &writer;
  }
  return nullptr;
}

bool has_room(Writer& writer) { return writer.at < writer.limit || next_block(writer); }

// Resets a thread's state that refers to an earlier session: a forked child inherits the state, but
// not the session.
void reset_in_new_session(ThreadState& self) {
  if (self.session == sessions) {
    return;
  }
  self.session = sessions;
  self.writer = &no_writer;
  self.thread = kNoThread;
  self.ended = false;
}

void ensure_number(ThreadState& self) {
  if (self.thread == kNoThread) {
    self.thread = session->header->threads.fetch_add(1, std::memory_order_relaxed);
  }
}

}  // namespace

Writer* refill(ThreadState& self) {
  const sys::KeepErrno keep;
  if (session == nullptr || !ensure_recording()) {
    return nullptr;
  }
  reset_in_new_session(self);
  if (self.writer != &no_writer) {
    return has_room(*self.writer) ? self.writer : nullptr;
  }
  Writer* const writer = self.ended ? nullptr : claim_writer(0, kThreadWriters);
  if (writer == nullptr) {
    return nullptr;
  }
  const bool is_new = self.thread == kNoThread;
  ensure_number(self);
  writer->thread = self.thread;
  if (!has_room(*writer)) {
    writer->taken.store(0, std::memory_order_release);
    return nullptr;
  }
  put_clock(*writer, clock_now<true>());
  put_other(*writer, is_new ? Other::kThreadStart : Other::kThread, self.thread);
  self.writer = writer;
  writer->waited = sys::waited_ns();
  if (has_exit_key) {
    const Location before = self.location;
    self.location =
        Location::kAllocator;  // pthread_setspecific may allocate, which is no event of the program
    pthread_setspecific(exit_key, reinterpret_cast<void*>(1));
    self.location = before;
  }
  return has_room(*writer) ? writer : nullptr;
}

Writer* borrow(ThreadState& self) {
  const sys::KeepErrno keep;
  if (session == nullptr || !ensure_recording()) {
    return nullptr;
  }
  reset_in_new_session(self);
  ensure_number(self);
  Writer* writer = nullptr;
  while ((writer = claim_writer(kThreadWriters, kWriters)) == nullptr) {
    sched_yield();
  }
  if (!has_room(*writer)) {
    return_writer(*writer);
    return nullptr;
  }
  put_clock(*writer, clock_now<true>());
  if (writer->thread != self.thread || writer->at == writer->block + sizeof(BlockHeader)) {
    writer->thread = self.thread;
    put_other(*writer, Other::kThread, self.thread);
    if (!has_room(*writer)) {
      return_writer(*writer);
      return nullptr;
    }
  }
  return writer;
}

void return_writer(Writer& writer) { writer.taken.store(0, std::memory_order_release); }

void on_thread_exit(ThreadState& self) {
  const sys::KeepErrno keep;
  self.location = Location::kRecorder;
  compiler_barrier();
  if (recording() && self.session == sessions && self.writer != &no_writer) {
    Writer& writer = *self.writer;
    if (has_room(writer)) {
      put_clock(writer, clock_now<true>());
      put_other(writer, Other::kThreadEnd, self.thread);
    }
    self.writer = &no_writer;
    if (writer.block != nullptr) {
      // The block stays in the page cache of the file, and no longer counts as the program's
      // memory.
      madvise(writer.block, kBlockBytes, MADV_DONTNEED);
    }
    return_writer(writer);
  }
  self.ended = true;
  compiler_barrier();
  self.location = Location::kProgram;
}

void record_waited(Writer& writer) {
  const sys::KeepErrno keep;
  const std::uint64_t waited = sys::waited_ns();
  if (waited > writer.waited) {
    put_other(writer, Other::kWaited, waited - writer.waited);
    writer.waited = waited;
  }
}

void sample_resident(Writer& writer, std::uint64_t now) {
  std::uint64_t next = session->next_sample.load(std::memory_order_relaxed);
  if (now < next) {
    writer.sample_at = next;
    return;
  }
  const std::uint64_t interval = session->sample_interval.load(std::memory_order_relaxed);
  if (!session->next_sample.compare_exchange_strong(next, now + interval, std::memory_order_relaxed)) {
    writer.sample_at = next;
    return;
  }
  writer.sample_at = now + interval;
  const sys::KeepErrno keep;
  update_clock_pair();
  const std::uint64_t max_interval = units(kSampleEvery);
  session->sample_interval.store(2 * interval < max_interval ? 2 * interval : max_interval,
                                 std::memory_order_relaxed);
  const std::uint64_t resident = sys::resident_bytes();
  if (resident == 0) {
    return;
  }
  // Subtract the recorder's own memory: the pages of each mapped block that were written to.
  const auto page = std::uint64_t{session->header->page_size};
  std::uint64_t ours = 0;
  for (std::uint32_t i = 0; i < session->used.load(std::memory_order_relaxed); ++i) {
    const Writer& other = session->writers[i];
    const auto filled = static_cast<std::uint64_t>(other.at - other.block);
    if (other.taken.load(std::memory_order_relaxed) != 0 && filled <= kBlockBytes) {
      ours += (filled + page - 1) / page * page;
    }
  }
  put_other(writer, Other::kResident, resident > ours ? resident - ours : resident);
}

void count_failure() {
  if (recording()) {
    session->header->failed.fetch_add(1, std::memory_order_relaxed);
  }
}

std::uint32_t phase_number(const char* name) {
  FileHeader& h = *session->header;
  const std::uint32_t known = h.phases.load(std::memory_order_acquire);
  char text[sizeof(PhaseName::name)] = {};
  for (std::size_t i = 0; i + 1 < sizeof(text) && name[i] != 0; ++i) {
    text[i] = name[i];
  }
  for (std::uint32_t i = 0; i < known && i < kMaxPhases; ++i) {
    if (h.phase[i].ready.load(std::memory_order_acquire) != 0 &&
        std::memcmp(h.phase[i].name, text, sizeof(text)) == 0) {
      return i;
    }
  }
  // Two threads that name a new phase at the same moment give it two numbers; the reader merges
  // them.
  const std::uint32_t number = h.phases.fetch_add(1, std::memory_order_acq_rel);
  if (number >= kMaxPhases) {
    h.phases.store(kMaxPhases, std::memory_order_relaxed);
    return kMaxPhases - 1;
  }
  std::memcpy(h.phase[number].name, text, sizeof(text));
  h.phase[number].ready.store(1, std::memory_order_release);
  return number;
}

void finish_recording(ThreadState& self) {
  // A child of vfork calls this too. It runs in the memory of the parent, whose recording goes on.
  if (!recording() || static_cast<std::uint64_t>(sys::process_id()) != session->header->pid) {
    return;
  }
  const sys::KeepErrno keep;
  session->large.each([&self](std::uintptr_t address, std::size_t size) {
    const std::size_t resident = resident_part(address, size);
    Writer* const writer = borrow(self);
    if (writer != nullptr) {
      put_other(*writer, Other::kTouched, resident);
      put_other_address(*writer, Other::kLive, address);
      return_writer(*writer);
    }
  });
  update_clock_pair();
  Ending running = Ending::kRunning;
  session->header->ending.compare_exchange_strong(running, Ending::kExited, std::memory_order_release);
}

void stop_recording(int error) {
  State recording = State::kRecording;
  if (session->state.compare_exchange_strong(recording, State::kStopped, std::memory_order_acq_rel)) {
    session->header->error.store(static_cast<std::uint32_t>(error), std::memory_order_relaxed);
    session->header->ending.store(Ending::kStopped, std::memory_order_release);
    print_error("recording stops here, and the program goes on", error);
  }
}

}  // namespace heapwright::recorder
