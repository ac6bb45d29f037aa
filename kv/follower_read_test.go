package kv

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tidemarkdb/tidemark/bench/proof/fakeserver"
	"github.com/tidemarkdb/tidemark/hlc"
	"github.com/tidemarkdb/tidemark/rpc/kvpb"
)

// freshOptions are those of reads that any replica may answer.
func freshOptions() map[string]FreshnessOption {
	return map[string]FreshnessOption{"nearest": Nearest(), "bounded": MaxStaleness(3 * time.Second),
		"any": AnyStaleness(), "own": ReadYourWrites()}
}

// leaderReads counts the reads that reach leaders as leaders.
func (c *fakeCluster) leaderReads() func() int {
	n := 0
	c.Play(func(_ *fakeserver.Node, r *kvpb.Request) fakeserver.Fault {
		switch r.Command.(type) {
		case *kvpb.Request_Get, *kvpb.Request_BatchGet, *kvpb.Request_Scan, *kvpb.Request_Count,
			*kvpb.Request_MergeScan:
			if r.ReplicaRead == nil {
				n++
			}
		}
		return fakeserver.Fault{}
	})
	return func() (got int) {
		c.Set(func() { got = n })
		return got
	}
}

// All kinds of reads are answered by replicas, in all layouts, at one moment that they tell; and a
// leader that reads at that moment finds the same.
func TestReadsThatAnyReplicaAnswers(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, c *fakeCluster) {
		ctx := t.Context()
		c.AddKeyspace("hash", 4)
		c.AddKeyspace("one", 1)
		c.AddKeyspace("range", 0, "k3", "k6")
		c.PageRows = 3
		writer := c.open()
		defer writer.Close()
		seen := make(map[string]int)
		for _, name := range []string{"hash", "one", "range"} {
			ks := writer.Keyspace(name)
			var last Timestamp
			all := make([][]byte, 10)
			for i := range all {
				all[i] = fmt.Appendf(nil, "k%d", i)
				if _, err := ks.Put(ctx, all[i], []byte("old")); err != nil {
					t.Fatal(err)
				}
			}
			pass(3 * time.Second)
			for _, key := range all {
				last = must[Timestamp](t)(ks.Put(ctx, key, []byte("new")))
			}
			leaders := c.leaderReads()
			for kind, option := range freshOptions() {
				client := c.open() // each asks other replicas
				defer client.Close()
				client.Observe(last)
				ks := client.Keyspace(name)
				// What is new is not closed yet, but leaders know of it, and they are as near as others.
				var info ReadInfo
				var value string
				same := func(what string, first bool, values ...string) {
					t.Helper()
					for _, v := range values {
						if first {
							value, first = v, false
						}
						if v != value || (kind == "own" && v != "new") {
							t.Errorf("%s, %s, %s: %q and %q", name, kind, what, value, v)
						}
						seen[v]++
					}
					if info.At.IsZero() || info.Age < 0 {
						t.Errorf("%s, %s, %s: read %+v", name, kind, what, info)
					}
				}
				p, err := ks.Get(ctx, all[4], option, ReadAt(&info))
				if err != nil {
					t.Fatal(name, kind, err)
				}
				if same("get", true, string(p.Value)); info.Node == 0 {
					t.Error("no node is told")
				}
				pairs, err := ks.BatchGet(ctx, all, option, ReadAt(&info))
				if err != nil {
					t.Fatal(name, kind, err)
				}
				for i, p := range pairs {
					same("batch get", i == 0, string(p.Value))
				}
				for _, options := range [][]ScanOption{nil, {Reverse()}, {Limit(2)},
					{Prefix([]byte("k4"))}} {
					info = ReadInfo{}
					got, err := drain(ks.Scan(ctx, append(options, option, ReadAt(&info))...))
					if err != nil || len(got) == 0 {
						t.Fatal(name, kind, err)
					}
					for i, p := range got {
						same("scan", i == 0, string(p.Value))
					}
					again, err := drain(ks.Scan(ctx, append(options, At(info.At))...))
					if err != nil || !slices.EqualFunc(got, again, func(a, b Pair) bool {
						return string(a.Key) == string(b.Key) && a.Version == b.Version
					}) {
						t.Errorf("%s, %s: leaders read %v, %v at that moment, replicas %v", name, kind, again,
							err, got)
					}
				}
				if n, err := ks.Count(ctx, option, ReadAt(&info)); err != nil || n != 10 {
					t.Errorf("%s, %s: counted %d, %v", name, kind, n, err)
				}
				same("count", true)
				// A View reads one moment, whatever else it reads later.
				err = client.View(ctx, func(s *Snapshot) error {
					if s.Age() >= 0 {
						t.Error("a moment that is not there has an age")
					}
					p, err := s.Get(ctx, ks, all[1])
					if err != nil {
						return err
					}
					same("view", true, string(p.Value))
					at := s.Timestamp()
					if at.IsZero() || s.Age() < 0 {
						t.Error(at, s.Age())
					}
					pass(5 * time.Second)
					for p, err := range s.Scan(ctx, ks) {
						if err != nil {
							return err
						}
						same("scan of a view", false, string(p.Value))
					}
					pairs, err := s.BatchGet(ctx, ks, all[:3])
					if err != nil {
						return err
					}
					same("batch get of a view", false, string(pairs[2].Value))
					if n, err := s.Count(ctx, ks, All()); err != nil || n != 10 || s.Timestamp() != at {
						return fmt.Errorf("counted %d at %s, not %s: %w", n, s.Timestamp(), at, err)
					}
					return nil
				}, option)
				if err != nil {
					t.Error(name, kind, err)
				}
				// So that the new values are new again.
				for _, key := range all {
					if _, err := ks.Put(ctx, key, []byte("old")); err != nil {
						t.Fatal(err)
					}
				}
				pass(3 * time.Second)
				for _, key := range all {
					last = must[Timestamp](t)(ks.Put(ctx, key, []byte("new")))
				}
			}
			if leaders() == 0 {
				t.Error("what a session wrote just now is there already")
			}
		}
		if seen["old"] == 0 || seen["new"] == 0 {
			t.Error("only some of the replicas answer:", seen)
		}
	})
}

// Reads that may be old ask no leader, and so does a session that has written nothing for a while.
func TestReplicasAnswerWithoutTheLeader(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, c *fakeCluster) {
		ctx := t.Context()
		id := c.AddKeyspace("hash", 4)
		client := c.open(Locality("eu", "a"))
		defer client.Close()
		ks := client.Keyspace("hash")
		before := must[Timestamp](t)(ks.Put(ctx, []byte("k"), []byte("v")))
		pass(3 * time.Second)
		leaders := c.leaderReads()
		for kind, option := range freshOptions() {
			for range 20 {
				if _, err := ks.Get(ctx, []byte("k"), option); err != nil {
					t.Fatal(kind, err)
				}
				if _, err := ks.Get(ctx, []byte("none"), option); !errors.Is(err, ErrNotFound) {
					t.Fatal(kind, err)
				}
				if _, err := drain(ks.Scan(ctx, option)); err != nil {
					t.Fatal(kind, err)
				}
			}
		}
		if _, err := ks.Get(ctx, []byte("k"), At(before), Nearest()); err != nil {
			t.Fatal(err)
		}
		if _, err := client.SnapshotAt(before, Nearest()).Count(ctx, ks); err != nil {
			t.Fatal(err)
		}
		if n := leaders(); n != 0 {
			t.Errorf("%d reads went to leaders", n)
		}
		// Leaders that are gone are not missed, whatever becomes of the time.
		for _, p := range c.PartitionsOf(id) {
			c.Lead(p, 0, false)
		}
		pass(time.Minute)
		var info ReadInfo
		if _, err := ks.Get(ctx, []byte("k"), AnyStaleness(), ReadAt(&info)); err != nil {
			t.Fatal(err)
		}
		if info.Age < time.Minute {
			t.Error("it says that it is", info.Age, "old")
		}
		short, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		if _, err := ks.Get(short, []byte("k"), Nearest()); !errors.Is(err, ErrUnavailable) {
			t.Error("what is a minute old is not near:", err)
		}
	})
}

// A lock that was prepared lets a read that may be older pass below it, and sends one that may not
// to the leader.
func TestReplicasReadBelowLocks(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, c *fakeCluster) {
		ctx := t.Context()
		id := c.AddKeyspace("one", 1)
		var of []*Keyspace // by several clients: each asks one replica about a partition
		for range 20 {
			client := c.open()
			defer client.Close()
			of = append(of, client.Keyspace("one"))
		}
		must[Timestamp](t)(of[0].Put(ctx, []byte("k"), []byte("v")))
		pass(2 * time.Second)
		p, prepared := c.PartitionOf(id, "k"), hlc.Timestamp{Wall: time.Now().UnixNano()}
		c.Set(func() {
			p.Data.Locks["k"] = &fakeserver.Lock{Transaction: &kvpb.Transaction{Id: make([]byte, 16)},
				Prepared: prepared, Kind: kvpb.Mutation_PUT, Value: "w"}
		})
		pass(5 * time.Second)
		leaders, below := c.leaderReads(), 0
		var info ReadInfo
		for _, ks := range of {
			got := must[Pair](t)(ks.Get(ctx, []byte("k"), Nearest(), ReadAt(&info)))
			if string(got.Value) != "v" || info.Node != p.Leader && !info.At.Less(prepared) {
				t.Fatal(got, info)
			}
			if info.Node != p.Leader {
				below++
			}
		}
		if n := leaders(); n != 0 || below == 0 {
			t.Errorf("%d reads went to leaders, %d below the lock", n, below)
		}
		for _, ks := range of {
			if _, err := ks.Get(ctx, []byte("k"), At(prepared.Add(time.Second)), Nearest()); err != nil {
				t.Fatal(err)
			}
		}
	})
}

// Options that contradict each other are refused, and so are those that make no sense where they
// are.
func TestFreshnessThatMakesNoSense(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, c *fakeCluster) {
		ctx := t.Context()
		c.AddKeyspace("one", 1)
		client := c.open()
		defer client.Close()
		ks, key, at := client.Keyspace("one"), []byte("k"), Timestamp{Wall: 1}
		for name, f := range map[string]func() error{
			"at and a bound": func() error {
				_, err := ks.Get(ctx, key, At(at), MaxStaleness(time.Second))
				return err
			},
			"at and own": func() error { _, err := ks.Count(ctx, At(at), ReadYourWrites()); return err },
			"any and own": func() error {
				_, err := drain(ks.Scan(ctx, AnyStaleness(), ReadYourWrites()))
				return err
			},
			"no bound": func() error {
				_, err := ks.BatchGet(ctx, [][]byte{key}, MaxStaleness(0))
				return err
			},
			"at and linearisable": func() error {
				_, err := ks.Get(ctx, key, At(at), LinearizableFollower())
				return err
			},
			"nearest and linearisable": func() error {
				_, err := drain(ks.Scan(ctx, Nearest(), LinearizableFollower()))
				return err
			},
			"view, own and linearisable": func() error {
				return client.View(ctx, func(*Snapshot) error { return nil }, ReadYourWrites(),
					LinearizableFollower())
			},
			"no info": func() error { _, err := ks.Get(ctx, key, ReadAt(nil)); return err },
			"view": func() error {
				return client.View(ctx, func(*Snapshot) error { return nil }, AnyStaleness(),
					MaxStaleness(time.Second))
			},
			"snapshot": func() error {
				_, err := client.SnapshotAt(at, AnyStaleness()).Get(ctx, ks, key)
				return err
			},
			"transaction": func() error {
				_, err := client.Update(ctx, func(tx *Txn) error {
					_, err := tx.Count(ctx, ks, Nearest())
					return err
				})
				return err
			},
			"scan of a view": func() error {
				return client.View(ctx, func(s *Snapshot) error {
					_, err := drain(s.Scan(ctx, ks, ReadAt(new(ReadInfo))))
					return err
				}, Nearest())
			},
		} {
			if err := f(); !errors.Is(err, ErrInvalidArgument) {
				t.Errorf("%s: %v", name, err)
			}
		}
	})
}

// Without options that say how fresh, reads tell their moment, too: what a leader answers is of
// now.
func TestReadsTellTheirMoment(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, c *fakeCluster) {
		ctx := t.Context()
		c.AddKeyspace("hash", 3)
		client := c.open()
		defer client.Close()
		ks, key := client.Keyspace("hash"), []byte("k")
		version := must[Timestamp](t)(ks.Put(ctx, key, nil))
		pass(time.Second)
		var infos [6]ReadInfo
		must[Pair](t)(ks.Get(ctx, key, ReadAt(&infos[0])))
		must[[]Pair](t)(ks.BatchGet(ctx, [][]byte{key, []byte("j")}, ReadAt(&infos[1])))
		must[uint64](t)(ks.Count(ctx, ReadAt(&infos[2])))
		must[[]Pair](t)(drain(ks.Scan(ctx, ReadAt(&infos[3]))))
		must[Pair](t)(ks.Get(ctx, key, ReadAt(&infos[4]), MaxStaleness(time.Millisecond)))
		must[Pair](t)(ks.Get(ctx, key, ReadAt(&infos[5]), At(version)))
		for i, info := range infos[:5] {
			if !version.Less(info.At) || info.Age < 0 || info.Age > time.Second {
				t.Errorf("%d: %+v", i, info)
			}
		}
		if infos[5].At != version || infos[5].Age < time.Second {
			t.Errorf("%+v", infos[5])
		}
	})
}

// The text of an error of such a read says what was in the way.
func TestErrorsOfReplicaReads(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, c *fakeCluster) {
		c.AddKeyspace("one", 1)
		client := c.open()
		defer client.Close()
		c.Play(func(_ *fakeserver.Node, r *kvpb.Request) fakeserver.Fault {
			if r.GetGet() != nil {
				return fakeserver.Fault{Code: kvpb.ErrorCode_OVERLOADED}
			}
			return fakeserver.Fault{}
		})
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		_, err := client.Keyspace("one").Get(ctx, []byte("k"), AnyStaleness())
		if !errors.Is(err, ErrOverloaded) || !strings.Contains(err.Error(), "timed out") {
			t.Error(err)
		}
	})
}

// Linearisable reads of all kinds, in all layouts, come from replicas that do not lead, and see
// what was written just before; leaders are asked for admissions and moments only.
func TestLinearizableFollower(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, c *fakeCluster) {
		ctx := t.Context()
		ids := []uint32{c.AddKeyspace("hash", 4), c.AddKeyspace("one", 1),
			c.AddKeyspace("range", 0, "k3", "k6")}
		c.PageRows = 3
		for id, n := range c.Nodes {
			n.Region, n.Zone = "eu", fmt.Sprint(id)
		}
		for _, id := range ids {
			for _, p := range c.PartitionsOf(id) {
				c.Lead(p, 1, true)
			}
		}
		client, writer := c.open(Locality("eu", "2")), c.open()
		defer client.Close()
		defer writer.Close()
		var reads, admitted, replicas int
		c.Play(func(n *fakeserver.Node, r *kvpb.Request) fakeserver.Fault {
			switch r.Command.(type) {
			case *kvpb.Request_Get, *kvpb.Request_BatchGet, *kvpb.Request_Scan, *kvpb.Request_Count:
				switch {
				case r.GetScan().GetMaxRows() == 1<<30: // of a question for a moment
				case r.ReplicaRead.GetAdmission() != nil && n.ID == 2:
					replicas++
				case r.Admit:
					admitted++
				default:
					reads++
				}
			}
			return fakeserver.Fault{}
		})
		for round := range 3 {
			for _, name := range []string{"hash", "one", "range"} {
				ks, theirs, option := client.Keyspace(name), writer.Keyspace(name), LinearizableFollower()
				all, want := make([][]byte, 10), fmt.Sprint(round)
				for i := range all {
					all[i] = fmt.Appendf(nil, "k%d", i)
					must[Timestamp](t)(theirs.Put(ctx, all[i], []byte(want)))
				}
				check := func(what string, n int, pairs []Pair, err error) {
					t.Helper()
					if err != nil || len(pairs) != n {
						t.Fatalf("%s, %s: %d pairs, %v", name, what, len(pairs), err)
					}
					for _, p := range pairs {
						if string(p.Value) != want {
							t.Errorf("%s, %s: %s is %q, want %q", name, what, p.Key, p.Value, want)
						}
					}
				}
				var info ReadInfo
				p, err := ks.Get(ctx, all[4], option, ReadAt(&info))
				if check("get", 1, []Pair{p}, err); info.Node != 2 || info.At.Less(p.Version) ||
					info.Age != 0 {
					t.Errorf("%s: get tells %+v", name, info)
				}
				pairs, err := ks.BatchGet(ctx, all, option)
				check("batch get", 10, pairs, err)
				pairs, err = ks.BatchGet(ctx, all[:1], option)
				check("batch get of one", 1, pairs, err)
				for what, o := range map[string][]ScanOption{"scan": nil, "reverse": {Reverse()}} {
					pairs, err = drain(ks.Scan(ctx, append(o, option, ReadAt(&info))...))
					if check(what, 10, pairs, err); info.At.Less(pairs[9].Version) {
						t.Errorf("%s: %s tells %+v", name, what, info)
					}
				}
				if n, err := ks.Count(ctx, option); err != nil || n != 10 {
					t.Errorf("%s: counted %d, %v", name, n, err)
				}
				err = client.View(ctx, func(s *Snapshot) error {
					p, err := s.Get(ctx, ks, all[1])
					check("get of a view", 1, []Pair{p}, err)
					at := s.Timestamp()
					must[Timestamp](t)(theirs.Put(ctx, all[9], []byte("later")))
					pairs, err := s.BatchGet(ctx, ks, all)
					check("batch get of a view", 10, pairs, err)
					pairs, err = drain(s.Scan(ctx, ks))
					check("scan of a view", 10, pairs, err)
					if n, err := s.Count(ctx, ks); err != nil || n != 10 || s.Timestamp() != at {
						t.Errorf("counted %d at %s, not %s: %v", n, s.Timestamp(), at, err)
					}
					return nil
				}, option)
				if err != nil {
					t.Error(name, err)
				}
			}
		}
		if reads != 0 || admitted == 0 || replicas <= admitted {
			t.Errorf("%d reads, %d admissions, %d reads of the replica", reads, admitted, replicas)
		}
	})
}
