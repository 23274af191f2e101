// Reads the recorder's variables: from the environment that the process was started with, and from
// the settings file of an exported recorder.
#pragma once

#include <cstddef>

namespace heapwright::recorder {

// Returns the value of a variable in the environment that the process was started with, nullptr if
// it is not set. Reads a copy of /proc/self/environ, because libc may not have set up its own
// environment yet.
//
// environment  the copy: NAME=VALUE strings, each with a zero after it
// bytes        its length
// name         the variable
const char* variable(const char* environment, std::size_t bytes, const char* name);

// Appends the settings file to a copy of the environment: NAME=VALUE lines in a file that lies
// beside this library and has its name, with .conf in place of .so. So the environment's variables
// win. Returns the number of bytes that it appended.
//
// to    behind the copy
// room  bytes there
std::size_t append_settings(char* to, std::size_t room);

// Sets `sampling` from a copy of the environment and of the settings file.
void read_sampling(const char* environment, std::size_t bytes);

}  // namespace heapwright::recorder
