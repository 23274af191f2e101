// Asks the dynamic linker for the addresses of C++'s basic operators.
//
// A source of its own: where our operators are defined, a compiler may take them for these.
#include "basic_operators.h"

namespace heapwright::alloc::entry {

constinit const BasicOperators basic_operators = {::operator new,    ::operator new[],   ::operator new,
                                                  ::operator new[],  ::operator delete,  ::operator delete[],
                                                  ::operator delete, ::operator delete[]};

}  // namespace heapwright::alloc::entry
