package sim

import (
	"fmt"
	"time"
)

// wipe empties a server's disk. The server comes back with the empty disk, and must not take the
// place of its former node or core member. The data on the disk are gone for good, and their
// partitions lack a replica until it is replaced. So the next wipe happens only when all replicas
// are there again. A member of the core is wiped at most once in a run, and never if the core has
// one member. No server is wiped after the core's members have begun to change.
type wipe struct{ Server Target }

var wipes = register("wipe", 0, 10*time.Second, func(d *Dice) wipe {
	if d.Cores == 1 {
		return wipe{Target(fmt.Sprint(1 + d.IntN(d.Servers-1)))}
	}
	return wipe{d.Number()}
})

// Begin implements Effect.
func (f wipe) Begin(w *World) (string, func() string) {
	server, ok := w.find(f.Server)
	if !ok || !w.mayWipe(server) {
		return absent(f.Server)
	}
	w.kill(0, server)
	if err := w.Cluster.Wipe(server); err != nil {
		w.Violation("wiping server %d: %v", server, err)
	}
	return fmt.Sprintf("server %d lost its disk", server), func() string {
		w.start(server)
		return fmt.Sprintf("server %d started with an empty disk", server)
	}
}
