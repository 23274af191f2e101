// Feeds files to a harness without libFuzzer: HARNESS FILE|FOLDER… A folder's files come in the
// order of their names.
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <vector>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);
// A harness may have this function, which judges the inputs of whole folders together.
extern "C" [[gnu::weak]] bool heapwright_corpus_is_complete();

int main(int argc, char** argv) {
  std::vector<std::filesystem::path> files;
  bool whole = false;
  for (int i = 1; i < argc; ++i) {
    if (!std::filesystem::is_directory(argv[i])) {
      files.emplace_back(argv[i]);
      continue;
    }
    whole = true;
    for (const auto& entry : std::filesystem::directory_iterator(argv[i])) {
      files.push_back(entry.path());
    }
  }
  std::sort(files.begin(), files.end());
  for (const auto& path : files) {
    std::ifstream file(path, std::ios::binary);
    const std::vector<char> bytes((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
    if (!file.is_open()) {
      (void)std::fprintf(stderr, "%s: cannot be read\n", path.c_str());
      return 1;
    }
    (void)std::fprintf(stderr, "%s\n", path.c_str());  // after a crash, the last name printed is the input that caused it
    (void)LLVMFuzzerTestOneInput(reinterpret_cast<const std::uint8_t*>(bytes.data()), bytes.size());
  }
  (void)std::printf("%zu inputs\n", files.size());
  return !whole || heapwright_corpus_is_complete == nullptr || heapwright_corpus_is_complete() ? 0 : 1;
}
