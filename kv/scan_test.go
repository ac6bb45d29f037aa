package kv

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"github.com/tidemarkdb/tidemark/bench/proof/fakeserver"
	"github.com/tidemarkdb/tidemark/rpc/kvpb"
	"github.com/tidemarkdb/tidemark/rpc/metric/prom"
)

// drain reads a scan to its end.
func drain(rows iter.Seq2[Pair, error]) (all []Pair, err error) {
	for p, err := range rows {
		if err != nil {
			return all, err
		}
		all = append(all, p)
	}
	return all, nil
}

// fill puts n keys, key%05d, and returns them in order.
func fill(t testing.TB, ks *Keyspace, n int) []string {
	var all []string
	for i := range n {
		key := fmt.Sprintf("key%05d", i)
		must[Timestamp](t)(ks.Put(t.Context(), []byte(key), []byte("value of "+key)))
		all = append(all, key)
	}
	return all
}

func keysOf(pairs []Pair) []string {
	all := []string{}
	for _, p := range pairs {
		all = append(all, string(p.Key))
	}
	return all
}

// eachLayout runs a test on keyspaces of one hash partition, many, one range partition, many.
func eachLayout(t *testing.T, f func(t *testing.T, c *fakeCluster, ks *Keyspace, id uint32)) {
	for name, make := range map[string]func(c *fakeCluster) uint32{
		"hash-1":  func(c *fakeCluster) uint32 { return c.AddKeyspace("k", 1) },
		"hash-16": func(c *fakeCluster) uint32 { return c.AddKeyspace("k", 16) },
		"range-1": func(c *fakeCluster) uint32 { return c.AddKeyspace("k", 0) },
		"range-4": func(c *fakeCluster) uint32 {
			return c.AddKeyspace("k", 0, "key00100", "key00101", "key00250")
		},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, 3, func(t *testing.T, c *fakeCluster) {
				id := make(c)
				client := c.open()
				defer client.Close()
				f(t, c, client.Keyspace("k"), id)
			})
		})
	}
}

func TestScanOptions(t *testing.T) {
	eachLayout(t, func(t *testing.T, c *fakeCluster, ks *Keyspace, _ uint32) {
		ctx := t.Context()
		if all := must[[]Pair](t)(drain(ks.Scan(ctx))); len(all) != 0 {
			t.Fatalf("an empty keyspace has %d rows", len(all))
		}
		want := fill(t, ks, 400)
		before := ks.client.Timestamp()
		must[bool](t)(ks.Delete(ctx, []byte("key00007")))
		must[Timestamp](t)(ks.Put(ctx, []byte("later"), nil))
		for _, rows := range []int{1 << 30, 7} {
			c.Set(func() { c.PageRows = rows })
			reversed := slices.Clone(want)
			slices.Reverse(reversed)
			for name, test := range map[string]struct {
				options []ScanOption
				want    []string
			}{
				"at":      {[]ScanOption{At(before)}, want},
				"reverse": {[]ScanOption{At(before), Reverse()}, reversed},
				"now":     {nil, append(slices.Delete(slices.Clone(want), 7, 8), "later")},
				"prefix":  {[]ScanOption{Prefix([]byte("key0010"))}, want[100:110]},
				"prefix reverse": {[]ScanOption{Prefix([]byte("key0010")), Reverse(), Limit(3)},
					[]string{want[109], want[108], want[107]}},
				"from to": {[]ScanOption{From([]byte("key00099")), To([]byte("key00102"))},
					want[99:102]},
				"limit":         {[]ScanOption{From([]byte("key00050")), Limit(60)}, want[50:110]},
				"limit reverse": {[]ScanOption{Reverse(), Limit(20), At(before)}, reversed[:20]},
				"no limit":      {[]ScanOption{At(before), Limit(0)}, want},
				"page size":     {[]ScanOption{At(before), PageSize(3)}, want},
				"prefix and to": {[]ScanOption{Prefix([]byte("key0010")), To([]byte("key00103"))},
					want[100:103]},
				"nothing":  {[]ScanOption{Prefix([]byte("zzz"))}, []string{}},
				"disjoint": {[]ScanOption{Prefix([]byte("a")), Prefix([]byte("b"))}, []string{}},
			} {
				got, err := drain(ks.Scan(ctx, test.options...))
				if err != nil || !slices.Equal(keysOf(got), test.want) {
					t.Errorf("%s, %d rows a page: %v, %d rows, want %d", name, rows, err, len(got),
						len(test.want))
				}
				for _, p := range got {
					if string(p.Key) != "later" && string(p.Value) != "value of "+string(p.Key) ||
						!p.Exists() {
						t.Fatalf("%s: pair %q %q %s", name, p.Key, p.Value, p.Version)
					}
				}
			}
			got := must[[]Pair](t)(drain(ks.Scan(ctx, KeysOnly(), Limit(5))))
			if len(got) != 5 || len(got[0].Value) != 0 || got[0].Version.IsZero() {
				t.Errorf("keys only: %+v", got)
			}
			if n := must[uint64](t)(ks.Count(ctx)); n != 400 {
				t.Errorf("counted %d", n)
			}
			if n := must[uint64](t)(ks.Count(ctx, Prefix([]byte("key")), At(before))); n != 400 {
				t.Errorf("counted %d", n)
			}
			if n := must[uint64](t)(
				ks.Count(ctx, From([]byte("key00099")), To([]byte("key00102")))); n != 3 {
				t.Errorf("counted %d", n)
			}
		}
	})
}

// Leaving the loop ends the scan; that nothing is left running the bubble shows.
func TestScanBreak(t *testing.T) {
	eachLayout(t, func(t *testing.T, c *fakeCluster, ks *Keyspace, _ uint32) {
		fill(t, ks, 300)
		c.Set(func() { c.PageRows = 10 })
		for _, after := range []int{1, 8, 30} {
			n := 0
			for _, err := range ks.Scan(t.Context()) {
				if err != nil {
					t.Fatal(err)
				}
				if n++; n == after {
					break
				}
			}
		}
		// A cancelled context is an error, once.
		ctx, cancel := context.WithCancel(t.Context())
		n, failures := 0, 0
		for _, err := range ks.Scan(ctx) {
			if err != nil {
				failures++
				if !errors.Is(err, context.Canceled) {
					t.Error(err)
				}
				continue
			}
			if n++; n == 20 {
				cancel()
			}
		}
		if failures != 1 || n == 300 {
			t.Errorf("%d failures after %d rows", failures, n)
		}
		cancel()
	})
}

// Pairs belong to the caller: changing one changes no other.
func TestPairsAreTheCallers(t *testing.T) {
	eachLayout(t, func(t *testing.T, c *fakeCluster, ks *Keyspace, _ uint32) {
		want := fill(t, ks, 50)
		got := must[[]Pair](t)(drain(ks.Scan(t.Context())))
		for i := range got {
			got[i].Key = append(got[i].Key, "xxxx"...)
			got[i].Value = append(got[i].Value, "yyyy"...)
		}
		for i, p := range got {
			if string(p.Key) != want[i]+"xxxx" || string(p.Value) != "value of "+want[i]+"yyyy" {
				t.Fatalf("%q %q", p.Key, p.Value)
			}
		}
		a := must[Pair](t)(ks.Get(t.Context(), []byte(want[0])))
		clear(a.Value)
		if b := must[Pair](t)(ks.Get(t.Context(), []byte(want[0]))); bytes.Equal(a.Value, b.Value) {
			t.Fatal("the value is shared")
		}
	})
}

// A scan misses nothing that was acknowledged before it began, whichever node leads with whatever
// clock; and sees nothing later.
func TestScanIsASnapshot(t *testing.T) {
	eachLayout(t, func(t *testing.T, c *fakeCluster, ks *Keyspace, id uint32) {
		ctx := t.Context()
		// Clocks that differ by less than the maximum offset.
		c.Nodes[1].Skew.Store(int64(100 * time.Millisecond))
		c.Nodes[2].Skew.Store(int64(-100 * time.Millisecond))
		other := c.open() // its own session: it knows nothing of the writer's timestamps
		defer other.Close()
		reader := other.Keyspace("k")
		for round := range 12 {
			want := fill(t, ks, 120)
			switch round % 4 {
			case 1: // a leader changes, and the reader is not told
				p := c.PartitionOf(id, want[round*7])
				c.Lead(p, p.Next(), false)
				must[Timestamp](t)(ks.Put(ctx, []byte(want[round*7]), []byte("value of "+want[round*7])))
			case 2:
				for _, key := range []string{want[1], want[119]} {
					p := c.PartitionOf(id, key)
					c.Lead(p, p.Next(), round%8 == 2)
				}
			}
			must[Timestamp](t)(ks.Put(ctx, []byte("key00119"), []byte("value of key00119")))
			began := map[string]Timestamp{}
			for _, p := range must[[]Pair](t)(drain(ks.Scan(ctx))) {
				began[string(p.Key)] = p.Version
			}
			c.Set(func() { c.PageRows = 9 })
			n := 0
			for p, err := range reader.Scan(ctx) {
				if err != nil {
					t.Fatalf("round %d after %d rows: %v", round, n, err)
				}
				if n%10 == 3 { // writes beside the scan, which it must not see
					must[Timestamp](t)(ks.Put(ctx, []byte(want[119-n/2]), []byte("other")))
				}
				if p.Version != began[string(p.Key)] {
					t.Fatalf("round %d: %q has version %s, and had %s when the scan began", round,
						p.Key, p.Version, began[string(p.Key)])
				}
				n++
			}
			if n != len(began) {
				t.Fatalf("round %d: %d rows of %d", round, n, len(began))
			}
		}
	})
}

// A leader that moves in the middle of a scan, or whose connection breaks, does not end it.
func TestScanSurvivesMoves(t *testing.T) {
	eachLayout(t, func(t *testing.T, c *fakeCluster, ks *Keyspace, id uint32) {
		want := fill(t, ks, 300)
		c.Set(func() { c.PageRows = 10 })
		n := 0
		for p, err := range ks.Scan(t.Context()) {
			if err != nil {
				t.Fatalf("after %d rows: %v", n, err)
			}
			if string(p.Key) != want[n] {
				t.Fatalf("row %d is %q", n, p.Key)
			}
			if n%25 == 0 {
				moved := c.PartitionOf(id, want[(n+150)%300])
				c.Lead(moved, moved.Next(), n%50 == 0)
				c.Network.Drop("client", c.Nodes[uint64(n/25)%3+1].Host)
			}
			n++
		}
		if n != 300 {
			t.Fatalf("%d rows", n)
		}
	})
}

// Splits that the client has not heard of, before and in the middle of a scan.
func TestScanSurvivesSplits(t *testing.T) {
	for _, reverse := range []bool{false, true} {
		inBubble(t, 3, func(t *testing.T, c *fakeCluster) {
			id := c.AddKeyspace("k", 0, "key00150")
			client := c.open()
			defer client.Close()
			ks := client.Keyspace("k")
			want := fill(t, ks, 300)
			options := []ScanOption{}
			if reverse {
				options = append(options, Reverse())
				slices.Reverse(want)
			}
			c.Set(func() { c.PageRows = 10 })
			c.Split(c.PartitionOf(id, want[20]), "key00050", false)
			n := 0
			for p, err := range ks.Scan(t.Context(), options...) {
				if err != nil {
					t.Fatalf("after %d rows: %v", n, err)
				}
				if string(p.Key) != want[n] {
					t.Fatalf("row %d is %q", n, p.Key)
				}
				if n == 40 {
					c.Split(c.PartitionOf(id, "key00100"), "key00100", false)
				}
				if n == 110 {
					c.Split(c.PartitionOf(id, "key00222"), "key00222", true)
				}
				n++
			}
			if n != 300 {
				t.Fatalf("%d rows", n)
			}
			if count := must[uint64](t)(ks.Count(t.Context())); count != 300 {
				t.Fatalf("counted %d", count)
			}
		})
	}
}

// Small limits of a range keyspace take one request, and no clock.
func TestShortScanIsOneRequest(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, c *fakeCluster) {
		c.AddKeyspace("k", 0, "key00100", "key00200")
		client := c.open()
		defer client.Close()
		ks := client.Keyspace("k")
		fill(t, ks, 300)
		scans, clocks := c.RequestsOf("scan"), c.RequestsOf("now")
		if n := len(must[[]Pair](t)(
			drain(ks.Scan(t.Context(), From([]byte("key00110")), Limit(50))))); n != 50 {
			t.Fatalf("%d rows", n)
		}
		if scans, clocks = c.RequestsOf("scan")-scans, c.RequestsOf("now")-clocks; scans != 1 ||
			clocks != 0 {
			t.Fatalf("%d scans, %d clocks", scans, clocks)
		}
	})
}

// scanned fills the keyspace "k", and scans it: its leaders are known from then on.
func scanned(t *testing.T, client *Client, rows int) (ks *Keyspace, want []string) {
	t.Helper()
	ks = client.Keyspace("k")
	want = fill(t, ks, rows)
	must[[]Pair](t)(drain(ks.Scan(t.Context())))
	return ks, want
}

// A scan of a hash keyspace takes one request to each node that leads something, and one for the
// moment.
func TestHashScanAsksEachNodeOnce(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, c *fakeCluster) {
		c.AddKeyspace("k", 32)
		client := c.open()
		defer client.Close()
		ks, want := scanned(t, client, 200)
		asked := func() [3]int {
			return [3]int{c.RequestsOf("mergescan"), c.RequestsOf("scan"), c.RequestsOf("now")}
		}
		before := asked()
		got := must[[]Pair](t)(drain(ks.Scan(t.Context(), From([]byte("key00050")), Limit(30))))
		if !slices.Equal(keysOf(got), want[50:80]) {
			t.Fatalf("read %q", keysOf(got))
		}
		after := asked()
		if n := [3]int{after[0] - before[0], after[1] - before[1],
			after[2] - before[2]}; n != [3]int{6, 0, 0} {
			t.Errorf(
				"%d scans of a node's partitions, %d of one partition, %d clocks; want 6, 0, 0",
				n[0], n[1], n[2])
		}
	})
}

// A node that answers, and does not know for the moment what time it is, goes on being asked for
// what it has.
func TestScanWhileANodeTellsNoTime(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, c *fakeCluster) {
		c.AddKeyspace("k", 12)
		client := c.open()
		defer client.Close()
		ks, want := scanned(t, client, 100)
		c.Set(func() { c.Nodes[2].Timeless = 1 })
		led := 0
		c.Set(func() {
			for _, p := range c.Partitions {
				if p.Leader == 2 {
					led++
				}
			}
		})
		asked := c.RequestsOf("scan")
		if got := must[[]Pair](t)(drain(ks.Scan(t.Context()))); !slices.Equal(keysOf(got), want) {
			t.Errorf("read %q", keysOf(got))
		}
		if n := c.RequestsOf("scan") - asked; n != led || led == 0 {
			t.Errorf("%d partitions were asked by themselves, want the %d that the node leads: "+
				"is it suspected?", n, led)
		}
	})
}

// A node that does not know what time it is may have handed over what it led: it is not asked again
// and again.
func TestScanFindsWhoLeadsNow(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, c *fakeCluster) {
		c.AddKeyspace("k", 12)
		client := c.open()
		defer client.Close()
		ks, want := scanned(t, client, 100)
		c.Set(func() {
			c.Nodes[2].Timeless = 1 << 30
			for _, p := range c.Partitions {
				if p.Leader == 2 {
					p.Leader, p.Term = 3, p.Term+1 // no client hears of it
				}
			}
		})
		if got := must[[]Pair](t)(drain(ks.Scan(t.Context()))); !slices.Equal(keysOf(got), want) {
			t.Errorf("read %q", keysOf(got))
		}
	})
}

// Partitions that leave a node's scan, at its beginning or in the middle, are read by themselves
// from where the page began that they are missing in; so are all when the node knows no such scans.
func TestPartitionsLeaveABundle(t *testing.T) {
	for _, reverse := range []bool{false, true} {
		for name, refuse := range map[string]func(request int, partition uint64) bool{
			"none":    func(int, uint64) bool { return false },
			"all":     func(int, uint64) bool { return true },
			"at once": func(_ int, partition uint64) bool { return partition%3 == 0 },
			"in the middle": func(request int, partition uint64) bool {
				return request > 3 && partition%4 == 1
			},
			"one by one": func(request int, partition uint64) bool {
				return partition%8 < uint64(request)/2
			},
		} {
			inBubble(t, 3, func(t *testing.T, c *fakeCluster) {
				c.AddKeyspace("k", 24)
				client := c.open()
				defer client.Close()
				ks := client.Keyspace("k")
				want := fill(t, ks, 300)
				var options []ScanOption
				if reverse {
					options = append(options, Reverse())
					slices.Reverse(want)
				}
				c.Set(func() { c.PageRows = 7 })
				requests := 0
				c.Play(func(_ *fakeserver.Node, r *kvpb.Request) fakeserver.Fault {
					switch {
					case r.GetMergeScan() != nil:
						requests++
					// As a part of another request.
					case r.GetScan() != nil && r.Sequence == 0 && refuse(requests, r.Partition):
						return fakeserver.Fault{Code: kvpb.ErrorCode_NO_QUORUM}
					}
					return fakeserver.Fault{}
				})
				got := must[[]Pair](t)(drain(ks.Scan(t.Context(), options...)))
				if !slices.Equal(keysOf(got), want) {
					t.Errorf("%s, reverse %t: %d rows, want %d: %q", name, reverse, len(got),
						len(want), keysOf(got))
				}
			})
		}
	}
	inBubble(t, 3, func(t *testing.T, c *fakeCluster) {
		c.AddKeyspace("k", 24)
		c.Set(func() { c.NoMerges = true })
		client := c.open()
		defer client.Close()
		ks := client.Keyspace("k")
		want := fill(t, ks, 100)
		if got := must[[]Pair](t)(drain(ks.Scan(t.Context()))); !slices.Equal(keysOf(got), want) {
			t.Errorf("%q", keysOf(got))
		}
	})
}

func TestDeleteRange(t *testing.T) {
	eachLayout(t, func(t *testing.T, c *fakeCluster, ks *Keyspace, _ uint32) {
		ctx := t.Context()
		fill(t, ks, 300)
		c.Set(func() { c.PageRows = 20 })
		broken := 0
		c.Play(func(_ *fakeserver.Node, r *kvpb.Request) fakeserver.Fault {
			if _, is := r.Command.(*kvpb.Request_DeleteRange); is && r.Term != 0 {
				if broken++; broken%3 == 1 {
					return fakeserver.Fault{BreakAfter: true}
				}
			}
			return fakeserver.Fault{}
		})
		if n := must[uint64](t)(
			ks.DeleteRange(ctx, From([]byte("key00050")), To([]byte("key00260")))); n != 210 {
			t.Fatalf("deleted %d", n)
		}
		if n := must[uint64](t)(ks.Count(ctx)); n != 90 {
			t.Fatalf("%d left", n)
		}
		// An interrupted one says how far it got.
		short, cancel := context.WithTimeout(ctx, 3*time.Second)
		defer cancel()
		refused := 0
		c.Play(func(_ *fakeserver.Node, r *kvpb.Request) fakeserver.Fault {
			if _, is := r.Command.(*kvpb.Request_DeleteRange); is {
				if refused++; refused > 1 {
					return fakeserver.Fault{Code: kvpb.ErrorCode_OVERLOADED}
				}
			}
			return fakeserver.Fault{}
		})
		n, err := ks.DeleteRange(short, All())
		c.Play(nil)
		left := must[uint64](t)(ks.Count(ctx))
		if !errors.Is(err, context.DeadlineExceeded) || n+left != 90 || left == 0 {
			t.Fatalf("%v: deleted %d, %d left", err, n, left)
		}
	})
}

// A partition of a range keyspace that has no leader holds a scan up for a while, and does not end
// it: the moment is then late enough for what was acknowledged there, too.
func TestScanOverAPartitionWithoutALeader(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, c *fakeCluster) {
		id := c.AddKeyspace("k", 0, "key00100", "key00200")
		registry := prometheus.NewRegistry()
		writer, reader := c.open(), c.open(Metrics(prom.Registry(registry)))
		defer writer.Close()
		defer reader.Close()
		want := fill(t, writer.Keyspace("k"), 300)
		must[[]Pair](t)(drain(reader.Keyspace("k").Scan(t.Context())))
		last := c.PartitionOf(id, "key00250")
		leader := last.Leader
		version := must[Timestamp](t)(
			writer.Keyspace("k").Put(t.Context(), []byte("key00250"), []byte("acknowledged")))
		c.Set(func() { last.Leader = 0 })
		began, rows := time.Now(), 0
		for pair, err := range reader.Keyspace("k").Scan(t.Context()) {
			if err != nil {
				t.Fatalf("after %d rows: %v", rows, err)
			}
			if rows == 0 {
				if waited := time.Since(began); waited < leaderWait || waited > 2*leaderWait {
					t.Errorf("it waited for %v", waited)
				}
				c.Set(func() { last.Leader, last.Term = leader, last.Term+1 })
			}
			if string(pair.Key) == "key00250" && pair.Version != version {
				t.Errorf("%q has version %s, want %s", pair.Value, pair.Version, version)
			}
			rows++
		}
		if rows != len(want) {
			t.Errorf("%d rows of %d", rows, len(want))
		}
		if n := metricOf(t, registry, "tidemark_client_clock_waits_total"); n != 1 {
			t.Errorf("it waited for the clocks %v times", n)
		}
	})
}

// metricOf is a metric without labels.
func metricOf(t *testing.T, registry *prometheus.Registry, name string) (n float64) {
	t.Helper()
	for _, f := range must[[]*dto.MetricFamily](t)(registry.Gather()) {
		if f.GetName() == name {
			n += f.Metric[0].GetCounter().GetValue()
		}
	}
	return n
}
