// What people read: text that is cut off, and what C's streams hold at the end of a process.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace envpack {

// Prints one line to standard error, which the server shows: `what`, and behind a colon `why`, if any.
void Print(std::string_view what, std::string_view why = "");

// At most so many bytes of a UTF-8 text, with "..." behind them if it is longer.
std::string Beginning(const std::string& text, std::size_t most);

// Writes what C's streams hold. Gives up after a second on streams that another thread has locked: one that
// waits for input, or for a reader of its output, never unlocks them. For a process that ends by _exit().
void FlushOutput() noexcept;

// Ends the process without destructors of libraries, and without joining the threads that a model has left
// running, which may use the wire until then.
[[noreturn]] void ExitFlushed(int status);

}  // namespace envpack
