package sim

import (
	"fmt"
	"time"
)

// isolation cuts a server off from all others and from all clients.
type isolation struct {
	Server Target
	Mode   string `one:"broken silent"`
}

var _ = register("isolation", 12, 20*time.Second, func(d *Dice) isolation {
	return isolation{d.Server(), d.Mode()}
})

// Begin implements Effect.
func (f isolation) Begin(w *World) (string, func() string) {
	server, ok := w.find(f.Server)
	if !ok {
		return absent(f.Server)
	}
	w.count("cuts")
	w.Cluster.Isolate(server, mode(f.Mode))
	return fmt.Sprintf("server %d isolated", server), func() string {
		w.Cluster.Rejoin(server)
		return fmt.Sprintf("server %d rejoined", server)
	}
}

// cut cuts the link between two hosts in one direction, or in both.
type cut struct {
	From, To string
	Both     bool
	Mode     string `one:"broken silent"`
}

var _ = register("cut", 14, 20*time.Second, func(d *Dice) cut {
	return cut{d.Host(), fmt.Sprintf("server-%d", d.IntN(d.Servers)), d.IntN(2) == 0, d.Mode()}
})

// Begin implements Effect.
func (f cut) Begin(w *World) (string, func() string) {
	w.count("cuts")
	n := w.Cluster.Network()
	n.Cut(f.From, f.To, mode(f.Mode))
	if f.Both {
		n.Cut(f.To, f.From, mode(f.Mode))
	}
	return fmt.Sprintf("%s and %s cut", f.From, f.To), func() string {
		n.Heal(f.From, f.To)
		return fmt.Sprintf("%s and %s healed", f.From, f.To)
	}
}

// parting cuts the servers into two sides; clients reach both sides.
type parting struct {
	Side []int
	Mode string `one:"broken silent"`
}

var _ = register("parting", 8, 15*time.Second, func(d *Dice) parting {
	p := parting{Mode: d.Mode()}
	p.Side = append(p.Side, d.Perm(d.Servers)[:1+d.IntN(max(1, d.Servers/2))]...)
	return p
})

// Begin implements Effect.
func (f parting) Begin(w *World) (string, func() string) {
	w.count("cuts")
	side := make(map[int]bool)
	for _, i := range f.Side {
		side[i] = true
	}
	across := func(do func(a, b int)) {
		for a := range w.Cluster.Servers() {
			for b := range w.Cluster.Servers() {
				if side[a] && !side[b] {
					do(a, b)
				}
			}
		}
	}
	across(func(a, b int) {
		w.Cluster.Network().CutBoth(w.Cluster.Host(a), w.Cluster.Host(b), mode(f.Mode))
	})
	return fmt.Sprintf("servers %v cut off from the others", f.Side), func() string {
		across(w.Cluster.Heal)
		return fmt.Sprintf("servers %v reach the others", f.Side)
	}
}

// reset breaks the connections between two hosts; new connections can be made at once.
type reset struct{ A, B string }

var _ = register("reset", 6, 0,
	func(d *Dice) reset { return reset{d.Host(), fmt.Sprintf("server-%d", d.IntN(d.Servers))} })

// Begin implements Effect.
func (f reset) Begin(w *World) (string, func() string) {
	w.Cluster.Network().Drop(f.A, f.B)
	return fmt.Sprintf("connections between %s and %s reset", f.A, f.B), nil
}

// slowLink makes a link slow in one direction.
type slowLink struct {
	From, To string
	Takes    time.Duration
}

var _ = register("slow-link", 7, 15*time.Second, func(d *Dice) slowLink {
	return slowLink{d.Host(), fmt.Sprintf("server-%d", d.IntN(d.Servers)),
		d.Between(time.Millisecond, 400*time.Millisecond)}
})

// Begin implements Effect.
func (f slowLink) Begin(w *World) (string, func() string) {
	if f.From == f.To {
		return "a server's link to itself stays fast", nil
	}
	n := w.Cluster.Network()
	n.SetLatency(f.From, f.To, f.Takes)
	return fmt.Sprintf("%s reaches %s after %v", f.From, f.To, f.Takes), func() string {
		n.SetLatency(f.From, f.To, latency)
		return fmt.Sprintf("%s reaches %s fast again", f.From, f.To)
	}
}
