// Ctrl-C: the first one asks to stop at the next good moment, a second one ends the process.
#ifndef INFERSCALE_CLI_INTERRUPT_H_
#define INFERSCALE_CLI_INTERRUPT_H_

namespace inferscale {

// From now on SIGINT and SIGTERM only set the flag that Interrupted() reads, once; calling it again
// clears the flag.
void CatchInterrupt();
bool Interrupted();

}  // namespace inferscale

#endif  // INFERSCALE_CLI_INTERRUPT_H_
