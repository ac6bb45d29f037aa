package kv

import (
	"context"
	"testing"

	"github.com/tidemarkdb/tidemark/rpc/kvpb"
)

// What is read first in one partition costs no second message because of uncertainty: its leader chooses the moment, which holds for the rest.
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
				c.addKeyspace("one", 1)
				c.addKeyspace("other", 1)
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
				c.play(func(_ *fakeNode, r *kvpb.Request) fault {
					switch q := r.Command.(type) {
					case *kvpb.Request_BatchGet:
						all = append(all, asked{q.BatchGet.At, q.BatchGet.Context.GetMovable()})
					case *kvpb.Request_Scan:
						all = append(all, asked{q.Scan.At, q.Scan.Context.GetMovable()})
					case *kvpb.Request_Count:
						all = append(all, asked{q.Count.At, q.Count.Context.GetMovable()})
					}
					return fault{}
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
