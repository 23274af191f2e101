// Explores remote frees in every order: one superblock of a few blocks, and two or three heaps that
// allocate, disown, return, claim and reclaim, and take the superblock from each other.
//
// The test runs the real queue (core/remote_queue.h) with an atomic that yields before each
// operation. Around it, a mirror repeats step by step the code of core/owned_superblocks.h and
// core/superblocks_from_others.h (send, return_blocks, take_from_another_heap, requeue_or_release,
// release). A step is one operation on data that another thread may read. In every order these must
// hold: a superblock is in at most one heap's queue, and only that heap changes it; no block is in a
// list twice; counts agree. At the end, without any further action, every free block can be found,
// and a superblock all of whose blocks are free has been released exactly once.
//
// Breaking the mirror in one place at a time shows that the checker finds errors.
//
// Not covered: orders that are not sequentially consistent (ThreadSanitizer checks these, in
// threads/); a superblock that is released and started again while a thread still pushes to it;
// more than one superblock (deadlock is impossible because no thread holds two heaps' locks); the
// thread caches, which no other thread sees.
#include "remote_model.h"

#include <gtest/gtest.h>

#include <functional>
#include <vector>

namespace heapwright::alloc::model {
namespace {

struct Case {
  const char* name;
  std::uint32_t capacity;
  std::uint32_t left;                                // blocks 0 to left - 1 have not been handed out yet
  std::uint32_t live;                                // at the end
  std::vector<std::function<void(World&)>> threads;  // heap i is thread i
};

void PrintTo(const Case& one, std::ostream* out) { *out << one.name; }

const Case kCases[] = {
    {"TheOwnerLeavesAsOneComes",
     3,
     1,
     1,
     {[](World& w) { w.return_blocks(0, w.allocate_the_rest(0)); }, [](World& w) { w.send(1, 1, 1); }}},
    {"TheOwnerLeavesAndReturnsAsOthersClaim",
     4,
     1,
     0,
     {[](World& w) { w.return_blocks(0, w.allocate_the_rest(0)); }, [](World& w) { w.send(1, 1, 2); },
      [](World& w) { w.send(2, 3, 1); }}},
    {"TwoPushersWithTwoChainsAndAnOwnerThatSleeps",
     6,
     2,
     0,
     {[](World&) {},
      [](World& w) {
        w.send(1, 2, 1);
        w.send(1, 3, 1);
      },
      [](World& w) {
        w.send(2, 4, 1);
        w.send(2, 5, 1);
      }}},
    {"APusherWithTwoChainsAndOneBlockStays",
     5,
     1,
     1,
     {[](World& w) { w.return_blocks(0, w.allocate_the_rest(0)); },
      [](World& w) {
        w.send(1, 1, 1);
        w.send(1, 2, 2);
      }}},
    {"APusherWithThreeChains",
     6,
     1,
     0,
     {[](World& w) { w.return_blocks(0, w.allocate_the_rest(0)); },
      [](World& w) {
        w.send(1, 1, 2);
        w.send(1, 3, 1);
        w.send(1, 4, 2);
      }}},
    {"WhoClaimsGivesBackItsOwn",
     5,
     1,
     0,
     {[](World& w) { w.return_blocks(0, w.allocate_the_rest(0)); },
      [](World& w) {
        w.send(1, 1, 2);
        w.return_blocks(1, 3, 2);
      }}},
    {"TwoClaimWhatNobodyOwns",
     5,
     0,
     0,
     {[](World& w) { w.return_blocks(0, w.allocate_the_rest(0)); },
      [](World& w) {
        w.send(1, 0, 1);
        w.return_blocks(1, 1, 1);
      },
      [](World& w) { w.return_blocks(2, 2, 3); }}},
    {"TheLastTwoMeet",
     4,
     1,
     0,
     {[](World& w) { w.return_blocks(0, 1, 2); }, [](World& w) { w.send(1, 3, 1); }}},
    {"TheLastThreeMeet",
     5,
     1,
     0,
     {[](World& w) { w.return_blocks(0, 1, 2); }, [](World& w) { w.send(1, 3, 1); },
      [](World& w) { w.send(2, 4, 1); }}},
    {"AnOwnerThatSleeps",
     6,
     2,
     0,
     {[](World&) {}, [](World& w) { w.send(1, 2, 2); },
      [](World& w) {
        w.send(2, 4, 1);
        w.return_blocks(2, 5, 1);
      }}},
    {"AnotherHeapTakesItAsTheLastBlocksCome",
     5,
     2,
     0,
     {[](World& w) { w.return_blocks(0, 2, 2); }, [](World& w) { w.take_from(0, 1); },
      [](World& w) { w.send(2, 4, 1); }}},
    {"AnotherHeapTakesItAsItsOwnerUsesItUp",
     4,
     2,
     1,
     {[](World& w) { w.return_blocks(0, w.allocate_the_rest(0)); }, [](World& w) { w.take_from(0, 1); },
      [](World& w) { w.send(2, 2, 1); }}},
    {"TwoHeapsTakeItFromEachOther",
     4,
     2,
     0,
     {[](World& w) { w.take_from(1, 0); },
      [](World& w) {
        w.take_from(0, 1);
        w.return_blocks(1, 2, 1);
      },
      [](World& w) { w.send(2, 3, 1); }}},
};

// Has too many states to be explored completely, but finds kLooksOnce.
const Case kWide = {"TwoPushersWithTwoChains",
                    6,
                    1,
                    0,
                    {[](World& w) { w.return_blocks(0, w.allocate_the_rest(0)); },
                     [](World& w) {
                       w.send(1, 1, 1);
                       w.send(1, 2, 1);
                     },
                     [](World& w) {
                       w.send(2, 3, 2);
                       w.send(2, 5, 1);
                     }}};

std::string explore(const Case& one, Broken broken, std::size_t& states) {
  World world;
  world.broken = broken;
  std::vector<std::function<void()>> threads;
  for (const auto& thread : one.threads) {
    threads.emplace_back([&world, &thread] { thread(world); });
  }
  Scheduler scheduler;
  const std::string wrong =
      scheduler.explore([&] { world.begin(one.capacity, one.left); }, threads, [&] { return world.digest(); },
                        [&] { return world.verdict(one.live); });
  states = scheduler.states;
  return wrong;
}

class RemoteModel : public testing::TestWithParam<Case> {};

TEST_P(RemoteModel, IsRightInEveryOrder) {
#ifdef __SANITIZE_ADDRESS__
  GTEST_SKIP() << "AddressSanitizer does not follow the threads' stacks";
#endif
  std::size_t states = 0;
  EXPECT_EQ(explore(GetParam(), Broken::kNothing, states), "");
  EXPECT_GT(states, 20U) << "hardly anything was explored";
  RecordProperty("states", static_cast<int>(states));
}

INSTANTIATE_TEST_SUITE_P(Cases, RemoteModel, testing::ValuesIn(kCases),
                         [](const auto& given) { return given.param.name; });

TEST(RemoteModelItself, FindsWhatIsBroken) {
#ifdef __SANITIZE_ADDRESS__
  GTEST_SKIP() << "AddressSanitizer does not follow the threads' stacks";
#endif
  for (int i = 1; i <= static_cast<int>(Broken::kStaysQueued); ++i) {
    std::string found;
    for (const Case& one : kCases) {
      std::size_t states = 0;
      if (found = explore(one, static_cast<Broken>(i), states); !found.empty()) {
        break;
      }
    }
    if (std::size_t states = 0; i == static_cast<int>(Broken::kLooksOnce)) {
      found = explore(kWide, Broken::kLooksOnce, states);
    }
    EXPECT_NE(found, "") << "broken in way " << i << ", and not noticed";
  }
}

}  // namespace
}  // namespace heapwright::alloc::model
