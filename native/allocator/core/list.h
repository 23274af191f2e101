// Links items in a doubly linked list through their `next` and `previous` fields. A zeroed list is
// empty.
#pragma once

namespace heapwright::alloc {

template <class T>
struct List {
  T* first = nullptr;
  T* last = nullptr;

  void push_front(T* item) {
    item->previous = nullptr;
    item->next = first;
    (first != nullptr ? first->previous : last) = item;
    first = item;
  }
  void remove(T* item) {
    (item->previous != nullptr ? item->previous->next : first) = item->next;
    (item->next != nullptr ? item->next->previous : last) = item->previous;
  }
};

}  // namespace heapwright::alloc
