package process

import (
	"fmt"
	"math/rand/v2"
	"net"
)

// Outgoing connections take their ports from 32768 up on Linux and from 49152 up elsewhere: servers
// get theirs from below.
const (
	lowestPort  = 12000
	highestPort = 32000
)

// FreeAddresses finds n loopback addresses on which nothing listens. They are all held until the
// last is found, so that they differ; between the call and the use of them another process could
// still take one.
func FreeAddresses(n int) ([]string, error) {
	var held []net.Listener
	defer func() {
		for _, listener := range held {
			listener.Close()
		}
	}()
	addresses := make([]string, 0, n)
	for attempts := 0; len(addresses) < n; attempts++ {
		if attempts > 100*n {
			return nil, fmt.Errorf("no %d free ports between %d and %d on 127.0.0.1", n, lowestPort,
				highestPort)
		}
		address := fmt.Sprintf("127.0.0.1:%d", lowestPort+rand.IntN(highestPort-lowestPort))
		listener, err := net.Listen("tcp", address)
		if err != nil {
			continue
		}
		held = append(held, listener)
		addresses = append(addresses, address)
	}
	return addresses, nil
}
