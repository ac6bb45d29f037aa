package committer

import (
	"testing"
	"time"

	"github.com/tidemarkdb/tidemark/hlc"
	"github.com/tidemarkdb/tidemark/rpc/kvpb"
	"github.com/tidemarkdb/tidemark/rpc/wire"
	"github.com/tidemarkdb/tidemark/txn"
)

// A request of an earlier attempt that waits somewhere does not have a later attempt aborted, and a
// later one takes the locks of all earlier ones; whichever attempts of two transactions meet that
// began at the same time, it is the same transaction that gives way.
func TestLaterAttemptWins(t *testing.T) {
	c, err := New(Config{Sender: newFake(t, 1)})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	attempts := func() (all []*Transaction) {
		x, err := c.Begin(t.Context())
		for range 20 {
			if err != nil {
				t.Fatal(err)
			}
			x.AnchorAt(Key{Keyspace: 1, Key: []byte("k")})
			all = append(all, x)
			x, err = all[len(all)/2].Again(t.Context()) // in one's turn or not
		}
		return all
	}
	wounds := func(by, of *Transaction) bool {
		pusher := by.wire()
		pusher.Begun = of.wire().Begun
		push, err := txn.ParsePush(&kvpb.PushRequest{
			Kind: kvpb.PushRequest_ABORT, Pushee: of.wire(), Pusher: pusher.Id,
			PusherBegun: pusher.Begun, Seen: wire.ToTimestamp(of.started),
		})
		if err != nil {
			t.Fatal(err)
		}
		d := txn.DecidePush(nil, push,
			txn.Present{Physical: of.started.Wall, Now: of.started.Add(time.Millisecond)})
		return d.Status.GetState() == kvpb.TransactionState_ABORTED
	}
	first, second := attempts(), attempts()
	for i, earlier := range first {
		for _, later := range first[i+1:] {
			if earlier.begun != later.begun {
				t.Fatalf("attempts of one transaction began at %s and at %s", earlier.begun, later.begun)
			}
			if wounds(earlier, later) || !wounds(later, earlier) {
				t.Errorf("attempt %s has attempt %s aborted, a later one of the same "+
					"transaction, or that one gives way to it", earlier.id, later.id)
			}
		}
	}
	order := wounds(first[0], second[0])
	for _, a := range first {
		for _, b := range second {
			if wounds(a, b) != order || wounds(b, a) == order {
				t.Errorf("attempts %s and %s of two transactions do not give way as other "+
					"attempts of them do", a.id, b.id)
			}
		}
	}
}

// A transaction that runs out of numbers goes on with other ids.
func TestIDsAreNotUsedTwice(t *testing.T) {
	var f attemptIDs
	n := uint64(0)
	random := func() uint64 { n++; return n << 32 }
	seen := map[txn.ID]bool{{}: true}
	for i := range 10 {
		if i == 5 {
			f.last = 3
		}
		id := f.next(random)
		if seen[id] {
			t.Fatalf("id %s was given before, or is none", id)
		}
		seen[id] = true
	}
	if n != 4 {
		t.Errorf("%d random numbers were drawn for two sets of ids", n)
	}
	if a := (hlc.Timestamp{Wall: 1}); txn.Older(a, txn.ID{}, a, f.next(random)) {
		t.Error("no transaction is older than one")
	}
}
