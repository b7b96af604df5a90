#pragma once

namespace tutti {

// A request that the training ends after the current step: made by a signal to this process, or by
// one to another worker, which this one learns of at the end of the step. There is one per process.
// Thread-safe; RequestStop may be called by a signal handler.
bool StopRequested();
int StopSignal();                   // its number; 0: nobody asked
void RequestStop(int signal);       // 0 takes the request back
bool FirstStopRequest(int signal);  // RequestStop; false if there was a request before

}  // namespace tutti
