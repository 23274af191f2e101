#include "window.h"

#include <csignal>

#include "record.h"
#include "sampling.h"

namespace heapwright::recorder {

namespace {

std::atomic<std::uint32_t> toggles;  // signals so far

bool is_due_to_open(std::uint64_t now) {
  const bool by_signal = toggles.load(std::memory_order_relaxed) >= 1;
  const bool by_time = sampling.window_signal == 0 || sampling.after_ns != 0;
  return by_signal || (by_time && now - session->header->first_ns >= sampling.after_ns);
}

bool is_due_to_close(std::uint64_t now) {
  return toggles.load(std::memory_order_relaxed) >= 2 ||
         (sampling.for_ns != 0 && now - session->header->window_begin_ns.load() >= sampling.for_ns);
}

// Writes the live objects of the table that were born before the window.
void put_live_objects(std::uint64_t births) {
  const std::uint64_t begin = session->header->window_begin_stamp.load();
  session->chosen.each([&](std::uintptr_t address, const ChosenObject& object) {
    if (object.order < births) {
      Call call{.kind = object.kind,
                .block = reinterpret_cast<const void*>(address),
                .size = object.size,
                .alignment_log2 = object.alignment_log2,
                .level = object.level};
      call.born = object.order;
      record_born(call, object.thread, begin);
    }
  });
}

}  // namespace

void watch_window_signal() {
  if (recording() && sampling.window_signal > 0) {
    struct sigaction action{};
    action.sa_handler = [](int) { toggles.fetch_add(1, std::memory_order_relaxed); };
    action.sa_flags = SA_RESTART;
    sigaction(sampling.window_signal, &action, nullptr);
  }
}

void reset_window_signal() {
  if (toggles.load(std::memory_order_relaxed) >= 2) {
    toggles.store(0, std::memory_order_relaxed);
  }
}

bool window_open() {
  const WindowState state = session->window.load(std::memory_order_acquire);
  return state != WindowState::kBefore && state != WindowState::kAfter;
}

void check_window(ThreadState& self) {
  WindowState state = session->window.load(std::memory_order_acquire);
  FileHeader& header = *session->header;
  const std::uint64_t now = monotonic_ns();
  if (state == WindowState::kBefore && is_due_to_open(now)) {
    const std::uint64_t births = session->births.load();
    const std::uint64_t stamp = clock_now<true>();
    if (session->window.compare_exchange_strong(state, WindowState::kOpening, std::memory_order_acq_rel)) {
      header.window_begin_ns.store(now);
      header.window_begin_stamp.store(stamp);
      put_live_objects(births);
      session->window.store(WindowState::kOpen, std::memory_order_release);
    }
  } else if (state == WindowState::kOpen && is_due_to_close(now) &&
             session->window.compare_exchange_strong(state, WindowState::kClosing,
                                                     std::memory_order_acq_rel)) {
    finish_recording(self);
    header.window_end_ns.store(now);
    session->window.store(WindowState::kAfter, std::memory_order_release);
    clear_filter();
  }
}

}  // namespace heapwright::recorder
