package sim

import (
	"fmt"
	"time"
)

// pause stops a process and continues it later, as SIGSTOP and SIGCONT do; see kvtest.Cluster.Pause
// for the differences.
type pause struct{ Server Target }

var _ = register("pause", 10, 8*time.Second, func(d *Dice) pause { return pause{d.Server()} })

// Begin implements Effect.
func (f pause) Begin(w *World) (string, func() string) {
	server, ok := w.find(f.Server)
	if !ok {
		return absent(f.Server)
	}
	w.Cluster.Pause(server)
	return fmt.Sprintf("server %d paused", server), func() string {
		w.Cluster.Resume(server)
		return fmt.Sprintf("server %d goes on", server)
	}
}
