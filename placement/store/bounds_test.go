package store

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/tidemarkdb/tidemark/placement/store/admission"
	"github.com/tidemarkdb/tidemark/placement/store/command"
	"github.com/tidemarkdb/tidemark/placement/store/compaction"
	"github.com/tidemarkdb/tidemark/placement/store/snapshot"
	"github.com/tidemarkdb/tidemark/placement/store/storepb"
)

// The header of a snapshot is of the same moment as its content, though Apply runs beside it.
func TestSnapshotIsOfOneMoment(t *testing.T) {
	_, s := one(t, func(config *Config) { config.History = 20 })
	stop := make(chan struct{})
	var applying sync.WaitGroup
	applying.Go(func() {
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			default:
				put(t, s, "a", fmt.Sprint(i))
			}
		}
	})
	defer applying.Wait()
	defer close(stop)
	put(t, s, "b", "")
	for range 500 {
		snap, err := s.Snapshot()
		if err != nil {
			t.Fatal(err)
		}
		var data bytes.Buffer
		err = errors.Join(snap.Write(t.Context(), &data), snap.Close())
		if err != nil {
			t.Fatal(err)
		}
		if _, err := snapshot.Copy(t.Context(), &data, discardPairs{}, s.Layout, snap.Index(),
			snap.Term()); err != nil {
			t.Fatal(err)
		}
	}
}

// A compaction that takes long does not keep leases from running out, and is not taken for a pause
// of the process.
func TestCompactionDoesNotHoldUpExpiry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCore(t, 1, func(config *Config) { config.History = 10 })
		defer c.close()
		c.elect(c.members[0])
		s := c.members[0].store
		do(t, s, Grant(5, 5000))
		do(t, s, writes(PutLeased([]byte("leased"), nil, 5)))
		slow := make(chan struct{})
		// The next compaction stays in the log for 20 s before it is applied.
		c.setHold(func(cmd *storepb.Command) <-chan struct{} {
			if _, ok := cmd.Op.(*storepb.Command_Compact); ok {
				return slow
			}
			return nil
		})
		time.AfterFunc(20*time.Second, func() { close(slow) })
		for i := range 30 {
			put(t, s, "a", fmt.Sprint(i))
		}
		time.Sleep(7 * time.Second)
		synctest.Wait()
		if got := get(t, s, "leased"); got != "-" {
			t.Errorf("7 s after a lease of 5 s was granted, its key is there: a compaction is under way")
		}
		time.Sleep(30 * time.Second)
		if kept := s.Revision() - s.Compacted(); kept > 12 {
			t.Errorf("%d revisions are kept", kept)
		}
	})
}

// A store can be made for larger deletions, each at one revision.
func TestMaxTouchedCanBeMore(t *testing.T) {
	const keys = 3 * admission.DefaultMaxTouched / 2
	_, s := one(t, func(c *Config) { c.MaxTouched = keys })
	for from := 0; from < keys; from += 1000 {
		var ops []*storepb.Op
		for i := range 1000 {
			ops = append(ops, Put(fmt.Appendf(nil, "key/%06d", from+i), []byte("v")))
		}
		do(t, s, writes(ops...))
	}
	before := s.Revision()
	r := do(t, s, writes(deletePrefix([]byte("key/"))))
	if n := r.Txn.Results[0].GetDeleteRange().Deleted; n != keys || r.Revision != before+1 {
		t.Errorf("%d keys are deleted at revision %d, the one before is %d", n, r.Revision, before)
	}
}

// One command cannot stop the log for longer than it takes to touch DefaultMaxTouched keys.
func TestRangesAreBounded(t *testing.T) {
	_, s := one(t, nil)
	const half = admission.DefaultMaxTouched / 2
	for from := 0; from < 2*half+1; from += command.MaxOperations {
		var ops []*storepb.Op
		for i := from; i < min(from+command.MaxOperations, 2*half+1); i++ {
			ops = append(ops, Put(fmt.Appendf(nil, "key/%06d", i), []byte("v")))
		}
		do(t, s, writes(ops...))
	}
	before := s.Revision()
	key, end := PrefixRange([]byte("key/"))
	everything := &storepb.Op{Op: &storepb.Op_Range{Range: &storepb.Range{Key: key, RangeEnd: end}}}
	some := func(limit uint64) *storepb.Op {
		return &storepb.Op{
			Op: &storepb.Op_Range{Range: &storepb.Range{Key: key, RangeEnd: end, Limit: limit}}}
	}
	compared := []*storepb.Compare{
		{Key: key, RangeEnd: end, Target: storepb.Compare_VERSION, Number: 1}}
	for name, cmd := range map[string]*storepb.Command{
		"a deletion": writes(deletePrefix([]byte("key/"))),
		"nested": writes(&storepb.Op{Op: &storepb.Op_Txn{
			Txn: &storepb.Txn{Failure: []*storepb.Op{deletePrefix([]byte("key/"))}}}}),
		"a range":           writes(everything),
		"two ranges":        writes(some(half+1), some(half+1)),
		"a comparison":      If(compared, nil, nil),
		"with a comparison": If(compared, []*storepb.Op{some(1)}, nil),
	} {
		if _, err := s.Do(t.Context(), cmd); !errors.Is(err, command.ErrTooLarge) ||
			!strings.Contains(err.Error(), fmt.Sprint(admission.DefaultMaxTouched)) {
			t.Errorf("%s of %d keys: %v", name, 2*half+1, err)
		}
	}
	if s.Revision() != before {
		t.Errorf("something was written: revision %d, before %d", s.Revision(), before)
	}
	if got := do(t, s, writes(some(half))).Txn.Results[0].GetRange(); len(got.Kvs) != half ||
		!got.More {
		t.Errorf("a range with a limit: %d keys", len(got.Kvs))
	}
	do(t, s, writes(Delete([]byte("key/000000"))))
	if n := do(t, s,
		writes(deletePrefix([]byte("key/")))).Txn.Results[0].GetDeleteRange().Deleted; n != 2*half {
		t.Errorf("%d keys deleted, of as many as may be", n)
	}
}

// An answer that would not fit into a message is refused before it is made.
func TestAnswersAreBounded(t *testing.T) {
	_, s := one(t, nil)
	for i := range admission.MaxResultBytes>>20 + 1 {
		put(t, s, fmt.Sprintf("large/%02d", i), strings.Repeat("x", 1<<20))
	}
	key, end := PrefixRange([]byte("large/"))
	q := &storepb.Range{Key: key, RangeEnd: end}
	if _, err := s.Do(t.Context(),
		writes(&storepb.Op{Op: &storepb.Op_Range{Range: q}})); !errors.Is(err, command.ErrTooLarge) {
		t.Errorf("an answer of more than %d bytes: %v", admission.MaxResultBytes, err)
	}
	q.KeysOnly = true
	do(t, s, writes(&storepb.Op{Op: &storepb.Op_Range{Range: q}}))
}

// What an earlier version has let into the log is applied, however large, and alike on all members.
func TestHugeCommandInAnOldLog(t *testing.T) {
	c := newCore(t, 2, nil)
	defer c.close()
	c.elect(c.members[0])
	s := c.members[0].store
	for from := 0; from < admission.DefaultMaxTouched+500; from += 500 {
		var ops []*storepb.Op
		for i := from; i < from+500; i++ {
			ops = append(ops, Put(fmt.Appendf(nil, "key/%06d", i), []byte("v")))
		}
		do(t, s, writes(ops...))
	}
	w, err := s.Watch([]byte("key/"), s.Revision())
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	data, err := command.Encode(writes(deletePrefix([]byte("key/"))))
	if err != nil {
		t.Fatal(err)
	}
	c.mu.Lock()
	c.appendLocked(data)
	c.mu.Unlock()
	if n, err := count(s, "key/"); n != 0 || err != nil {
		t.Fatalf("%d keys left, %v", n, err)
	}
	events := 0
	for events < admission.DefaultMaxTouched+500 {
		batch, err := w.Next(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		events += len(batch.Events)
	}
	c.members[1].catchUp()
	same(t, c.members[0].dump(), c.members[1].dump())
}

func count(s *Store, prefix string) (uint64, error) {
	key, end := PrefixRange([]byte(prefix))
	result, err := s.Stale().Range(&storepb.Range{Key: key, RangeEnd: end, CountOnly: true})
	return result.GetCount(), err
}

// A lease has so many keys at most that its end does not stop the log for long.
func TestKeysOfALeaseAreBounded(t *testing.T) {
	c, s := one(t, nil)
	do(t, s, Grant(7, 60_000))
	for from := 0; from < admission.DefaultMaxTouched; from += 1000 {
		var ops []*storepb.Op
		for i := from; i < from+1000; i++ {
			ops = append(ops, PutLeased(fmt.Appendf(nil, "key/%06d", i), nil, 7))
		}
		do(t, s, writes(ops...))
	}
	one := writes(PutLeased([]byte("one more"), nil, 7))
	if _, err := s.Do(t.Context(), one); !errors.Is(err, command.ErrTooLarge) ||
		!strings.Contains(err.Error(), "lease 7") {
		t.Fatalf("one more key than a lease may have: %v", err)
	}
	do(t, s, writes(Delete([]byte("key/000000")), Put([]byte("key/000001"), nil)))
	do(t, s, one)
	// What is known of it does not depend on having been there.
	c.members[0].close()
	c.members[0].open(nil)
	c.elect(c.members[0])
	s = c.members[0].store
	do(t, s, writes(PutLeased([]byte("the last"), nil, 7)))
	if _, err := s.Do(t.Context(),
		writes(PutLeased([]byte("one more again"), nil, 7))); !errors.Is(err, command.ErrTooLarge) {
		t.Fatalf("one more key than a lease may have, after a restart: %v", err)
	}
	do(t, s, Revoke(7))
	if n, err := count(s, "key/"); n != 1 || err != nil { // the one that was taken from it
		t.Errorf("%d keys are left, %v", n, err)
	}
}

// Steps of a compaction are measured by what they remove, not by revisions alone.
func TestCompactionStepsAreBounded(t *testing.T) {
	c, s := one(t, nil)
	const perRevision = 500
	for i := range 60 {
		var ops []*storepb.Op
		for k := range perRevision {
			ops = append(ops, Put(fmt.Appendf(nil, "%03d", k), fmt.Append(nil, i)))
		}
		do(t, s, writes(ops...))
	}
	c.mu.Lock()
	from := len(c.log)
	c.mu.Unlock()
	do(t, s, Compact(s.Revision()))
	last := uint64(0)
	for _, e := range c.log[from:] {
		decoded, _, err := command.Decode(e.Data)
		if err != nil {
			t.Fatal(err)
		}
		to := decoded.GetCompact().GetRevision()
		if n := int(to-last) * perRevision; last > 0 && n > compaction.StepEvents+perRevision {
			t.Errorf("one command compacts %d events, from revision %d to %d", n, last, to)
		}
		last = to
	}
	if want := 60 * perRevision / compaction.StepEvents; len(c.log)-from < want {
		t.Errorf("%d commands for %d events", len(c.log)-from, 60*perRevision)
	}
	if n := len(c.members[0].dump()); n != perRevision*2+2 {
		t.Errorf("%d records left", n)
	}
}

// What waits for the core is bounded in bytes, also by those whose callers have given up: it is in
// the log of a leader that cannot commit, until it is no leader any more.
func TestPendingBytesAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCore(t, 1, func(config *Config) { config.MaxPendingBytes = 8 << 20 })
		defer c.close()
		c.elect(c.members[0])
		s := c.members[0].store
		c.setCut(true)
		var full, unknown int
		for range 40 {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			_, err := s.Do(ctx, writes(Put([]byte("a"), bytes.Repeat([]byte("x"), 1<<20))))
			cancel()
			switch {
			case errors.Is(err, command.ErrOutcomeUnknown):
				unknown++
			case errors.Is(err, command.ErrOverloaded) && errors.Is(err, context.DeadlineExceeded):
				full++
			default:
				t.Fatalf("without a quorum: %v", err)
			}
		}
		if proposed := c.proposedBytes(); proposed > 9<<20 || unknown == 0 || full == 0 {
			t.Errorf("a leader without a quorum has %d MiB of commands in its log: %d unknown, "+
				"%d refused", proposed>>20, unknown, full)
		}
		c.setCut(false)
		do(t, s, writes(Put([]byte("a"), nil)))
		c.setCut(true)
		go func() {
			_, _ = s.Do(t.Context(), writes(Put([]byte("a"), bytes.Repeat([]byte("x"), 3<<20))))
		}()
		synctest.Wait()
		c.elect(c.members[0]) // the former leadership has gone, with what waited in it
		c.setCut(false)
		do(t, s, writes(Put([]byte("a"), bytes.Repeat([]byte("x"), 3<<20))))
	})
}

// A command that no message could carry is refused, and is no reason for the leader to go.
func TestCommandAboveTheLimit(t *testing.T) {
	c, s := one(t, nil)
	before, _ := s.Leadership()
	_, err := s.Do(t.Context(), writes(Put([]byte("a"), make([]byte, command.MaxBytes))))
	if !errors.Is(err, command.ErrTooLarge) || !strings.Contains(err.Error(),
		fmt.Sprint(command.MaxBytes)) {
		t.Errorf("a command that is too large: %v", err)
	}
	if after, _ := s.Leadership(); after != before || c.proposedBytes() > command.MaxBytes {
		t.Errorf("it was proposed: %+v, before %+v", after, before)
	}
}

// What a transaction itself writes counts too where it reads that back.
func TestAnswersWithWhatIsWrittenAreBounded(t *testing.T) {
	many := func(op *storepb.Op) []*storepb.Op { return []*storepb.Op{op, op, op, op, op, op} }
	type op = *storepb.Op
	for name, build := range map[string]func(put, all, one op) []op{
		"in a row": func(put, all, _ op) []op { return append([]op{put}, many(all)...) },
		"put by a nested": func(put, all, _ op) []op {
			return append([]op{nested(put)}, many(all)...)
		},
		"read by a nested": func(put, all, _ op) []op { return []op{put, nested(many(all)...)} },
		"key by key":       func(put, _, one op) []op { return append([]op{put}, many(one)...) },
	} {
		_, s := one(t, nil)
		key, end := PrefixRange([]byte("large/"))
		all := &storepb.Op{Op: &storepb.Op_Range{Range: &storepb.Range{Key: key, RangeEnd: end}}}
		one := &storepb.Op{Op: &storepb.Op_Range{Range: &storepb.Range{Key: []byte("large/1")}}}
		put := Put([]byte("large/1"), bytes.Repeat([]byte("x"), 3<<20))
		result, err := s.Do(t.Context(), writes(build(put, all, one)...))
		if !errors.Is(err, command.ErrTooLarge) {
			t.Errorf("%s: an answer of %d MiB: %v", name, proto.Size(result)>>20, err)
		}
		do(t, s, writes(put, nested(all, all), all))
		do(t, s, writes(all, one, all, one))
	}
}

func nested(ops ...*storepb.Op) *storepb.Op {
	return &storepb.Op{Op: &storepb.Op_Txn{Txn: &storepb.Txn{Success: ops}}}
}
