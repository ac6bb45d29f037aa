// Package watchdog runs a command that has to end by a deadline, whatever becomes of the process
// that has started the command.
//
// # The processes
//
// A command runs in a process group of its own, with all that it starts. The leader of that group
// is not the command but a small process that watches over it, the watchdog: this program again,
// under another name, which Main recognises. So there is a group before there is a command in it,
// and the number of the group is that of no other one for as long as the watchdog lives.
//
//	this process ─┬─ watchdog   leads the group G; told by a pipe until when the command may run
//	              └─ command    in the group G, and so is what it starts
//
// This process tells the watchdog of each later deadline, and that the command is to end. The
// watchdog sends SIGTERM to the group when the command is told to end, or as long before the
// deadline as the command has patience, and SIGKILL when the patience is over, at the latest at the
// deadline. If this process ends without a word, the pipe ends too, and the watchdog kills the
// group at once.
//
// # What may fail
//
//   - This process stands still (SIGSTOP, swapping): the watchdog keeps the deadline.
//   - This process is killed: the watchdog kills the group. On Linux the kernel kills the command
//     besides (Pdeathsig), also if the watchdog was killed with this process.
//   - The watchdog is killed: this process notices, and ends the command, since nothing else would
//     keep the deadline if this process stood still. On Linux the kernel kills nothing then.
//   - The watchdog stands still: this process has it go on (SIGCONT) when there is something to do,
//     and kills the command at the deadline by itself if it does not.
//   - Both stand still, or the machine is suspended: what is left to do is done when they go on.
//     The deadline is one of a clock that goes on in a suspended machine (Clock).
//   - Numbers of processes are given out again. The group has that of the watchdog, which is not
//     waited for before the group has had its last signal; and before a group is signalled that the
//     command has made for itself, it is seen that the command has not been waited for.
//   - What leaves the group, as the jobs of an interactive shell do, is not ended; the command
//     itself is, with the group that it has made.
//
// # The terminal
//
// A command that reads from the terminal, and is interrupted from it, has to be in the foreground
// group of the terminal. On Linux, if this process is in the foreground, its place is given to the
// command's group, at once or when the command asks for it by using the terminal. When the command
// is stopped from the terminal, this process takes the terminal back and stops as well, so that the
// shell sees its job stop, and both go on together. Ctrl-Z stops this process alone while the
// command has no use for the terminal, as behind a pipe: it then has until the deadline. On other
// systems a command that is started from a terminal stays in the group of this process, and is
// watched without what it starts.
//
// The package imports nothing of Tidemark.
package watchdog
