// Reads models from JSON. A model may be written by hand, so every number is checked before
// anything is made of it.
#include <algorithm>
#include <stdexcept>

#include "model_json.h"

namespace heapwright::model {

namespace {

constexpr std::uint64_t kMaxCount = std::uint64_t{1} << 48;  // of any number, so that sums do not overflow
constexpr std::size_t kMaxItems = std::size_t{1} << 22;      // of a list
constexpr std::uint64_t kVersion = 2;

[[noreturn]] void refuse(const std::string& why) { throw std::runtime_error(why); }

// A value for a message. Lists and objects may be deep and are not shown.
std::string shown(const Json& value) {
  return value.is_primitive() ? trace::to_line(value).substr(0, 60) : "a list or an object";
}

// A whole number; -1 stands for kNever.
std::uint64_t number_or_never(const Json& value) {
  if (value.is_number_integer() && value == -1) {
    return kNever;
  }
  if (!value.is_number_unsigned() || value.get<std::uint64_t>() > kMaxCount) {
    refuse(shown(value) + " is not a whole number from 0 to 2^48");
  }
  return value.get<std::uint64_t>();
}

std::uint64_t number(const Json& value, std::uint64_t maximum = kMaxCount) {
  const std::uint64_t found = number_or_never(value);
  if (found > maximum) {
    refuse(shown(value) + " is not a number from 0 to " + std::to_string(maximum));
  }
  return found;
}

const Json& member(const Json& object, const char* key) {
  const auto found = object.find(key);
  if (found == object.end()) {
    refuse(std::string("it has no \"") + key + "\"");
  }
  return *found;
}

std::uint64_t count(const Json& object, const char* key, std::uint64_t maximum = kMaxCount) {
  return number(member(object, key), maximum);
}

// A list under a key of an object.
const Json& list(const Json& object, const char* key, std::size_t maximum = kMaxItems) {
  const Json& found = member(object, key);
  if (!found.is_array() || found.size() > maximum) {
    refuse(std::string("\"") + key + "\" is not a list of at most " + std::to_string(maximum) + " items");
  }
  return found;
}

// Takes the numbers of a list from its front.
class NumberReader {
 public:
  explicit NumberReader(const Json& list) : list_(list) {}
  bool empty() const { return at_ == list_.size(); }
  std::uint64_t next_or_never() { return number_or_never(item()); }
  std::uint64_t next(std::uint64_t maximum = kMaxCount) { return number(item(), maximum); }
  // An index below `limit`; `what` names the indexed thing in the message.
  std::uint32_t below(std::uint64_t limit, const char* what) {
    const std::uint64_t value = next();
    if (value >= limit) {
      refuse(std::string("there is no ") + what + " " + std::to_string(value));
    }
    return static_cast<std::uint32_t>(value);
  }

 private:
  const Json& item() {
    if (empty()) {
      refuse("a list ends early");
    }
    return list_[at_++];
  }

  const Json& list_;
  std::size_t at_ = 0;
};

bool power_of_two(std::uint64_t n) { return n != 0 && (n & (n - 1)) == 0; }

std::vector<std::pair<std::uint32_t, std::uint64_t>> read_threads(const Json& entries,
                                                                  std::uint32_t threads) {
  std::vector<std::pair<std::uint32_t, std::uint64_t>> found;
  for (NumberReader in(entries); !in.empty();) {
    const std::uint32_t thread = in.below(threads, "thread");
    found.emplace_back(thread, in.next());
  }
  return found;
}

SizeClass read_class(const Json& from, std::uint32_t threads) {
  SizeClass c;
  std::uint64_t sum = 0;
  for (NumberReader in(list(from, "sizes", 2048)); !in.empty();) {
    const std::uint64_t size = in.next();
    sum += c.sizes.emplace_back(size, in.next()).second;
  }
  if (sum == 0) {
    refuse("a class has no size");
  }
  c.callocs = count(from, "callocs");
  for (NumberReader in(list(from, "alignments", 128)); !in.empty();) {
    const std::uint64_t alignment = in.next();
    c.alignments.emplace_back(alignment, in.next());
    if (!power_of_two(alignment)) {
      refuse("the alignment " + std::to_string(alignment) + " is not a power of two");
    }
  }
  c.in_order = count(from, "in_order", 1000);
  c.in_reverse = count(from, "in_reverse", 1000);
  c.touched = number_or_never(member(from, "touched"));
  for (NumberReader in(list(from, "brief", std::size_t{3} * kLifeBins)); !in.empty();) {
    const std::uint32_t bin = in.below(kAsClass, "lifetime");
    const std::uint64_t lifetimes = in.next();
    c.brief.push_back({bin, lifetimes, in.next(1000)});
  }
  c.threads = read_threads(list(from, "threads", 2048), threads);
  if (c.threads.empty()) {
    refuse("a class has no thread");
  }
  c.group = group_of(c.threads.front().first);
  c.freed_own = count(from, "freed_own");
  c.freed_by = read_threads(list(from, "freed_by", 2048), threads);
  return c;
}

// Whether the class has lengths in a bin. Without them lifetimes of that bin would have no end.
bool has_lengths(const SizeClass& c, std::uint32_t bin) {
  return bin == kAsClass
             ? !c.brief.empty()
             : std::any_of(c.brief.begin(), c.brief.end(), [bin](const Lengths& l) { return l.bin == bin; });
}

void read_rows(NumberReader in, const std::vector<SizeClass>& classes, Window& w) {
  w.rows.resize(classes.size());
  while (!in.empty()) {
    const std::uint32_t kind = in.below(classes.size(), "class");
    ClassActivity& row = w.rows[kind];
    row.long_count = in.next();
    row.long_bytes = in.next();
    for (std::uint64_t n = in.next(); n > 0; --n) {
      const std::uint32_t bin = in.below(kLifeBins, "lifetime");
      row.brief[bin] = in.next();
      if (row.brief[bin] > 0 && !has_lengths(classes[kind], bin)) {
        refuse("a window has lifetimes of a length that their class does not have");
      }
    }
    for (std::uint64_t n = in.next(); n > 0; --n) {
      const std::uint32_t bin = in.below(kAgeBins, "age");
      row.old[bin] = in.next();
    }
  }
}

Window read_window(const Json& from, const std::vector<SizeClass>& classes) {
  Window w;
  w.ticks = count(from, "ticks");
  w.nanoseconds = count(from, "ns");
  w.turns = count(from, "turns");
  for (NumberReader in(list(from, "parts")); !in.empty();) {
    GroupActivity& part = w.parts[in.below(kGroups + 1, "group")];
    part.brief_bursts = in.next();
    part.old_bursts = in.next();
    part.long_at = in.next(1000);
    part.old_at = in.next(1000);
    part.above = in.next();
    part.below = in.next();
  }
  read_rows(NumberReader(list(from, "rows")), classes, w);
  for (NumberReader in(list(from, "handed")); !in.empty();) {
    const std::uint32_t group = in.below(kGroups, "group");
    RemoteFrees& handed = w.handed[{group, in.below(kGroups, "group")}];
    handed.brief = in.next();
    handed.old = in.next();
  }
  for (NumberReader in(list(from, "resizes")); !in.empty();) {
    const std::uint32_t old_class = in.below(classes.size(), "class");
    const std::uint32_t new_class = in.below(classes.size(), "class");
    w.resizes[{old_class, new_class}] = in.next();
  }
  return w;
}

void read_script(NumberReader in, Model& model) {
  using Begin = Scripted::Begin;
  using End = Scripted::End;
  while (!in.empty()) {
    Scripted s;
    s.tick = in.next();
    s.length = in.next();
    s.size = in.next();
    s.begin = static_cast<Begin>(in.below(5, "way to begin"));
    s.begin_with = in.next();
    s.end = static_cast<End>(in.below(4, "way to end"));
    s.end_with = in.next();
    s.thread = in.below(model.threads, "thread");
    s.end_thread = in.below(model.threads, "thread");
    s.touched = in.next_or_never();
    if ((s.begin == Begin::kFromClass && s.begin_with >= model.classes.size()) ||
        (s.end == End::kIntoClass && s.end_with >= model.classes.size()) ||
        (s.begin == Begin::kFromScript && s.begin_with >= model.script.size()) ||
        (s.begin == Begin::kAligned && !power_of_two(s.begin_with)) ||
        (!model.script.empty() && s.tick < model.script.back().tick)) {
      refuse("the script contradicts itself");
    }
    model.script.push_back(s);
  }
}

void read_ends(NumberReader in, Model& model) {
  while (!in.empty()) {
    const std::uint32_t thread = in.below(model.threads, "thread");
    const std::uint32_t window = in.below(model.windows.size(), "window");
    if (!model.ends.empty() && window < model.ends.back().window) {
      refuse("\"thread_ends\" is not in order of windows");
    }
    model.ends.push_back({thread, window, in.next(1000)});
  }
}

Model read_windows_model(const Json& from) {
  Model model;
  model.ticks = count(from, "ticks");
  model.nanoseconds = count(from, "ns");
  model.sized_frees = count(from, "sized_frees", 1000);
  model.threads = static_cast<std::uint32_t>(count(from, "threads", 1024));
  if (model.threads == 0) {
    refuse("it has no thread");
  }
  for (const Json& each : list(from, "classes", 65536)) {
    model.classes.push_back(read_class(each, model.threads));
  }
  for (const Json& each : list(from, "windows", 1 << 20)) {
    model.windows.push_back(read_window(each, model.classes));
  }
  read_script(NumberReader(list(from, "script")), model);
  read_ends(NumberReader(list(from, "thread_ends")), model);
  return model;
}

RandMallocModel read_rand_malloc_model(const Json& from) {
  RandMallocModel model;
  model.nanoseconds = count(from, "ns");
  for (const Json& each : list(from, "classes")) {
    if (!each.is_array() || each.size() != 3) {
      refuse("a class is not a list of size, count and lifetime");
    }
    model.classes.push_back({number(each[0]), number(each[1]), number(each[2])});
  }
  return model;
}

}  // namespace

bool read_model(std::string_view text, AnyModel& model, std::string& error) {
  try {
    const Json whole = Json::parse(text, nullptr, false);
    if (whole.is_discarded()) {
      refuse("it is not JSON");
    }
    if (!whole.is_object()) {
      refuse("it is not a JSON object");
    }
    if (member(whole, "schema") != "heapwright-model" || count(whole, "version") != kVersion) {
      refuse("it is not of version " + std::to_string(kVersion));
    }
    const Json& kind = member(whole, "kind");
    if (kind == "windows") {
      model = read_windows_model(whole);
    } else if (kind == "rand-malloc") {
      model = read_rand_malloc_model(whole);
    } else {
      refuse("there is no model of the kind " + shown(kind));
    }
    return true;
  } catch (const std::runtime_error& problem) {
    error = std::string("invalid model: ") + problem.what();
    return false;
  }
}

}  // namespace heapwright::model
