// Counts how often the current thread locks a mutex. The linker replaces pthread_mutex_lock; see
// CMakeLists.txt.
#pragma once

namespace envpack::test {

int LocksOfThisThread();

}  // namespace envpack::test
