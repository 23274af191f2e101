#include "record.h"

#include "sampling.h"
#include "system.h"

namespace heapwright::recorder {

thread_local constinit ThreadState self_state = {.writer = &no_writer,
                                                 .location = Location::kProgram,
                                                 .ended = false,
                                                 .thread = kNoThread,
                                                 .session = 0,
                                                 .given = kNoThread,
                                                 .last_block = nullptr,
                                                 .sized_delete = nullptr};

ThreadState& thread_state() { return self_state; }

namespace {

void put_call(Writer& writer, const Call& call) {
  if (kSampling && call.ticks != ~std::uint64_t{0}) {
    put_other(writer, Other::kTicks, sample_self.as_record(call.ticks));
  }
  if (kSampling && call.born != ~std::uint64_t{0}) {
    put_other(writer, Other::kBorn, call.born);
  }
  if (call.alignment_log2 >= 0) {
    put_other(writer, Other::kAlignment, static_cast<std::uint64_t>(call.alignment_log2));
  }
  if (call.touched != ~std::uint64_t{0}) {
    put_other(writer, Other::kTouched, call.touched);
  }
  const auto address = reinterpret_cast<std::uint64_t>(call.block);
  if (call.kind == Tag::kMalloc || call.kind == Tag::kCalloc || call.kind == Tag::kRealloc) {
    put_event<true>(writer, call.kind, address, call.size);
  } else {
    put_event<false>(writer, call.kind, address, 0);
  }
}

}  // namespace

void record_call(ThreadState& self, const Call& call) {
  Writer* const writer = self.writer->at < self.writer->limit ? self.writer : refill(self);
  if (writer == nullptr) {
    record_borrowed(self, call);
    return;
  }
  const std::uint64_t now = clock_now<true>();
  advance_clock(*writer, now);
  if (now >= writer->read_memory_at) {
    read_resident(*writer, now);
  }
  put_call(*writer, call);
}

void record_borrowed(ThreadState& self, const Call& call) {
  Writer* const writer = borrow(self);
  if (writer != nullptr) {
    put_call(*writer, call);
    return_writer(*writer);
  }
}

void record_at_level(ThreadState& self, const Call& call, std::uint64_t now) {
  Writer* const writer = borrow_at_level(self, call.level, now);
  if (writer != nullptr) {
    put_call(*writer, call);
    return_writer(*writer);
  }
}

void record_born(const Call& call, std::uint32_t thread, std::uint64_t begin) {
  Writer* const writer = borrow_for_born(call.level, thread, begin);
  if (writer != nullptr) {
    put_call(*writer, call);
    return_writer(*writer);
  }
}

namespace {

void put_in_any_writer(ThreadState& self, Other what, std::uint64_t value, bool borrow_writer) {
  Writer* writer = borrow_writer                          ? nullptr
                   : self.writer->at < self.writer->limit ? self.writer
                                                          : refill(self);
  const bool borrowed = writer == nullptr;
  if (borrowed) {
    writer = borrow(self);
  }
  if (writer == nullptr) {
    return;
  }
  put_clock(*writer, clock_now<true>());
  if (what == Other::kUsableSize || what == Other::kInternalBlock) {
    put_other_address(*writer, what, value);
  } else {
    put_other(*writer, what, value);
  }
  if (borrowed) {
    return_writer(*writer);
  }
}

}  // namespace

void record_other(ThreadState& self, Other what, std::uint64_t value) {
  if (kSampling && (!recording() || !window_open())) {
    return;
  }
  const bool borrow_writer = self.location == Location::kRecorder;
  const sys::KeepErrno keep;
  const InRecorder in_recorder(self);
  put_in_any_writer(self, what, value, borrow_writer);
}

void record_realloc_failed(ThreadState& self, bool freed, bool borrow_writer) {
  put_in_any_writer(self, freed ? Other::kReallocFreed : Other::kReallocFailed, 0, borrow_writer);
}

}  // namespace heapwright::recorder
