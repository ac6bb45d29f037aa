package porttest

import (
	"net"
	"sync"
	"testing"
)

// Addresses differ, also between goroutines, and a server can listen at each.
func TestAddress(t *testing.T) {
	var mu sync.Mutex
	seen := map[string]bool{}
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for range 50 {
				address := Address(t)
				l, err := net.Listen("tcp", address)
				if err != nil {
					t.Error(err)
					return
				}
				_ = l.Close()
				mu.Lock()
				if seen[address] {
					t.Errorf("%s was given twice", address)
				}
				seen[address] = true
				mu.Unlock()
			}
		})
	}
	all.Wait()
}
