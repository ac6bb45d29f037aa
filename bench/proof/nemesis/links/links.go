package links

import (
	"errors"
	"fmt"
	"time"
)

// Host is an end of links. Servers count from 0.
type Host int

// Clients is the host of the process that drives the test.
const Clients Host = -1

func (h Host) String() string {
	if h == Clients {
		return "the clients"
	}
	return fmt.Sprintf("server %d", int(h)+1)
}

// Shape describes how a link treats the data that is sent over it. The zero Shape is a healthy
// link.
type Shape struct {
	// Cut: no data arrives. The sender is not told, unless Refused is set.
	Cut bool
	// Refused, with Cut: senders get an error at once.
	Refused bool
	// Delay is the additional time for all data. Jitter is the largest random time that is added to
	// Delay. The order of the data is kept.
	Delay, Jitter time.Duration
}

func (s Shape) String() string {
	switch {
	case s.Cut && s.Refused:
		return "refused"
	case s.Cut:
		return "silent"
	case s.Delay > 0 || s.Jitter > 0:
		return fmt.Sprintf("slower by %v to %v", s.Delay, s.Delay+s.Jitter)
	default:
		return "healthy"
	}
}

// Link is one direction between two hosts.
type Link struct{ From, To Host }

func (l Link) String() string { return fmt.Sprintf("from %v to %v", l.From, l.To) }

// Address says how a server is reached.
type Address struct {
	// Listen is the address on which the server listens. Advertise is the address that the server
	// tells others. HTTP is the address of its administrative pages.
	Listen, Advertise, HTTP string
}

// Network has the links between n servers and the clients. Its methods must not be called
// concurrently.
type Network interface {
	// Kind describes in a few words what the network consists of.
	Kind() string
	// Address returns the address of a server. The address does not change.
	Address(server Host) Address
	// Command returns the command that runs a program as that server.
	Command(server Host, path string, args []string) (string, []string)
	// Started tells the network that a server runs as a process.
	Started(server Host, pid int)
	// Set gives each of the links a shape, all at nearly the same time.
	Set(shapes map[Link]Shape) error
	// Close removes everything that the network consists of. The servers must have ended.
	Close() error
}

// ErrNotHere means that this machine, or this user, cannot have such a network.
var ErrNotHere = errors.New("not possible here")

// Prefix begins the names of all namespaces and devices that Namespaces makes.
const Prefix = "tmnem"

// servicePort is the port on which servers listen in their namespaces. httpPort is the port of
// their pages.
const (
	servicePort = 7500
	httpPort    = 7580
)

// shapes has the shapes of the links that are not healthy.
type shapes map[Link]Shape

// merge adds changes.
func (s shapes) merge(changed map[Link]Shape) {
	for l, shape := range changed {
		if shape == (Shape{}) {
			delete(s, l)
		} else {
			s[l] = shape
		}
	}
}
