// The ptrace back end. See backends.h and tracer.h.
#include "backends.h"

namespace heapwright::meter {

bool run_ptrace(RunContext& /*context*/, std::string& error) {
  error = "the ptrace back end is not built in yet";
  return false;
}

}  // namespace heapwright::meter
