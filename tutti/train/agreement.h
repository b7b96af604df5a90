#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tutti {

namespace collective {
class Communicator;
}

// The text of every rank, by rank. All ranks call it alike. Throws Error.
std::vector<std::string> GatherTexts(collective::Communicator& communicator, std::string_view key,
                                     std::string_view own);

// A name and a value that all workers must have alike: {"batch-size", "64"}.
using Fact = std::pair<std::string, std::string>;

// Throws Error (kInvalidArgument) on every worker unless all have the same facts, and the same
// version of Tutti; it names the worker that differs from worker 0, and the first difference.
void RequireAgreement(collective::Communicator& communicator, const std::vector<Fact>& facts);

// A long text as 16 digits, the same on every machine, to be compared as a fact.
std::string Digest(std::string_view text);

// The first difference between two lists of facts as "batch-size is 32, expected 64"; empty if
// there is none.
std::string FirstDifference(const std::vector<Fact>& expected, const std::vector<Fact>& found);

}  // namespace tutti
