package sim

import (
	"fmt"
	"time"

	"github.com/tidemarkdb/tidemark/kv/kvtest"
)

// messages loses, delays and repeats the Raft messages that a server sends; delays reorder them.
// Probabilities are in percent.
type messages struct {
	From   Target
	Lose   int `most:"100"`
	Late   int `most:"100"`
	Repeat int `most:"100"`
	Delay  time.Duration
}

var _ = register("messages", 10, 15*time.Second, func(d *Dice) messages {
	return messages{d.Server(), d.Of(0, 0, 5, 30), d.Of(0, 5, 30, 60), d.Of(0, 5, 30),
		d.Between(time.Millisecond, 500*time.Millisecond)}
})

// Begin implements Effect.
func (f messages) Begin(w *World) (string, func() string) {
	from, ok := w.find(f.From)
	if !ok {
		return absent(f.From)
	}
	set := func(faults kvtest.MessageFaults) {
		for to := range w.Cluster.Servers() {
			w.Cluster.Messages().Set(from, to, faults)
		}
	}
	set(kvtest.MessageFaults{Lose: f.Lose, Late: f.Late, Repeat: f.Repeat, MaxDelay: f.Delay})
	return fmt.Sprintf("messages from server %d get lost, late or repeated", from), func() string {
		set(kvtest.MessageFaults{})
		return fmt.Sprintf("messages from server %d arrive", from)
	}
}
