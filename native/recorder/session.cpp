#include "session.h"

#include <pthread.h>
#include <sched.h>
#include <sys/mman.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstdlib>

#include "begin.h"
#include "blocks.h"
#include "resident.h"
#include "sampling.h"
#include "system.h"
#include "touched.h"

namespace heapwright::recorder {

Session* session = nullptr;
Writer no_writer;

namespace {

std::uint32_t sessions = 0;  // recordings begun in this process and in its ancestors by fork
pthread_key_t exit_key;
bool has_exit_key = false;

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
// blocked during this: a handler that interrupted this thread here and called malloc would wait
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
        if (counter.load(std::memory_order_relaxed) != 0) {  // leave untouched pages untouched
          counter.store(0, std::memory_order_relaxed);
        }
      }
      if constexpr (kSampling) {
        if (forked) {
          clear_filter();  // has the parent's objects
        } else {
          fill_filter_of_pool();
        }
      }
      ++sessions;
      const bool begun = begin_file(*session, forked);
      session->state.store(begun ? State::kRecording : State::kStopped, std::memory_order_release);
      if (begun) {
        begin_readings();
      }
    }
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
  }
}

// Claims a free writer with a number in [first, last); nullptr if there is none.
Writer* claim_writer(std::uint32_t first, std::uint32_t last) {
  for (std::uint32_t i = first; i < last; ++i) {
    Writer& writer = session->writers[i];
    if (writer.taken.load(std::memory_order_relaxed) != 0 ||
        writer.taken.exchange(1, std::memory_order_seq_cst) != 0) {
      continue;
    }
    std::uint32_t used = session->used.load(std::memory_order_relaxed);
    [[maybe_unused]] const bool only = used == 0;
    while (used <= i && !session->used.compare_exchange_weak(used, i + 1, std::memory_order_acq_rel)) {
    }
    if constexpr (!kSampling) {  // every event of a sample is stamped
      // Set before the new thread records anything, so that a thread that sees its effects stamps
      // the events that follow.
      writer.stamp_every_event.store(only ? 0 : 1, std::memory_order_relaxed);
      if (!only) {
        session->writers[0].stamp_every_event.store(1, std::memory_order_seq_cst);
      }
      writer.countdown = 1;
    }
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
  self.given = kNoThread;
  self.ended = false;
}

void ensure_number(ThreadState& self) {
  if (self.thread == kNoThread) {
    self.thread = self.given != kNoThread ? self.given
                                          : session->header->threads.fetch_add(1, std::memory_order_relaxed);
    self.given = kNoThread;
    if (kSampling) {
      watch_thread_exit(self);
    }
  }
}

}  // namespace

Writer* refill(ThreadState& self) {
  const sys::KeepErrno keep;
  if (session == nullptr || !ensure_recording()) {
    return nullptr;
  }
  reset_in_new_session(self);
  if (kSampling) {
    ensure_number(self);
    return nullptr;  // no thread of a sample has a writer of its own
  }
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
  watch_thread_exit(self);
  return has_room(*writer) ? writer : nullptr;
}

void watch_thread_exit(ThreadState& self) {
  if (has_exit_key && !self.ended) {
    const sys::KeepErrno keep;
    const Location before = self.location;
    self.location =
        Location::kAllocator;  // pthread_setspecific may allocate, which is no event of the program
    if (pthread_getspecific(exit_key) == nullptr) {  // else the thread may be in a later round
      pthread_setspecific(exit_key, reinterpret_cast<void*>(1));
    }
    self.location = before;
  }
}

namespace {

// Borrows a writer with a number in [first, last); those from `preferred` on come first.
//
// thread  the thread that makes the next records
// now     their time, in units of the clock
Writer* borrow_of(std::uint32_t first, std::uint32_t preferred, std::uint32_t last, std::uint32_t thread,
                  std::uint64_t now) {
  Writer* writer = claim_writer(preferred, preferred + 1);
  for (int attempt = 0; writer == nullptr; ++attempt) {
    writer = claim_writer(preferred, last);
    writer = writer == nullptr ? claim_writer(first, preferred) : writer;
    if (writer == nullptr) {
      // Signal handlers may have interrupted all threads that have one. In a sample the event is
      // left out.
      constexpr int kAttempts = 10'000;
      if (kSampling && attempt == kAttempts) {
        return nullptr;
      }
      sched_yield();
    }
  }
  if ((kSampling && is_dropped(*writer)) || !has_room(*writer)) {
    return_writer(*writer);
    return nullptr;
  }
  put_clock(*writer, now);
  if (writer->thread != thread || writer->at == writer->block + sizeof(BlockHeader)) {
    writer->thread = thread;
    put_other(*writer, Other::kThread, thread);
    if (!has_room(*writer)) {
      return_writer(*writer);
      return nullptr;
    }
  }
  return writer;
}

}  // namespace

void on_fork_in_child() {
  // Another fork handler may have begun the child's recording.
  if (session != nullptr && session->state.load(std::memory_order_relaxed) == State::kNone) {
    const sys::KeepErrno keep;
    session->fork_ns = monotonic_ns();
    session->fork_stamp = clock_now<true>();
    close_inherited_file();
  }
}

bool begin_thread(ThreadState& self) {
  if (recording() && self.session == sessions && self.thread != kNoThread) {
    return true;
  }
  const sys::KeepErrno keep;
  if (session == nullptr || !ensure_recording()) {
    return false;
  }
  reset_in_new_session(self);
  ensure_number(self);
  return true;
}

void adopt_number(ThreadState& self, std::uint32_t number, std::uint32_t its_session) {
  self.given = number;
  self.session = its_session;
}

Writer* borrow(ThreadState& self) {
  constexpr std::uint32_t kFirst = kSampling ? kTopLevel * kWritersPerLevel : kThreadWriters;
  constexpr std::uint32_t kLast = kSampling ? kFirst + kWritersPerLevel : kWriters;
  return begin_thread(self) ? borrow_of(kFirst, kFirst, kLast, self.thread, clock_now<true>()) : nullptr;
}

Writer* borrow_at_level(ThreadState& self, std::uint32_t level, std::uint64_t now) {
  if (!begin_thread(self)) {
    return nullptr;
  }
  // Threads prefer different writers of a level. Half of the objects have the lowest level, a
  // quarter the next one …, so a bounded file spends most of its blocks there.
  const std::uint64_t lowest = session->header->min_level.load(std::memory_order_relaxed);
  std::uint32_t spread = kWritersPerLevel;
  if (session->max_blocks != 0) {
    const std::uint64_t room = session->max_blocks / 32 >> (level - std::min<std::uint64_t>(lowest, level));
    spread = static_cast<std::uint32_t>(std::clamp<std::uint64_t>(room, 1, kWritersPerLevel));
  }
  const std::uint32_t first = level * kWritersPerLevel;
  return borrow_of(first, first + self.thread % spread, first + kWritersPerLevel, self.thread, now);
}

Writer* borrow_for_born(std::uint32_t level, std::uint32_t thread, std::uint64_t now) {
  return borrow_of(kBornWriters + level, kBornWriters + level, kBornWriters + level + 1, thread, now);
}

void return_writer(Writer& writer) {
  if (kSampling && session->max_blocks != 0 && is_dropped(writer)) {
    drop_block(writer);
  }
  writer.taken.store(0, std::memory_order_seq_cst);
}

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
  if constexpr (kSampling) {
    record_thread_end(self);
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
  if (kSampling && !window_open()) {
    Ending running = Ending::kRunning;
    session->header->ending.compare_exchange_strong(running, Ending::kExited, std::memory_order_release);
    return;
  }
  const auto put_live = [&self](std::uintptr_t address, LargeBlock large, std::uint32_t level) {
    const std::size_t touched = end_touching(address, large.size, large.touching);
    Writer* const writer = kSampling ? borrow_at_level(self, level, clock_now<true>()) : borrow(self);
    if (writer != nullptr) {
      put_other(*writer, Other::kTouched, touched);
      put_other_address(*writer, Other::kLive, address);
      return_writer(*writer);
    }
  };
  if constexpr (kSampling) {
    session->chosen.each([&](std::uintptr_t address, const ChosenObject& object) {
      if (object.size >= kLarge) {
        // Only the table of large blocks has what begin_touching() said.
        LargeBlock large = session->large.find(reinterpret_cast<const void*>(address));
        large.size = object.size;
        put_live(address, large, object.level);
      }
    });
  } else {
    session->large.each(
        [&](std::uintptr_t address, LargeBlock large) { put_live(address, large, kTopLevel); });
  }
  Writer* const writer = borrow(self);
  if (writer != nullptr) {
    put_resident(*writer, true);
    return_writer(*writer);
  }
  update_clock_pair();
  Ending running = Ending::kRunning;
  session->header->ending.compare_exchange_strong(running, Ending::kExited, std::memory_order_release);
}

void stop_recording(int error) {
  State recording = State::kRecording;
  if (session->state.compare_exchange_strong(recording, State::kStopped, std::memory_order_acq_rel)) {
    session->header->error.store(static_cast<std::uint32_t>(error == kFileRemoved ? ENOENT : error),
                                 std::memory_order_relaxed);
    session->header->ending.store(Ending::kStopped, std::memory_order_release);
    if (error != kFileRemoved) {
      print_error("recording stops here, and the program goes on", error);
    }
  }
}

}  // namespace heapwright::recorder
