#include "text.h"

#include <array>
#include <charconv>
#include <sstream>
#include <string_view>
#include <vector>

namespace heapwright::trace {
namespace {

// The name of a kind of event and the fields that follow it, in order.
enum Field : std::uint8_t { kObject, kSize, kAlignment, kTouchedBytes, kValue };
struct Form {
  Kind kind;
  std::string_view name;
  std::vector<Field> fields;
  std::size_t required;  // fields that must be given
};

const std::vector<Form>& forms() {
  static const std::vector<Form> kForms = {
      {Kind::kMalloc, "malloc", {kObject, kSize}, 2},
      {Kind::kCalloc, "calloc", {kObject, kSize}, 2},
      {Kind::kAligned, "aligned", {kObject, kSize, kAlignment}, 3},
      {Kind::kRealloc, "realloc", {kObject, kSize}, 2},
      {Kind::kFree, "free", {kObject, kTouchedBytes}, 1},
      {Kind::kFreeSized, "free_sized", {kObject, kSize}, 2},
      {Kind::kUsableSize, "usable_size", {kObject}, 1},
      {Kind::kTouched, "touched", {kObject, kTouchedBytes}, 1},
      {Kind::kTouchedSoFar, "touched_so_far", {kObject, kTouchedBytes}, 2},
      {Kind::kThreadStart, "thread_start", {}, 0},
      {Kind::kThreadEnd, "thread_end", {}, 0},
      {Kind::kFork, "fork", {kValue}, 1},
      {Kind::kPhase, "phase", {kValue}, 1},
      {Kind::kResident, "resident", {kValue}, 1},
      {Kind::kTicks, "ticks", {kValue}, 1},
      {Kind::kUntouched, "untouched", {kValue}, 1},
      {Kind::kHeap, "heap", {kValue}, 1},
      {Kind::kFiles, "files", {kValue}, 1},
      {Kind::kSpawn, "spawn", {kValue}, 1},
      {Kind::kEnd, "end", {}, 0},
  };
  return kForms;
}

std::uint64_t& field(Event& event, Field which) {
  switch (which) {
    case kObject:
      return event.object;
    case kSize:
      return event.size;
    case kAlignment:
      return event.alignment;
    case kTouchedBytes:
      return event.touched;
    default:
      return event.value;
  }
}

bool parse(const std::string& word, std::uint64_t& value) {
  const auto [end, problem] = std::from_chars(word.data(), word.data() + word.size(), value);
  return problem == std::errc() && end == word.data() + word.size();
}

}  // namespace

std::string to_text(const Event& event) {
  std::string line = std::to_string(event.time);
  line.append(1, ' ').append(std::to_string(event.thread));
  for (const Form& form : forms()) {
    if (form.kind == event.kind) {
      line.append(1, ' ').append(form.name);
      Event copy = event;
      for (const Field which : form.fields) {
        if (which != kTouchedBytes || event.touched != kUnknown) {
          line.append(1, ' ').append(std::to_string(field(copy, which)));
        }
      }
    }
  }
  return line;
}

bool from_text(const std::string& line, Event& event, std::string& error) {
  std::istringstream stream(line.substr(0, line.find('#')));
  std::vector<std::string> words;
  for (std::string word; stream >> word;) {
    words.push_back(word);
  }
  event = Event{};
  error.clear();
  if (words.empty()) {
    return false;
  }
  std::uint64_t thread = 0;
  if (words.size() < 3 || !parse(words[0], event.time) || !parse(words[1], thread) || thread > UINT32_MAX) {
    error = "the line is not TIME THREAD KIND …";
    return false;
  }
  event.thread = static_cast<std::uint32_t>(thread);
  for (const Form& form : forms()) {
    if (form.name == words[2]) {
      event.kind = form.kind;
      const std::size_t count = words.size() - 3;
      if (count < form.required || count > form.fields.size()) {
        error = words[2] + " has too few or too many numbers";
        return false;
      }
      for (std::size_t i = 0; i < count; i++) {
        if (!parse(words[3 + i], field(event, form.fields[i]))) {
          error = "not a number: " + words[3 + i];
          return false;
        }
      }
      return true;
    }
  }
  error = "not a kind of event: " + words[2];
  return false;
}

}  // namespace heapwright::trace
