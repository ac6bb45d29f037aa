// Package porttest gives tests addresses at which their servers can listen.
//
// A test that must know an address before its server listens (the other members of a core are told
// a member's address first) cannot get a port by listening at port 0 and closing again: the system
// may assign the same port once more, to the test's next request or to an outgoing connection.
// Ports of this package are below those that systems assign by themselves, and a process gets each
// of them once.
package porttest

import (
	"errors"
	"math/rand/v2"
	"net"
	"strconv"
	"sync"
	"testing"
)

// first is the lowest port that Address returns, and count the number of ports to choose from.
// Linux assigns ports from 32,768 on to outgoing connections, other systems from 49,152 on.
const first, count = 20_000, 12_000

// given holds the ports that this process has got.
var given struct {
	sync.Mutex
	ports map[int]bool
}

// Address is Choose for a test, which fails if no port is left.
func Address(t testing.TB) string {
	t.Helper()
	address, err := Choose()
	if err != nil {
		t.Fatal(err)
	}
	return address
}

// Choose returns an address of the loopback interface, host and port, at which nothing listens, or
// an error if no port is left. No two calls in a process return the same address. Processes choose
// at random, and know nothing of each other.
func Choose() (string, error) {
	given.Lock()
	defer given.Unlock()
	if given.ports == nil {
		given.ports = make(map[int]bool)
	}
	begin := rand.IntN(count)
	for i := range count {
		port := first + (begin+i)%count
		if given.ports[port] {
			continue
		}
		// All interfaces: a port counts as taken if a server listens at any of them.
		l, err := net.Listen("tcp", ":"+strconv.Itoa(port))
		if err != nil {
			continue
		}
		_ = l.Close()
		given.ports[port] = true
		return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)), nil
	}
	return "", errors.New("no port is free for the test's servers")
}
