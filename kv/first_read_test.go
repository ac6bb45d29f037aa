package kv

import (
	"context"
	"errors"
	"iter"
	"sync"
	"testing"

	"github.com/tidemarkdb/tidemark/bench/proof/fakeserver"
	"github.com/tidemarkdb/tidemark/rpc/kvpb"
)

// What is read first in one partition costs no second message because of uncertainty: its leader
// chooses the moment, which holds for the rest.
func TestTheFirstReadChoosesItsMoment(t *testing.T) {
	scan := func(ctx context.Context, s *Snapshot, ks *Keyspace) (n int, err error) {
		for _, err := range s.Scan(ctx, ks) {
			if err != nil {
				return 0, err
			}
			n++
		}
		return n, nil
	}
	reads := map[string]func(ctx context.Context, s *Snapshot, ks *Keyspace) (int, error){
		"batch get": func(ctx context.Context, s *Snapshot, ks *Keyspace) (int, error) {
			pairs, err := s.BatchGet(ctx, ks, [][]byte{[]byte("a"), []byte("b")})
			return len(pairs), err
		},
		"scan": scan,
		"count": func(ctx context.Context, s *Snapshot, ks *Keyspace) (int, error) {
			n, err := s.Count(ctx, ks)
			return int(n), err
		},
	}
	for name, read := range reads {
		t.Run(name, func(t *testing.T) {
			inBubble(t, 3, func(t *testing.T, c *fakeCluster) {
				ctx := t.Context()
				c.AddKeyspace("one", 1)
				c.AddKeyspace("other", 1)
				client := c.open()
				defer client.Close()
				one, other := client.Keyspace("one"), client.Keyspace("other")
				for _, ks := range []*Keyspace{one, other} {
					for _, key := range []string{"a", "b"} {
						must[Timestamp](t)(ks.Put(ctx, []byte(key), []byte("1")))
					}
				}
				type asked struct {
					at      *kvpb.Timestamp
					movable bool
				}
				var all []asked
				c.Play(func(_ *fakeserver.Node, r *kvpb.Request) fakeserver.Fault {
					switch q := r.Command.(type) {
					case *kvpb.Request_BatchGet:
						all = append(all, asked{q.BatchGet.At, q.BatchGet.Context.GetMovable()})
					case *kvpb.Request_Scan:
						all = append(all, asked{q.Scan.At, q.Scan.Context.GetMovable()})
					case *kvpb.Request_Count:
						all = append(all, asked{q.Count.At, q.Count.Context.GetMovable()})
					}
					return fakeserver.Fault{}
				})
				err := client.View(ctx, func(s *Snapshot) error {
					for _, ks := range []*Keyspace{one, other} {
						if n, err := read(ctx, s, ks); err != nil || n != 2 {
							t.Errorf("%s: %d keys: %v", ks.Name(), n, err)
						}
					}
					if len(all) != 2 || all[0].at != nil || !all[0].movable {
						t.Fatalf("the requests of the first read, and of the second: %v", all)
					}
					if all[1].movable || fromWire(all[1].at) != s.Timestamp() {
						t.Errorf("the second read is of %v, the first was of %s", all[1], s.Timestamp())
					}
					return nil
				})
				if err != nil {
					t.Error(err)
				}
			})
		})
	}
}

// clockReads are the ways to read of transactions and snapshots.
type clockReads interface {
	Get(ctx context.Context, ks *Keyspace, key []byte) (Pair, error)
	BatchGet(ctx context.Context, ks *Keyspace, userKeys [][]byte) ([]Pair, error)
	Scan(ctx context.Context, ks *Keyspace, options ...ScanOption) iter.Seq2[Pair, error]
	Count(ctx context.Context, ks *Keyspace, options ...CountOption) (uint64, error)
}

// Every read of a transaction or a snapshot says to a node what that one's clock was in its first
// answer. Without that, and with any later clock, the node would take what was written in between
// for what may have been there before.
func TestReadsSayWhichClockTheySawFirst(t *testing.T) {
	// One in each partition, one partition on each node.
	all := [][]byte{[]byte("a"), []byte("b"), []byte("c")}
	reads := map[string]func(ctx context.Context, r clockReads, ks *Keyspace) error{
		"get": func(ctx context.Context, r clockReads, ks *Keyspace) (err error) {
			for _, key := range all {
				_, failed := r.Get(ctx, ks, key)
				err = errors.Join(err, failed)
			}
			return err
		},
		"batch get": func(ctx context.Context, r clockReads, ks *Keyspace) error {
			_, err := r.BatchGet(ctx, ks, all)
			return err
		},
		"scan": func(ctx context.Context, r clockReads, ks *Keyspace) (err error) {
			for _, failed := range r.Scan(ctx, ks) {
				err = errors.Join(err, failed)
			}
			return err
		},
		"count": func(ctx context.Context, r clockReads, ks *Keyspace) error {
			_, err := r.Count(ctx, ks)
			return err
		},
	}
	ways := map[string]func(ctx context.Context, client *Client, f func(clockReads) error) error{
		"transaction": func(ctx context.Context, client *Client, f func(clockReads) error) error {
			_, err := client.Update(ctx, func(tx *Txn) error { return f(tx) })
			return err
		},
		"snapshot": func(ctx context.Context, client *Client, f func(clockReads) error) error {
			return client.View(ctx, func(s *Snapshot) error { return f(s) })
		},
	}
	for kind, read := range reads {
		for way, run := range ways {
			t.Run(kind+" in a "+way, func(t *testing.T) {
				inBubble(t, 3, func(t *testing.T, c *fakeCluster) {
					ctx := t.Context()
					c.AddKeyspace("range", 0, "b", "c")
					seen := clocksSeen{now: make(map[uint64][]Timestamp),
						said: make(map[uint64][]Timestamp), moments: make(map[uint64]Timestamp)}
					c.Heard = seen.heard
					client := c.open()
					defer client.Close()
					ks := client.Keyspace("range")
					for _, key := range all {
						must[Timestamp](t)(ks.Put(ctx, key, []byte("1")))
					}
					if err := run(ctx, client, func(r clockReads) error {
						return errors.Join(read(ctx, r, ks), read(ctx, r, ks), read(ctx, r, ks))
					}); err != nil {
						t.Fatal(err)
					}
					seen.check(t, 3, 3)
				})
			})
		}
	}
}

// clocksSeen is what nodes have answered to reads with, and what these have said of it. It may be
// used by several goroutines.
type clocksSeen struct {
	mu sync.Mutex
	// now are the clocks of a node's answers, in order, and said the clocks that it had been seen
	// with, in the requests.
	now, said map[uint64][]Timestamp
	// moments are the clocks of their answers when they were asked for a moment, before any read.
	moments map[uint64]Timestamp
}

func (s *clocksSeen) heard(n *fakeserver.Node, r *kvpb.Request, answer *kvpb.Response) {
	var c *kvpb.ReadContext
	switch q := r.Command.(type) {
	case *kvpb.Request_Get:
		c = q.Get.Context
	case *kvpb.Request_BatchGet:
		c = q.BatchGet.Context
	case *kvpb.Request_MultiGet:
		c = q.MultiGet.Context
	case *kvpb.Request_Scan:
		c = q.Scan.Context
	case *kvpb.Request_Count:
		c = q.Count.Context
	case *kvpb.Request_MergeScan:
		s.mu.Lock()
		defer s.mu.Unlock()
		s.moments[n.ID] = fromWire(answer.Now)
		return
	default:
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.now[n.ID] = append(s.now[n.ID], fromWire(answer.Now))
	s.said[n.ID] = append(s.said[n.ID], fromWire(c.GetObserved()))
}

// check wants so many reads of each node.
func (s *clocksSeen) check(t *testing.T, nodes, reads int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.now) != nodes {
		t.Errorf("%d nodes were asked", len(s.now))
	}
	for node, now := range s.now {
		said := s.said[node]
		if len(now) != reads || now[0].IsZero() || !now[0].Less(now[1]) {
			t.Fatalf("n%d answered with the clocks %v", node, now)
		}
		for i := range said {
			want := s.moments[node]
			if want.IsZero() && i > 0 {
				want = now[0]
			}
			if said[i] != want {
				t.Errorf("n%d, read %d: the clock was seen at %s, want %s of %v",
					node, i+1, said[i], want, now)
			}
		}
	}
}
