// Counts how often the current thread locks a shared mutex briefly. The linker replaces the constructor of
// shm::BriefLock; see CMakeLists.txt.
#pragma once

namespace envpack::test {

int LocksOfThisThread();

}  // namespace envpack::test
