package command

import (
	"strings"
	"testing"
	"time"

	"github.com/tidemarkdb/tidemark/hlc"
	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/rpc/kvpb"
	"github.com/tidemarkdb/tidemark/rpc/wire"
)

// expiring writes a value that lives for so many nanoseconds.
func (p *partition) expiring(sequence uint64, key, value string, ttl time.Duration, apply bool) {
	q := putOf(key, value)
	e := p.evaluate(sequence, q)
	e.Ops[0].Lifetime = keys.For(ttl)
	p.write(e, q, apply)
}

// What a write finds out about a value that expires: as of when it looks, and up to when that is
// good.
func TestLive(t *testing.T) {
	for _, apply := range []bool{true, false} {
		p := newPartition(t)
		p.expiring(1, "k", "v", 10, apply) // at 1, expires at 11
		for _, c := range []struct {
			name                           string
			clock, session, above, atLeast int64
			live                           bool
		}{
			{"before the expiry", 9, 0, 0, 0, true},
			{"just before it", 10, 0, 0, 0, true},
			{"at it", 11, 0, 0, 0, false},
			{"a session that has seen a later moment", 9, 11, 0, 0, false},
			{"read above it", 9, 0, 11, 0, false},
			{"evaluated for a later moment", 9, 0, 0, 11, false},
		} {
			e := p.evaluation(9, &alone{})
			e.Clock, e.Session = at(c.clock), at(c.session)
			e.AtLeast, p.above = at(c.atLeast), at(c.above)
			prior, err := e.Prior([]byte("k"))
			if err != nil || !prior.HasValue() {
				t.Fatal(err)
			}
			live := e.Live([]byte("k"), &prior)
			if live != c.live || live != (e.Until == 11) || live && e.HoldsBelow(at(11)) ||
				!e.HoldsBelow(at(10)) || !live && !e.HoldsBelow(hlc.MaxTimestamp) {
				t.Errorf("%s: live %t, good until %d", c.name, live, e.Until)
			}
		}
	}
}

// Each write says how long its value lives: what is asked for, or the keyspace's default.
func TestLifetimesOfWrites(t *testing.T) {
	const asked, usual = 5 * time.Second, time.Minute
	requests := map[string]func(ttl int64) *kvpb.Request{
		"put": func(ttl int64) *kvpb.Request {
			return &kvpb.Request{Command: &kvpb.Request_Put{Put: &kvpb.PutRequest{Key: []byte("a"),
				Value: []byte("v"), Ttl: ttl}}}
		},
		"batch": func(ttl int64) *kvpb.Request {
			return &kvpb.Request{Command: &kvpb.Request_WriteBatch{WriteBatch: &kvpb.WriteBatchRequest{
				Operations: []*kvpb.WriteOperation{{Key: []byte("a"), Value: []byte("v"), Ttl: ttl},
					{Key: []byte("b"), Delete: true}}}}}
		},
		"compare-and-swap": func(ttl int64) *kvpb.Request {
			return &kvpb.Request{Command: &kvpb.Request_CompareAndSwap{
				CompareAndSwap: &kvpb.CompareAndSwapRequest{Key: []byte("a"), NewValue: []byte("v"),
					Ttl: ttl, Expected: &kvpb.CompareAndSwapRequest_Absent{Absent: true}}}}
		},
		"increment": func(ttl int64) *kvpb.Request {
			q := incrementOf("a", 1)
			q.GetIncrement().Ttl = ttl
			return q
		},
		"one phase": func(ttl int64) *kvpb.Request {
			return &kvpb.Request{Command: &kvpb.Request_Prepare{Prepare: &kvpb.PrepareRequest{
				Mutations: []*kvpb.Mutation{{Key: []byte("a"), Value: []byte("v"), Ttl: ttl},
					{Key: []byte("b"), Kind: kvpb.Mutation_DELETE}}}}}
		},
	}
	for name, request := range requests {
		moment := keys.Until(1e18)
		for ttl, want := range map[keys.Lifetime]keys.Lifetime{keys.For(asked): keys.For(asked),
			keys.DefaultLifetime: keys.For(usual), keys.Forever: keys.Forever, moment: moment} {
			q := request(int64(ttl))
			e := newPartition(t).evaluation(1, &alone{})
			e.DefaultTTL = usual
			var err error
			if c := q.GetPrepare(); c != nil {
				err = e.onePhaseOps(c)
			} else {
				err = Of(q).Evaluate(e, q)
			}
			if err != nil || len(e.Ops) == 0 || e.Ops[0].Lifetime != want {
				t.Errorf("%s with %s: %+v, %v", name, ttl, e.Ops, err)
			}
			if len(e.Ops) == 2 && e.Ops[1].Lifetime != keys.DefaultLifetime {
				t.Errorf("%s: a deletion lives %s", name, e.Ops[1].Lifetime)
			}
		}
	}
}

// What is no time to live is refused, with the key and the bounds; so is one for a deletion.
func TestTTLIsChecked(t *testing.T) {
	d := partitionUpTo('z')
	value := []byte("v")
	for _, q := range []*kvpb.Request{
		{Command: &kvpb.Request_Put{Put: &kvpb.PutRequest{Key: []byte("bad"), Value: value, Ttl: 1}}},
		{Command: &kvpb.Request_Put{Put: &kvpb.PutRequest{Key: []byte("bad"), Value: value,
			Ttl: int64(keys.MaxTTL) + 1}}},
		{Command: &kvpb.Request_Increment{Increment: &kvpb.IncrementRequest{Key: []byte("bad"),
			Ttl: 1}}},
		{Command: &kvpb.Request_CompareAndSwap{CompareAndSwap: &kvpb.CompareAndSwapRequest{
			Key: []byte("bad"), Delete: true, Ttl: int64(time.Hour),
			Expected: &kvpb.CompareAndSwapRequest_Value{Value: value}}}},
		{Command: &kvpb.Request_WriteBatch{WriteBatch: &kvpb.WriteBatchRequest{
			Operations: []*kvpb.WriteOperation{{Key: []byte("bad"), Delete: true,
				Ttl: int64(time.Hour)}}}}},
		{Command: &kvpb.Request_Load{Load: &kvpb.LoadRequest{First: []byte("bad"), Last: []byte("e"),
			Ttl: 1}}},
	} {
		_, problem := Of(q).CheckWrite(d, q)
		if problem == nil || !strings.Contains(problem.Text, `"bad"`) ||
			!strings.Contains(problem.Text, "time to live") {
			t.Errorf("%v: %+v", q, problem)
		}
	}
	for _, m := range []*kvpb.Mutation{
		{Key: []byte("bad"), Kind: kvpb.Mutation_LOCK, Ttl: int64(time.Hour)},
		{Key: []byte("bad"), Kind: kvpb.Mutation_DELETE, Ttl: int64(time.Hour)},
		{Key: []byte("bad"), Ttl: 1},
	} {
		if p := checkMutation(d, m, &kvpb.PrepareRequest{}); p == nil ||
			!strings.Contains(p.Text, "time to live") {
			t.Errorf("%v: %+v", m, p)
		}
	}
}

// A key that a transaction has read is compared as it is locked: it must not have expired by then,
// and if it may expire before the commit it counts as not compared.
func TestPreparedAboveExpiry(t *testing.T) {
	p := newPartition(t)
	p.expiring(1, "a", "1", 10, true) // at 1, expires at 11
	for _, c := range []struct {
		readAt, prepared int64
		changed, expires bool
	}{{2, 5, false, true}, {2, 11, true, false}, {11, 20, false, false}} {
		r := &kvpb.PrepareRequest{ReadAt: wire.ToTimestamp(at(c.readAt)), Mutations: []*kvpb.Mutation{
			{Key: []byte("a"), Kind: kvpb.Mutation_PUT, Read: true}}}
		e := p.evaluation(3, &alone{})
		_, changed, expires, err := e.preparedAbove(r, nil, at(c.prepared))
		if err != nil || (changed != nil) != c.changed || expires != c.expires {
			t.Errorf("read at %d, prepared at %d: %q has changed, expires %t, %v", c.readAt, c.prepared,
				changed, expires, err)
		}
		of := &preparation{e: e, q: &kvpb.Request{}, c: r, expires: expires}
		if compared := of.response(at(20), nil).GetPrepare().Compared; compared == c.expires {
			t.Errorf("read at %d, prepared at %d: compared %t", c.readAt, c.prepared, compared)
		}
	}
}
