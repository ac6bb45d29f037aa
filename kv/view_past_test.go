package kv

import (
	"errors"
	"testing"
	"time"
)

// A moment that is none is not taken for the present.
func TestSnapshotAtNoMoment(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, c *fakeCluster) {
		ctx := t.Context()
		c.AddKeyspace("hash", 8)
		client := c.open()
		defer client.Close()
		ks := client.Keyspace("hash")
		must[Timestamp](t)(ks.Put(ctx, []byte("k"), []byte("1")))
		for _, moment := range []Timestamp{{}, TimestampOf(time.Time{})} {
			past := client.SnapshotAt(moment)
			if p, err := past.Get(ctx, ks, []byte("k")); !errors.Is(err, ErrInvalidArgument) {
				t.Errorf("get: %v, %v", p, err)
			}
			_, err := past.BatchGet(ctx, ks, [][]byte{[]byte("k")})
			if !errors.Is(err, ErrInvalidArgument) {
				t.Errorf("batch get: %v", err)
			}
			if n, err := past.Count(ctx, ks); !errors.Is(err, ErrInvalidArgument) {
				t.Errorf("count: %d, %v", n, err)
			}
			for p, err := range past.Scan(ctx, ks) {
				if !errors.Is(err, ErrInvalidArgument) {
					t.Errorf("scan: %v, %v", p, err)
				}
			}
			if at := past.Timestamp(); !at.IsZero() {
				t.Errorf("it has become %s", at)
			}
		}
	})
}

// The version of an own write in an open transaction does not move the client to the end of time.
func TestObserveUncommitted(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, c *fakeCluster) {
		c.AddKeyspace("hash", 8)
		client := c.open()
		defer client.Close()
		client.Observe(Uncommitted())
		if at := client.Timestamp(); at == Uncommitted() {
			t.Error(at)
		}
		must[Timestamp](t)(client.Keyspace("hash").Put(t.Context(), []byte("k"), []byte("1")))
	})
}
