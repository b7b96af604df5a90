#pragma once

#include <cstdint>
#include <source_location>
#include <string>
#include <string_view>

#include "tutti/graph/input.h"

// Synchronisation between steps. Each resource declared here lives on its device under its name and
// is shared by all sessions that use the device. Waiting nodes occupy no core and are served in the
// order of their arrival; cancelling their step, or its timeout, removes them.
//
// Numbers of steps, workers and slots are int32 or int64 scalars, from 0 on.
namespace tutti {

// --- Mutex: one holder at a time, across steps and sessions.
Output Mutex(Graph& graph, std::string_view name = "",
             std::source_location where = std::source_location::current());
// Waits for the mutex and returns a token, an int64 scalar that MutexRelease needs. If the step
// fails or is cancelled before MutexRelease runs, the mutex is released when the step ends.
Output MutexAcquire(Input mutex, std::string_view name = "");
// Passes the mutex to the next waiter. FAILED_PRECONDITION unless `token` is the holder's.
Node* MutexRelease(Input mutex, Input token, std::string_view name = "");

// --- Barrier: BarrierWait waits until `participants` waiters have arrived; then a new round
// begins.
Output Barrier(Graph& graph, int64_t participants, std::string_view name = "",
               std::source_location where = std::source_location::current());
// Returns the number of the round, from 0 on.
Output BarrierWait(Input barrier, std::string_view name = "");

// --- Accumulator: sums contributions to a step from numbered slots (one for each worker). The sum
// is taken in the order of the slots, whatever the order of arrival, so it is the same to the bit.
Output Accumulator(Graph& graph, DType dtype, const Shape& shape, std::string_view name = "",
                   std::source_location where = std::source_location::current());
struct AccumulatorApplyOptions {
  // Ignore a repeated contribution of a slot to a step, even if the step was taken meanwhile (one
  // of the last 1024), because a push may be sent twice.
  bool once = false;
};
// Contributes a tensor of the accumulator's shape. Unless `once` says otherwise: ALREADY_EXISTS
// when that slot has contributed to that step; FAILED_PRECONDITION when the step was taken.
Node* AccumulatorApply(Input accumulator, Input step, Input slot, Input gradient,
                       const AccumulatorApplyOptions& options = {}, std::string_view name = "");
// Contributes rows[i] at row indices[i]; repeated indices add up.
Node* AccumulatorApplyRows(Input accumulator, Input step, Input slot, Input indices, Input rows,
                           const AccumulatorApplyOptions& options = {}, std::string_view name = "");
// Waits for the contributions of all `slots` (an integer vector) to `step`, returns their sum, and
// forgets them and whatever is left of earlier steps. While it waits, contributions are added to
// the sum as soon as those of all smaller slots are, and their memory is given back: a Take that
// comes early keeps the accumulator small.
Output AccumulatorTake(Input accumulator, Input step, Input slots, std::string_view name = "");
struct AccumulatedRows {
  Output indices;  // int64; a row may be named several times
  Output rows;
};
// The same for accumulators that were given rows only: all of them, one slot after the other.
AccumulatedRows AccumulatorTakeRows(Input accumulator, Input step, Input slots,
                                    std::string_view name = "");

// --- Gate: admits the first `admit` of `workers` to a step; the rest are refused and counted.
Output Gate(Graph& graph, int64_t admit, int64_t workers, std::string_view name = "",
            std::source_location where = std::source_location::current());
// True if `worker` is admitted to `step`. Never waits; asking again gives the same answer. False
// for steps that are 1024 or more behind the newest.
Output GateEnter(Input gate, Input step, Input worker, std::string_view name = "");
// Waits until admission to `step` is complete and returns the admitted workers: an int64 vector,
// ascending. Admission is complete when `admit` workers have entered, or all workers that have not
// left.
Output GateAdmitted(Input gate, Input step, std::string_view name = "");
// True if `worker` was admitted to `step`. Never waits, and admits nobody.
Output GateContains(Input gate, Input step, Input worker, std::string_view name = "");
// Removes `worker`: no step waits for it any more, and it cannot enter.
Node* GateLeave(Input gate, Input worker, std::string_view name = "");
// `worker` rejoins, or was restarted before its loss was noticed. Returns the newest step, which it
// may enter; only later steps wait for it.
Output GateJoin(Input gate, Input worker, std::string_view name = "");
// How many entries were refused so far: an int64 scalar.
Output GateRefused(Input gate, std::string_view name = "");
// The same by worker: an int64 vector.
Output GateRefusals(Input gate, std::string_view name = "");

// --- Clock: how far each of `workers` has come, for bounded staleness.
Output Clock(Graph& graph, int64_t workers, std::string_view name = "",
             std::source_location where = std::source_location::current());
// `worker` has finished one more step; returns how many.
Output ClockAdvance(Input clock, Input worker, std::string_view name = "");
// Waits until `worker` is at most `staleness` steps ahead of the slowest worker; returns the count
// of the slowest.
Output ClockWait(Input clock, Input worker, Input staleness, std::string_view name = "");
// `worker` is gone: nobody waits for it any more.
Node* ClockLeave(Input clock, Input worker, std::string_view name = "");
// `worker` rejoins, or was restarted before its loss was noticed. Sets its count to that of the
// slowest other worker and returns that count. A ClockWait of its previous process ends with
// ABORTED.
Output ClockJoin(Input clock, Input worker, std::string_view name = "");

// --- Dispenser: hands out the numbers 0, 1, 2, ... to `workers`, each once. If a worker is lost,
// its unfinished numbers are handed out again. A worker takes its next number while it works on the
// current one, so its last two numbers count as unfinished.
Output Dispenser(Graph& graph, int64_t workers, std::string_view name = "",
                 std::source_location where = std::source_location::current());
// A number for `worker`: the smallest that was given back, else the next one.
Output DispenserTake(Input dispenser, Input worker, std::string_view name = "");
// `worker` is lost: its last numbers will be handed out again. Returns them in the order in which
// it took them: an int64 vector of 2, with -1 for none.
Output DispenserReturn(Input dispenser, Input worker, std::string_view name = "");
// Starts again at 0. No worker holds a number.
Node* DispenserReset(Input dispenser, std::string_view name = "");

// --- Ledger: the newest step that each of `workers` has entered, so that a push which is sent
// twice counts once.
Output Ledger(Graph& graph, int64_t workers, std::string_view name = "",
              std::source_location where = std::source_location::current());
// True if `step` is newer than all steps that `worker` has entered. Use it as the scale of an
// update, Cast(entered, dtype): a scale of 0 changes nothing. If the run fails, the entry is
// undone, unless LedgerConfirm has run.
Output LedgerEnter(Input ledger, Input worker, Input step, std::string_view name = "");
// To run after the update: the entry of `step` stays even if the run fails later.
Node* LedgerConfirm(Input ledger, Input worker, Input step, std::string_view name = "");

}  // namespace tutti
