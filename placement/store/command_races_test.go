package store

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/tidemarkdb/tidemark/placement/store/storepb"
	"github.com/tidemarkdb/tidemark/range/group"
)

// A command that was registered under one leadership is not proposed under the next, in which it
// counts as superseded.
func TestJoinAfterTheLeadershipEnded(t *testing.T) {
	c, _ := linked(t, 1, func(c *Config) { c.GroupCommands = true })
	c.elect(c.members[0])
	s := c.members[0].store
	lead, _ := s.Leadership()
	command := writes(Put([]byte("k"), []byte("v")))
	own := s.own(command)
	data, err := encodeCommand(own)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.room.enter(t.Context(), "", len(data)); err != nil {
		t.Fatal(err)
	}
	p := newPending(len(data))
	p.term, p.survives = lead.Term, true
	id := commandID{own.Origin, own.Request}
	if _, err := s.register(id, p); err != nil {
		t.Fatal(err)
	}
	c.elect(nil) // the caller stands still meanwhile
	s.join(id, p, data)
	c.mu.Lock()
	c.leader = c.members[0]
	s.LeadershipChanged(group.Leadership{Term: c.term, Leader: 1, IsLeader: true})
	c.appendLocked(nil)
	c.mu.Unlock()
	if o := <-p.outcome; !errors.Is(o.err, errNever) {
		t.Fatalf("the outcome of the first attempt: %v", o.err)
	}
	if _, err := s.Execute(t.Context(), command); err != nil {
		t.Fatal(err)
	}
	kv, err := s.Stale().Get([]byte("k"))
	s.mu.Lock()
	under := s.mu.grouping.underWay
	s.mu.Unlock()
	if err != nil || kv.GetVersion() != 1 || under != 0 {
		t.Errorf("%v, version %d, %d entries under way", err, kv.GetVersion(), under)
	}
}

// A command whose answer was lost is not refused for what it has written itself.
func TestAskedAgainAndTooLargeByItself(t *testing.T) {
	c, l := linked(t, 3, nil)
	c.elect(c.members[0])
	lead, o := c.members[0].store, c.members[1].store
	for i := range 4 {
		put(t, lead, fmt.Sprintf("p/%d", i), string(make([]byte, 3<<20)))
	}
	c.members[1].catchUp()
	asked := make(chan struct{}, 10)
	lose := 1
	l.fault = func() (bool, bool, bool) {
		lose--
		asked <- struct{}{}
		return false, lose >= 0, false
	}
	done := make(chan error, 1)
	go func() {
		key, end := PrefixRange([]byte("p/"))
		_, err := o.Execute(t.Context(), writes(Put([]byte("p/x"), make([]byte, 3<<20)),
			&storepb.Op{Op: &storepb.Op_Range{Range: &storepb.Range{Key: key, RangeEnd: end}}}))
		done <- err
	}()
	<-asked
	<-asked // the first answer is lost
	for {
		select {
		case err := <-done:
			if err != nil {
				t.Fatal(err)
			}
			return
		default:
			c.members[1].catchUp()
		}
	}
}

// A command that has its number counts as not settled, whatever is registered after it.
func TestNumberedCommandsAreNotSettled(t *testing.T) {
	c, _ := linked(t, 3, nil)
	c.elect(c.members[0])
	o := c.members[1].store
	o.requests.Store(settledEvery - 2)
	first := newPending(100)
	first.term = 2
	command := writes(Put([]byte("a"), nil))
	command.Origin = o.origin
	id, err := o.expect(first, command)
	if err != nil {
		t.Fatal(err)
	}
	second := writes(Put([]byte("b"), nil))
	second.Origin = o.origin
	p := newPending(100)
	p.term = 2
	if _, err := o.expect(p, second); err != nil {
		t.Fatal(err)
	}
	if second.Request != settledEvery || second.Acknowledged >= id.request {
		t.Errorf("command %d says that %d is settled, and %d is not", second.Request,
			second.Acknowledged, id.request)
	}
	o.mu.Lock()
	clear(o.mu.pending)
	o.mu.Unlock()
}

// A note of what a lease has left that comes behind its renewal is put right.
func TestNoteBehindARenewal(t *testing.T) {
	var now atomic.Int64
	now.Store(1e12)
	c, s := one(t, func(c *Config) {
		c.Monotonic, c.CheckpointAfter = now.Load, 5*time.Minute
	})
	do(t, s, Grant(7, uint64((10*time.Minute).Milliseconds())))
	var notes []*storepb.LeaseCheckpoint_Lease
	s.noting.Lock() // the keeper notes nothing meanwhile
	for passed := time.Duration(0); len(notes) == 0 && passed < 6*time.Minute; passed += time.Second {
		now.Add(int64(time.Second))
		notes = s.lessor.Due().Notes
	}
	s.noting.Unlock()
	if len(notes) != 1 {
		t.Fatalf("notes: %v", notes)
	}
	if _, err := s.KeepAlive(t.Context(), 7); err != nil {
		t.Fatal(err)
	}
	l, _ := s.Leadership()
	s.proposeAside(l.Term, checkpoint(notes...))
	s.keepOnce()
	c.elect(nil)
	c.elect(c.members[0])
	if info, err := s.Lease(7); err != nil || info.Left < 9*time.Minute {
		t.Errorf("under the next leader it has %v left: %v", info.Left, err)
	}
}

// Reads that were given up leave nothing behind.
func TestAbandonedReads(t *testing.T) {
	c, _ := linked(t, 3, nil)
	c.elect(c.members[0])
	put(t, c.members[0].store, "a", "1")
	o := c.members[1].store // applies nothing
	for range 100 {
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		if _, err := o.Read(ctx); err == nil {
			t.Error("a member that lags answers")
		}
		cancel()
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if n := len(o.mu.reaching); n > 0 {
		t.Errorf("%d reads are kept", n)
	}
}

// A command that is nested too deep to be decoded on a stack is refused.
func TestDeepNesting(t *testing.T) {
	buffer := make([]byte, 4<<20)
	at, size := len(buffer), 0
	wrap := func(field protowire.Number) {
		head := protowire.AppendVarint(protowire.AppendTag(nil, field, protowire.BytesType),
			uint64(size))
		at -= len(head)
		copy(buffer[at:], head)
		size += len(head)
	}
	for levels := 0; size < len(buffer)-64; levels++ {
		wrap(fieldOpTxn)
		wrap(fieldTxnSuccess)
	}
	wrap(fieldCommandTxn)
	if _, _, err := decodeCommand(append([]byte{commandFormat}, buffer[at:]...)); err == nil {
		t.Error("it is decoded")
	}
	nested := writes(Put([]byte("a"), nil))
	for range maxNesting {
		nested = writes(&storepb.Op{Op: &storepb.Op_Txn{Txn: nested.GetTxn()}})
	}
	data, err := encodeCommand(nested)
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := decodeCommand(data); err != nil {
		t.Errorf("what may be proposed is not decoded: %v", err)
	}
}
