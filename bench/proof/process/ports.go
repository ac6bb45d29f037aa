package process

import (
	"fmt"
	"math/rand/v2"
	"net"
)

// Outgoing connections use ports from 32768 up on Linux, and from 49152 up elsewhere. Servers use
// lower ports.
const (
	lowestPort  = 12000
	highestPort = 32000
)

// FreeAddresses finds n loopback addresses on which nothing listens. It holds all of them until the
// last one is found, so that they differ. Between the call and the use of an address, another
// process could still take it.
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
