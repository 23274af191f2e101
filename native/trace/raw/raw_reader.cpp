#include "raw_reader.h"

#include <algorithm>
#include <deque>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "live_objects.h"
#include "raw_header.h"
#include "raw_loss.h"
#include "record_merge.h"
#include "touched_estimate.h"
#include "trace/live_table.h"
#include "unseen_ticks.h"

namespace heapwright::trace {

namespace {

using raw::Other;
using raw::RawFile;
using raw::Tag;
using raw::TimedRecord;
using raw::WriterStream;

class Reader : public EventSource {
 public:
  explicit Reader(std::unique_ptr<RawFile> file)
      : file_(std::move(file)),
        header_(read_header(file_->header())),
        clock_conversion_(file_->header()),
        unseen_(*file_, header_.sample),
        records_(*file_) {
    phases_ = read_phases(file_->header(), header_.phases);
    if (header_.window_begin) {
      window_phase_ = header_.phases.size();
      header_.phases.emplace_back("window");
    }
  }

  const Header& header() const override { return header_; }
  bool next(Event& event) override;
  Loss loss() const override;

 private:
  bool is_possible(const TimedRecord& record);
  void take(const TimedRecord& record);
  void on_other(const TimedRecord& record, ReadThread& thread);
  void on_alloc(const TimedRecord& record, ReadThread& thread, Kind kind);
  void on_free(const TimedRecord& record, ReadThread& thread, Kind kind);
  void finish_realloc(const TimedRecord& record, ReadThread& thread);
  ReadThread& thread_of(const TimedRecord& record);
  ReadThread& numbered(std::uint32_t number);
  void emit(const TimedRecord& record, const ReadThread& thread, Event event);
  void on_unknown_address(std::uint64_t address);
  void free_object_at(const TimedRecord& record, const ReadThread& thread);
  void put_ticks(const TimedRecord& record, ReadThread& thread);
  void begin_window();
  void emit_ticks(const TimedRecord& record, const ReadThread& thread, std::uint64_t ticks);
  void put_end();
  void estimate_touched();

  std::unique_ptr<RawFile> file_;
  Header header_;
  ClockConversion clock_conversion_;
  UnseenTicks unseen_;
  std::vector<std::uint64_t> phases_;
  raw::RecordMerge records_;
  std::deque<Event> ready_;
  std::unordered_map<std::uint32_t, ReadThread, Mixed> threads_;
  std::uint32_t threads_seen_ = 0;
  LiveObjects live_;
  std::unordered_set<std::uint64_t, Mixed> internal_blocks_;  // blocks that the allocator got for itself
  std::uint64_t objects_ = 0;
  std::uint64_t last_time_ = 0;
  std::uint64_t last_clock_ = 0;  // of the last record
  std::uint64_t waited_ = 0;      // nanoseconds without a processor, left out of all times
  std::uint64_t dropped_ = 0;
  TouchedEstimate touched_;
  bool ended_ = false;              // the events after the last record have been returned
  std::vector<TimedRecord> born_;   // objects that were live when the window began
  bool window_begun_ = false;       // these have been returned
  std::uint64_t window_phase_ = 0;  // number of the mark behind them
  std::uint64_t inherited_ = 0;     // calls for memory that a forked process has from its parent
};

bool Reader::next(Event& event) {
  TimedRecord record;
  while (ready_.empty()) {
    if (!records_.next(record, [this](const TimedRecord& next) { return is_possible(next); })) {
      if (!born_.empty()) {
        begin_window();
        continue;
      }
      put_end();
      if (ready_.empty()) {
        return false;
      }
      break;
    }
    // A recording without a window has such records only if it is damaged.
    if (record.born != ~std::uint64_t{0} && header_.window_begin && !window_begun_) {
      born_.push_back(record);
      continue;
    }
    begin_window();
    take(record);
  }
  event = ready_.front();
  ready_.pop_front();
  return true;
}

bool Reader::is_possible(const TimedRecord& record) {
  switch (record.record.tag) {
    case Tag::kMalloc:
    case Tag::kCalloc:
    case Tag::kRealloc:
      return live_.find(record.record.address) == nullptr;
    case Tag::kFree:
    case Tag::kFreeSized:
    case Tag::kReallocBegin:
      return live_.find(record.record.address) != nullptr;
    default:
      return true;
  }
}

ReadThread& Reader::thread_of(const TimedRecord& record) {
  ReadThread& thread = numbered(record.thread);
  if (!thread.started) {
    thread.started = true;
    emit(record, thread, {.kind = Kind::kThreadStart});
  }
  return thread;
}

// Returns the thread with a number of the file.
ReadThread& Reader::numbered(std::uint32_t number) {
  const auto [at, is_new] = threads_.try_emplace(number);
  if (is_new) {
    at->second.number = threads_seen_++;
  }
  return at->second;
}

void Reader::emit(const TimedRecord& record, const ReadThread& thread, Event event) {
  event.thread = thread.number;
  const std::uint64_t passed = clock_conversion_.to_ns(record.clock);
  last_time_ = std::max(last_time_, passed - std::min(passed, waited_));
  event.time = last_time_;
  ready_.push_back(event);
}

// Counts a free or a realloc of an address that is not live. A forked process may free memory of
// its parent.
void Reader::on_unknown_address(std::uint64_t address) {
  if (internal_blocks_.erase(address) != 0) {
    return;  // the allocator got the block for itself, and the program frees it
  }
  if (header_.window_begin) {
    return;  // freed by another thread while the window began
  }
  if (file_->header().forked != 0) {
    ++inherited_;
  } else {
    ++dropped_;
  }
}

// Frees the object at the address of an allocation, if there is one: its own free is lost or comes
// later.
void Reader::free_object_at(const TimedRecord& record, const ReadThread& thread) {
  const Live* const there = live_.find(record.record.address);
  if (there != nullptr) {
    ++dropped_;
    emit(record, thread, {.kind = Kind::kFree, .object = there->object, .size = there->size});
    live_.erase(*there);
  }
}

void Reader::on_alloc(const TimedRecord& record, ReadThread& thread, Kind kind) {
  if (record.record.address == 0) {
    ++dropped_;
    return;
  }
  free_object_at(record, thread);
  internal_blocks_.erase(record.record.address);
  const std::uint64_t size = record.record.size;
  const std::uint64_t alignment = record.alignment_log2 < 0 ? 0 : std::uint64_t{1} << record.alignment_log2;
  live_.insert({.address = record.record.address, .object = objects_, .size = size});
  thread.further += further_draws(size);
  emit(record, thread,
       {.kind = record.alignment_log2 < 0 ? kind : Kind::kAligned,
        .object = objects_,
        .size = size,
        .alignment = alignment});
  ++objects_;
}

void Reader::on_free(const TimedRecord& record, ReadThread& thread, Kind kind) {
  const Live* const live = live_.find(record.record.address);
  if (live == nullptr) {
    return on_unknown_address(record.record.address);
  }
  if (record.touched != ~std::uint64_t{0}) {
    touched_.on_free(live->object, live->size, record.touched);
  }
  emit(record, thread,
       {.kind = kind,
        .object = live->object,
        .size = kind == Kind::kFreeSized ? live->size : 0,
        .touched = record.touched == ~std::uint64_t{0} ? kUnknown : record.touched});
  live_.erase(*live);
}

void Reader::finish_realloc(const TimedRecord& record, ReadThread& thread) {
  PendingRealloc pending;
  if (!thread.pending.empty()) {
    pending = thread.pending.back();
    thread.pending.pop_back();
  }
  const bool moved = record.record.tag == Tag::kRealloc;
  if (!pending.known) {
    if (moved) {
      on_alloc(record, thread, Kind::kMalloc);
    }
    return;
  }
  Live& live = pending.live;
  if (moved) {
    if (record.record.address == 0) {
      ++dropped_;
      return;
    }
    free_object_at(record, thread);
    internal_blocks_.erase(record.record.address);
    live.address = record.record.address;
    live.size = record.record.size;
    live_.insert(live);
    emit(record, thread, {.kind = Kind::kRealloc, .object = live.object, .size = live.size});
  } else if (record.record.other == Other::kReallocFreed) {
    emit(record, thread, {.kind = Kind::kFree, .object = live.object});
  } else if (live_.find(live.address) == nullptr) {
    live_.insert(live);
  }
}

void Reader::on_other(const TimedRecord& record, ReadThread& thread) {
  const std::uint64_t value = record.record.value;
  switch (record.record.other) {
    case Other::kThreadEnd:
      emit_ticks(record, thread, thread.older ? 0 : unseen_.take(thread.ticks, thread.further));
      emit(record, thread, {.kind = Kind::kThreadEnd});
      threads_.erase(record.thread);  // later records with this number are of a new thread
      break;
    case Other::kLive:
    case Other::kUsableSize:
    case Other::kFilling:
      if (const Live* const live = live_.find(record.record.address); live != nullptr) {
        const Kind kind = record.record.other == Other::kLive      ? Kind::kTouched
                          : record.record.other == Other::kFilling ? Kind::kTouchedSoFar
                                                                   : Kind::kUsableSize;
        emit(record, thread, {.kind = kind, .object = live->object, .touched = record.touched});
      } else if (record.record.other == Other::kUsableSize) {
        on_unknown_address(record.record.address);
      }
      break;
    case Other::kReallocFailed:
    case Other::kReallocFreed:
      finish_realloc(record, thread);
      break;
    case Other::kWaited:
      // Counts only up to the time since the last record: while other threads run, the time of the
      // process goes on.
      waited_ += std::min(
          value, clock_conversion_.to_ns(record.clock) -
                     std::min(clock_conversion_.to_ns(last_clock_), clock_conversion_.to_ns(record.clock)));
      break;
    case Other::kInternalBlock:
      internal_blocks_.insert(record.record.address);
      break;
    case Other::kFork:
      emit(record, thread, {.kind = Kind::kFork, .value = value});
      break;
    case Other::kPhase:
      if (value < phases_.size()) {
        emit(record, thread, {.kind = Kind::kPhase, .value = phases_[value]});
      } else {
        ++dropped_;
      }
      break;
    case Other::kResident:
      touched_.on_resident(value, objects_);
      emit(record, thread, {.kind = Kind::kResident, .value = value});
      break;
    case Other::kUntouched:
      touched_.on_untouched(value, objects_);
      emit(record, thread, {.kind = Kind::kUntouched, .value = value});
      break;
    case Other::kHeap:
    case Other::kFiles:
      emit(record, thread,
           {.kind = record.record.other == Other::kHeap ? Kind::kHeap : Kind::kFiles, .value = value});
      break;
    case Other::kSpawn:
      emit(record, thread,
           {.kind = Kind::kSpawn, .value = numbered(static_cast<std::uint32_t>(value)).number});
      break;
    default:
      break;  // kThreadStart: thread_of has already emitted it
  }
}

// Returns the objects that were live when the window began, in the order of their allocation,
// and a mark.
void Reader::begin_window() {
  if (window_begun_ || !header_.window_begin) {
    return;
  }
  window_begun_ = true;
  std::sort(born_.begin(), born_.end(),
            [](const TimedRecord& a, const TimedRecord& b) { return a.born < b.born; });
  TimedRecord mark;
  mark.clock = file_->header().window_begin_stamp.load();
  for (const TimedRecord& record : std::exchange(born_, {})) {
    mark.thread = record.thread;
    take(record);
  }
  emit(mark, thread_of(mark), {.kind = Kind::kPhase, .value = window_phase_});
}

void Reader::put_ticks(const TimedRecord& record, ReadThread& thread) {
  if (header_.sample == 0 || record.ticks == ~std::uint64_t{0}) {
    return;
  }
  std::uint64_t passed = record.ticks - std::min(thread.ticks, record.ticks);
  thread.older = thread.older || record.older;
  if (thread.older && !thread.counts) {
    thread.counts = record.record.tag == Tag::kMalloc || record.record.tag == Tag::kCalloc;
    passed = thread.counts ? unseen_.before(record.record.size) : 0;
  }
  thread.ticks = std::max(thread.ticks, record.ticks);
  emit_ticks(record, thread, passed);
}

void Reader::emit_ticks(const TimedRecord& record, const ReadThread& thread, std::uint64_t ticks) {
  if (ticks != 0) {
    emit(record, thread, {.kind = Kind::kTicks, .value = ticks});
  }
}

void Reader::take(const TimedRecord& record) {
  ReadThread& thread = thread_of(record);
  put_ticks(record, thread);
  switch (record.record.tag) {
    case Tag::kMalloc:
      on_alloc(record, thread, Kind::kMalloc);
      break;
    case Tag::kCalloc:
      on_alloc(record, thread, Kind::kCalloc);
      break;
    case Tag::kFree:
      on_free(record, thread, Kind::kFree);
      break;
    case Tag::kFreeSized:
      on_free(record, thread, Kind::kFreeSized);
      break;
    case Tag::kReallocBegin: {
      PendingRealloc pending;
      if (const Live* const live = live_.find(record.record.address); live != nullptr) {
        pending = {.known = true, .live = *live};
        live_.erase(*live);
      } else {
        on_unknown_address(record.record.address);
      }
      thread.pending.push_back(pending);
      break;
    }
    case Tag::kRealloc:
      finish_realloc(record, thread);
      break;
    case Tag::kOther:
      on_other(record, thread);
      break;
    case Tag::kEnd:
      break;
  }
  last_clock_ = record.clock;
}

// Makes the last events: the rest of the unseen ticks, by thread 0 or a new one if that has ended,
// and those of a process that ended without exit() and so could not record its end.
void Reader::put_end() {
  if (const std::uint64_t rest = unseen_.take_rest(); rest != 0 && threads_seen_ != 0) {
    const TimedRecord last{.record = {}, .clock = last_clock_};
    emit(last, thread_of(last), {.kind = Kind::kTicks, .value = rest});
  }
  const bool exited = file_->header().ending.load() == raw::Ending::kExited;
  if (std::exchange(ended_, true) || exited || threads_seen_ == 0) {
    return;
  }
  const std::uint64_t passed = clock_conversion_.end_ns();
  last_time_ = std::max(last_time_, passed - std::min(passed, waited_));
  if (header_.sample == 0) {
    estimate_touched();
  }
  if (header_.ends) {
    ready_.push_back({.kind = Kind::kEnd, .time = last_time_});
  }
}

// Estimates the touched bytes of large blocks that are live at the end.
void Reader::estimate_touched() {
  std::vector<TouchedEstimate::Block> blocks;
  live_.each([&](const Live& live) {
    if (live.size >= kLargeBlock) {
      blocks.push_back({.object = live.object, .size = live.size, .touched = 0});
    }
  });
  touched_.finish(blocks);
  for (const TouchedEstimate::Block& block : blocks) {
    ready_.push_back(
        {.kind = Kind::kTouched, .time = last_time_, .object = block.object, .touched = block.touched});
  }
}

Loss Reader::loss() const {
  RawLoss lost{.events = dropped_,
               .bytes = file_->lost_bytes(),
               .blocks = 0,
               .truncated = file_->truncated(),
               .inherited = inherited_};
  records_.each_stream([&](const WriterStream& stream) {
    lost.bytes += stream.lost_bytes();
    lost.blocks += stream.lost_blocks();
  });
  return describe_loss(file_->header(), lost);
}

}  // namespace

std::unique_ptr<EventSource> open_raw(const std::string& path, std::string& error) {
  std::unique_ptr<RawFile> file = RawFile::open(path, error);
  return file == nullptr ? nullptr : std::make_unique<Reader>(std::move(file));
}

}  // namespace heapwright::trace
