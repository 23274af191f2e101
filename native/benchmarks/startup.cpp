// How long a process that does nothing takes from its start to its end, and how large it is: what
// an allocator costs programs that are started thousands of times. The program executes itself.
#include <spawn.h>
#include <sys/wait.h>

#include <array>

#include "bench.h"

namespace {

// Runs the program again and reads its output: its resident and mapped bytes.
bool ask_size(const char* path, char* name, std::array<std::uint64_t, 2>& sizes) {
  std::array<int, 2> ends{};
  if (pipe(ends.data()) != 0) {
    return false;
  }
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, ends[1], 1);
  char option[] = "--size";
  char* const words[] = {name, option, nullptr};
  pid_t child = 0;
  const bool started = posix_spawn(&child, path, &actions, nullptr, words, environ) == 0;
  posix_spawn_file_actions_destroy(&actions);
  close(ends[1]);
  const bool told = started && read(ends[0], sizes.data(), sizeof sizes) == sizeof sizes;
  close(ends[0]);
  return told && waitpid(child, nullptr, 0) == child;
}

}  // namespace

int main(int argc, char** argv) {
  using namespace heapwright::bench;
  if (argc == 2 && std::strcmp(argv[1], "--empty") == 0) {
    std::free(std::malloc(100));
    return 0;
  }
  if (argc == 2 && std::strcmp(argv[1], "--size") == 0) {
    std::free(std::malloc(100));
    const std::array<std::uint64_t, 2> sizes{status("VmRSS"), status("VmSize")};
    return write(1, sizes.data(), sizeof sizes) == sizeof sizes ? 0 : 1;
  }
  const Options options(argc, argv);
  const std::uint64_t runs = options.get("runs", 300, 30);
  char self[] = "/proc/self/exe";
  char empty[] = "--empty";
  char* const words[] = {argv[0], empty, nullptr};
  Section section;
  section.begin();
  const double began = now();
  for (std::uint64_t i = 0; i < runs; ++i) {
    pid_t child = 0;
    int status = 0;
    if (posix_spawn(&child, self, nullptr, nullptr, words, environ) != 0 ||
        waitpid(child, &status, 0) != child || status != 0) {
      (void)std::fprintf(stderr, "an empty program failed\n");
      return 1;
    }
  }
  section.end(now() - began);
  Report report("startup", options);
  std::array<std::uint64_t, 2> sizes{};
  if (!ask_size(self, argv[0], sizes)) {
    (void)std::fprintf(stderr, "cannot measure an empty program\n");
    return 1;
  }
  report.add("empty_rss_bytes", sizes[0]);
  report.add("empty_vm_bytes", sizes[1]);
  return report.finish(section, runs);
}
