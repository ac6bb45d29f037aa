//go:build unix && !linux

package watchdog

import (
	"os"
	"syscall"
)

// terminal is the controlling terminal of this process; nil if there is none.
type terminal struct{}

func openTerminal() *terminal {
	file, err := os.OpenFile("/dev/tty", os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		return nil
	}
	_ = file.Close()
	return &terminal{}
}

// ownGroup reports whether a command can have its own group. At a terminal it cannot, because it
// could not read from the terminal.
func (t *terminal) ownGroup() bool { return t == nil }

func (*terminal) begin(int, bool)            {}
func (*terminal) follow(int)                 {}
func (*terminal) end()                       {}
func (*terminal) interrupted(syscall.Signal) {}
func (*terminal) close()                     {}
