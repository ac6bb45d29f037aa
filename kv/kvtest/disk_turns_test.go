package kvtest_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/tidemarkdb/tidemark/kv"
)

// TestFullDisksInTurn: a node whose disk was full a moment ago leads rather than one whose disk is
// full now, so that no write fails while one disk of three is.
func TestFullDisksInTurn(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := six(t, nil)
		ks := create(t, c.Client(t), "things", kv.Hash(6))
		for _, full := range []int{3, 4, 5, 3} {
			c.Disk(full).SetLow(true)
			for began := time.Now(); time.Since(began) < 3*time.Second; time.Sleep(
				5 * time.Millisecond) {
				key := fmt.Appendf(nil, "k%d", time.Since(began)/(5*time.Millisecond)%100)
				ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
				if _, err := ks.Put(ctx, key, []byte("v")); err != nil {
					t.Errorf("server %d is full for %v: %v", full, time.Since(began), err)
				}
				cancel()
				if t.Failed() {
					return
				}
			}
			c.Disk(full).SetLow(false)
			time.Sleep(1500 * time.Millisecond)
		}
		equal(t, c)
	})
}
