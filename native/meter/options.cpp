// Parses the meter's command line. Only heapwright's Python code and kit/hw call it, so it is
// strict and has no short forms.
#include "options.h"

#include <getopt.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cmath>
#include <cstdlib>
#include <string_view>
#include <utility>

namespace heapwright::meter {
namespace {

constexpr std::array<std::pair<std::string_view, Backend>, 5> kBackends{{{"auto", Backend::kAuto},
                                                                         {"notify", Backend::kNotify},
                                                                         {"ptrace", Backend::kPtrace},
                                                                         {"poll", Backend::kPoll},
                                                                         {"none", Backend::kNone}}};

bool parse_number(const char* text, double low, double high, double& value) {
  char* end = nullptr;
  errno = 0;
  value = std::strtod(text, &end);
  return errno == 0 && end != text && *end == '\0' && std::isfinite(value) && value >= low && value <= high;
}

enum Flag : std::uint8_t {
  kOutput = 1,
  kBackend,
  kInterval,
  kMassif,
  kPss,
  kParts,
  kSeries,
  kTimeout,
  kGrace,
  kCheckpoint,
  kDie,
  kAttended,
  kWait,
  kProbe
};

bool apply(int flag, const char* text, Options& options) {
  double number = 0;
  switch (flag) {
    case kOutput:
      options.output = text;
      return !options.output.empty();
    case kBackend:
      for (const auto& [name, backend] : kBackends) {
        if (name == text) {
          options.backend = backend;
          return true;
        }
      }
      return false;
    case kInterval:
      options.interval_ms = parse_number(text, 1, 10000, number) ? static_cast<std::int64_t>(number) : 0;
      return options.interval_ms > 0;
    case kMassif:
      options.massif = true;
      options.massif_as_valgrind = text == nullptr;
      return text == nullptr || std::string_view(text) == "kernel";
    case kPss:
      options.pss = true;
      return true;
    case kParts:
      options.pss = options.parts = true;
      return true;
    case kSeries:
      if (!parse_number(text, 2, 1e6, number)) {
        return false;
      }
      options.series = static_cast<std::size_t>(number);
      return true;
    case kTimeout:
      return parse_number(text, 0, 1e9, options.timeout_s);
    case kGrace:
      return parse_number(text, 0, 1e9, options.kill_grace_s);
    case kCheckpoint:
      return parse_number(text, 0, 1e9, options.checkpoint_s);
    case kDie:
      options.die_with_parent = true;
      if (text != nullptr && !parse_number(text, 1, INT32_MAX, number)) {
        return false;
      }
      options.parent = text != nullptr ? static_cast<pid_t>(number) : getppid();
      return true;
    case kAttended:
      options.attended = true;
      return true;
    case kWait:
      options.wait_for_root_only = std::string_view(text) == "root";
      return options.wait_for_root_only || std::string_view(text) == "tree";
    case kProbe:
      options.probe = true;
      return true;
    default:
      return false;
  }
}

}  // namespace

const char* backend_name(Backend backend) {
  for (const auto& [name, value] : kBackends) {
    if (value == backend) {
      return name.data();
    }
  }
  return "";
}

bool parse_options(int argc, char** argv, Options& options, std::string& error) {
  static const std::array<option, 15> kLong{{{"output", required_argument, nullptr, kOutput},
                                             {"backend", required_argument, nullptr, kBackend},
                                             {"interval-ms", required_argument, nullptr, kInterval},
                                             {"massif-compat", optional_argument, nullptr, kMassif},
                                             {"pss", no_argument, nullptr, kPss},
                                             {"parts", no_argument, nullptr, kParts},
                                             {"series", required_argument, nullptr, kSeries},
                                             {"timeout", required_argument, nullptr, kTimeout},
                                             {"kill-grace", required_argument, nullptr, kGrace},
                                             {"checkpoint", required_argument, nullptr, kCheckpoint},
                                             {"die-with-parent", optional_argument, nullptr, kDie},
                                             {"attended", no_argument, nullptr, kAttended},
                                             {"wait", required_argument, nullptr, kWait},
                                             {"probe", no_argument, nullptr, kProbe},
                                             {nullptr, 0, nullptr, 0}}};
  opterr = 0;
  while (true) {
    const int at = optind;
    const int flag = getopt_long(argc, argv, "+", kLong.data(), nullptr);
    if (flag == -1) {
      break;
    }
    if (!apply(flag, optarg, options)) {
      error = std::string("bad option: ") + argv[at] + (optarg != nullptr ? std::string(" ") + optarg : "");
      return false;
    }
  }
  options.command.assign(argv + optind, argv + argc);
  options.command.push_back(nullptr);
  if (!options.probe && options.command.size() == 1) {
    error = "there is no command to run; usage: heapwright-meter [OPTIONS] -- CMD ARGS...";
    return false;
  }
  if (options.massif && options.backend != Backend::kAuto && options.backend != Backend::kPtrace) {
    error = "--massif-compat needs the ptrace back end";
    return false;
  }
  return true;
}

}  // namespace heapwright::meter
