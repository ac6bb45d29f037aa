package sim

import (
	"fmt"
	"time"
)

// away cuts clients off from all servers. Other clients must decide the outcome of the transactions
// that these clients began, and may not know what these clients have been told.
type away struct {
	Clients []int
	Mode    string `one:"broken silent"`
}

var clientsAway = register("clients-away", 0, 20*time.Second, func(d *Dice) away {
	return away{d.SomeClients(), d.Mode()}
})

// Begin implements Effect.
func (f away) Begin(w *World) (string, func() string) {
	w.count("cuts")
	n := w.Cluster.Network()
	each := func(do func(client, server string)) {
		for _, c := range f.Clients {
			for server := range w.Cluster.Servers() {
				do(fmt.Sprintf("client-%d", c), w.Cluster.Host(server))
			}
		}
	}
	each(func(client, server string) { n.CutBoth(client, server, mode(f.Mode)) })
	return fmt.Sprintf("clients %v cut off from all servers", f.Clients), func() string {
		each(func(client, server string) { n.Heal(client, server) })
		return fmt.Sprintf("clients %v reach the servers", f.Clients)
	}
}
