#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tutti {

class Peers;

// A name and a value that all workers must have alike: {"batch-size", "64"}.
using Fact = std::pair<std::string, std::string>;

// All workers are about to do the same, `call` ("Train (call 1)"), with the same facts and the same
// version of Tutti; else an Error (kInvalidArgument) is thrown on every worker, which names the
// worker that differs from worker 0, and the first difference. Every call that needs all workers
// begins with it, so that workers whose programs take different ways do not wait for each other.
void RequireAgreement(Peers& peers, std::string_view call, const std::vector<Fact>& facts);

// A long text as 16 digits, the same on every machine, to be compared as a fact.
std::string Digest(std::string_view text);

// The first difference between two lists of facts as "batch-size is 32, expected 64"; empty if
// there is none.
std::string FirstDifference(const std::vector<Fact>& expected, const std::vector<Fact>& found);

}  // namespace tutti
