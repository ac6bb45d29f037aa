// Package watchdog runs a command that has to end by a deadline, whatever happens to the process
// that has started the command.
//
// # The processes
//
// A command runs in a process group of its own, together with its child processes. The leader of
// the group is not the command but a small process, the watchdog: this program again, under another
// name, which Main recognises. So the group exists before the command does, and no other group gets
// the number of the group as long as the watchdog lives.
//
//	this process ─┬─ watchdog   leads the group G; gets the deadline through a pipe
//	              └─ command    in the group G, with its child processes
//
// This process tells the watchdog of each later deadline, and of the wish to end the command. The
// watchdog sends SIGTERM to the group when the command should end, or when the time to the deadline
// equals the command's patience. It sends SIGKILL when the patience is over, at the latest at the
// deadline. If this process ends without telling the watchdog, the pipe ends, and the watchdog
// kills the group at once.
//
// # What may fail
//
//   - This process is stopped (SIGSTOP, swapping): the watchdog keeps the deadline.
//   - This process is killed: the watchdog kills the group. On Linux the kernel also kills the
//     command (Pdeathsig), even if the watchdog was killed with this process.
//   - The watchdog is killed: this process notices, and ends the command, because nothing else
//     would keep the deadline if this process were stopped. On Linux the kernel kills nothing then.
//   - The watchdog is stopped: this process continues it (SIGCONT) when there is something to do,
//     and kills the command at the deadline by itself if the watchdog does not.
//   - Both are stopped, or the machine is suspended: they act when they continue. The deadline uses
//     a clock that continues in a suspended machine (Clock).
//   - The system reuses numbers of processes. The group has the number of the watchdog, which is
//     not waited for before the last signal to the group. Before a signal to a group that the
//     command has made, this process checks that the command has not been waited for.
//   - Processes that leave the group, as the jobs of an interactive shell do, are not ended; the
//     command itself is, with the group that it has made.
//
// # The terminal
//
// A command that reads from the terminal, or that Ctrl-C should interrupt, has to be in the
// foreground group of the terminal. On Linux, if this process is in the foreground, it gives the
// foreground to the command's group, at once or when the command uses the terminal. When the
// command is stopped from the terminal, this process takes the foreground back and stops as well,
// so that the shell sees its job stop. Both continue together. While the command does not use the
// terminal, for instance behind a pipe, Ctrl-Z stops only this process. The command then has time
// until the deadline. On other systems a command that is started from a terminal stays in the group
// of this process, and only the command itself is ended, without its child processes.
//
// The package imports nothing of Tidemark.
package watchdog
