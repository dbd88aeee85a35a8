// What C's streams hold at the end of a process.
#pragma once

namespace envpack {

// Writes what C's streams hold. Gives up after a second on streams that another thread has locked: one that
// waits for input, or for a reader of its output, never unlocks them. For a process that ends by _exit().
void FlushOutput() noexcept;

}  // namespace envpack
