package txn

import (
	"bytes"
	"reflect"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/tidemarkdb/tidemark/hlc"
	"github.com/tidemarkdb/tidemark/rpc/kvpb"
	"github.com/tidemarkdb/tidemark/rpc/wire"
)

// modelled is what is known of one transaction from outside.
type modelled struct {
	info Info
	// outcome is the first decision that was ever answered or written; nil as long as there is
	// none.
	outcome *kvpb.TransactionStatus
	// promised is the highest timestamp above which it was said to stay.
	promised hlc.Timestamp
	// heard is when its last heartbeat came, and wounded whether an older transaction has pushed
	// it, in true time.
	heard   int64
	wounded bool
	// resolved says that it was committed, and that all its locks are versions since.
	resolved bool
	// collected says that its record was there, and is not any more.
	collected bool
}

// coordinated is a coordinator that is asked anything at any time, also twice and late, while its
// clocks go on, other leaders take over with other clocks, and records are collected.
type coordinated struct {
	t            *rapid.T
	now          int64 // true time
	skew         int64 // of the leader's physical clock
	present      Present
	transactions []*modelled
	stored       map[ID][]byte
	// said are requests that may come again.
	said []func()
}

func (c *coordinated) tick() {
	c.present.Physical = c.now + c.skew
	c.present.Now = hlc.Max(c.present.Now.Next(), hlc.Timestamp{Wall: c.present.Physical})
}

func (c *coordinated) any() *modelled {
	return rapid.SampledFrom(c.transactions).Draw(c.t, "transaction")
}

// at draws a timestamp around now, which the clock takes in.
func (c *coordinated) at(label string) hlc.Timestamp {
	d := rapid.Int64Range(-int64(5*time.Second), int64(200*time.Millisecond)).Draw(c.t, label)
	return hlc.Timestamp{Wall: max(1, c.now+d),
		Logical: rapid.Uint32Range(0, 1).Draw(c.t, label+" logical")}
}

func (c *coordinated) record(m *modelled) *Record {
	data, ok := c.stored[m.info.ID]
	if !ok {
		return nil
	}
	r, err := DecodeRecord(data)
	if err != nil {
		c.t.Fatalf("%x: %v", data, err)
	}
	return &r
}

// say asks now, and perhaps again later.
func (c *coordinated) say(ask func()) {
	if rapid.Bool().Draw(c.t, "arrives") {
		ask()
	}
	if len(c.said) < 50 {
		c.said = append(c.said, ask)
	}
}

// take checks a decision against all that is known, and makes it true.
func (c *coordinated) take(m *modelled, before *Record, d Decision) {
	if (d.Status == nil) == (d.Refused == nil) {
		c.t.Fatalf("neither or both: %+v", d)
	}
	if d.Record != nil {
		if before.Decided() {
			c.t.Fatalf("%+v was decided, and becomes %+v", before, d.Record)
		}
		if before == nil && m.outcome != nil {
			c.t.Fatalf("%+v comes after %v", d.Record, m.outcome)
		}
		if before != nil && d.Record.State == kvpb.TransactionState_PENDING &&
			d.Record.Timestamp.Less(before.Timestamp) {
			c.t.Fatalf("%+v becomes %+v", before, d.Record)
		}
		if !reflect.DeepEqual(d.Record.Status(), d.Status) {
			c.t.Fatalf("writes %+v and says %v", d.Record, d.Status)
		}
		data := d.Record.Append(nil)
		if r, err := DecodeRecord(data); err != nil || !reflect.DeepEqual(&r, d.Record) {
			c.t.Fatalf("%+v is read as %+v, %v", d.Record, r, err)
		}
		c.stored[m.info.ID] = data
	}
	if d.Status == nil || d.Status.State == kvpb.TransactionState_PENDING {
		if d.Status != nil && m.outcome != nil {
			c.t.Fatalf("pending, after %v", m.outcome)
		}
		return
	}
	if m.outcome != nil {
		// Of what is forgotten, the pusher that met a late lock is told that it goes.
		forgotten := before == nil && d.Record == nil &&
			d.Status.State == kvpb.TransactionState_ABORTED && m.collected &&
			(m.resolved || m.outcome.State == kvpb.TransactionState_ABORTED)
		if !reflect.DeepEqual(m.outcome, d.Status) && !forgotten {
			c.t.Fatalf("%v, after %v", d.Status, m.outcome)
		}
		return
	}
	m.outcome = d.Status
	if d.Record == nil && before == nil && m.info.Started.Less(c.present.Threshold) {
		return // too old for any other outcome
	}
	switch d.Status.Reason {
	case kvpb.AbortReason_WOUNDED:
		if !m.wounded {
			c.t.Fatalf("wounded by no transaction: %+v", d.Record)
		}
	case kvpb.AbortReason_ABANDONED:
		if silent := c.now - m.heard; silent <= int64(Abandoned-hlc.DefaultMaxOffset) {
			c.t.Fatalf("abandoned after %s", time.Duration(silent))
		}
	}
	at := wire.FromTimestamp(d.Status.Timestamp)
	if d.Status.State == kvpb.TransactionState_COMMITTED && at.LessEq(m.promised) {
		c.t.Fatalf("committed at %s, after it was said to stay above %s", at, m.promised)
	}
}

func (c *coordinated) begin(*rapid.T) {
	if len(c.transactions) == 8 {
		c.t.Skip("enough")
	}
	m := &modelled{info: Info{Started: c.at("started"), Anchor: []byte("a")}}
	m.info.ID = testID(byte(len(c.transactions)))
	m.info.Begun = hlc.Min(m.info.Started, c.at("begun"))
	m.heard = c.now // its first lock is acquired
	c.transactions = append(c.transactions, m)
}

func (c *coordinated) end(t *rapid.T) {
	m := c.any()
	q := &kvpb.EndTransactionRequest{Transaction: m.info.Proto(),
		Commit: rapid.Bool().Draw(t, "commit")}
	if q.Commit {
		if at := c.at("commit timestamp"); m.promised.IsZero() || rapid.Bool().Draw(t, "anywhere") {
			q.CommitTimestamp = wire.ToTimestamp(at)
		} else if q.CommitTimestamp = wire.ToTimestamp(m.promised); rapid.Bool().Draw(t, "above") {
			q.CommitTimestamp.Logical++
		}
		q.Participants = []*kvpb.Participant{{Keyspace: 1, Key: []byte("a"), Hash: new(uint32),
			Last: []byte("b")}}
	}
	e, err := ParseEnd(q)
	if err != nil {
		t.Fatal(err)
	}
	c.say(func() {
		c.tick()
		before := c.record(m)
		d := DecideEnd(before, e, c.present)
		c.take(m, before, d)
		mayCommit := e.Commit && !before.Decided() && m.promised.Less(e.Timestamp) &&
			!m.info.Started.Less(c.present.Threshold)
		if mayCommit && d.Status.GetState() != kvpb.TransactionState_COMMITTED {
			c.t.Fatalf("%+v is not committed at %s: %+v", before, e.Timestamp, d)
		}
	})
}

func (c *coordinated) heartbeat(*rapid.T) {
	m := c.any()
	c.say(func() {
		c.tick()
		before := c.record(m)
		d := DecideHeartbeat(before, &Heartbeat{Transaction: m.info}, c.present)
		c.take(m, before, d)
		if d.Status.GetState() == kvpb.TransactionState_PENDING && d.Refused == nil {
			m.heard = c.now
		}
	})
}

func (c *coordinated) push(t *rapid.T) {
	m := c.any()
	// By the clock of another leader, and not before it was acquired by that clock.
	seen := m.heard + rapid.Int64Range(0, int64(250*time.Millisecond)).Draw(t, "seen")
	q := &kvpb.PushRequest{
		Pushee: m.info.Proto(), Seen: &kvpb.Timestamp{Wall: uint64(seen)},
		Above: wire.ToTimestamp(c.at("above")),
		Kind: rapid.SampledFrom([]kvpb.PushRequest_Kind{kvpb.PushRequest_STATUS,
			kvpb.PushRequest_TIMESTAMP, kvpb.PushRequest_ABORT}).Draw(t, "kind"),
	}
	if rapid.Bool().Draw(t, "by a transaction") {
		by := c.any()
		q.Pusher, q.PusherBegun = by.info.ID.Bytes(), wire.ToTimestamp(by.info.Begun)
	}
	p, err := ParsePush(q)
	if err != nil {
		t.Fatal(err)
	}
	c.say(func() {
		c.tick()
		if p.Kind == kvpb.PushRequest_ABORT && Older(p.PusherBegun, p.Pusher, m.info.Begun, m.info.ID) {
			m.wounded = true
		}
		before := c.record(m)
		d := DecidePush(before, p, c.present)
		c.take(m, before, d)
		if d.Refused != nil || d.Status.State != kvpb.TransactionState_PENDING {
			return
		}
		if p.Kind == kvpb.PushRequest_TIMESTAMP {
			m.promised = hlc.Max(m.promised, p.Above)
		}
		if bound := wire.FromTimestamp(d.Status.Timestamp); bound != m.promised {
			c.t.Fatalf("said to commit above %s, after %s was promised", bound, m.promised)
		}
		if p.Kind == kvpb.PushRequest_ABORT && Older(p.PusherBegun, p.Pusher, m.info.Begun, m.info.ID) {
			c.t.Fatalf("%s is in the way of an older one, and still pending", m.info.ID)
		}
	})
}

func (c *coordinated) again(t *rapid.T) {
	if len(c.said) == 0 {
		t.Skip("nothing was said")
	}
	rapid.SampledFrom(c.said).Draw(t, "message")()
}

func (c *coordinated) wait(t *rapid.T) {
	c.now += rapid.Int64Range(1, int64(4*time.Second)).Draw(t, "wait")
}

func (c *coordinated) newLeader(t *rapid.T) {
	c.skew = rapid.Int64Range(-int64(125*time.Millisecond),
		int64(125*time.Millisecond)).Draw(t, "skew")
	c.tick()
	c.present.Since = c.present.Physical
}

func (c *coordinated) collect(t *rapid.T) {
	c.tick()
	window := rapid.Int64Range(0, int64(10*time.Second)).Draw(t, "window")
	c.present.Threshold = hlc.Max(c.present.Threshold, c.present.Now.Add(-time.Duration(window)))
	for _, m := range c.transactions {
		if r := c.record(m); r != nil && r.Collectible(c.present.Threshold, m.resolved) {
			if m.outcome == nil {
				t.Fatalf("%+v is collected, undecided", r)
			}
			delete(c.stored, m.info.ID)
			m.collected = true
		}
	}
}

// resolve has all the locks of a committed transaction become versions.
func (c *coordinated) resolve(*rapid.T) {
	if m := c.any(); m.outcome.GetState() == kvpb.TransactionState_COMMITTED {
		m.resolved = true
	}
}

// A decided transaction stays what it is, at its one timestamp, above all that was promised; and it
// was aborted for a reason.
func TestDecisionsModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := &coordinated{t: t, now: int64(time.Hour), stored: map[ID][]byte{}}
		c.begin(t)
		c.begin(t)
		t.Repeat(map[string]func(*rapid.T){
			"begin": c.begin, "end": c.end, "heartbeat": c.heartbeat, "push": c.push,
			"again": c.again, "wait": c.wait,
			"new leader": c.newLeader, "collect": c.collect, "resolve": c.resolve,
		})
	})
}

// What is accepted of a push or an end can be decided, and stored.
func FuzzRequests(f *testing.F) {
	i := sampleInfo()
	f.Add(i.ID[:], i.Anchor, uint64(5), uint64(6), int32(2), []byte("pusher's id, 16b"),
		uint64(7), uint64(8))
	f.Fuzz(func(t *testing.T, id, anchor []byte, begun, started uint64, kind int32, pusher []byte,
		seen, at uint64) {
		transaction := &kvpb.Transaction{Id: id, Anchor: anchor,
			Begun: &kvpb.Timestamp{Wall: begun}, Started: &kvpb.Timestamp{Wall: started}}
		p := Present{Physical: 10, Now: hlc.Timestamp{Wall: 10}}
		decide := func(d Decision) {
			if d.Record == nil {
				return
			}
			data := d.Record.Append(nil)
			r, err := DecodeRecord(data)
			if err != nil || !bytes.Equal(r.Append(nil), data) {
				t.Fatalf("%+v: %v", d.Record, err)
			}
		}
		when := &kvpb.Timestamp{Wall: at}
		push, err := ParsePush(&kvpb.PushRequest{
			Pushee: transaction, Seen: &kvpb.Timestamp{Wall: seen},
			Kind: kvpb.PushRequest_Kind(kind), Above: when, PusherBegun: when, Pusher: pusher})
		if err == nil {
			decide(DecidePush(nil, push, p))
			decide(DecideHeartbeat(nil, &Heartbeat{Transaction: push.Pushee}, p))
		}
		participants := []*kvpb.Participant{{Key: anchor}, {Key: pusher}}
		if kind&1 > 0 {
			hash := uint32(len(pusher))
			participants = []*kvpb.Participant{{Key: anchor, Hash: &hash},
				{Key: anchor, Hash: &hash, Last: pusher}}
		}
		end, err := ParseEnd(&kvpb.EndTransactionRequest{
			Transaction: transaction, Commit: kind > 0, CommitTimestamp: when,
			Participants: participants})
		if err == nil {
			decide(DecideEnd(nil, end, p))
		}
	})
}
