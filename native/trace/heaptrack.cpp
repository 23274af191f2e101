// Reads heaptrack's text. Numbers are hexadecimal. The reader uses these types of lines:
//
//     v VERSION [FILE VERSION]    X COMMAND LINE    I PAGE SIZE, PAGES
//     c MILLISECONDS since the start                R PAGES resident
//     raw:          + SIZE TRACE POINTER       - POINTER
//     interpreted:  a SIZE TRACE  (numbered)   + NUMBER    - NUMBER
#include <algorithm>
#include <array>
#include <cstring>
#include <string_view>
#include <vector>

#include "formats.h"
#include "live_table.h"

namespace heapwright::trace {

namespace {

constexpr std::uint64_t kMaxBytes = std::uint64_t{1} << 47;
constexpr std::size_t kMaxLine = 1 << 20;

// Takes the next hexadecimal number off a line. Returns false if there is none.
bool number(std::string_view& line, std::uint64_t& value) {
  while (!line.empty() && line.front() == ' ') {
    line.remove_prefix(1);
  }
  std::size_t digits = 0;
  value = 0;
  for (; digits < line.size() && line[digits] != ' '; ++digits) {
    const char c = line[digits];
    const int digit = c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
    if (digit < 0 || digits == 16) {
      return false;
    }
    value = value << 4 | static_cast<std::uint64_t>(digit);
  }
  line.remove_prefix(digits);
  return digits > 0;
}

class HeaptrackSource : public EventSource {
 public:
  explicit HeaptrackSource(std::FILE* file) : file_(file) {
    header_.allocator = "not known: a heaptrack file";
  }

  // Reads up to the first event. Returns false if this is not a heaptrack text.
  bool start() {
    if (!read_line() || line_.empty() || line_.front() != 'v') {
      return false;
    }
    std::uint64_t version = 0;
    std::string_view rest = std::string_view(line_).substr(1);
    if (!number(rest, version)) {
      return false;
    }
    has_first_ = next_event(first_);
    return true;
  }
  const Header& header() const override { return header_; }
  Loss loss() const override { return loss_; }
  bool next(Event& event) override {
    if (has_first_) {
      has_first_ = false;
      event = first_;
      return true;
    }
    return next_event(event);
  }

 private:
  bool read_line();
  bool next_event(Event& event);
  bool on_alloc(std::string_view rest, Event& event);
  bool on_free(std::string_view rest, Event& event);
  void note_loss(const char* why) {
    if (loss_.why.empty()) {
      loss_.why = why;
    }
  }
  void command_line(std::string_view rest) {
    while (!rest.empty()) {
      const std::size_t space = std::min(rest.find(' '), rest.size());
      if (space > 0) {
        header_.command.emplace_back(rest.substr(0, space));
      }
      rest.remove_prefix(std::min(space + 1, rest.size()));
    }
  }
  // Pointers are multiples of 8. Rotated by 3 bits they are dense, which suits the table.
  static std::uint64_t rotated(std::uint64_t pointer) { return pointer >> 3 | pointer << 61; }

  std::FILE* file_;
  Header header_;
  Loss loss_;
  std::string line_;
  Event first_;
  bool has_first_ = false;
  std::uint64_t time_ = 0;
  std::uint64_t objects_ = 0;
  struct Info {
    std::uint64_t size = 0;
    std::vector<std::uint64_t> live;  // objects
  };
  std::vector<Info> infos_;
  LiveTable<std::uint64_t> pointers_;
  Event pending_;  // an allocation at an address that is still live: the free of the old object comes first
  bool has_pending_ = false;
};

bool HeaptrackSource::read_line() {
  line_.clear();
  std::array<char, 4096> piece{};
  while (std::fgets(piece.data(), piece.size(), file_) != nullptr) {
    const std::size_t length = std::strlen(piece.data());
    if (line_.size() < kMaxLine) {
      line_.append(piece.data(), length);
    }
    if (length > 0 && piece[length - 1] == '\n') {
      if (!line_.empty() && line_.back() == '\n') {
        line_.pop_back();
      }
      return true;
    }
    if (length == 0) {  // the line begins with a zero byte
      line_ += '?';
    }
  }
  if (!line_.empty()) {
    loss_.cut_short = true;
    loss_.bytes += line_.size();
    note_loss("the last line is incomplete");
  }
  return false;
}

bool HeaptrackSource::on_alloc(std::string_view rest, Event& event) {
  std::uint64_t first = 0;
  std::uint64_t trace = 0;
  std::uint64_t pointer = 0;
  if (!number(rest, first)) {
    return false;
  }
  event = {};
  event.time = time_;
  if (!number(rest, trace)) {  // interpreted
    if (first >= infos_.size() || infos_[first].size > kMaxBytes) {
      return false;
    }
    event.size = infos_[first].size;
    event.object = objects_++;
    infos_[first].live.push_back(event.object);
    return true;
  }
  if (!number(rest, pointer) || first > kMaxBytes || pointer == 0) {
    return false;
  }
  event.size = first;
  if (const std::uint64_t* known = pointers_.find(rotated(pointer))) {  // the text lacks its free
    ++loss_.events;
    note_loss("an address is allocated twice without a free");
    pending_ = event;
    pending_.object = objects_++;
    has_pending_ = true;
    event.kind = Kind::kFree;
    event.size = 0;
    event.object = *known;
    pointers_.erase(rotated(pointer));
    pointers_.insert(rotated(pointer), pending_.object);
    return true;
  }
  event.object = objects_++;
  pointers_.insert(rotated(pointer), event.object);
  return true;
}

bool HeaptrackSource::on_free(std::string_view rest, Event& event) {
  std::uint64_t what = 0;
  if (!number(rest, what)) {
    return false;
  }
  event = {};
  event.kind = Kind::kFree;
  event.time = time_;
  if (!infos_.empty()) {
    if (what >= infos_.size() || infos_[what].live.empty()) {
      return false;
    }
    event.object = infos_[what].live.back();
    infos_[what].live.pop_back();
    return true;
  }
  const std::uint64_t* known = pointers_.find(rotated(what));
  if (known == nullptr) {
    return false;
  }
  event.object = *known;
  pointers_.erase(rotated(what));
  return true;
}

bool HeaptrackSource::next_event(Event& event) {
  if (has_pending_) {
    has_pending_ = false;
    event = pending_;
    return true;
  }
  while (read_line()) {
    if (line_.empty()) {
      continue;
    }
    std::string_view rest = std::string_view(line_).substr(1);
    std::uint64_t value = 0;
    switch (line_.front()) {
      case '+':
        if (on_alloc(rest, event)) {
          return true;
        }
        ++loss_.events;
        note_loss("there are invalid allocations");
        break;
      case '-':
        if (on_free(rest, event)) {
          return true;
        }
        ++loss_.events;
        note_loss("there are frees of unknown blocks");
        break;
      case 'a':
        if (number(rest, value)) {
          infos_.push_back({value, {}});
        }
        break;
      case 'c':
        if (number(rest, value) && value < (std::uint64_t{1} << 40)) {
          time_ = std::max(time_, value * 1000000);
        }
        break;
      case 'R':
        if (number(rest, value) && value < (std::uint64_t{1} << 40)) {
          event = {};
          event.kind = Kind::kResident;
          event.time = time_;
          event.value = value * header_.page_size;
          return true;
        }
        break;
      case 'I':
        if (number(rest, value) && value >= 4096 && value <= (1U << 20) && (value & (value - 1)) == 0) {
          header_.page_size = value;
        }
        break;
      case 'X':
        command_line(rest);
        break;
      case '!':
        if (line_.starts_with("!cut ")) {
          loss_.cut_short = true;
          loss_.why = line_.substr(5);  // the cause of all the rest
        }
        break;
      default:
        break;
    }
  }
  return false;
}

}  // namespace

std::unique_ptr<EventSource> open_heaptrack(std::FILE* file, std::string& error) {
  auto source = std::make_unique<HeaptrackSource>(file);
  if (!source->start()) {
    error = "this is not a heaptrack text: its first line gives no version";
    return nullptr;
  }
  return source;
}

}  // namespace heapwright::trace
