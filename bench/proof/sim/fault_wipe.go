package sim

import (
	"fmt"
	"time"
)

// wipe takes a server's disk away; it comes back with an empty one. It must not take the place of
// the node, nor of the core's member, that it was. The data on the disk are gone for good, and
// their partitions have a replica less until that is replaced: so there is another wipe only when
// all replicas are there again. A member of the core is wiped once in a run, and never one of a
// core with one member.
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
