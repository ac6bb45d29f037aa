package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"
)

// farthest is the largest offset of a clock within the bound. Two clocks may differ by twice this
// offset.
const farthest = maxOffset * 2 / 5

func clockWithin(w *world, random *rand.Rand, _ time.Duration) (*fault, error) {
	server, offset := anyServer(random), between(random, -farthest, farthest)
	if err := w.setClock(server, offset); err != nil {
		return nil, err
	}
	return &fault{
		what: fmt.Sprintf("the clock of %s is set %v off", w.servers[server].Name,
			offset.Round(ms)),
		end: func() error { return w.setClock(server, 0) },
	}, nil
}

// clockBeyond sets the clock of a node off by more than the bound of the cluster. The node must
// notice this, and must serve nothing.
func clockBeyond(w *world, random *rand.Rand, hold time.Duration) (*fault, error) {
	server, offset := anyNode(random), between(random, 2*maxOffset, 5*time.Second)
	if random.IntN(2) == 0 {
		offset = -offset
	}
	if err := w.setClock(server, offset); err != nil {
		return nil, err
	}
	name := w.servers[server].Name
	return &fault{
		what:   fmt.Sprintf("the clock of %s is set %v off", name, offset.Round(ms)),
		effect: effect{gone: servers(server)},
		end: func() error {
			ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
			defer cancel()
			// This is a finding, not a violation: on a machine that has no time for the node, the node
			// measures late.
			if w.servers[server].Ready(ctx) == nil {
				w.journal.finding("%s says that it is ready after %v with a clock that is %v off",
					name, hold.Round(ms), offset.Round(ms))
			}
			return w.setClock(server, 0)
		},
	}, nil
}
