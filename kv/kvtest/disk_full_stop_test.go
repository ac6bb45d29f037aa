package kvtest_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/tidemarkdb/tidemark/kv"
)

// A server whose writes wait for room on its disk stops when it is told to, be it up or still
// starting, and loses nothing.
func TestStopWithAFullDisk(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := six(t, nil)
		client := c.Client(t)
		ks := create(t, client, "things", kv.Hash(3))
		keys := []string{"a", "b", "c", "d", "e", "f"}
		for _, key := range keys {
			put(t, ks, key, "1")
		}
		large := strings.Repeat("2", 100<<10)
		for node := range 6 {
			c.Disk(node).SetFull(true)
		}
		for _, key := range keys {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			if _, err := ks.Put(ctx, []byte(key), []byte(large)); err == nil {
				t.Errorf("a write of %s to full disks was acknowledged", key)
			}
			cancel()
		}
		stop := func(server int) {
			t.Helper()
			done := make(chan error, 1)
			go func() { done <- c.Stop(server) }()
			select {
			case err := <-done:
				if err != nil {
					t.Errorf("server %d: %v", server, err)
				}
			case <-time.After(time.Minute):
				t.Errorf("server %d does not stop while its disk is full", server)
				c.Disk(server).SetFull(false)
				<-done
				c.Disk(server).SetFull(true)
			}
		}
		for server := range 6 {
			stop(server)
		}
		// There is no room either while their logs are opened.
		for server := range 6 {
			c.Disk(server).SetFull(false)
			if err := c.Run(server); err != nil {
				t.Fatal(err)
			}
			c.Disk(server).SetFull(true)
		}
		time.Sleep(10 * time.Second)
		for server := range 6 {
			stop(server)
		}
		for server := range 6 {
			c.Disk(server).SetFull(false)
			if err := c.Run(server); err != nil {
				t.Fatal(err)
			}
		}
		ready(t, c)
		for _, key := range keys {
			if pair, err := ks.Get(t.Context(), []byte(key)); err != nil ||
				(string(pair.Value) != "1" && string(pair.Value) != large) {
				t.Errorf("%s is %.10q, %v", key, pair.Value, err)
			}
		}
	})
}
