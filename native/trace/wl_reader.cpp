// Reads a wl file. Runs its threads in turns to find one order of operations that its syncs allow.
#include <algorithm>
#include <array>
#include <deque>
#include <optional>
#include <set>
#include <unordered_map>
#include <utility>
#include <vector>

#include "formats.h"
#include "live_table.h"
#include "mapped.h"
#include "wl_format.h"

namespace heapwright::trace {

namespace {

constexpr std::uint64_t kNone = ~std::uint64_t{0};
constexpr std::uint64_t kMaxBytes = std::uint64_t{1} << 47;  // no allocation can be larger
constexpr std::size_t kMaxThreads = 65536;
constexpr int kTurn = 32;  // operations that a thread runs in one turn

// Returns how many numbers follow an operation of a thread; nullopt if there is no such operation.
std::optional<std::size_t> argument_count(unsigned char operation) {
  switch (operation) {
    case wl::kNop:
    case wl::kDone:
      return 0;
    case wl::kFree:
    case wl::kSyncWrite:
    case wl::kSyncRead:
      return 1;
    case wl::kMalloc:
    case wl::kCalloc:
    case wl::kValloc:
    case wl::kPvalloc:
      return 2;
    case wl::kMemalign:
    case wl::kPosixMemalign:
    case wl::kRealloc:
      return 3;
    default:
      return std::nullopt;
  }
}

// A thread's operations, or the main program's.
struct Stream {
  std::uint64_t begin = 0;
  std::uint64_t at = 0;
  std::uint64_t end = 0;
  std::uint64_t waits_for = kNone;  // sync
  std::int64_t thread = -1;         // its number in the trace, from its first event on
  bool over = false;
  double progress() const {
    return static_cast<double>(at - begin) / static_cast<double>(std::max<std::uint64_t>(1, end - begin));
  }
};

class WlSource : public EventSource {
 public:
  bool open(const std::string& path, std::string& error);
  const Header& header() const override { return header_; }
  Loss loss() const override { return loss_; }
  bool next(Event& event) override {
    while (ready_.empty()) {
      if (!play()) {
        return false;
      }
    }
    event = ready_.front();
    ready_.pop_front();
    return true;
  }

 private:
  bool read_main();
  bool play();
  bool step(Stream& stream);
  void finish(Stream& stream, const char* trouble);
  std::optional<std::uint64_t> number(Stream& stream);
  bool ensure_slot(std::uint64_t index);
  void on_alloc(Stream& stream, Event event, std::uint64_t into);
  void on_free(Stream& stream, std::uint64_t from);
  void on_sync_write(std::uint64_t sync);
  void on_realloc(Stream& stream, std::uint64_t into, std::uint64_t from, std::uint64_t size);
  void emit(Stream& stream, Event event);
  void note_loss(const std::string& why) {
    if (loss_.why.empty()) {
      loss_.why = why;
    }
  }
  Stream* choose();
  void wake(std::size_t number);

  Mapped file_;
  Header header_;
  Loss loss_;
  std::vector<Stream> streams_;
  // The threads that can run and those that wait for a sync, by progress. `waiters_` holds the
  // waiting ones by sync as well. So the time for an operation hardly depends on the number of
  // threads.
  using Progress = std::pair<double, std::size_t>;
  std::set<Progress> runnable_;
  std::set<Progress> waiting_;
  std::unordered_multimap<std::uint64_t, std::size_t, Mixed> waiters_;
  std::vector<std::uint64_t> slots_;  // slot → object
  std::vector<bool> synced_;
  std::uint64_t objects_ = 0;
  std::int64_t threads_ = 0;
  std::deque<Event> ready_;
};

bool WlSource::open(const std::string& path, std::string& error) {
  if (!file_.open(path, error)) {
    return false;
  }
  std::uint64_t at = 0;
  while (at < file_.size() && file_[at] == wl::kNop) {
    ++at;
  }
  if (at == file_.size() || file_[at] != wl::kAllocPointers || !read_main()) {
    error = path + ": this is not a wl file";
    return false;
  }
  header_.allocator = "not known: a wl file";
  return true;
}

std::optional<std::uint64_t> WlSource::number(Stream& stream) {
  std::uint64_t value = 0;
  for (int i = 0; i < 10 && stream.at < stream.end; ++i) {
    const unsigned char byte = file_[stream.at++];
    value = value << 7 | (byte & 0x7FU);
    if ((byte & 0x80U) == 0) {
      return value;
    }
  }
  return std::nullopt;
}

// Reads the list of threads. Returns false if there is not even the beginning of one.
bool WlSource::read_main() {
  Stream main{.end = file_.size()};
  bool done = false;
  bool sound = true;
  while (!done && sound && main.at < main.end) {
    const unsigned char operation = file_[main.at++];
    if (operation == wl::kDone) {
      done = true;
    } else if (operation >= wl::kAllocPointers && operation <= wl::kStartThread) {
      const auto value = number(main);
      sound = value.has_value();
      if (sound && operation == wl::kStartThread) {
        if (*value < file_.size() && streams_.size() < kMaxThreads) {
          streams_.push_back({.begin = *value, .at = *value, .end = file_.size()});
        } else {
          ++loss_.events;
          loss_.cut_short = true;
          note_loss("a thread begins after the end of the file");
        }
      }
    } else {
      sound = operation == wl::kNop;
    }
  }
  if (!done || !sound) {
    loss_.cut_short = true;
    note_loss("the list of threads is incomplete");
  }
  std::set<std::uint64_t> seen;
  std::vector<std::uint64_t> begins;
  begins.reserve(streams_.size());
  for (const Stream& stream : streams_) {
    begins.push_back(stream.begin);
  }
  std::sort(begins.begin(), begins.end());
  for (Stream& stream : streams_) {
    const auto after = std::upper_bound(begins.begin(), begins.end(), stream.begin);
    stream.end = after == begins.end() ? file_.size() : *after;
  }
  for (std::size_t i = 0; i < streams_.size(); ++i) {
    // Two threads may not share operations: a small file could otherwise stand for a very long
    // trace.
    if (!seen.insert(streams_[i].begin).second) {
      streams_[i].over = true;
      ++loss_.events;
      note_loss("two threads begin at the same offset");
    } else {
      runnable_.insert({streams_[i].progress(), i});
    }
  }
  return !streams_.empty() || (done && sound);
}

// Returns the thread with the least progress among those that can run. If none can, the one with
// the least progress among the waiting threads gives up its wait.
Stream* WlSource::choose() {
  if (runnable_.empty() && !waiting_.empty()) {
    ++loss_.events;
    note_loss("a thread waits for a sync that never comes");
    const Progress first = *waiting_.begin();
    wake(first.second);
  }
  if (runnable_.empty()) {
    return nullptr;
  }
  Stream* const best = &streams_[runnable_.begin()->second];
  runnable_.erase(runnable_.begin());
  return best;
}

void WlSource::wake(std::size_t number) {
  Stream& stream = streams_[number];
  waiting_.erase({stream.progress(), number});
  for (auto [at, end] = waiters_.equal_range(stream.waits_for); at != end; ++at) {
    if (at->second == number) {
      waiters_.erase(at);
      break;
    }
  }
  stream.waits_for = kNone;
  runnable_.insert({stream.progress(), number});
}

bool WlSource::play() {
  Stream* stream = choose();
  if (stream == nullptr) {
    return false;
  }
  for (int i = 0; i < kTurn && step(*stream); ++i) {
  }
  const auto number = static_cast<std::size_t>(stream - streams_.data());
  if (stream->waits_for != kNone) {
    waiting_.insert({stream->progress(), number});
    waiters_.insert({stream->waits_for, number});
  } else if (!stream->over) {
    runnable_.insert({stream->progress(), number});
  }
  return true;
}

void WlSource::finish(Stream& stream, const char* trouble) {
  stream.over = true;
  if (trouble != nullptr) {
    loss_.bytes += stream.end - stream.at;
    loss_.cut_short = true;
    note_loss(trouble);
  }
  if (stream.thread > 0) {
    Event end;
    end.kind = Kind::kThreadEnd;
    emit(stream, end);
  }
}

void WlSource::emit(Stream& stream, Event event) {
  if (stream.thread < 0) {
    stream.thread = threads_++;
    if (stream.thread > 0) {
      Event start;
      start.kind = Kind::kThreadStart;
      start.thread = static_cast<std::uint32_t>(stream.thread);
      ready_.push_back(start);
    }
  }
  event.thread = static_cast<std::uint32_t>(stream.thread);
  ready_.push_back(event);
}

// Makes room for a slot. Returns false if its number exceeds the size of the file, because each
// slot in use takes some bytes of it.
bool WlSource::ensure_slot(std::uint64_t index) {
  if (index >= file_.size()) {
    return false;
  }
  if (index >= slots_.size()) {
    slots_.resize(static_cast<std::size_t>(std::min(file_.size(), index + index / 2 + 64)), kNone);
  }
  return true;
}

void WlSource::on_free(Stream& stream, std::uint64_t from) {
  if (from == 0) {
    return;
  }
  if (!ensure_slot(from) || slots_[from] == kNone) {
    ++loss_.events;
    return;
  }
  Event event;
  event.kind = Kind::kFree;
  event.object = slots_[from];
  slots_[from] = kNone;
  emit(stream, event);
}

void WlSource::on_alloc(Stream& stream, Event event, std::uint64_t into) {
  if (into == 0 || event.size > kMaxBytes) {
    ++loss_.failed_calls;
    return;
  }
  if (!ensure_slot(into)) {
    ++loss_.events;
    return;
  }
  if (slots_[into] != kNone) {
    on_free(stream, into);  // as trace_run does
  }
  if (event.alignment != 0 &&
      ((event.alignment & (event.alignment - 1)) != 0 || event.alignment > kMaxBytes)) {
    ++loss_.events;
    return;
  }
  if (event.kind == Kind::kAligned && event.alignment == 0) {
    event.kind = Kind::kMalloc;
  }
  event.object = objects_++;
  slots_[into] = event.object;
  emit(stream, event);
}

void WlSource::on_realloc(Stream& stream, std::uint64_t into, std::uint64_t from, std::uint64_t size) {
  if (into == 0 && size == 0) {
    on_free(stream, from);
    return;
  }
  Event event;
  event.size = size;
  if (from == 0 || !ensure_slot(from) || slots_[from] == kNone) {
    on_alloc(stream, event, into);
    return;
  }
  if (into == 0 || size > kMaxBytes) {
    ++loss_.failed_calls;
    return;
  }
  if (!ensure_slot(into)) {
    ++loss_.events;
    return;
  }
  event.kind = Kind::kRealloc;
  event.object = slots_[from];
  slots_[from] = kNone;
  if (slots_[into] != kNone) {
    on_free(stream, into);
  }
  slots_[into] = event.object;
  emit(stream, event);
}

// Runs one operation. Returns false if the thread cannot go on now.
bool WlSource::step(Stream& stream) {
  if (stream.at >= stream.end) {
    finish(stream, "the operations of a thread end early");
    return false;
  }
  const unsigned char operation = file_[stream.at];
  const std::optional<std::size_t> count = argument_count(operation);
  if (!count) {
    finish(stream, "there is an unknown operation");
    return false;
  }
  ++stream.at;
  std::array<std::uint64_t, 3> arguments{};
  for (std::size_t i = 0; i < *count; ++i) {
    const auto value = number(stream);
    if (!value) {
      finish(stream, "the operations of a thread end early");
      return false;
    }
    arguments[i] = *value;
  }
  const auto [first, second, third] = arguments;
  switch (operation) {
    case wl::kDone:
      finish(stream, nullptr);
      return false;
    case wl::kSyncWrite:
      on_sync_write(first);
      return true;
    case wl::kSyncRead:
      if (first >= synced_.size() || !synced_[first]) {
        stream.waits_for = first;
        return false;
      }
      return true;
    case wl::kMalloc:
      on_alloc(stream, {.kind = Kind::kMalloc, .size = second}, first);
      return true;
    case wl::kCalloc:
      on_alloc(stream, {.kind = Kind::kCalloc, .size = second}, first);
      return true;
    case wl::kValloc:
    case wl::kPvalloc: {
      const std::uint64_t page = header_.page_size;
      const bool whole_pages = operation == wl::kPvalloc && second <= kMaxBytes;
      const std::uint64_t size = whole_pages ? (second + page - 1) / page * page : second;
      on_alloc(stream, {.kind = Kind::kAligned, .size = size, .alignment = page}, first);
      return true;
    }
    case wl::kMemalign:
    case wl::kPosixMemalign:
      on_alloc(stream, {.kind = Kind::kAligned, .size = third, .alignment = second}, first);
      return true;
    case wl::kRealloc:
      on_realloc(stream, first, second, third);
      return true;
    case wl::kFree:
      on_free(stream, first);
      return true;
    default:
      return true;  // kNop
  }
}

// Marks a sync as written and wakes the threads that wait for it. Ignores a number above the size
// of the file, which only a damaged file has and whose table would be too large.
void WlSource::on_sync_write(std::uint64_t sync) {
  if (sync >= file_.size()) {
    return;
  }
  if (sync >= synced_.size()) {
    synced_.resize(static_cast<std::size_t>(sync + sync / 2 + 64));
  }
  synced_[sync] = true;
  for (auto waiter = waiters_.find(sync); waiter != waiters_.end(); waiter = waiters_.find(sync)) {
    wake(waiter->second);
  }
}

}  // namespace

std::unique_ptr<EventSource> open_wl(const std::string& path, std::string& error) {
  auto source = std::make_unique<WlSource>();
  if (!source->open(path, error)) {
    return nullptr;
  }
  return source;
}

}  // namespace heapwright::trace
