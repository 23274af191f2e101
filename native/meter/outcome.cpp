// Writes the report of a run. Figures that a back end cannot know are null, never zero.
#include "outcome.h"

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <string_view>

#include "common/draft_file.h"
#include "procfs.h"

namespace heapwright::meter {
namespace {

// CPU time counts as known if at most this share of it is uncertain.
constexpr double kMaxDoubt = 0.02;

double seconds(const timeval& time) {
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) * 1e-6;
}

class Object {
 public:
  void raw(const char* key, const std::string& value) {
    text_ += text_.empty() ? "{\n" : ",\n";
    text_ += ' ';
    text_ += quoted(key);
    text_ += ": ";
    text_ += value;
  }
  void number(const char* key, double value) { raw(key, real(value)); }
  void count(const char* key, std::uint64_t value) { raw(key, std::to_string(value)); }
  void boolean(const char* key, bool value) { raw(key, value ? "true" : "false"); }
  void null(const char* key) { raw(key, "null"); }
  template <class T>
  void optional(const char* key, const std::optional<T>& value) {
    raw(key, value ? real(static_cast<double>(*value)) : "null");
  }
  [[nodiscard]] std::string text() const { return text_ + "\n}\n"; }

  static std::string real(double value) {
    std::array<char, 40> buffer{};
    (void)std::snprintf(buffer.data(), buffer.size(), "%.17g", value);
    return buffer.data();
  }

 private:
  std::string text_;
};

template <class Items, class Get>
std::string list(const Items& items, Get get) {
  std::string text = "[";
  for (const auto& item : items) {
    text += text.size() > 1 ? "," : "";
    text += get(item);
  }
  text += ']';
  return text;
}

std::string series_json(const std::vector<SeriesPoint>& series, bool huge) {
  std::array<char, 32> buffer{};
  const auto time = [&](const SeriesPoint& p) {
    (void)std::snprintf(buffer.data(), buffer.size(), "%.4f", p.time);
    return std::string(buffer.data());
  };
  // Appended piece by piece: GCC 12 warns of overlap in chains of + (its bug 105651).
  std::string text = "{\"t\": ";
  text += list(series, time);
  text += ", \"rss\": ";
  text += list(series, [](const SeriesPoint& p) { return std::to_string(p.memory.rss); });
  text += ", \"heap\": ";
  text += list(series, [](const SeriesPoint& p) { return std::to_string(p.memory.heap); });
  text += ", \"vm\": ";
  text += list(series, [](const SeriesPoint& p) { return std::to_string(p.memory.vm); });
  if (huge) {
    text += ", \"huge\": ";
    text += list(series, [](const SeriesPoint& p) { return std::to_string(p.memory.huge); });
  }
  text += '}';
  return text;
}

std::string parts_json(const Parts& parts) {
  Object json;
  json.count("program", parts.program);
  json.count("files", parts.files);
  json.count("stacks", parts.stacks);
  json.count("heap", parts.heap);
  json.count("other", parts.other);
  return json.text();
}

std::string breakdown_json(const TreeBreakdown& tree) {
  Object json;
  json.raw("rss", parts_json(tree.sum.rss));
  json.raw("pss", parts_json(tree.sum.pss));
  json.count("processes", tree.processes);
  json.raw("busiest", quoted(tree.busiest));
  json.count("busiest_pss", tree.busiest_pss);
  json.raw("busiest_files", list(tree.busiest_files, quoted));
  return json.text();
}

template <class Number>
std::optional<Number> at_most(std::optional<Number> value, std::uint64_t limit) {
  return value ? std::optional(std::min(*value, static_cast<Number>(limit))) : value;
}

// Returns the length of the UTF-8 character at the beginning of a text that is not empty; 0 if the
// bytes there are none.
std::size_t utf8_length(std::string_view text) {
  const auto byte = [text](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char first = byte(0);
  if (first < 0x80) {
    return 1;
  }
  const std::size_t length = first < 0xc2 || first > 0xf4 ? 0 : first < 0xe0 ? 2 : first < 0xf0 ? 3 : 4;
  if (length == 0 || length > text.size()) {
    return 0;
  }
  for (std::size_t i = 1; i < length; ++i) {
    if ((byte(i) & 0xc0U) != 0x80) {
      return 0;
    }
  }
  // Longer forms than necessary, surrogates, and numbers above the last character.
  const bool valid = first == 0xe0   ? byte(1) >= 0xa0
                     : first == 0xed ? byte(1) < 0xa0
                     : first == 0xf0 ? byte(1) >= 0x90
                     : first == 0xf4 ? byte(1) < 0x90
                                     : true;
  return valid ? length : 0;
}

// Not ru_maxrss, which begins at the size of the process that started the meter.
std::uint64_t own_max_rss() {
  const auto status = read_status(getpid());
  return status ? status->rss_peak : 0;
}

void huge_json(Object& json, const Outcome& outcome, const Watcher& watcher) {
  const HugePageSampler& huge = watcher.huge();
  if (huge.samples() > 0) {
    json.count("huge_bytes", huge.peak());
    json.number("mean_huge_bytes", huge.mean(outcome.end));
    json.optional("huge_share", huge.share(outcome.end));
  } else {
    json.null("huge_bytes");
    json.null("mean_huge_bytes");
    json.null("huge_share");
  }
  json.count("huge_samples", huge.samples());
  json.number("huge_cpu_s", huge.spent());
  const auto& events = watcher.thp_events();
  json.optional("system_thp_faults", events ? std::optional(events->faults) : std::nullopt);
  json.optional("system_thp_collapses", events ? std::optional(events->collapses) : std::nullopt);
}

void memory_json(Object& json, const Outcome& outcome, const Ledger& ledger, const Watcher& watcher) {
  if (outcome.backend == Backend::kNone) {
    json.count("peak_rss_bytes", outcome.max_rss);
    return;
  }
  const bool sees_calls = outcome.backend != Backend::kPoll;
  // One process: the kernel's own high-water mark. A tree: the largest sum, which no single process
  // exceeds.
  const bool single = watcher.processes() <= 1 && !outcome.unfinished;
  const std::uint64_t peak = single ? outcome.max_rss : std::max(ledger.peak().rss, outcome.max_rss);
  json.count("peak_rss_bytes", peak);
  const std::uint64_t vm = std::max(ledger.peak().vm, watcher.vm_peak());
  // Polling may miss a program of a few milliseconds, or its memory: on a busy machine the meter
  // gets its turn late. Resident memory is mapped, so if less was seen mapped, the readings missed
  // the peak. The kernel's mark of a smaller program is about the meter's own size at the fork
  // (spawn.h).
  const bool seen = ledger.peak().rss > 0 && (vm >= peak || peak <= own_max_rss() + kCounterError);
  const auto if_seen = [seen](auto value) { return seen ? std::optional(value) : std::nullopt; };
  // The kernel's mark lags behind the readings by kCounterError: none of them may exceed it.
  json.optional("mean_rss_bytes", at_most(if_seen(ledger.mean_rss(outcome.end)), peak));
  json.optional("p95_rss_bytes", seen ? at_most(ledger.rss_quantile(0.95), peak) : std::nullopt);
  json.optional("final_rss_bytes", seen ? at_most(ledger.final_rss(), peak) : std::nullopt);
  // Without mapping calls, the stacks of threads cannot be told from the heap.
  const bool heap_seen = seen && (sees_calls || watcher.max_threads() <= 1);
  json.optional("peak_heap_bytes", heap_seen ? std::optional(ledger.peak().heap) : std::nullopt);
  json.optional("mean_heap_bytes", heap_seen ? std::optional(ledger.mean_heap(outcome.end)) : std::nullopt);
  json.optional("peak_vm_bytes", if_seen(vm));
  if (sees_calls) {
    json.count("returned_bytes", ledger.returned());
    json.count("returned_lazily_bytes", ledger.returned_lazily());
    json.count("mapping_calls", watcher.mapping_calls());
  } else {
    json.null("returned_bytes");
    json.null("returned_lazily_bytes");
    json.null("mapping_calls");
  }
  json.optional("massif_peak_bytes", outcome.massif_peak);
  const PssSampler* const pss = watcher.pss();
  if (pss != nullptr && pss->samples() > 0) {
    json.optional("peak_pss_bytes", at_most(pss->peak_of_run(single ? peak : 0), peak));
    json.number("mean_pss_bytes", std::min(pss->mean(outcome.end, ledger), static_cast<double>(peak)));
    json.count("pss_samples", pss->samples());
    json.number("pss_cpu_s", pss->spent());
  } else {
    json.null("peak_pss_bytes");
    json.null("mean_pss_bytes");
  }
  huge_json(json, outcome, watcher);
  if (const auto& tree = watcher.breakdown()) {
    json.raw("parts", breakdown_json(*tree));
  }
  json.optional("cgroup_peak_bytes", watcher.cgroup_peak());
  json.count("max_processes",
             std::max<std::uint64_t>(1, ledger.max_live()));  // polling may miss all processes
  json.count("processes", static_cast<std::uint64_t>(watcher.processes()));
  json.count("max_threads", static_cast<std::uint64_t>(watcher.max_threads()));
  json.count("max_maps", watcher.max_maps());
  json.count("samples", ledger.samples());
  if (!ledger.series().empty()) {
    json.raw("series", series_json(ledger.series(), watcher.huge().samples() > 0));
  }
}

}  // namespace

std::string quoted(const std::string& text) {
  std::string out = "\"";
  std::array<char, 8> escape{};
  for (std::string_view rest = text; !rest.empty();) {
    const char c = rest.front();
    const std::size_t length = utf8_length(rest);
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (static_cast<unsigned char>(c) < 0x20) {
      (void)std::snprintf(escape.data(), escape.size(), "\\u%04x", static_cast<unsigned char>(c));
      out += escape.data();
    } else if (length == 0) {
      out += "\ufffd";
    } else {
      out += rest.substr(0, length);
    }
    rest.remove_prefix(std::max<std::size_t>(length, 1));
  }
  return out + "\"";
}

std::string whole_run_only(const std::string& parent) {
  return "'" + parent +
         "' ignores SIGCHLD: the CPU time of its children that have ended is known for the whole run only, "
         "not per operation";
}

void Outcome::add(const rusage& usage) {
  user_s += seconds(usage.ru_utime);
  sys_s += seconds(usage.ru_stime);
  minor_faults += static_cast<std::uint64_t>(usage.ru_minflt);
  major_faults += static_cast<std::uint64_t>(usage.ru_majflt);
  max_rss = std::max(max_rss, static_cast<std::uint64_t>(usage.ru_maxrss) * 1024);
}

std::string to_json(const Outcome& outcome, const Ledger& ledger, const Watcher& watcher) {
  Object json;
  json.raw("meter", quoted(backend_name(outcome.backend)));
  std::set<std::string> all = outcome.warnings;
  all.insert(watcher.warnings().begin(), watcher.warnings().end());
  const Usage lost = watcher.unwaited_usage(outcome.end);
  const double cpu_s = outcome.user_s + outcome.sys_s + lost.cpu_s();
  const bool known = watcher.unwaited().empty() || lost.doubt_s <= kMaxDoubt * cpu_s;
  if (!watcher.unwaited().empty() && !outcome.unfinished) {
    const std::string& parent = watcher.unwaited().begin()->second.parent_name;
    if (!known) {
      all.insert("CPU time and page faults are not known: '" + parent +
                 "' ignores SIGCHLD, so the kernel gives no account of its children that have ended; "
                 "'--meter ptrace' counts them");
    } else if (lost.cpu_s() + lost.doubt_s > kMaxDoubt * cpu_s) {
      all.insert(whole_run_only(parent));
    }
  }
  std::string warnings = "[";
  for (const auto& warning : all) {
    warnings += warnings.size() > 1 ? ", " : "";
    warnings += quoted(warning);
  }
  json.raw("warnings", warnings + "]");
  const bool exited = WIFEXITED(outcome.status) && !outcome.unfinished;
  const bool killed = !exited && !outcome.unfinished;
  json.raw("exit_code", exited ? std::to_string(WEXITSTATUS(outcome.status)) : "null");
  json.raw("signal", killed ? std::to_string(WTERMSIG(outcome.status)) : "null");
  json.boolean("timed_out", outcome.timed_out);
  json.boolean("unfinished", outcome.unfinished);
  json.number("wall_s", outcome.end - outcome.start);
  if (outcome.unfinished || !known) {  // the kernel gives these when a process is waited for
    for (const char* const key : {"user_s", "sys_s", "minor_faults", "major_faults"}) {
      json.null(key);
    }
  } else {
    json.number("user_s", outcome.user_s + lost.user_s);
    json.number("sys_s", outcome.sys_s + lost.sys_s);
    json.count("minor_faults", outcome.minor_faults + lost.minor_faults);
    json.count("major_faults", outcome.major_faults + lost.major_faults);
  }
  json.optional("instructions", outcome.instructions);
  json.optional("energy_j", outcome.energy_j);
  memory_json(json, outcome, ledger, watcher);
  return json.text();
}

bool write_whole(const std::string& path, const std::string& text) {
  DraftFile draft;
  const int file = draft.create(path, 0644);
  if (file < 0) {
    return false;
  }
  std::size_t done = 0;
  while (done < text.size()) {
    const ssize_t size = write(file, text.data() + done, text.size() - done);
    if (size <= 0) {
      close(file);
      return false;
    }
    done += static_cast<std::size_t>(size);
  }
  return close(file) == 0 && draft.publish();
}

}  // namespace heapwright::meter
