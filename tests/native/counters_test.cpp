// Tests the sum of the energy counters on files like the kernel's.
#include "counters.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "in_folder.h"

namespace heapwright::meter {
namespace {

class Energy : public InFolder {
 protected:
  void write(const std::string& domain, const std::string& file, const std::string& text) const {
    std::filesystem::create_directory(folder / domain);
    std::ofstream(folder / domain / file) << text << '\n';
  }
  // A domain whose counter wraps after 1 J.
  void add(const std::string& domain, const std::string& name, int microjoules) const {
    write(domain, "name", name);
    write(domain, "energy_uj", std::to_string(microjoules));
    write(domain, "max_energy_range_uj", "1000000");
  }
};

TEST_F(Energy, EveryWrapCounts) {
  add("intel-rapl:0", "package-0", 900'000);
  EnergyCounter counter(folder);
  double time = 0;
  for (const int value : {300'000, 700'000, 100'000}) {
    write("intel-rapl:0", "energy_uj", std::to_string(value));
    counter.tick(time += 60);
  }
  write("intel-rapl:0", "energy_uj", "200000");
  EXPECT_DOUBLE_EQ(counter.joules().value_or(0), 0.4 + 0.4 + 0.4 + 0.1);
}

TEST_F(Energy, TheWholePlatformIsNoPackage) {
  add("intel-rapl:0", "package-0", 0);
  add("intel-rapl:1", "psys", 0);
  add("intel-rapl:2", "package-1", 0);
  EnergyCounter counter(folder);
  for (const char* const domain : {"intel-rapl:0", "intel-rapl:1", "intel-rapl:2"}) {
    write(domain, "energy_uj", "250000");
  }
  EXPECT_DOUBLE_EQ(counter.joules().value_or(0), 0.5);
}

TEST_F(Energy, IsUnknownWithoutAllPackages) {
  EXPECT_FALSE(EnergyCounter(folder).works());
  add("intel-rapl:0", "package-0", 0);
  write("intel-rapl:1", "name", "package-1");  // its counter cannot be read
  EnergyCounter counter(folder);
  EXPECT_FALSE(counter.works());
  EXPECT_FALSE(counter.joules());
}

}  // namespace
}  // namespace heapwright::meter
