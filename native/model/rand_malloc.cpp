#include "rand_malloc.h"

#include <algorithm>
#include <queue>

#include "cohort.h"
#include "layout.h"
#include "synth.h"
#include "trace/live_table.h"

namespace heapwright::model {

using trace::Event;
using trace::Kind;

bool fit_rand_malloc(const Opener& open, RandMallocModel& model, trace::Loss& loss, std::string& error) {
  const auto first = open();
  if (!first) {
    error = "the trace cannot be read";
    return false;
  }
  FitOptions options;
  options.script = 0;
  Layout layout(*first, options);
  loss = first->loss();
  const auto second = open();
  if (layout.ticks() == 0 || !second) {
    error = second ? "the trace has no allocation, so there is nothing to fit"
                   : "the trace cannot be read a second time";
    return false;
  }
  struct Sum {
    double bytes = 0;
    double life = 0;
    std::uint64_t count = 0;
  };
  struct Born {
    std::uint64_t tick = 0;
    std::uint64_t size = 0;
  };
  std::vector<Sum> sums(layout.classes().size());
  trace::LiveTable<Born> born;
  std::uint64_t ticks = 0;
  const auto end = [&](const Born& block) {
    Sum& sum = sums[layout.class_of(block.size)];
    sum.bytes += static_cast<double>(block.size);
    sum.life += static_cast<double>(ticks - block.tick - 1);
    ++sum.count;
  };
  Event event;
  while (second->next(event)) {
    ++model.events;
    Born* known = is_free(event.kind) || event.kind == Kind::kRealloc ? born.find(event.object) : nullptr;
    if (known != nullptr) {
      end(*known);
      born.erase(event.object);
    }
    if (is_allocation(event.kind) || (event.kind == Kind::kRealloc && known != nullptr)) {
      model.allocations += is_allocation(event.kind) ? 1 : 0;
      born.insert(event.object, {ticks++, event.size});
    }
  }
  born.each([&](std::uint64_t /*object*/, const Born& block) { end(block); });
  for (const Sum& sum : sums) {
    if (sum.count > 0) {
      const auto count = static_cast<double>(sum.count);
      model.classes.push_back({whole(sum.bytes / count), sum.count, whole(sum.life / count)});
    }
  }
  model.ticks = ticks;
  model.nanoseconds = layout.statistics().duration;
  model.peak_live = layout.statistics().peak_live;
  return true;
}

namespace {

class RandMallocSource : public trace::EventSource {
 public:
  RandMallocSource(RandMallocModel model, std::uint64_t seed)
      : classes_(std::move(model.classes)),
        rng_(seed * 2 + 1),
        length_(static_cast<double>(model.nanoseconds)) {
    header_.synthetic = true;
    header_.allocator = "none: made from a model";
    for (std::uint32_t c = 0; c < classes_.size(); ++c) {
      ticks_ += classes_[c].count;
      if (classes_[c].count > 0) {
        turns_.push({rng_.uniform() / static_cast<double>(classes_[c].count), c});
      }
    }
  }

  const trace::Header& header() const override { return header_; }
  trace::Loss loss() const override { return {}; }

  bool next(Event& event) override {
    event = Event{};
    event.time = static_cast<std::uint64_t>(length_ * static_cast<double>(tick_) /
                                            static_cast<double>(std::max<std::uint64_t>(1, ticks_)));
    if (!ends_.empty() && ends_.top().first <= tick_) {
      event.kind = Kind::kFree;
      event.object = ends_.top().second;
      ends_.pop();
      return true;
    }
    if (turns_.empty()) {
      return false;
    }
    auto [at, c] = turns_.top();
    turns_.pop();
    const MeanClass& mean = classes_[c];
    // The allocations of each class are at equal distances.
    at += 1 / static_cast<double>(mean.count);
    if (at < 1) {
      turns_.push({at, c});
    }
    double sum = 0;
    for (int i = 0; i < 5; ++i) {
      sum += rng_.uniform();
    }
    const auto lifetime = whole(static_cast<double>(mean.lifetime) * sum / 2.5);
    event.kind = Kind::kMalloc;
    event.object = tick_;
    event.size = mean.size;
    ++tick_;
    if (tick_ + lifetime < ticks_) {
      ends_.push({tick_ + lifetime, event.object});
    }
    return true;
  }

 private:
  std::vector<MeanClass> classes_;
  trace::Header header_;
  Rng rng_;
  double length_;
  std::uint64_t ticks_ = 0;
  std::uint64_t tick_ = 0;
  using Turn = std::pair<double, std::uint32_t>;
  using End = std::pair<std::uint64_t, std::uint64_t>;  // tick, object
  std::priority_queue<Turn, std::vector<Turn>, std::greater<>> turns_;
  std::priority_queue<End, std::vector<End>, std::greater<>> ends_;
};

}  // namespace

std::unique_ptr<trace::EventSource> make_rand_malloc_source(RandMallocModel model, std::uint64_t seed) {
  return std::make_unique<RandMallocSource>(std::move(model), seed);
}

}  // namespace heapwright::model
