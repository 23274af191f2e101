#include "record.h"

#include "system.h"

namespace heapwright::recorder {

thread_local constinit ThreadState self_state = {.writer = &no_writer,
                                                 .place = Place::kOutside,
                                                 .ended = false,
                                                 .thread = kNoThread,
                                                 .session = 0,
                                                 .last_made = nullptr,
                                                 .sized = nullptr};

ThreadState& thread_state() { return self_state; }

namespace {

void put_call(Writer& writer, const Call& call) {
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
    record_spare(self, call);
    return;
  }
  const std::uint64_t now = clock_now<true>();
  bring_clock(*writer, now);
  if (now >= writer->sample_at) {
    sample(*writer, now);
  }
  put_call(*writer, call);
}

void record_spare(ThreadState& self, const Call& call) {
  Writer* const writer = borrow(self);
  if (writer != nullptr) {
    put_call(*writer, call);
    give_back(*writer);
  }
}

namespace {

void put_anywhere(ThreadState& self, Other what, std::uint64_t value, bool spare) {
  Writer* writer = spare ? nullptr : self.writer->at < self.writer->limit ? self.writer : refill(self);
  const bool borrowed = writer == nullptr;
  if (borrowed) {
    writer = borrow(self);
  }
  if (writer == nullptr) {
    return;
  }
  put_clock(*writer, clock_now<true>());
  if (what == Other::kUsableSize || what == Other::kInner) {
    put_other_address(*writer, what, value);
  } else {
    put_other(*writer, what, value);
  }
  if (borrowed) {
    give_back(*writer);
  }
}

}  // namespace

void record_other(ThreadState& self, Other what, std::uint64_t value) {
  const bool spare = self.place == Place::kWriting;
  const sys::KeepErrno keep;
  const Writing writing(self);
  put_anywhere(self, what, value, spare);
}

void record_change_failed(ThreadState& self, bool freed, bool spare) {
  put_anywhere(self, freed ? Other::kGone : Other::kKept, 0, spare);
}

}  // namespace heapwright::recorder
