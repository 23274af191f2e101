// Makes the second pass over a trace for replay: turns events into operations, epoch by epoch.
#include "expand.h"

#include <algorithm>
#include <deque>
#include <utility>
#include <vector>

#include "epoch_growth.h"
#include "lanes.h"
#include "ops.h"
#include "recorded_clock.h"
#include "slots.h"
#include "streams.h"
#include "survey.h"
#include "trace/live_table.h"

namespace heapwright::replay {
namespace {

using trace::Event;
using trace::Kind;

// An epoch ends after kEpochEvents events, or when its threads could together grow by this many
// bytes: max(kEpochBytes, peak / kEpochShare). The peak of a replay is wrong by at most that much.
constexpr std::uint64_t kEpochBytes = 64 << 10;
constexpr std::uint64_t kEpochShare = 256;
// A thread that ends gives its caches back to the allocator after its last event. If the next event
// of another thread is so many nanoseconds later, it waits for that.
constexpr std::uint64_t kThreadExit = 50'000;

class Expander {
 public:
  Expander(Survey facts, Expanded& done)
      : survey_(std::move(facts)), done_(done), threads_(survey_.threads.size()), clock_(survey_.duration) {
    epoch_bytes_ = std::max(kEpochBytes, survey_.peak_live_bytes / kEpochShare);
    entries_.resize(std::max<std::size_t>(threads_.size(), 1));
  }

  bool run(trace::EventSource& source, const std::string& path) {
    if (!file_.create(path, entries_.size(), entries_.size())) {
      return false;
    }
    threads_.resize(entries_.size());
    survey_.threads.resize(entries_.size());
    start(0, kNoThread);
    growth_ = EpochGrowth(threads_.size());
    const auto size_of = [this](std::uint64_t object) {
      const Object* const live = live_.find(object);
      return live == nullptr ? 0 : live->size;
    };
    for (Event event; source.next(event);) {
      // A file may have grown between the two passes. Ignore events that the survey has not seen.
      if (event.thread >= threads_.size() ||
          (is_allocation(event.kind) && event.object >= survey_.used.size())) {
        break;
      }
      if (clock_.reading_due(event.time) && !put_reading(event)) {
        return false;
      }
      pending_.push_back(event);
      if (threads_.size() > 1) {
        growth_.add(event, size_of);
      }
      if ((pending_.size() >= kEpochEvents || growth_.max_bytes() >= epoch_bytes_) && !write_epoch()) {
        return false;
      }
    }
    return write_epoch() && finish();
  }
  const std::string& error() const { return error_.empty() ? file_.error() : error_; }

 private:
  struct Object {
    std::uint64_t size = 0;
    std::uint64_t touched = 0;  // bytes touched so far
    std::uint32_t step = 0;     // the next of survey_.steps
    std::uint32_t slot = 0;
    bool shared = false;
    bool aligned = false;
  };
  struct EndedThread {
    std::uint32_t thread;
    std::uint64_t at;  // recorded nanoseconds
  };
  struct Thread {
    Stream stream;
    bool started = false;
    bool ended = false;
    std::uint64_t in_epoch = 0;  // value of epochs_tried_ when it last took part
  };

  Stream& stream(std::uint32_t thread) { return threads_[thread].stream; }

  // Gives a thread its stream and a lane. `by` is the thread that starts it.
  void start(std::uint32_t thread, std::uint32_t by) {
    threads_[thread].started = true;
    entries_[thread] = {threads_[thread].stream.begin(file_), lanes_.take(by),
                        survey_.threads[thread].ends ? 1U : 0U, 1};
  }

  bool is_running(std::uint32_t thread, std::uint64_t number) const {
    const ThreadFacts& facts = survey_.threads[thread];
    return threads_[thread].started && !(facts.ends && number > facts.last);
  }

  // Whether the event is the creation of a thread that is to be started here.
  bool creates(const Event& event) const {
    return event.kind == Kind::kSpawn && event.value < threads_.size() && survey_.threads[event.value].runs &&
           !threads_[event.value].started;
  }

  // Returns the thread that starts the thread of event `number` if no event says that: the thread
  // of the previous event, or the first thread if that one has ended. The first thread never ends
  // before the trace.
  std::uint32_t starter(std::uint64_t number) const { return is_running(previous_, number) ? previous_ : 0; }

  void add_participant(std::uint32_t thread) {
    if (threads_[thread].in_epoch != epochs_tried_) {
      threads_[thread].in_epoch = epochs_tried_;
      participants_.push_back(thread);
    }
  }

  // Writes the pending events as one epoch: finds its participants first, then writes the
  // operations.
  bool write_epoch() {
    epochs_tried_++;
    participants_.clear();
    const std::uint32_t before = previous_;
    std::uint64_t number = number_;
    std::vector<std::uint32_t> starting;
    for (const Event& event : pending_) {
      if (!threads_[event.thread].started) {
        add_participant(starter(number));
        threads_[event.thread].started = true;  // only while the participants are found
        starting.push_back(event.thread);
      }
      add_participant(event.thread);
      if (creates(event)) {
        threads_[event.value].started = true;
        starting.push_back(static_cast<std::uint32_t>(event.value));
      }
      previous_ = event.thread;
      number++;
    }
    for (const std::uint32_t thread : starting) {
      threads_[thread].started = false;
    }
    previous_ = before;
    if (!begin_epoch()) {
      return false;
    }
    lanes_.begin_epoch();
    for (const Event& event : pending_) {
      if (!emit(event)) {
        return false;
      }
      previous_ = event.thread;
      number_++;
    }
    pending_.clear();
    growth_.clear();
    return true;
  }

  // Writes kEpoch into the streams of all participants. A sole participant continues its epoch if
  // it was the sole one there.
  bool begin_epoch() {
    if (participants_.empty() || (participants_.size() == 1 && sole_thread_ == participants_[0])) {
      return true;
    }
    sole_thread_ = participants_.size() == 1 ? participants_[0] : kNoThread;
    for (const std::uint32_t thread : participants_) {
      if (!stream(thread).make_room(file_)) {
        return false;
      }
      stream(thread).put(word(kEpoch, participants_.size(), static_cast<std::uint32_t>(done_.epochs)));
    }
    done_.epochs++;
    return true;
  }

  // Writes a reading of resident memory before an event. The reading is an epoch of its own, so all
  // earlier operations are done and no later one has begun.
  bool put_reading(const Event& event) {
    if (!write_epoch()) {
      return false;
    }
    const std::uint32_t by = threads_[event.thread].started ? event.thread : starter(number_);
    participants_.assign(1, by);
    if (!begin_epoch() || !join_ended(by, event.time) || !stream(by).make_room(file_)) {
      return false;
    }
    stream(by).put(clock_.reading(event.time));
    return true;
  }

  bool emit(const Event& event) {
    Thread& thread = threads_[event.thread];
    if (!thread.started && !spawn(event.thread, starter(number_))) {
      return false;
    }
    if (!join_ended(event.thread, event.time) || !thread.stream.make_room(file_)) {
      return false;
    }
    if (clock_.step_due(event.time)) {
      thread.stream.put(clock_.step(event.time));
    }
    if (!creates(event)) {
      put(event);
    } else if (!spawn(static_cast<std::uint32_t>(event.value), event.thread)) {
      return false;
    }
    const ThreadFacts& facts = survey_.threads[event.thread];
    if (facts.ends && facts.last == number_) {
      thread.stream.put(kStreamEnd);
      thread.ended = true;
      to_join_.push_back({event.thread, event.time});
      return thread.stream.close(file_);
    }
    if (slots_full_) {
      error_ = "more than 2^28 objects are live at once: too many to replay";
    }
    return !slots_full_;
  }

  // Writes kJoin for the threads that ended kThreadExit before `now`. Thread `by` waits for them.
  bool join_ended(std::uint32_t by, std::uint64_t now) {
    while (!to_join_.empty() && now - std::min(now, to_join_.front().at) >= kThreadExit) {
      if (!stream(by).make_room(file_)) {
        return false;
      }
      stream(by).put(word(kJoin, 0, to_join_.front().thread));
      lanes_.give(entries_[to_join_.front().thread].lane, by);
      to_join_.pop_front();
    }
    return true;
  }

  // Writes kSpawn for a thread, which thread `by` starts. First it writes kJoin for all threads
  // that have ended, so that the new thread can take over their arena or heap in the allocator.
  bool spawn(std::uint32_t thread, std::uint32_t by) {
    if (!join_ended(by, ~std::uint64_t{0})) {
      return false;
    }
    start(thread, by);
    if (!stream(by).make_room(file_)) {
      return false;
    }
    stream(by).put(word(kSpawn, 0, thread));
    return true;
  }

  void put(const Event& event) {
    switch (event.kind) {
      case Kind::kMalloc:
      case Kind::kCalloc:
      case Kind::kAligned:
        on_alloc(event);
        break;
      case Kind::kRealloc:
      case Kind::kFree:
      case Kind::kFreeSized:
      case Kind::kUsableSize:
      case Kind::kTouchedSoFar:
        on_use(event);
        break;
      default:
        break;  // ends of threads come from the survey; forks, phase marks and recorded readings are not replayed
    }
  }

  // Writes the prefixes of a call that asks for `size` bytes and touches at most `limit` of them.
  void put_prefixes(Stream& to, const Object& object, std::uint64_t size, std::uint64_t limit) {
    if (object.shared) {
      to.put(word(kShared, 0, turns_[object.slot]++));
    }
    if (size >> 32 != 0) {
      to.put(word(kWide, 0, size >> 32));
    }
    if (limit < size) {
      to.put(long_word(kTouch, limit));
    }
    done_.events++;
  }

  // Touches the part of a block that the program touched before its next observation.
  void put_fill(Stream& to, Object& object, std::uint64_t limit) {
    const std::uint64_t end = std::min(limit, object.size);
    if (end <= object.touched) {
      return;
    }
    if (object.shared) {
      to.put(word(kShared, 0, turns_[object.slot]++));
    }
    to.put(word(kFill, object.slot, 0));
    to.put(std::exchange(object.touched, end));
    to.put(end);
  }

  void on_alloc(const Event& event) {
    if (live_.find(event.object) != nullptr) {
      done_.dropped++;
      return;
    }
    Stream& to = stream(event.thread);
    const bool pool = survey_.has_exception_pool && event.object == 0;
    const bool plain = event.kind == Kind::kMalloc && !pool;
    const Op op = plain ? kMalloc : event.kind == Kind::kCalloc ? kCalloc : kAligned;
    Object object{event.size, 0, 0, 0, survey_.crossing[event.object], op == kAligned};
    if (object.shared) {
      object.slot = static_cast<std::uint32_t>(shared_.take());
      turns_.resize(shared_.top());
    } else if (survey_.used[event.object]) {
      object.slot = static_cast<std::uint32_t>(lanes_.slots(entries_[event.thread].lane).take());
    }
    slots_full_ = slots_full_ || object.slot >= kMaxSlots;
    const std::uint64_t limit = survey_.touched_until(event.object, object.step);
    object.touched = std::min(event.size, limit);
    put_prefixes(to, object, event.size, limit);
    to.put(word(op, object.slot, event.size & UINT32_MAX));
    if (op == kAligned) {
      to.put(pool ? 0 : std::max<Word>(event.alignment, 1));
    }
    if (survey_.used[event.object]) {
      live_.insert(event.object, object);
    }
  }

  void on_use(const Event& event) {
    Object* object = live_.find(event.object);
    if (object == nullptr) {
      done_.dropped++;
      return;
    }
    Stream& to = stream(event.thread);
    if (event.kind == Kind::kTouchedSoFar) {
      put_fill(to, *object, survey_.touched_until(event.object, object->step));
      return;
    }
    if (event.kind == Kind::kRealloc) {
      const std::uint64_t limit = survey_.touched_in_all(event.object);
      put_prefixes(to, *object, event.size, limit);
      to.put(word(kRealloc, object->slot, event.size & UINT32_MAX));
      to.put(std::min(object->touched, event.size));
      object->touched = std::min(event.size, limit);
      object->size = event.size;
      return;
    }
    // A wrong size, or a right one without the alignment, corrupts allocators that trust the size.
    const bool sized = event.kind == Kind::kFreeSized && event.size == object->size && !object->aligned;
    const std::uint64_t size = sized ? event.size : 0;
    put_prefixes(to, *object, size, ~std::uint64_t{0});
    const Op op = sized ? kFreeSized : event.kind == Kind::kUsableSize ? kUsable : kFree;
    to.put(word(op, object->slot, size & UINT32_MAX));
    if (is_free(event.kind)) {
      if (object->shared) {
        shared_.give(object->slot);
      } else {
        lanes_.slots(entries_[event.thread].lane).give(object->slot);
      }
      live_.erase(event.object);
    }
  }

  bool finish() {
    if (!to_join_.empty()) {
      participants_.assign(1, 0);  // the first thread waits in an epoch after theirs
      if (!begin_epoch() || !join_ended(0, ~std::uint64_t{0})) {
        return false;
      }
    }
    for (Thread& thread : threads_) {
      if (thread.started && !thread.ended) {
        if (!thread.stream.make_room(file_)) {
          return false;
        }
        thread.stream.put(kStreamEnd);
        if (!thread.stream.close(file_)) {
          return false;
        }
      }
    }
    std::vector<LaneEntry> lanes;
    for (const Slots& slots : lanes_.all()) {
      lanes.push_back({slots.top()});
      done_.own_slots += slots.top();
    }
    done_.threads = entries_.size();
    done_.lanes = lanes.size();
    done_.shared_slots = shared_.top();
    done_.peak_live_bytes = survey_.peak_live_bytes;
    done_.duration = survey_.duration;
    OpsHeader header;
    header.shared_slots = shared_.top();
    header.events = done_.events;
    header.readings = clock_.readings();
    header.last_stretch = survey_.duration - std::min(survey_.duration, clock_.last_reading());
    return file_.finish(header, entries_, lanes);
  }

  static constexpr std::uint32_t kNoThread = ~std::uint32_t{0};

  Survey survey_;
  Expanded& done_;
  OpsFile file_;
  std::vector<Thread> threads_;
  RecordedClock clock_;
  std::vector<ThreadEntry> entries_;
  Lanes lanes_;
  std::deque<EndedThread> to_join_;
  SharedSlots shared_;
  std::vector<std::uint32_t> turns_;
  trace::LiveTable<Object> live_;
  std::vector<Event> pending_;
  EpochGrowth growth_{0};  // of the pending events
  std::vector<std::uint32_t> participants_;
  std::uint64_t epoch_bytes_ = 0;
  std::uint64_t epochs_tried_ = 0;         // calls of write_epoch()
  std::uint64_t number_ = 0;               // of the event being emitted
  std::uint32_t previous_ = 0;             // thread of the event before it
  std::uint32_t sole_thread_ = kNoThread;  // of the current epoch, if only one takes part
  bool slots_full_ = false;
  std::string error_;
};

}  // namespace

bool expand(const Opener& open, const std::string& path, Expanded& done, std::string& error) {
  auto source = open(error);
  if (!source) {
    return false;
  }
  Survey facts = survey(*source);
  done.loss = source->loss();
  done.executable = source->header().executable;
  done.allocator = source->header().allocator;
  done.libraries = source->header().libraries;
  source = open(error);
  if (!source) {
    return false;
  }
  Expander expander(std::move(facts), done);
  const bool written = expander.run(*source, path);
  error = written ? error : expander.error();
  return written;
}

}  // namespace heapwright::replay
