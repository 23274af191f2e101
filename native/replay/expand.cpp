// The second pass: events become operations, an epoch at a time.
#include "expand.h"

#include <algorithm>
#include <vector>

#include "drift.h"
#include "ops.h"
#include "slots.h"
#include "streams.h"
#include "survey.h"
#include "trace/live_table.h"

namespace heapwright::replay {
namespace {

using trace::Event;
using trace::Kind;

// An epoch ends after so many events, or where its threads could have so many bytes at once: no peak can be wrong by more. The
// bytes are a share of the peak.
constexpr std::uint64_t kEpochBytes = 64 << 10;
constexpr std::uint64_t kEpochShare = 256;
constexpr std::uint64_t kReadings = 500;  // of resident memory, over the trace

class Expander {
 public:
  Expander(Survey facts, Expanded& done)
      : facts_(std::move(facts)), done_(done), threads_(facts_.threads.size()) {
    epoch_bytes_ = std::max(kEpochBytes, facts_.peak_live_bytes / kEpochShare);
    tick_ = std::max<std::uint64_t>(facts_.duration / kReadings, 1);
    next_tick_ = tick_;
    plans_.resize(std::max<std::size_t>(threads_.size(), 1));
  }

  bool run(trace::EventSource& source, const std::string& path) {
    if (!file_.create(path, plans_.size(), plans_.size())) {
      return false;
    }
    threads_.resize(plans_.size());
    facts_.threads.resize(plans_.size());
    start(0, kNobody);
    drift_ = Drift(threads_.size());
    const auto size_of = [this](std::uint64_t object) {
      const Object* const live = live_.find(object);
      return live == nullptr ? 0 : live->size;
    };
    for (Event event; source.next(event);) {
      // A second reading of a file that has grown meanwhile: what the survey has not seen is not there.
      if (event.thread >= threads_.size() ||
          (is_allocation(event.kind) && event.object >= facts_.used.size())) {
        break;
      }
      if (event.time >= next_tick_ && !sample(event)) {
        return false;
      }
      pending_.push_back(event);
      if (threads_.size() > 1) {
        drift_.add(event, size_of);
      }
      if ((pending_.size() >= kEpochEvents || drift_.most() >= epoch_bytes_) && !flush()) {
        return false;
      }
    }
    return flush() && finish();
  }
  const std::string& error() const { return error_.empty() ? file_.error() : error_; }

 private:
  struct Object {
    std::uint64_t size = 0;
    std::uint64_t touched = 0;  // bytes so far
    std::uint32_t slot = 0;
    bool shared = false;
  };
  // A lane whose thread has ended in this epoch, and who waited for that.
  struct Left {
    std::uint32_t lane;
    std::uint32_t by;
  };
  struct Thread {
    Stream stream;
    bool started = false;
    bool ended = false;
    std::uint64_t in_epoch = 0;  // the last flush it had a part in
  };

  Stream& stream(std::uint32_t thread) { return threads_[thread].stream; }

  // Gives a thread its stream and a lane; `by` is to start it.
  void start(std::uint32_t thread, std::uint32_t by) {
    threads_[thread].started = true;
    plans_[thread] = {threads_[thread].stream.begin(file_), lane_for(by),
                      facts_.threads[thread].ends ? 1U : 0U, 1};
  }

  // A lane that is free for a thread that `by` starts. Within an epoch only who waited for its last thread knows that it is: for
  // anybody else it may have another thread still to come, and both would wait for ever.
  std::uint32_t lane_for(std::uint32_t by) {
    const auto own = std::find_if(left_.rbegin(), left_.rend(), [by](const Left& l) { return l.by == by; });
    std::uint32_t lane = static_cast<std::uint32_t>(lanes_.size());
    if (own != left_.rend()) {
      lane = own->lane;
      left_.erase(std::next(own).base());
    } else if (!free_lanes_.empty()) {
      lane = free_lanes_.back();
      free_lanes_.pop_back();
    } else {
      lanes_.emplace_back(1);  // slot 0 takes what is never used again
    }
    return lane;
  }

  bool there(std::uint32_t thread, std::uint64_t number) const {
    const ThreadFacts& facts = facts_.threads[thread];
    return threads_[thread].started && !(facts.ends && number > facts.last);
  }

  // Who starts the thread of event `number`: who had the event before, if it is still there; else the first thread, which always is.
  std::uint32_t starter(std::uint64_t number) const { return there(previous_, number) ? previous_ : 0; }

  bool take_part(std::uint32_t thread) {
    if (threads_[thread].in_epoch != flushes_) {
      threads_[thread].in_epoch = flushes_;
      parts_.push_back(thread);
    }
    return true;
  }

  // An epoch: first who has a part in it, then its events.
  bool flush() {
    flushes_++;
    parts_.clear();
    const std::uint32_t before = previous_;
    std::uint64_t number = number_;
    std::vector<std::uint32_t> starting;
    for (const Event& event : pending_) {
      if (!threads_[event.thread].started) {
        take_part(starter(number));
        threads_[event.thread].started = true;  // for the look ahead only
        starting.push_back(event.thread);
      }
      take_part(event.thread);
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
    for (const Left& left : left_) {
      free_lanes_.push_back(left.lane);
    }
    left_.clear();
    for (const Event& event : pending_) {
      if (!emit(event)) {
        return false;
      }
      previous_ = event.thread;
      number_++;
    }
    pending_.clear();
    drift_.clear();
    return true;
  }

  // Tells all that have a part in the next epoch; one thread that is alone goes on in the epoch it is alone in.
  bool begin_epoch() {
    if (parts_.empty() || (parts_.size() == 1 && alone_ == parts_[0])) {
      return true;
    }
    alone_ = parts_.size() == 1 ? parts_[0] : kNobody;
    for (const std::uint32_t thread : parts_) {
      if (!stream(thread).room(file_)) {
        return false;
      }
      stream(thread).put(word(kEpoch, parts_.size(), static_cast<std::uint32_t>(done_.epochs)));
    }
    done_.epochs++;
    return true;
  }

  // A reading of resident memory before an event, when all that was before has been done and nothing after: its own epoch.
  bool sample(const Event& event) {
    if (!flush()) {
      return false;
    }
    const std::uint32_t by = threads_[event.thread].started ? event.thread : starter(number_);
    parts_.assign(1, by);
    if (!begin_epoch() || !stream(by).room(file_)) {
      return false;
    }
    stream(by).put(long_word(kSample, event.time - sampled_));
    readings_++;
    sampled_ = event.time;
    next_tick_ = event.time + tick_;
    return true;
  }

  bool emit(const Event& event) {
    Thread& thread = threads_[event.thread];
    if (!thread.started && !spawn(event.thread)) {
      return false;
    }
    if (!thread.stream.room(file_)) {
      return false;
    }
    put(event);
    const ThreadFacts& facts = facts_.threads[event.thread];
    if (facts.ends && facts.last == number_) {
      thread.stream.put(word(kEnd, 0, 1));
      thread.ended = true;
      to_join_.push_back(event.thread);
      return thread.stream.close(file_);
    }
    if (slots_full_) {
      error_ = "more than 2^28 objects are live at once: too many to replay";
    }
    return !slots_full_;
  }

  // Before a thread is started those that have ended are waited for, so that what they leave (an arena, a heap) can be taken over.
  bool spawn(std::uint32_t thread) {
    const std::uint32_t by = starter(number_);
    for (const std::uint32_t ended : to_join_) {
      if (!stream(by).room(file_)) {
        return false;
      }
      stream(by).put(word(kJoin, 0, ended));
      left_.push_back({plans_[ended].lane, by});
    }
    to_join_.clear();
    start(thread, by);
    if (!stream(by).room(file_)) {
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
        on_use(event);
        break;
      default:
        break;  // thread ends are told by the survey; forks, marks and readings are not replayed
    }
  }

  // What stands before an operation.
  void before(Stream& to, const Object& object, std::uint64_t size, std::uint64_t limit) {
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

  std::uint64_t limit_of(std::uint64_t object) const {
    const auto found = facts_.touched.find(object);
    return found == facts_.touched.end() ? ~std::uint64_t{0} >> 4 : found->second;
  }

  void on_alloc(const Event& event) {
    if (live_.find(event.object) != nullptr) {
      done_.dropped++;
      return;
    }
    Stream& to = stream(event.thread);
    Slots& own = lanes_[plans_[event.thread].lane];
    Object object{event.size, 0, 0, facts_.crossing[event.object]};
    if (object.shared) {
      object.slot = static_cast<std::uint32_t>(shared_.take());
      turns_.resize(shared_.top());
    } else if (facts_.used[event.object]) {
      object.slot = static_cast<std::uint32_t>(own.take());
    }
    slots_full_ = slots_full_ || object.slot >= kMaxSlots;
    const std::uint64_t limit = limit_of(event.object);
    object.touched = std::min(event.size, limit);
    before(to, object, event.size, limit);
    const Op op = event.kind == Kind::kMalloc ? kMalloc : event.kind == Kind::kCalloc ? kCalloc : kAligned;
    to.put(word(op, object.slot, event.size & UINT32_MAX));
    if (op == kAligned) {
      to.put(event.alignment);
    }
    if (facts_.used[event.object]) {
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
    if (event.kind == Kind::kRealloc) {
      const std::uint64_t limit = limit_of(event.object);
      before(to, *object, event.size, limit);
      to.put(word(kRealloc, object->slot, event.size & UINT32_MAX));
      to.put(std::min(object->touched, event.size));
      object->touched = std::min(event.size, limit);
      object->size = event.size;
      return;
    }
    const std::uint64_t size = event.kind == Kind::kFreeSized ? event.size : 0;
    before(to, *object, size, ~std::uint64_t{0});
    const Op op = event.kind == Kind::kFree ? kFree : event.kind == Kind::kFreeSized ? kFreeSized : kUsable;
    to.put(word(op, object->slot, size & UINT32_MAX));
    if (is_free(event.kind)) {
      if (object->shared) {
        shared_.give(object->slot);
      } else {
        lanes_[plans_[event.thread].lane].give(object->slot);
      }
      live_.erase(event.object);
    }
  }

  bool finish() {
    for (Thread& thread : threads_) {
      if (thread.started && !thread.ended) {
        if (!thread.stream.room(file_)) {
          return false;
        }
        thread.stream.put(word(kEnd, 0, 0));
        if (!thread.stream.close(file_)) {
          return false;
        }
      }
    }
    std::vector<LanePlan> lanes;
    for (const Slots& slots : lanes_) {
      lanes.push_back({slots.top()});
      done_.own_slots += slots.top();
    }
    done_.threads = plans_.size();
    done_.lanes = lanes.size();
    done_.shared_slots = shared_.top();
    done_.peak_live_bytes = facts_.peak_live_bytes;
    done_.duration = facts_.duration;
    Plan plan;
    plan.shared_slots = shared_.top();
    plan.events = done_.events;
    plan.readings = readings_;
    plan.last_stretch = facts_.duration - std::min(facts_.duration, sampled_);
    return file_.finish(plan, plans_, lanes);
  }

  static constexpr std::uint32_t kNobody = ~std::uint32_t{0};

  Survey facts_;
  Expanded& done_;
  OpsFile file_;
  std::vector<Thread> threads_;
  std::vector<ThreadPlan> plans_;
  std::vector<Slots> lanes_;
  std::vector<std::uint32_t> free_lanes_;  // for whoever starts a thread
  std::vector<Left> left_;
  std::vector<std::uint32_t> to_join_;
  SharedSlots shared_;
  std::vector<std::uint32_t> turns_;
  trace::LiveTable<Object> live_;
  std::vector<Event> pending_;
  Drift drift_{0};  // of what is pending
  std::vector<std::uint32_t> parts_;
  std::uint64_t epoch_bytes_ = 0;
  std::uint64_t flushes_ = 0;
  std::uint64_t number_ = 0;  // of the event being emitted
  std::uint32_t previous_ = 0;
  std::uint32_t alone_ = kNobody;
  std::uint64_t tick_ = 1;
  std::uint64_t next_tick_ = 0;
  std::uint64_t sampled_ = 0;
  std::uint64_t readings_ = 0;
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
  done.libraries = source->header().libraries;
  source = open(error);
  if (!source) {
    return false;
  }
  Expander expander(std::move(facts), done);
  if (!expander.run(*source, path)) {
    error = expander.error();
    return false;
  }
  return true;
}

}  // namespace heapwright::replay
