// Forbids transparent huge pages for the process: a library that `heapwright apply` preloads.
//
// The kernel keeps the state through fork and exec, so programs that the process starts inherit it.
// Memory that the loader touched before this runs is less than one huge page. The return value is
// not checked: a program must start where the kernel has no such call.
#include <sys/prctl.h>

namespace {

__attribute__((constructor)) void forbid_huge_pages() { prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0); }

}  // namespace
