package store

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tidemarkdb/tidemark/placement/store/apply"
	"github.com/tidemarkdb/tidemark/placement/store/command"
	"github.com/tidemarkdb/tidemark/placement/store/compaction"
	"github.com/tidemarkdb/tidemark/placement/store/storepb"
	"github.com/tidemarkdb/tidemark/range/group"
)

func TestPutGetDelete(t *testing.T) {
	_, s := one(t, nil)
	if r := s.Revision(); r != 1 {
		t.Fatalf("an empty store has revision %d, want 1", r)
	}
	first := put(t, s, "a", "1")
	second := put(t, s, "a", "2")
	if first != 2 || second != 3 {
		t.Fatalf("revisions %d and %d, want 2 and 3", first, second)
	}
	kv, err := s.Stale().Get([]byte("a"))
	if err != nil || string(kv.Value) != "2" || kv.CreateRevision != 2 || kv.ModRevision != 3 ||
		kv.Version != 2 {
		t.Fatalf("got %v, %v", kv, err)
	}
	if kv, err = s.At(first).Get([]byte("a")); err != nil || string(kv.Value) != "1" {
		t.Fatalf("at the first revision: %v, %v", kv, err)
	}
	r := do(t, s, writes(Delete([]byte("a"))))
	if r.Revision != 4 || r.Txn.Results[0].GetDeleteRange().Deleted != 1 || get(t, s, "a") != "-" {
		t.Fatalf("after the deletion: %v, %s", r, get(t, s, "a"))
	}
	if r = do(t, s, writes(Delete([]byte("a")))); r.Revision != 4 {
		t.Fatalf("a deletion of nothing made revision %d", r.Revision)
	}
	put(t, s, "a", "3")
	if kv, err = s.Stale().Get([]byte("a")); err != nil || kv.Version != 1 || kv.CreateRevision != 5 {
		t.Fatalf("written again: %v, %v", kv, err)
	}
}

func TestRefusals(t *testing.T) {
	_, s := one(t, nil)
	put(t, s, "a", "1")
	big := bytes.Repeat([]byte("x"), command.MaxBytes)
	var many []*storepb.Op
	for i := range command.MaxOperations + 1 {
		many = append(many, Put(fmt.Append(nil, i), nil))
	}
	nested := &storepb.Txn{}
	for range 200 {
		nested = &storepb.Txn{Success: []*storepb.Op{{Op: &storepb.Op_Txn{Txn: nested}}}}
	}
	txn := func(ops ...*storepb.Op) *storepb.Op {
		return &storepb.Op{Op: &storepb.Op_Txn{Txn: &storepb.Txn{Success: ops}}}
	}
	for name, c := range map[string]struct {
		command *storepb.Command
		want    error
	}{
		"a key twice": {writes(Put([]byte("k"), nil), Put([]byte("k"), nil)), command.ErrDuplicateKey},
		"put and delete": {writes(Put([]byte("k1"), nil), deletePrefix([]byte("k"))),
			command.ErrDuplicateKey},
		"delete and put": {writes(deletePrefix([]byte("k")), Put([]byte("k1"), nil)),
			command.ErrDuplicateKey},
		"twice when nested": {writes(Put([]byte("k"), nil), txn(Put([]byte("k"), nil))),
			command.ErrDuplicateKey},
		"no key":          {writes(Put(nil, nil)), command.ErrInvalid},
		"nothing":         {&storepb.Command{}, command.ErrInvalid},
		"no operation":    {writes(&storepb.Op{}), command.ErrInvalid},
		"large key":       {writes(Put(big, nil)), command.ErrTooLarge},
		"large value":     {writes(Put([]byte("k"), big)), command.ErrTooLarge},
		"many operations": {writes(many...), command.ErrTooLarge},
		"deep":            {&storepb.Command{Op: &storepb.Command_Txn{Txn: nested}}, command.ErrInvalid},
		"no such lease": {writes(Put([]byte("b"), nil), PutLeased([]byte("k"), nil, 7)),
			command.ErrLeaseNotFound},
		"revoke nothing":       {Revoke(7), command.ErrLeaseNotFound},
		"lease without a term": {Grant(7, 0), command.ErrInvalid},
		"keep no value": {writes(Put([]byte("b"), nil),
			&storepb.Op{Op: &storepb.Op_Put{Put: &storepb.Put{
				Key: []byte("k"), IgnoreValue: true}}}), command.ErrKeyNotFound},
		"future": {writes(Put([]byte("b"), nil),
			&storepb.Op{Op: &storepb.Op_Range{Range: &storepb.Range{
				Key: []byte("a"), Revision: 99}}}), command.ErrFutureRevision},
		"compact the future": {Compact(99), command.ErrFutureRevision},
		"unknown session": {&storepb.Command{Session: 77, Sequence: 1, Op: writes().Op},
			command.ErrSession},
		"sequence of nothing": {&storepb.Command{Sequence: 1, Op: Compact(1).Op}, command.ErrInvalid},
	} {
		if _, err := s.Do(context.Background(), c.command); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", name, err, c.want)
		}
	}
	if s.Revision() != 2 || get(t, s, "b") != "-" {
		t.Errorf("a refused command changed something: revision %d, b is %s", s.Revision(),
			get(t, s, "b"))
	}
	if _, err := s.At(99).Get([]byte("a")); !errors.Is(err, command.ErrFutureRevision) {
		t.Errorf("read at a future revision: %v", err)
	}
}

func TestNotLeader(t *testing.T) {
	c := newCore(t, 2, nil)
	defer c.close()
	c.elect(c.members[0])
	_, err := c.members[1].store.Do(context.Background(), writes(Put([]byte("a"), nil)))
	var not *command.NotLeaderError
	if !errors.As(err, &not) || not.Leader != 1 || !errors.Is(err, command.ErrNotLeader) {
		t.Fatalf("on a follower: %v", err)
	}
	// A follower reads what the leader has acknowledged.
	put(t, c.members[0].store, "a", "1")
	if got := get(t, c.members[1].store, "a"); got != "-" {
		t.Fatalf("the follower has applied %s already", got)
	}
	view, err := c.members[1].store.Read(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	if kv, err := view.Get([]byte("a")); err != nil || string(kv.Value) != "1" {
		t.Fatalf("linearisable read on the follower: %v, %v", kv, err)
	}
	c.elect(nil)
	if _, err := c.members[1].store.Read(context.Background()); !errors.Is(err, errNoQuorum) {
		t.Fatalf("read without a leader: %v", err)
	}
}

// A command that was proposed by a leader that lost its leadership has an unknown outcome; with a
// session it can be repeated.
func TestOutcomeUnknownAndOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCore(t, 2, nil)
		defer c.close()
		c.elect(c.members[0])
		session := do(t, c.members[0].store, openSession()).Session
		cmd := If(nil, []*storepb.Op{Put([]byte("a"), []byte("1"))}, nil)
		cmd.Session, cmd.Sequence = session, 1
		c.setCut(true)
		outcome := make(chan error)
		go func() {
			_, err := c.members[0].store.Do(context.Background(), cmd)
			outcome <- err
		}()
		synctest.Wait()
		c.setCut(false) // what was appended will be committed by the next leader
		c.members[1].catchUp()
		c.elect(c.members[1])
		if err := <-outcome; err != nil && !errors.Is(err, command.ErrOutcomeUnknown) {
			t.Fatalf("outcome: %v", err)
		}
		s := c.members[1].store
		again := do(t, s, cmd)
		if !again.Repeated || again.Revision != 2 || s.Revision() != 2 {
			t.Fatalf("repeated: %v, revision %d", again, s.Revision())
		}
		// Acknowledged: forgotten, and never applied again.
		next := writes(Put([]byte("b"), nil))
		next.Session, next.Sequence, next.Acknowledged = session, 2, 1
		do(t, s, next)
		if _, err := s.Do(context.Background(), cmd); !errors.Is(err, command.ErrSession) {
			t.Fatalf("acknowledged command done again: %v", err)
		}
		do(t, s, closeSession(session))
		if _, err := s.Do(context.Background(), next); !errors.Is(err, command.ErrSession) {
			t.Fatalf("command of a closed session: %v", err)
		}
		if s.Revision() != 3 {
			t.Fatalf("revision %d, want 3", s.Revision())
		}
	})
}

// Really lost: the command is in no log, and the waiter learns that it is unknown.
func TestLostProposal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCore(t, 2, nil)
		defer c.close()
		c.elect(c.members[0])
		c.setCut(true)
		outcome := make(chan error)
		go func() {
			_, err := c.members[0].store.Do(context.Background(), writes(Put([]byte("a"), nil)))
			outcome <- err
		}()
		synctest.Wait()
		c.mu.Lock()
		c.log = c.log[:len(c.log)-1]
		c.mu.Unlock()
		c.members[1].catchUp()
		c.setCut(false)
		c.elect(c.members[1])
		if err := <-outcome; !errors.Is(err, command.ErrOutcomeUnknown) {
			t.Fatalf("outcome: %v", err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		c.setCut(true)
		_, err := c.members[1].store.Do(ctx, writes(Put([]byte("a"), nil)))
		if !errors.Is(err, command.ErrOutcomeUnknown) || !errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("outcome after the deadline: %v", err)
		}
		c.setCut(false)
	})
}

func TestSessionsAreBounded(t *testing.T) {
	_, s := one(t, nil)
	first := do(t, s, openSession()).Session
	second := do(t, s, openSession()).Session
	for i := range apply.MaxKept + 1 {
		c := writes()
		c.Session, c.Sequence = first, uint64(i+1)
		_, err := s.Do(context.Background(), c)
		if (err != nil) != (i == apply.MaxKept) {
			t.Fatalf("command %d of a session that acknowledges nothing: %v", i+1, err)
		}
	}
	for range apply.MaxSessions - 1 {
		do(t, s, openSession())
	}
	c := writes()
	c.Session, c.Sequence = second, 1
	if _, err := s.Do(context.Background(), c); !errors.Is(err, command.ErrSession) {
		t.Errorf("the session that was idle longest is still there: %v", err)
	}
	c.Session, c.Acknowledged, c.Sequence = first, 1, apply.MaxKept+1
	do(t, s, c)
}

func TestLeaseExpires(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCore(t, 2, nil)
		defer c.close()
		c.elect(c.members[0])
		s := c.members[0].store
		do(t, s, Grant(5, 9000))
		do(t, s, writes(PutLeased([]byte("a"), []byte("1"), 5),
			PutLeased([]byte("b"), []byte("1"), 5), Put([]byte("c"), []byte("1"))))
		put(t, s, "b", "no longer leased")
		for range 10 {
			time.Sleep(5 * time.Second)
			if _, err := s.KeepAlive(t.Context(), 5); err != nil {
				t.Fatal(err)
			}
		}
		if info, err := s.Lease(5); err != nil || info.Left != 9*time.Second || len(info.Keys) != 1 {
			t.Fatalf("lease: %+v, %v", info, err)
		}
		// A new leader grants a full term, so the lease outlives the old deadline.
		time.Sleep(8 * time.Second)
		c.members[1].catchUp()
		c.elect(c.members[1])
		s = c.members[1].store
		time.Sleep(8 * time.Second)
		if get(t, s, "a") != "1" {
			t.Fatal("the lease ran out before the new leader had given it a full term")
		}
		if _, err := c.members[0].store.KeepAlive(t.Context(), 5); !errors.Is(err, command.ErrNotLeader) {
			t.Fatalf("renewed by a follower: %v", err)
		}
		time.Sleep(2 * time.Second)
		if get(t, s, "a") != "-" || get(t, s, "b") != "no longer leased" || get(t, s, "c") != "1" {
			t.Fatalf("after the lease: a %s, b %s, c %s", get(t, s, "a"), get(t, s, "b"), get(t, s, "c"))
		}
		if _, err := s.KeepAlive(t.Context(), 5); !errors.Is(err, command.ErrLeaseNotFound) {
			t.Fatalf("renewed after its end: %v", err)
		}
		do(t, s, Grant(5, 9000))
		if _, err := s.Do(t.Context(), Grant(5, 9000)); !errors.Is(err, command.ErrLeaseExists) {
			t.Fatalf("granted twice: %v", err)
		}
	})
}

// A leader that lost its quorum cannot renew a lease that its successor may be ending.
func TestNoRenewalWithoutQuorum(t *testing.T) {
	c, s := one(t, nil)
	do(t, s, Grant(5, 9000))
	c.setCut(true)
	if _, err := s.KeepAlive(t.Context(), 5); !errors.Is(err, errNoQuorum) {
		t.Fatalf("renewed without a quorum: %v", err)
	}
}

func TestCompact(t *testing.T) {
	c, s := one(t, nil)
	put(t, s, "a", "1") // 2
	put(t, s, "a", "2") // 3
	put(t, s, "b", "1") // 4
	do(t, s, writes(Delete([]byte("b"))))
	put(t, s, "a", "3") // 6
	do(t, s, Compact(5))
	if _, err := s.At(4).Get([]byte("a")); !errors.Is(err, command.ErrCompacted) {
		t.Errorf("read below the compaction: %v", err)
	}
	if kv, err := s.At(5).Get([]byte("a")); err != nil || string(kv.Value) != "2" {
		t.Errorf("read at the compaction: %v, %v", kv, err)
	}
	var compacted *command.CompactedError
	if _, err := s.Do(t.Context(), Compact(5)); !errors.As(err, &compacted) ||
		compacted.Revision != 5 {
		t.Errorf("compacted again: %v", err)
	}
	w, err := s.Watch(nil, 3)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	if _, err := w.Next(t.Context()); !errors.Is(err, command.ErrCompacted) {
		// All events are still in memory, so the watcher may be lucky; then it has to be complete.
		t.Logf("a watcher of compacted events: %v", err)
	}
	do(t, s, Compact(6))
	for _, line := range c.members[0].dump() {
		if strings.Contains(line, `kb\x00`) {
			t.Errorf("what was deleted is still there after compaction: %s", line)
		}
	}
}

func TestHistoryIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCore(t, 1, func(config *Config) { config.History = 100 })
		defer c.close()
		c.elect(c.members[0])
		s := c.members[0].store
		for i := range 1000 {
			put(t, s, fmt.Sprint(i%10), fmt.Sprint(i))
			if i%100 == 0 {
				do(t, s, writes(deletePrefix([]byte("1"))))
			}
		}
		synctest.Wait()
		if kept := s.Revision() - s.Compacted(); kept < 100 || kept > 111 {
			t.Errorf("%d revisions kept", kept)
		}
		if n := len(c.members[0].dump()); n > 111*2+20+10 {
			t.Errorf("%d records in the database for 10 keys and about 110 revisions", n)
		}
	})
}

// A long compaction is done in steps, and comes to the same.
func TestLongCompaction(t *testing.T) {
	c, s := one(t, nil)
	for i := range 3*compaction.StepEvents - 100 {
		put(t, s, fmt.Sprint(i%7), "")
	}
	do(t, s, Compact(s.Revision()))
	// Keys, the event at the compacted revision, meta and applied index.
	if n := len(c.members[0].dump()); n != 7+1+2 {
		t.Errorf("%d records left: %s", n, c.members[0].dump())
	}
}

func TestApplyRefusesWhatItCannotKnow(t *testing.T) {
	c, s := one(t, nil)
	for _, data := range [][]byte{{0}, {command.CompareFormat + 1}, {command.FirstFormat},
		{command.FirstFormat,
			0xff}} {
		c.mu.Lock()
		err := s.Apply([]group.Entry{{Index: uint64(len(c.log) + 1), Term: 2, Data: data}})
		c.mu.Unlock()
		if err == nil {
			t.Errorf("entry %x was applied", data)
		}
	}
	if err := s.Apply([]group.Entry{{Index: 50, Term: 2}}); err == nil {
		t.Error("a gap in the log was applied")
	}
}

func TestSlotsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCore(t, 1, func(config *Config) { config.MaxPending = 1 })
		defer c.close()
		c.elect(c.members[0])
		s := c.members[0].store
		c.setCut(true)
		go func() { _, _ = s.Do(t.Context(), writes(Put([]byte("a"), nil))) }()
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := s.Do(ctx, writes(Put([]byte("b"), nil)))
		if !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, command.ErrOutcomeUnknown) {
			t.Fatalf("with no slot free: %v", err)
		}
		c.setCut(false)
		synctest.Wait()
	})
}
