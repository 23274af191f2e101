// Writes a file under a temporary name beside its own and renames it when it is complete, so that a
// file with the final name is always complete. A draft that is not published is removed.
//
// The draft is always a new file: any file with its name, such as the draft of a killed process or
// a symbolic link that somebody placed there, is removed first and never written through.
#pragma once

#include <sys/types.h>

#include <string>

namespace heapwright {

class DraftFile {
 public:
  DraftFile() = default;
  DraftFile(const DraftFile&) = delete;
  DraftFile& operator=(const DraftFile&) = delete;
  ~DraftFile() { discard(); }

  // Creates the draft of the file `path`, named PATH.PID.part, with the permissions `mode` (less
  // the umask). Returns a descriptor for reading and writing, which the caller owns and closes; -1
  // with errno set if the file cannot be created. Any file at `path` that is not a regular one is
  // an error (EISDIR, EEXIST): publish() would replace a device or a pipe, for root also /dev/null.
  int create(const std::string& path, mode_t mode = 0666);

  // Renames the draft to its final name; the caller has closed it. Returns false with errno set,
  // and removes the draft, if the file cannot be renamed.
  bool publish();

  // Removes the draft, if there is one, and keeps errno. A descriptor of it stays usable.
  void discard();

 private:
  std::string path_;
  std::string draft_;  // empty: there is no draft
};

}  // namespace heapwright
