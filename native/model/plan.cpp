#include "plan.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <stdexcept>

namespace heapwright::model {

namespace {

constexpr std::uint64_t kMaxCount = std::uint64_t{1} << 48;  // of anything: enough, and sums do not overflow
constexpr std::uint64_t kMaxItems = std::uint64_t{1} << 22;  // in a list

class Numbers {
 public:
  explicit Numbers(std::FILE* file) : file_(file) {}
  std::string word() {
    std::array<char, 64> text{};
    if (std::fscanf(file_, "%63s", text.data()) != 1) {
      throw std::runtime_error("it ends early");
    }
    return text.data();
  }
  std::uint64_t next(std::uint64_t most = kMaxCount) {
    const std::string text = word();
    if (text == "-1") {
      return most == kMaxCount ? kNever : throw std::runtime_error("-1 stands where a count must be");
    }
    std::uint64_t value = 0;
    for (const char c : text) {
      if (c < '0' || c > '9' || value > kMaxCount) {
        throw std::runtime_error("'" + text + "' is no whole number that can be meant");
      }
      value = value * 10 + static_cast<std::uint64_t>(c - '0');
    }
    if (value > most) {
      throw std::runtime_error(text + " is too large");
    }
    return value;
  }
  std::uint64_t count() {
    const std::uint64_t value = next();
    return value == kNever ? throw std::runtime_error("-1 stands where a count must be") : value;
  }
  std::uint32_t below(std::uint64_t limit, const char* what) {
    const std::uint64_t value = count();
    if (value >= limit) {
      throw std::runtime_error(std::string("there is no ") + what + " " + std::to_string(value));
    }
    return static_cast<std::uint32_t>(value);
  }
  std::vector<std::uint64_t> list() {
    std::vector<std::uint64_t> found(static_cast<std::size_t>(next(kMaxItems)));
    for (std::uint64_t& value : found) {
      value = next();
    }
    return found;
  }

 private:
  std::FILE* file_;
};

// Numbers of a list, taken off its front.
class Taken {
 public:
  explicit Taken(std::vector<std::uint64_t> list) : list_(std::move(list)) {}
  bool empty() const { return at_ == list_.size(); }
  std::uint64_t raw() { return empty() ? throw std::runtime_error("a list ends early") : list_[at_++]; }
  std::uint64_t next() {
    const std::uint64_t value = raw();
    return value == kNever ? throw std::runtime_error("-1 stands where a count must be") : value;
  }
  std::uint32_t below(std::uint64_t limit, const char* what) {
    const std::uint64_t value = next();
    if (value >= limit) {
      throw std::runtime_error(std::string("there is no ") + what + " " + std::to_string(value));
    }
    return static_cast<std::uint32_t>(value);
  }

 private:
  std::vector<std::uint64_t> list_;
  std::size_t at_ = 0;
};

bool power_of_two(std::uint64_t n) { return n != 0 && (n & (n - 1)) == 0; }

SizeClass read_class(Numbers& in, std::uint32_t threads) {
  SizeClass c;
  for (std::uint64_t n = in.next(1024); n > 0; --n) {
    const std::uint64_t size = in.count();
    c.sizes.emplace_back(size, in.count());
  }
  std::uint64_t sum = 0;
  for (const auto& [size, count] : c.sizes) {
    sum += count;
  }
  if (sum == 0) {
    throw std::runtime_error("a class has no size");
  }
  c.callocs = in.count();
  for (std::uint64_t n = in.next(64); n > 0; --n) {
    const std::uint64_t alignment = in.count();
    c.alignments.emplace_back(alignment, in.count());
    if (!power_of_two(alignment)) {
      throw std::runtime_error("an alignment is no power of two");
    }
  }
  c.in_order = in.next(1000);
  c.in_reverse = in.next(1000);
  c.touched = in.next();
  for (std::uint64_t n = in.next(kLifeBins); n > 0; --n) {
    const std::uint32_t bin = in.below(kAsClass, "lifetime");
    const std::uint64_t count = in.count();
    c.brief.push_back({bin, count, in.next(1000)});
  }
  const auto by_thread = [&](auto& list) {
    for (std::uint64_t n = in.next(1024); n > 0; --n) {
      const std::uint32_t thread = in.below(threads, "thread");
      list.emplace_back(thread, in.count());
    }
  };
  by_thread(c.threads);
  if (c.threads.empty()) {
    throw std::runtime_error("a class has no thread");
  }
  c.group = group_of(c.threads.front().first);
  c.freed_own = in.count();
  by_thread(c.freed_by);
  return c;
}

// Whether the class knows lengths of a bin; without, its stays would have no end.
bool knows(const SizeClass& c, std::uint32_t bin) {
  return bin == kAsClass
             ? !c.brief.empty()
             : std::any_of(c.brief.begin(), c.brief.end(), [bin](const Lengths& l) { return l.bin == bin; });
}

Window read_window(Numbers& in, const std::vector<SizeClass>& kinds) {
  const std::size_t classes = kinds.size();
  Window w;
  w.ticks = in.count();
  w.nanoseconds = in.count();
  w.turns = in.count();
  Taken parts(in.list());
  while (!parts.empty()) {
    Part& part = w.parts[parts.below(kGroups + 1, "group")];
    part.brief_bursts = parts.next();
    part.old_bursts = parts.next();
    part.long_at = parts.below(1001, "thousandth");
    part.old_at = parts.below(1001, "thousandth");
    part.above = parts.next();
    part.below = parts.next();
  }
  w.rows.resize(classes);
  Taken rows(in.list());
  while (!rows.empty()) {
    const std::uint32_t kind = rows.below(classes, "class");
    Row& row = w.rows[kind];
    row.long_count = rows.next();
    row.long_bytes = rows.next();
    for (std::uint64_t n = rows.next(); n > 0; --n) {
      const std::uint32_t bin = rows.below(kLifeBins, "lifetime");
      row.brief[bin] = rows.next();
      if (row.brief[bin] > 0 && !knows(kinds[kind], bin)) {
        throw std::runtime_error("a window has stays of a length that their class has not");
      }
    }
    for (std::uint64_t n = rows.next(); n > 0; --n) {
      const std::uint32_t bin = rows.below(kAgeBins, "age");
      row.old[bin] = rows.next();
    }
  }
  Taken handed(in.list());
  while (!handed.empty()) {
    const std::uint32_t from = handed.below(kGroups, "group");
    Handed& all = w.handed[{from, handed.below(kGroups, "group")}];
    all.brief = handed.next();
    all.old = handed.next();
  }
  Taken resizes(in.list());
  while (!resizes.empty()) {
    const std::uint32_t from = resizes.below(classes, "class");
    const std::uint32_t to = resizes.below(classes, "class");
    w.resizes[{from, to}] = resizes.next();
  }
  return w;
}

void read_script(Taken list, Model& model) {
  using Begin = Scripted::Begin;
  using End = Scripted::End;
  while (!list.empty()) {
    Scripted s;
    s.tick = list.next();
    s.length = list.next();
    s.size = list.next();
    s.begin = static_cast<Begin>(list.below(5, "way to begin"));
    s.begin_with = list.next();
    s.end = static_cast<End>(list.below(4, "way to end"));
    s.end_with = list.next();
    s.thread = list.below(model.threads, "thread");
    s.end_thread = list.below(model.threads, "thread");
    s.touched = list.raw();
    if ((s.begin == Begin::kFromClass && s.begin_with >= model.classes.size()) ||
        (s.end == End::kIntoClass && s.end_with >= model.classes.size()) ||
        (s.begin == Begin::kFromScript && s.begin_with >= model.script.size()) ||
        (s.begin == Begin::kAligned && !power_of_two(s.begin_with)) ||
        (!model.script.empty() && s.tick < model.script.back().tick)) {
      throw std::runtime_error("the script contradicts itself");
    }
    model.script.push_back(s);
  }
}

void read_ends(Taken list, Model& model) {
  while (!list.empty()) {
    const std::uint32_t thread = list.below(model.threads, "thread");
    const std::uint32_t window = list.below(model.windows.size(), "window");
    if (!model.ends.empty() && window < model.ends.back().window) {
      throw std::runtime_error("ends of threads are not in order");
    }
    model.ends.push_back({thread, window, list.below(1001, "thousandth")});
  }
}

void read_windows(Numbers& in, Plan& plan) {
  Model& model = plan.model;
  model.ticks = in.count();
  model.nanoseconds = plan.nanoseconds = in.count();
  model.sized_frees = in.next(1000);
  model.threads = static_cast<std::uint32_t>(in.next(1024));
  if (model.threads == 0) {
    throw std::runtime_error("there is no thread");
  }
  for (std::uint64_t n = in.next(65536); n > 0; --n) {
    model.classes.push_back(read_class(in, model.threads));
  }
  for (std::uint64_t n = in.next(1 << 20); n > 0; --n) {
    model.windows.push_back(read_window(in, model.classes));
  }
  read_script(Taken(in.list()), model);
  read_ends(Taken(in.list()), model);
}

}  // namespace

bool read_plan(std::FILE* file, Plan& plan, std::string& error) {
  try {
    Numbers in(file);
    if (in.word() != "heapwright-plan" || in.word() != "2") {
      throw std::runtime_error("it does not begin as one of version 2");
    }
    const std::string kind = in.word();
    plan.seed = in.count();
    if (kind == "windows") {
      read_windows(in, plan);
    } else if (kind == "rand-malloc") {
      plan.rand_malloc = true;
      plan.nanoseconds = in.count();
      for (std::uint64_t n = in.next(kMaxItems); n > 0; --n) {
        MeanClass& mean = plan.means.emplace_back();
        mean.size = in.count();
        mean.count = in.count();
        mean.lifetime = in.count();
      }
    } else {
      throw std::runtime_error("there is no model '" + kind + "'");
    }
    return true;
  } catch (const std::runtime_error& problem) {
    error = std::string("this is no plan: ") + problem.what();
    return false;
  }
}

}  // namespace heapwright::model
