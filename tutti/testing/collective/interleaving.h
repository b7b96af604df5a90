#pragma once

#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "tutti/collective/schedule/schedule.h"

// A second opinion on schedules, for tests: it shares no code with the verifier but MustWait and
// what names a step, and is written to be read, not to be fast.
namespace tutti::collective {

// Plays the schedule once, with steps starting and ending in random order as the rules allow. Every
// piece of data is a random number, so sums tell what is in them. Some games are played by a
// machine that starts steps in list order and lets sends wait for their receives, the others by one
// that starts whatever may start and lets sends end early. Empty if the result is right and nothing
// odd happened; else what went wrong.
std::string PlayOnce(const Schedule& schedule, std::mt19937_64& random);

// Draws every order between steps that the rules give (signal and await between ranks), closes it
// transitively, and looks at all pairs of steps that touch one piece, one of them writing. Empty if
// all are ordered; else names a pair.
std::string FindUnordered(const Schedule& schedule);

}  // namespace tutti::collective
