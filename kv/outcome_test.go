package kv

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/tidemarkdb/tidemark/bench/proof/fakeserver"
	"github.com/tidemarkdb/tidemark/rpc/kvpb"
)

// A caller whose commit was not answered in time, and that asks later, learns what became of it:
// whether it had taken effect or takes effect now, or cannot any more; also when others have
// written the key since. When no partition knows any more, the caller hears that at once.
func TestOutcome(t *testing.T) {
	for _, o := range []outcomeCase{
		{phases: 1, ran: true}, {phases: 1, ran: true, overwritten: true}, {phases: 1},
		{phases: 1, overwritten: true, want: ErrConflict},
		{phases: 2, ran: true}, {phases: 2, ran: true, overwritten: true}, {phases: 2},
		{phases: 1, ran: true, forgotten: true, want: ErrOutcomeUnknown},
		{phases: 1, forgotten: true, want: ErrOutcomeUnknown},
		{phases: 2, ran: true, forgotten: true, want: ErrOutcomeUnknown},
		{phases: 2, forgotten: true, want: ErrOutcomeUnknown},
	} {
		t.Run(fmt.Sprintf("phases=%d/ran=%v/overwritten=%v/forgotten=%v", o.phases, o.ran,
			o.overwritten, o.forgotten), func(t *testing.T) {
			inBubble(t, 3, func(t *testing.T, cluster *fakeCluster) { askOutcome(t, cluster, o) })
		})
	}
}

// outcomeCase is a commit whose outcome is asked for.
type outcomeCase struct {
	phases int
	// ran: it had taken effect. overwritten: another has written the first key since. forgotten:
	// the GC window is over.
	ran, overwritten, forgotten bool
	want                        error
}

func askOutcome(t *testing.T, c *fakeCluster, o outcomeCase) {
	ctx := t.Context()
	c.AddKeyspace("hash", 8)
	client, other := c.open(), c.open()
	defer client.Close()
	defer other.Close()
	ks := client.Keyspace("hash")
	asked := 0
	commits := func(f fakeserver.Fault) {
		c.Set(func() { asked = 0 })
		c.Play(func(_ *fakeserver.Node, r *kvpb.Request) fakeserver.Fault {
			if r.GetEndTransaction().GetCommit() || r.GetPrepare().GetOnePhase() != nil {
				asked++
				return f
			}
			return fakeserver.Fault{}
		})
	}
	commits(fakeserver.Fault{Unknown: o.ran, Swallow: !o.ran})
	short, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	_, err := client.Update(short, func(tx *Txn) error {
		for _, key := range []string{"a", "b"}[:o.phases] {
			if err := increment(short, ks, key)(tx); err != nil {
				return err
			}
		}
		return nil
	})
	if !errors.Is(err, ErrOutcomeUnknown) || !strings.Contains(err.Error(), "ask kv.Outcome") {
		t.Fatal(err)
	}
	over, end := context.WithCancel(ctx)
	end()
	if _, err := Outcome(over, err); !errors.Is(err, ErrOutcomeUnknown) {
		t.Errorf("asked without time: %v", err)
	}
	later := fakeserver.Fault{}
	if o.forgotten {
		later.Code = kvpb.ErrorCode_TRANSACTION_TOO_OLD
	}
	commits(later)
	if o.overwritten {
		if _, err := other.Keyspace("hash").Put(ctx, []byte("a"), []byte("7")); err != nil {
			t.Fatal(err)
		}
	}
	for range 2 { // it stays so
		at, err := Outcome(ctx, fmt.Errorf("passed on: %w", err))
		if !errors.Is(err, o.want) || (err == nil) == at.IsZero() || (o.want == nil && err != nil) {
			t.Errorf("%v, %v, not %v", at, err, o.want)
		}
		if o.forgotten && (strings.Contains(err.Error(), "kv.Outcome") ||
			!strings.Contains(err.Error(), "read what it has written")) {
			t.Errorf("no partition knows any more: %v", err)
		}
	}
	// The client asks once more by itself, in the background.
	c.Set(func() {
		if o.forgotten && asked > 3 {
			t.Errorf("asked %d times for what is forgotten", asked)
		}
	})
	for i, key := range []string{"a", "b"} {
		p, err := ks.Get(ctx, []byte(key))
		switch {
		case i == 0 && o.overwritten:
			if err != nil || string(p.Value) != "7" {
				t.Errorf("%s: %s, %v", key, p.Value, err)
			}
		case i >= o.phases, o.forgotten && !o.ran:
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
