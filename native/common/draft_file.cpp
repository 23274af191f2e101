#include "draft_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <utility>

namespace heapwright {

int DraftFile::create(const std::string& path, mode_t mode) {
  discard();
  struct stat existing{};
  if (::stat(path.c_str(), &existing) == 0 && !S_ISREG(existing.st_mode)) {
    errno = S_ISDIR(existing.st_mode) ? EISDIR : EEXIST;
    return -1;
  }
  // With the draft's suffix, a name has at most 255 bytes. The ends of names differ: t and
  // t.threads.
  constexpr std::size_t kMaxName = 200;
  const std::size_t slash = path.rfind('/') + 1;  // 0 if there is none
  const std::size_t name = std::max(slash, path.size() - std::min(path.size(), kMaxName));
  std::string draft = path.substr(0, slash) + path.substr(name) + "." + std::to_string(::getpid()) + ".part";
  (void)::unlink(draft.c_str());
  const int file = ::open(draft.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, mode);
  if (file >= 0) {
    path_ = path;
    draft_ = std::move(draft);
  }
  return file;
}

bool DraftFile::publish() {
  if (std::rename(draft_.c_str(), path_.c_str()) != 0) {
    discard();
    return false;
  }
  draft_.clear();
  return true;
}

void DraftFile::discard() {
  if (!draft_.empty()) {
    const int error = errno;
    (void)::unlink(draft_.c_str());
    errno = error;
    draft_.clear();
  }
}

}  // namespace heapwright
