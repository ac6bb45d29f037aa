// Package memnet is an in-memory network.
package memnet

import (
	"context"
	"net"
	"time"
)

// Mode says what a cut does to connections that exist.
type Mode int

const (
	// Stall keeps them: bytes wait until the link is healed, like packets that get lost.
	Stall Mode = iota
	// Break resets them.
	Break
)

// Network is an in-memory network.
type Network struct{}

// New makes a network without latency.
func New() *Network { return &Network{} }

// Listen listens at addr ("host:port").
func (n *Network) Listen(addr string) (net.Listener, error) { panic("not yet") }

// Dialer gives the dial function of the host `from` ("host" or "host:port": the port does not matter).
func (n *Network) Dialer(from string) func(ctx context.Context, addr string) (net.Conn, error) {
	panic("not yet")
}

// Cut cuts the direction from → to.
func (n *Network) Cut(from, to string, mode Mode) {}

// CutBoth cuts both directions.
func (n *Network) CutBoth(a, b string, mode Mode) {}

// Isolate cuts a host off from all others, both ways.
func (n *Network) Isolate(host string, mode Mode) {}

// Heal heals both directions between two hosts.
func (n *Network) Heal(a, b string) {}

// HealAll heals all links.
func (n *Network) HealAll() {}

// Drop resets all connections between two hosts.
func (n *Network) Drop(a, b string) {}

// DropHost resets all connections of a host, as its crash does.
func (n *Network) DropHost(host string) {}

// SetLatency sets the one-way latency of the direction from → to; SetDefaultLatency that of all others.
func (n *Network) SetLatency(from, to string, d time.Duration) {}

// SetDefaultLatency sets the one-way latency of the links without their own.
func (n *Network) SetDefaultLatency(d time.Duration) {}
