package links

import (
	"errors"
	"fmt"
	"time"
)

// Host is an end of links: servers count from 0.
type Host int

// Clients is the host of the process that drives the test.
const Clients Host = -1

func (h Host) String() string {
	if h == Clients {
		return "the clients"
	}
	return fmt.Sprintf("server %d", int(h)+1)
}

// Shape is what a link does to what is sent over it. The zero Shape is a healthy link.
type Shape struct {
	// Cut: nothing arrives. The sender learns nothing of it, unless Refused.
	Cut bool
	// Refused, with Cut: senders are told at once that there is no way.
	Refused bool
	// Delay is the time that everything takes longer, Jitter the most that is added to it at
	// random. Order is kept.
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

// Address is how one server is reached.
type Address struct {
	// Listen is where it listens, Advertise what it tells others. HTTP is for its administrative
	// pages.
	Listen, Advertise, HTTP string
}

// Network is the links between n servers and the clients. Its methods are called from one goroutine
// at a time.
type Network interface {
	// Kind says in a few words what the network is made of.
	Kind() string
	// Address is that of a server, the same for as long as the network lasts.
	Address(server Host) Address
	// Command is what to run so that a program runs as that server.
	Command(server Host, path string, args []string) (string, []string)
	// Started tells the network that a server runs as a process.
	Started(server Host, pid int)
	// Set gives each of the links a shape, all at nearly the same time.
	Set(shapes map[Link]Shape) error
	// Close takes away all that the network consists of. The servers must have ended.
	Close() error
}

// ErrNotHere: this machine, or this user, cannot have such a network.
var ErrNotHere = errors.New("not possible here")

// Prefix begins the name of everything that Namespaces makes.
const Prefix = "tmnem"

// servicePort is where servers listen in their namespaces, httpPort where their pages are.
const (
	servicePort = 7500
	httpPort    = 7580
)

// shapes are the links that are not healthy.
type shapes map[Link]Shape

// merge takes in changes.
func (s shapes) merge(changed map[Link]Shape) {
	for l, shape := range changed {
		if shape == (Shape{}) {
			delete(s, l)
		} else {
			s[l] = shape
		}
	}
}
