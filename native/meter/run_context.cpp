// Starts the clocks of a run. At its ticks, reads the energy and writes the report so far. See
// backends.h.
#include "backends.h"
#include "procfs.h"

namespace heapwright::meter {

void RunContext::go() const {
  instructions.open(child.pid());
  const double time = now();
  outcome.start = time;
  ledger.start(time);
  watcher.started(child.pid(), time);
  supervisor.started(child.pid(), time);
  child.release();
}

void RunContext::tick(double time) {
  energy.tick(time);
  if (options.checkpoint_s <= 0 || options.output.empty() || time < next_checkpoint) {
    return;
  }
  if (next_checkpoint > 0) {
    Outcome so_far = outcome;
    so_far.unfinished = true;
    so_far.end = time;
    so_far.energy_j = energy.joules();
    (void)write_whole(options.output, to_json(so_far, ledger, watcher));  // the next one may succeed
  }
  next_checkpoint = time + options.checkpoint_s;
}

}  // namespace heapwright::meter
