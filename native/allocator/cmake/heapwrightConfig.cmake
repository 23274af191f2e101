# find_package(heapwright): heapwright's allocators, and a function that puts one into a program.
#
#   heapwright::exgen  heapwright::reaper               the archives (also exgen-secure, reaper-secure)
#   heapwright::exgen_shared  heapwright::reaper_shared the shared libraries
#
#   heapwright_link_malloc(TARGET [ALLOCATOR exgen|reaper|...] [STUDY FILE [PICK memory|time|balanced]]
#                          [OPTIONS keep=64m,...] [SHARED] [SECURE] [NO_PLUGINS])
#
# Links a program with an allocator. Without ALLOCATOR the program is looked at when it is linked: exgen if it has one
# thread, else reaper. That, STUDY and OPTIONS need the command `heapwright` (HEAPWRIGHT_COMMAND), which becomes the launcher
# of the target's link step; ALLOCATOR alone needs nothing but this file.
include("${CMAKE_CURRENT_LIST_DIR}/heapwrightTargets.cmake")

# In a wheel: .../bin/heapwright and .../lib/pythonX.Y/site-packages/heapwright/_native/lib/cmake/heapwright
find_program(HEAPWRIGHT_COMMAND heapwright HINTS "${CMAKE_CURRENT_LIST_DIR}/../../../../../../../../bin"
  DOC "The command heapwright, for link steps that choose the allocator")

function(heapwright_link_malloc target)
  cmake_parse_arguments(PARSE_ARGV 1 given "SHARED;SECURE;NO_PLUGINS" "ALLOCATOR;STUDY;PICK;OPTIONS" "")
  if(given_UNPARSED_ARGUMENTS OR given_KEYWORDS_MISSING_VALUES)
    message(FATAL_ERROR "heapwright_link_malloc(${target}): not understood: ${given_UNPARSED_ARGUMENTS}"
      "${given_KEYWORDS_MISSING_VALUES}")
  endif()
  get_target_property(kind ${target} TYPE)
  if(NOT kind STREQUAL "EXECUTABLE")
    message(FATAL_ERROR "heapwright_link_malloc(${target}): only programs have an allocator, and this target is not a program")
  endif()
  set(secure "")
  if(given_SECURE)
    set(secure "-secure")
  endif()
  if(given_ALLOCATOR AND NOT given_STUDY AND NOT given_OPTIONS)
    set(library "heapwright::${given_ALLOCATOR}${secure}")
    if(given_SHARED)
      string(APPEND library "_shared")
    endif()
    if(NOT TARGET ${library})
      message(FATAL_ERROR "heapwright_link_malloc(${target}): there is no ${library}")
    endif()
    target_link_libraries(${target} PRIVATE ${library})
    get_target_property(options ${target} LINK_OPTIONS)
    set(options " ${options} ${CMAKE_EXE_LINKER_FLAGS} ")
    # A static program needs all functions of threads, or none: native/allocator/platform/thread_functions.cpp.
    if("${options}" MATCHES "[ ;]-static(-pie)?[ ;]")
      target_link_options(${target} PRIVATE "LINKER:-u,heapwright_thread_functions")
    endif()
    # Our operator new refers to std::__throw_bad_alloc weakly, because C programs have none. A static C++ runtime then
    # leaves it out.
    if("${options}" MATCHES "[ ;]-static(-pie|-libstdc\\+\\+)?[ ;]")
      target_link_options(${target} PRIVATE "$<$<LINK_LANGUAGE:CXX>:LINKER:-u,_ZSt17__throw_bad_allocv>")
    endif()
    return()
  endif()
  if(NOT HEAPWRIGHT_COMMAND)
    message(FATAL_ERROR "heapwright_link_malloc(${target}): the command heapwright is not to be found: set "
      "HEAPWRIGHT_COMMAND, or name an ALLOCATOR")
  endif()
  set(words "${HEAPWRIGHT_COMMAND}" link)
  foreach(option ALLOCATOR PICK OPTIONS)
    if(given_${option})
      string(TOLOWER ${option} name)
      list(APPEND words --${name} "${given_${option}}")
    endif()
  endforeach()
  if(given_STUDY)
    get_filename_component(study "${given_STUDY}" ABSOLUTE)
    list(APPEND words --study "${study}")
    set_property(TARGET ${target} APPEND PROPERTY LINK_DEPENDS "${study}")
  endif()
  foreach(option SHARED SECURE NO_PLUGINS)
    if(given_${option})
      string(TOLOWER ${option} name)
      string(REPLACE "_" "-" name ${name})
      list(APPEND words --${name})
    endif()
  endforeach()
  set(launcher "")
  foreach(word ${words})
    string(APPEND launcher "\"${word}\" ")
  endforeach()
  # Not <LANG>_LINKER_LAUNCHER, which Fortran does not have.
  set_property(TARGET ${target} PROPERTY RULE_LAUNCH_LINK "${launcher}--")
endfunction()
