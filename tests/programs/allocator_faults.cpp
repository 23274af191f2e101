// Tests a malloc whose memory calls fail: allocator_faults NAME [WORD...], mostly run under
// fail_calls.
//
//   mixed HOW [MOST]     one thread uses every size and way to allocate, and its memory grows and shrinks
//   threads HOW [MOST]   the same in threads that come and go and free each other's blocks
//                        HOW says which memory calls the kernel refuses:
//                          each   call n, for n = 1, 2 … up to the number of calls
//                          every  every n-th call, for n = 2, 3 … 40
//                          rest   call n and all later ones, for each n
//                        MOST: test at most this many values of n, spread evenly
//   forks [MOST]         the process forks while its other thread is in memory call n, for each n
//   early                starts under the plan that fail_calls got on its command line; the plan ends in main
//   maps                 the process has as many mappings as the system permits
//   signals              another process sends signals of all kinds to random threads at random times
//   stack                the stack that every call takes; all calls in the smallest thread and on a signal stack
//
// Each n runs in a process of its own. malloc may fail only with ENOMEM and after a failed memory
// call. Existing blocks must keep their contents. When memory calls succeed again, malloc must
// succeed too. Status 0 and a line of figures on success, 3 and one line on failure.
#include "allocator_faults.h"

#include "allocator_faults_more.h"

namespace heapwright::shadow {
namespace {

using Scenario = void (*)(std::uint64_t seed);

// Runs a scenario in a process of its own in which the kernel refuses memory calls.
//
//   name      the scenario's name, for messages
//   scenario  the function to run
//   first     number of the first memory call that fails
//   step      of the later calls, every step-th fails
//   times     how many calls fail in all; 0: none
Figures experiment(const char* name, Scenario scenario, unsigned long first, unsigned long step,
                   unsigned long times) {
  *figures = {};
  const pid_t child = fork();
  if (child == 0) {
    scene = {first, 0, name, true};
    alarm(60);
    faults(FAULTS_PLAN, first, step, times);
    scenario(7);
    figures->calls = static_cast<unsigned long>(faults(FAULTS_END, 0, 0, 0));
    figures->failed = static_cast<unsigned long>(faults(FAULTS_FAILED, 0, 0, 0));
    scene.doing = "afterwards";
    afterwards();
    _exit(0);
  }
  await(child, name);
  return *figures;
}

int all_of(const char* name, Scenario scenario, const char* how, unsigned long most) {
  const bool every = std::strcmp(how, "every") == 0;
  const unsigned long times = std::strcmp(how, "each") == 0 ? 1 : ULONG_MAX;
  // Allocators purge by the clock, so a busy machine makes more calls. Every run reaches the
  // smallest count of three.
  unsigned long calls = ULONG_MAX;
  for (int i = 0; i < 3; ++i) calls = std::min(calls, experiment(name, scenario, 1, 1, 0).calls);
  const unsigned long begin = every ? 2 : 1;
  const unsigned long end = every ? 41 : calls + 1;
  Figures total = {};
  unsigned long processes = 0;
  for (unsigned long i = 0; i < std::min(end - begin, most); ++i, ++processes) {
    const unsigned long n = most >= end - begin ? begin + i : begin + i * (end - begin) / most;
    const Figures one = experiment(name, scenario, n, every ? n : 1, times);
    total.calls += one.calls;
    total.failed += one.failed;
    total.refused += one.refused;
  }
  dprintf(STDOUT_FILENO, "%lu calls, %lu processes, %lu failed, %lu refused\n", calls, processes,
          total.failed, total.refused);
  return 0;
}

int run(int argc, char** argv) {
  const auto is = [&](const char* name) { return argc > 1 && std::strcmp(argv[1], name) == 0; };
  const unsigned long most = argc > 3 ? std::strtoul(argv[3], nullptr, 10) : ULONG_MAX;
  figures = static_cast<Figures*>(
      mmap(nullptr, sizeof(Figures), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
  scene.doing = argc > 1 ? argv[1] : "";
  if (argc > 2 && is("mixed")) {
    return all_of("mixed", mixed, argv[2], most);
  }
  if (argc > 2 && is("threads")) {
    return all_of("threads", threads, argv[2], most);
  }
  if (is("forks")) {
    return forks_held(argc > 2 ? std::strtoul(argv[2], nullptr, 10) : ULONG_MAX);
  }
  if (is("early")) {
    return early();
  }
  if (is("maps")) {
    return maps();
  }
  if (is("signals")) {
    return random_signals();
  }
  if (is("stack")) {
    return stack();
  }
  dprintf(
      STDERR_FILENO,
      "usage: allocator_faults mixed|threads HOW [MOST] | forks [MOST] | early | maps | signals | stack\n");
  return 2;
}

}  // namespace
}  // namespace heapwright::shadow

int main(int argc, char** argv) { return heapwright::shadow::run(argc, argv); }
