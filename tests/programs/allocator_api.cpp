// Prints a table of the results of every malloc function. Each row is one line "name: answer".
// Answers do not depend on addresses, so the tables of two allocators can be compared line by line.
// The reference is glibc.
//
// usage: allocator_api [NAME]   (all rows, or those whose name contains NAME)
//
// Each row runs in its own child process, so a crash affects only that row, which then names the
// signal. In an answer, "errno kept" means that the call did not change errno.
#include "allocator_api.h"

#include <sys/resource.h>
#include <sys/wait.h>

#include "allocator_api_glibc.h"
#include "allocator_api_new.h"
#include "allocator_api_standard.h"

namespace heapwright::api {
namespace {

void run(const Row& row) {
  int status = 0;
  const pid_t child = fork();
  if (child == 0) {
    const rlimit no_core = {0, 0};
    setrlimit(RLIMIT_CORE, &no_core);
    alarm(30);
    Answer answer;
    row.run(answer);
    dprintf(STDOUT_FILENO, "%s: %s\n", row.name, answer.text());
    _exit(0);
  }
  waitpid(child, &status, 0);
  if (status != 0) {
    dprintf(STDOUT_FILENO, "%s: died of signal %d\n", row.name, WTERMSIG(status));
  }
}

}  // namespace
}  // namespace heapwright::api

int main(int argc, char** argv) {
  const auto run_rows = [&](const auto& rows) {
    for (const heapwright::api::Row& row : rows) {
      if (argc < 2 || std::strstr(row.name, argv[1]) != nullptr) {
        heapwright::api::run(row);
      }
    }
  };
  run_rows(heapwright::api::kStandardRows);
#ifdef __GLIBC__
  run_rows(heapwright::api::kGlibcRows);
#endif
  run_rows(heapwright::api::kLibraryRows);
  run_rows(heapwright::api::kNewRows);
  return 0;
}
