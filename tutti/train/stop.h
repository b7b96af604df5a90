#pragma once

namespace tutti {

// A request to end the training after the current step, made by a signal to this process, or by a
// signal to another worker, which arrives here at the end of a step. There is one per process.
// Thread-safe; RequestStop may be called by a signal handler.
bool StopRequested();
int StopSignal();              // its number; 0: nobody asked
void RequestStop(int signal);  // 0 takes the request back
// RequestStop by a signal to this process; false if there was one before. A request of another
// worker is no signal: a launcher may signal tasks one after the other.
bool FirstStopSignal(int signal);

}  // namespace tutti
