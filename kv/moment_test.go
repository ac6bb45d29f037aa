package kv

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/tidemarkdb/tidemark/bench/proof/fakeserver"
	"github.com/tidemarkdb/tidemark/hlc"
	"github.com/tidemarkdb/tidemark/rpc/kvpb"
)

// past is what all keys were at all times, by keyspace and key.
type past [2]map[string][]fakeserver.Version

func (h *past) write(ks int, key, value string, at Timestamp) {
	h[ks][key] = append(h[ks][key], fakeserver.Version{At: at, Value: value})
}

// at is the value of a key at a moment, empty for none.
func (h *past) at(ks int, key string, moment Timestamp) (value string) {
	for _, v := range h[ks][key] {
		if v.At.LessEq(moment) {
			value = v.Value
		}
	}
	return value
}

// moments is a transaction beside which others write, while it reads, scans, and reads in the loops
// of scans.
type moments struct {
	*rapid.T
	ctx     context.Context
	cluster *fakeCluster
	tx      *Txn
	spaces  [2]*Keyspace
	others  [2]*Keyspace
	past    past
	own     [2]map[string]string
	locked  [2]map[string]bool
	// stolen: its locks were taken away.
	stolen bool
	// seen are checks of what was read, to be made when it is known at which moment.
	seen []func(moment Timestamp) error
	// failed is what ended the transaction.
	failed error
	values int
}

func (m *moments) draw(what string, n int) int { return rapid.IntRange(0, n-1).Draw(m.T, what) }

func (m *moments) key() string { return fmt.Sprintf("k%d", m.draw("key", 10)) }

// over notes an error, and reports whether there was one that ends the transaction.
func (m *moments) over(err error) bool {
	if err != nil && !errors.Is(err, ErrNotFound) {
		if !runAgain(err) {
			m.Fatal(err)
		}
		m.failed = err
	}
	return m.failed != nil
}

// step does one thing; depth is how many scans are open.
func (m *moments) step(depth int) {
	i := m.draw("keyspace", 2)
	ks, k := m.spaces[i], m.key()
	switch op := rapid.SampledFrom(
		[]string{"get", "get", "lock", "batch", "put", "delete", "scan", "scan", "count", "other",
			"move", "move", "move", "steal"}).Draw(m.T, "op"); op {
	case "get", "lock":
		get := m.tx.Get
		if op == "lock" {
			get = m.tx.GetForUpdate
			m.locked[i][k] = true
		}
		p, err := get(m.ctx, ks, []byte(k))
		if m.over(err) {
			return
		}
		m.sees(i, k, string(p.Value))
	case "batch":
		all := [][]byte{[]byte(k), []byte(m.key())}
		pairs, err := m.tx.BatchGet(m.ctx, ks, all)
		if m.over(err) {
			return
		}
		for _, p := range pairs {
			m.sees(i, string(p.Key), string(p.Value))
		}
	case "put":
		m.values++
		m.own[i][k] = fmt.Sprintf("own%d", m.values)
		m.over(m.tx.Put(ks, []byte(k), []byte(m.own[i][k])))
	case "delete":
		m.own[i][k] = ""
		m.over(m.tx.Delete(ks, []byte(k)))
	case "scan":
		if depth < 2 {
			m.scan(i, depth)
		}
	case "count":
		to := m.key()
		if to <= k {
			return
		}
		n, err := m.tx.Count(m.ctx, ks, From([]byte(k)), To([]byte(to)))
		if m.over(err) {
			return
		}
		own := maps.Clone(m.own[i])
		m.seen = append(m.seen, func(moment Timestamp) error {
			if want := m.pairs(i, own, k, to, moment); int(n) != len(want) {
				return fmt.Errorf("counted %d of %v", n, want)
			}
			return nil
		})
	case "other":
		if !m.locked[i][k] || m.stolen {
			m.other(i, k)
		}
	case "move":
		// Another client writes two keys, and the transaction sees one of them: its moment moves there.
		j, other := m.draw("keyspace", 2), m.key()
		if m.locked[i][k] || m.locked[j][other] {
			return
		}
		m.other(j, other)
		m.other(i, k)
		p, err := m.tx.Get(m.ctx, ks, []byte(k))
		if m.over(err) {
			return
		}
		m.sees(i, k, string(p.Value))
	case "steal":
		m.steal()
	}
}

// other has another client write a key.
func (m *moments) other(i int, k string) {
	time.Sleep(time.Millisecond) // virtual time
	m.values++
	value := fmt.Sprintf("other%d", m.values)
	at, err := m.others[i].Put(m.ctx, []byte(k), []byte(value))
	if err != nil {
		m.Fatal(err)
	}
	m.past.write(i, k, value, at)
}

// steal aborts the transaction, as an older one does, and takes its locks.
func (m *moments) steal() {
	m.stolen = true
	m.cluster.Set(func() { m.cluster.Abort(m.tx.transaction.ID()) })
}

// sees notes what a key was.
func (m *moments) sees(i int, k, value string) {
	if own, written := m.own[i][k]; written {
		if value != own {
			m.Fatalf("%s is %q, and was written as %q", k, value, own)
		}
		return
	}
	m.seen = append(m.seen, func(moment Timestamp) error {
		if want := m.past.at(i, k, moment); value != want {
			return fmt.Errorf("%s of keyspace %d was read as %q, and was %q", k, i, value, want)
		}
		return nil
	})
}

// pairs is what a scan is to yield at a moment.
func (m *moments) pairs(i int, own map[string]string, from, to string,
	moment Timestamp) (all []string) {
	for n := range 10 {
		k := fmt.Sprintf("k%d", n)
		value, written := own[k]
		if !written {
			value = m.past.at(i, k, moment)
		}
		if value != "" && k >= from && (to == "" || k < to) {
			all = append(all, k+"="+value)
		}
	}
	return all
}

// scan scans, and does other things in its loop.
func (m *moments) scan(i, depth int) {
	from, to := m.key(), ""
	options := []ScanOption{From([]byte(from))}
	if rapid.Bool().Draw(m.T, "bounded") {
		to = m.key()
		if to <= from {
			return
		}
		options = append(options, To([]byte(to)))
	}
	reverse := rapid.Bool().Draw(m.T, "reverse")
	if reverse {
		options = append(options, Reverse())
	}
	limit := m.draw("limit", 5)
	if limit > 0 {
		options = append(options, Limit(limit))
	}
	own := maps.Clone(m.own[i])
	var got []string
	left := false
	for p, err := range m.tx.Scan(m.ctx, m.spaces[i], options...) {
		if m.over(err) {
			return
		}
		got = append(got, string(p.Key)+"="+string(p.Value))
		for range m.draw("steps in the loop", 3) {
			if m.step(depth + 1); m.failed != nil {
				return
			}
		}
		if left = m.draw("leave", 8) == 0; left {
			break
		}
	}
	m.seen = append(m.seen, func(moment Timestamp) error {
		want := m.pairs(i, own, from, to, moment)
		if reverse {
			slices.Reverse(want)
		}
		if limit > 0 {
			want = want[:min(limit, len(want))]
		}
		if left {
			want = want[:min(len(got), len(want))]
		}
		if !slices.Equal(got, want) {
			return fmt.Errorf("a scan of keyspace %d from %q to %q, reverse %t, limit %d, left "+
				"early %t: %v, want %v", i, from, to, reverse, limit, left, got, want)
		}
		return nil
	})
}

// Whatever others write meanwhile, and even if its locks are taken away, all that a transaction has
// read is of one moment, and if it commits, of the one at which it does.
func TestEverythingReadIsOfOneMoment(t *testing.T) {
	var counted ways
	inBubble(t, 3, func(t *testing.T, c *fakeCluster) {
		c.AddKeyspace("hash", 3)
		c.AddKeyspace("range", 0, "k3", "k6")
		c.PageRows = 2
		client, second := c.open(), c.open()
		defer client.Close()
		defer second.Close()
		c.Play(func(_ *fakeserver.Node, r *kvpb.Request) fakeserver.Fault {
			if p := c.Partitions[r.Partition]; p != nil {
				// Whatever a reader finds may have been written before it began, for all that the
				// node knows; writers do not have to look out for that.
				switch r.Command.(type) {
				case *kvpb.Request_Get, *kvpb.Request_BatchGet, *kvpb.Request_Scan, *kvpb.Request_Count:
					p.Low = hlc.MaxTimestamp
				default:
					p.Low = hlc.Timestamp{}
				}
			}
			return fakeserver.Fault{}
		})
		for range 10 {
			rapid.Check(undated{t}, func(t *rapid.T) { oneMoment(t, c, client, second, &counted) })
		}
	})
	t.Logf("%d committed, %d conflicts, %d moved their moment", counted.committed,
		counted.conflicts, counted.moved)
	if counted.committed == 0 || counted.conflicts == 0 || counted.moved == 0 {
		t.Error("not all ways were taken")
	}
}

// ways counts how transactions ended.
type ways struct{ committed, conflicts, moved int }

// oneMoment runs one transaction.
func oneMoment(t *rapid.T, c *fakeCluster, client, second *Client, n *ways) {
	m := &moments{T: t, ctx: context.Background(), cluster: c}
	for i, name := range []string{"hash", "range"} {
		m.spaces[i], m.others[i] = client.Keyspace(name), second.Keyspace(name)
		m.past[i], m.own[i], m.locked[i] = make(map[string][]fakeserver.Version),
			make(map[string]string), make(map[string]bool)
		if _, err := m.others[i].DeleteRange(m.ctx, All()); err != nil {
			t.Fatal(err)
		}
		for _, n := range rapid.SliceOfN(rapid.IntRange(0, 9), 0, 6).Draw(t, "start") {
			m.other(i, fmt.Sprintf("k%d", n))
		}
	}
	time.Sleep(2 * time.Second) // virtual time; all of that is certain
	tx, err := client.Begin(m.ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback()
	m.tx = tx
	var first Timestamp
	for range rapid.IntRange(1, 12).Draw(t, "steps") {
		if m.step(0); m.failed != nil {
			break
		}
		if first.IsZero() {
			first = tx.at
		}
	}
	if first != tx.at {
		n.moved++
	}
	sound := func(moment Timestamp) {
		for _, seen := range m.seen {
			if err := seen(moment); err != nil {
				t.Fatalf("at %s: %v", moment, err)
			}
		}
	}
	sound(tx.at)
	if m.failed != nil {
		n.conflicts++
		return
	}
	at, err := tx.Commit(m.ctx)
	switch {
	case err == nil:
		n.committed++
		sound(at)
	case !runAgain(err):
		t.Fatal(err)
	default:
		n.conflicts++
	}
}
