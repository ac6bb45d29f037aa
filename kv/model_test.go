package kv

import (
	"bytes"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/tidemarkdb/tidemark/bench/proof/fakeserver"
	"github.com/tidemarkdb/tidemark/kv/internal/reader"
	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
	"github.com/tidemarkdb/tidemark/rpc/kvpb"
	"github.com/tidemarkdb/tidemark/rpc/memnet"
)

// model is what a keyspace should hold, now and at the moments that the test took note of.
type model struct {
	now     map[string]string
	moments []moment
}

type moment struct {
	at      Timestamp
	content map[string]string
}

func (m *model) clone() map[string]string {
	out := make(map[string]string, len(m.now))
	for k, v := range m.now {
		out[k] = v
	}
	return out
}

// expected is what a query yields.
func expected(content map[string]string, q *query) []string {
	var out []string
	for key := range content {
		if q.Span.Contains([]byte(key)) && !q.empty() {
			out = append(out, key)
		}
	}
	slices.Sort(out)
	if q.Reverse {
		slices.Reverse(out)
	}
	if q.Limit > 0 && len(out) > q.Limit {
		out = out[:q.Limit]
	}
	return out
}

// TestModel runs random calls against a map, over a cluster in which everything goes wrong at
// random. Since the calls are made without a deadline, every one of them must succeed, exactly as
// in the model.
func TestModel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rapid.Check(undated{t}, func(rt *rapid.T) { runModel(t, rt) })
	})
}

// undated hides the test's deadline, which is real time and has no place in a bubble.
type undated struct{ testing.TB }

func runModel(t *testing.T, rt *rapid.T) {
	c := newFakeCluster(t, rapid.SampledFrom([]int{1, 3, 4}).Draw(rt, "nodes"))
	defer c.Close()
	for _, n := range c.Nodes {
		n.Skew.Store(int64(rapid.IntRange(-100, 100).Draw(rt, "skew")) * int64(time.Millisecond))
	}
	var id uint32
	switch rapid.IntRange(0, 3).Draw(rt, "layout") {
	case 0:
		id = c.AddKeyspace("k", rapid.SampledFrom([]int{1, 2, 5, 32}).Draw(rt, "hash"))
	case 1:
		id = c.AddKeyspace("k", 0)
	default:
		id = c.AddKeyspace("k", 0, "b", "bb", "c")
	}
	c.Set(func() { c.PageRows = rapid.SampledFrom([]int{1, 2, 3, 1 << 20}).Draw(rt, "page rows") })
	c.Set(func() {
		c.NoMerges = rapid.IntRange(0, 3).Draw(rt, "no merges") == 0
		c.NoMoments = rapid.IntRange(0, 3).Draw(rt, "no moments") == 0
	})
	c.Set(func() { c.NoLeaders = rapid.Bool().Draw(rt, "table without leaders") })
	random := rapid.Uint64()
	client := c.open(RequestTimeout(0),
		ConnectionsPerNode(rapid.IntRange(1, 3).Draw(rt, "connections")))
	defer client.Close()
	ks := client.Keyspace("k")

	// Faults are drawn by a small generator of their own, seeded by rapid: requests come in no
	// fixed order.
	state := random.Draw(rt, "faults") | 1
	roll := func(n uint64) bool {
		state ^= state << 13
		state ^= state >> 7
		state ^= state << 17
		return state%n == 0
	}
	trouble := rapid.SampledFrom([]uint64{0, 4, 12}).Draw(rt, "trouble")
	// Partitions split and merge just before a request of any call is served, and refusals do not
	// bring all that there is to know of it.
	reshaping := rapid.SampledFrom([]uint64{0, 3, 20}).Draw(rt, "reshaping")
	brings := rapid.SampledFrom([]uint64{1, 2, 5}).Draw(rt, "brings")
	c.Set(func() {
		c.Brings = func(of *clusterpb.Partition, all []*clusterpb.Partition) []*clusterpb.Partition {
			return slices.DeleteFunc(slices.Clone(all), func(d *clusterpb.Partition) bool {
				return d.Id != of.Id && !roll(brings)
			})
		}
	})
	c.Play(func(n *fakeserver.Node, r *kvpb.Request) fakeserver.Fault {
		if reshaping > 0 && roll(reshaping) {
			all := c.PartitionsOf(id)
			p := all[state%uint64(len(all))]
			if told := roll(2); roll(3) || len(all) > 40 {
				c.MergeLocked(p, told)
			} else {
				at := []byte{'a' + byte(state>>8%3), 'a' + byte(state>>16%3), 'a' + byte(state>>24%3)}
				c.SplitLocked(p, string(at[:1+state>>32%3]), told)
			}
		}
		if trouble == 0 || !roll(trouble) {
			return fakeserver.Fault{}
		}
		switch {
		case roll(6):
			return fakeserver.Fault{BreakBefore: true}
		case roll(5):
			return fakeserver.Fault{BreakAfter: true}
		case roll(4):
			return fakeserver.Fault{Unknown: fakeserver.IsWrite(r)}
		case roll(3):
			return fakeserver.Fault{Code: kvpb.ErrorCode_OVERLOADED}
		case roll(2):
			return fakeserver.Fault{Code: kvpb.ErrorCode_NO_QUORUM}
		}
		return fakeserver.Fault{Code: kvpb.ErrorCode_NOT_LEADER}
	})

	m := &model{now: make(map[string]string)}
	key := rapid.Custom(func(rt *rapid.T) []byte {
		return []byte(rapid.StringOfN(rapid.RuneFrom([]rune("abc")), 1, 3, 3).Draw(rt, "key"))
	})
	value := rapid.SampledFrom([]string{"", "x", "yy", "zzz"})
	ctx := t.Context()
	check := func(err error, what string) {
		if err != nil {
			rt.Fatalf("%s: %v", what, err)
		}
	}
	written := 0
	rt.Repeat(map[string]func(*rapid.T){
		"put": func(rt *rapid.T) {
			k, v := key.Draw(rt, "key"), value.Draw(rt, "value")
			_, err := ks.Put(ctx, k, []byte(v))
			check(err, "put")
			m.now[string(k)] = v
			written++
		},
		"get": func(rt *rapid.T) {
			k := key.Draw(rt, "key")
			p, err := ks.Get(ctx, k)
			v, exists := m.now[string(k)]
			if exists != (err == nil) || exists && string(p.Value) != v {
				rt.Fatalf("get %q: %q, %v; want %q, %t", k, p.Value, err, v, exists)
			}
		},
		"delete": func(rt *rapid.T) {
			k := key.Draw(rt, "key")
			existed, err := ks.Delete(ctx, k)
			check(err, "delete")
			if _, want := m.now[string(k)]; existed != want {
				rt.Fatalf("delete %q: existed %t", k, existed)
			}
			delete(m.now, string(k))
		},
		"swap": func(rt *rapid.T) {
			k, old, v := key.Draw(rt, "key"), value.Draw(rt, "old"), value.Draw(rt, "value")
			has, exists := m.now[string(k)]
			expect, want := ExpectAbsent(), !exists
			if rapid.Bool().Draw(rt, "by value") {
				expect, want = ExpectValue([]byte(old)), exists && has == old
			}
			swap, err := ks.CompareAndSwap(ctx, k, expect, Set([]byte(v)))
			check(err, "swap")
			if swap.Swapped != want || !want &&
				(swap.Current.Exists() != exists || string(swap.Current.Value) != has) {
				rt.Fatalf("swap %q: %+v; there is %q, %t", k, swap, has, exists)
			}
			if want {
				m.now[string(k)] = v
			}
		},
		"batch": func(rt *rapid.T) {
			first := key.Draw(rt, "first")
			p := c.PartitionOf(id, string(first))
			b := ks.Batch()
			seen := map[string]string{}
			for _, k := range rapid.SliceOfN(key, 1, 5).Draw(rt, "keys") {
				if other := c.PartitionOf(id, string(k)); other != p || has(seen, k) {
					continue
				}
				seen[string(k)] = value.Draw(rt, "value")
				b.Put(k, []byte(seen[string(k)]))
			}
			_, err := b.Commit(ctx)
			check(err, "batch")
			for k, v := range seen {
				m.now[k] = v
			}
		},
		"batch get": func(rt *rapid.T) {
			all := rapid.SliceOfN(key, 1, 8).Draw(rt, "keys")
			pairs, err := ks.BatchGet(ctx, all)
			check(err, "batch get")
			for i, p := range pairs {
				v, exists := m.now[string(all[i])]
				if !bytes.Equal(p.Key, all[i]) || p.Exists() != exists || string(p.Value) != v {
					rt.Fatalf("batch get %q: %+v, want %q, %t", all[i], p, v, exists)
				}
			}
		},
		"scan": func(rt *rapid.T) {
			options, q := drawScan(rt, key, m)
			content := m.now
			if q.HasAt {
				content = m.moments[slices.IndexFunc(m.moments, func(x moment) bool {
					return x.at == q.At
				})].content
			}
			got, err := drain(ks.Scan(ctx, options...))
			check(err, "scan")
			want := expected(content, q)
			if len(got) != len(want) {
				rt.Fatalf("scan %+v: %q, want %q", q, keysOf(got), want)
			}
			for i, p := range got {
				if string(p.Key) != want[i] || !q.KeysOnly && string(p.Value) != content[want[i]] {
					rt.Fatalf("scan %+v: row %d is %q %q, want %q", q, i, p.Key, p.Value, want[i])
				}
			}
			if !q.Reverse && q.Limit == 0 {
				count := []CountOption{}
				for _, o := range options {
					if o, ok := o.(CountOption); ok {
						count = append(count, o)
					}
				}
				n, err := ks.Count(ctx, count...)
				check(err, "count")
				if n != uint64(len(want)) {
					rt.Fatalf("count %+v: %d, want %d", q, n, len(want))
				}
			}
		},
		"delete range": func(rt *rapid.T) {
			from := key.Draw(rt, "from")
			to := append(bytes.Clone(from), 'b')
			n, err := ks.DeleteRange(ctx, From(from), To(to))
			check(err, "delete range")
			for k := range m.now {
				if (keys.Span{Start: from, End: to}).Contains([]byte(k)) {
					delete(m.now, k)
					n--
				}
			}
			if n != 0 {
				rt.Fatalf("delete range [%q, %q): the number is off by %d", from, to, int64(n))
			}
		},
		"note the moment": func(rt *rapid.T) {
			if at := client.Timestamp(); !at.IsZero() &&
				(len(m.moments) == 0 || m.moments[len(m.moments)-1].at != at) {
				m.moments = append(m.moments, moment{at, m.clone()})
			}
		},
		"move a leader": func(rt *rapid.T) {
			p := c.PartitionOf(id, string(key.Draw(rt, "key")))
			c.Lead(p, p.Next(), rapid.Bool().Draw(rt, "told"))
		},
		"split": func(rt *rapid.T) {
			at := key.Draw(rt, "at")
			c.Split(c.PartitionOf(id, string(at)), string(at), rapid.Bool().Draw(rt, "told"))
		},
		"merge": func(rt *rapid.T) {
			at := key.Draw(rt, "at")
			c.Merge(c.PartitionOf(id, string(at)), rapid.Bool().Draw(rt, "told"))
		},
		"transaction": func(rt *rapid.T) {
			from, all := key.Draw(rt, "from"), rapid.SliceOfN(key, 1, 5).Draw(rt, "keys")
			v := value.Draw(rt, "value")
			var got []Pair
			_, err := client.Update(ctx, func(tx *Txn) (err error) {
				if got, err = drain(tx.Scan(ctx, ks, From(from))); err != nil {
					return err
				}
				for _, k := range all {
					if err := tx.Put(ks, k, []byte(v)); err != nil {
						return err
					}
				}
				return nil
			})
			check(err, "transaction")
			q := &query{}
			From(from).scan(q)
			if want := expected(m.now, q); !slices.Equal(keysOf(got), want) {
				rt.Fatalf("scan in a transaction from %q: %q, want %q", from, keysOf(got), want)
			}
			for _, k := range all {
				m.now[string(k)] = v
			}
		},
		"view": func(rt *rapid.T) {
			all, from := rapid.SliceOfN(key, 1, 5).Draw(rt, "keys"), key.Draw(rt, "from")
			var pairs, rows []Pair
			var n uint64
			check(client.View(ctx, func(s *Snapshot) (err error) {
				if pairs, err = s.BatchGet(ctx, ks, all); err != nil {
					return err
				}
				if rows, err = drain(s.Scan(ctx, ks, From(from), Reverse())); err != nil {
					return err
				}
				n, err = s.Count(ctx, ks)
				return err
			}), "view")
			for i, p := range pairs {
				if v, exists := m.now[string(all[i])]; p.Exists() != exists || string(p.Value) != v {
					rt.Fatalf("batch get in a view %q: %+v, want %q, %t", all[i], p, v, exists)
				}
			}
			q := &query{Query: reader.Query{Reverse: true}}
			From(from).scan(q)
			if want := expected(m.now, q); !slices.Equal(keysOf(rows), want) || n != uint64(len(m.now)) {
				rt.Fatalf("a view from %q: %q of %d, want %q of %d", from, keysOf(rows), n, want,
					len(m.now))
			}
		},
		"cut": func(rt *rapid.T) {
			n := c.Nodes[uint64(rapid.IntRange(1, len(c.Nodes)).Draw(rt, "node"))]
			// It heals in any case: calls wait for it.
			after := time.Duration(rapid.IntRange(1, 4000).Draw(rt, "ms")) * time.Millisecond
			if rapid.Bool().Draw(rt, "hang") {
				n.Hang(true)
				time.AfterFunc(after, func() { n.Hang(false) })
			} else {
				c.Network.Isolate(n.Host,
					rapid.SampledFrom([]memnet.Mode{memnet.Break, memnet.Stall}).Draw(rt, "mode"))
				time.AfterFunc(after, func() { c.Network.Rejoin(n.Host) })
			}
		},
		"wait": func(rt *rapid.T) {
			pass(time.Duration(rapid.IntRange(1, 3000).Draw(rt, "ms")) * time.Millisecond)
		},
	})
	c.Network.HealAll()
	// Every write was applied once at most: no request wrote two versions of a key. Late requests are
	// still being served.
	twice := ""
	c.Set(func() {
		for _, p := range c.Partitions {
			for k, versions := range p.Data.Versions {
				seen := map[fakeserver.WriteID]bool{}
				for _, v := range versions {
					// A write of a transaction in two phases has no request.
					if v.By != (fakeserver.WriteID{}) && seen[v.By] {
						twice = fmt.Sprintf("%q: request %v was applied twice", k, v.By)
					}
					seen[v.By] = true
				}
			}
		}
	})
	if twice != "" {
		rt.Fatal(twice)
	}
}

func has(m map[string]string, k []byte) bool { _, ok := m[string(k)]; return ok }

// drawScan draws options, and what they add up to.
func drawScan(rt *rapid.T, key *rapid.Generator[[]byte], m *model) ([]ScanOption, *query) {
	var options []ScanOption
	flip := func(name string) bool { return rapid.IntRange(0, 3).Draw(rt, name) == 0 }
	if flip("prefix") {
		options = append(options, Prefix(key.Draw(rt, "prefix key")))
	}
	if flip("from") {
		options = append(options, From(key.Draw(rt, "from key")))
	}
	if flip("to") {
		to := key.Draw(rt, "to key")
		q := &query{}
		for _, o := range options {
			o.scan(q)
		}
		if bytes.Compare(q.Span.Start, to) <= 0 {
			options = append(options, To(to))
		}
	}
	if flip("limit") {
		options = append(options, Limit(rapid.IntRange(1, 12).Draw(rt, "rows")))
	}
	if flip("page size") {
		options = append(options, PageSize(rapid.IntRange(1, 5).Draw(rt, "page")))
	}
	if flip("keys only") {
		options = append(options, KeysOnly())
	}
	if rapid.Bool().Draw(rt, "reverse") {
		options = append(options, Reverse())
	}
	if len(m.moments) > 0 && flip("at") {
		options = append(options, At(rapid.SampledFrom(m.moments).Draw(rt, "moment").at))
	}
	q := &query{}
	for _, o := range options {
		o.scan(q)
	}
	return options, q
}
