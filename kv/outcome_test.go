package kv

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/tidemarkdb/tidemark/rpc/kvpb"
)

// Who has heard nothing of a commit until his time was up, and asks later, learns what became of it: whether it had taken effect or
// takes effect now, or cannot any more; also when others have written the key since.
func TestOutcome(t *testing.T) {
	for _, c := range []struct {
		phases           int
		ran, overwritten bool
		want             error
	}{
		{1, true, false, nil}, {1, true, true, nil}, {1, false, false, nil}, {1, false, true, ErrConflict},
		{2, true, false, nil}, {2, true, true, nil}, {2, false, false, nil},
	} {
		t.Run(fmt.Sprintf("phases=%d/ran=%v/overwritten=%v", c.phases, c.ran, c.overwritten), func(t *testing.T) {
			inBubble(t, 3, func(t *testing.T, cluster *fakeCluster) {
				askOutcome(t, cluster, c.phases, c.ran, c.overwritten, c.want)
			})
		})
	}
}

func askOutcome(t *testing.T, c *fakeCluster, phases int, ran, overwritten bool, want error) {
	ctx := t.Context()
	c.addKeyspace("hash", 8)
	client, other := c.open(), c.open()
	defer client.Close()
	defer other.Close()
	ks := client.Keyspace("hash")
	c.play(func(_ *fakeNode, r *kvpb.Request) fault {
		if r.GetEndTransaction().GetCommit() || r.GetPrepare().GetOnePhase() != nil {
			return fault{unknown: ran, swallow: !ran}
		}
		return fault{}
	})
	short, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	_, err := client.Update(short, func(tx *Txn) error {
		for _, key := range []string{"a", "b"}[:phases] {
			if err := increment(short, ks, key)(tx); err != nil {
				return err
			}
		}
		return nil
	})
	if !errors.Is(err, ErrOutcomeUnknown) {
		t.Fatal(err)
	}
	over, end := context.WithCancel(ctx)
	end()
	if _, err := Outcome(over, err); !errors.Is(err, ErrOutcomeUnknown) {
		t.Errorf("asked without time: %v", err)
	}
	c.play(func(*fakeNode, *kvpb.Request) fault { return fault{} })
	if overwritten {
		if _, err := other.Keyspace("hash").Put(ctx, []byte("a"), []byte("7")); err != nil {
			t.Fatal(err)
		}
	}
	for range 2 { // it stays so
		at, err := Outcome(ctx, fmt.Errorf("passed on: %w", err))
		if !errors.Is(err, want) || (err == nil) == at.IsZero() || (want == nil && err != nil) {
			t.Errorf("%v, %v, not %v", at, err, want)
		}
	}
	for i, key := range []string{"a", "b"} {
		p, err := ks.Get(ctx, []byte(key))
		switch {
		case i == 0 && overwritten:
			if err != nil || string(p.Value) != "7" {
				t.Errorf("%s: %s, %v", key, p.Value, err)
			}
		case i >= phases:
			if !errors.Is(err, ErrNotFound) {
				t.Errorf("%s: %s, %v", key, p.Value, err)
			}
		case err != nil || string(p.Value) != "1":
			t.Errorf("%s: %s, %v", key, p.Value, err)
		}
	}
	for _, err := range []error{nil, errors.New("some other"), notFound("get", "hash", nil)} {
		if _, err := Outcome(ctx, err); !errors.Is(err, ErrInvalidArgument) {
			t.Errorf("asked about nothing: %v", err)
		}
	}
}
