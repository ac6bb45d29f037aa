package server

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/tidemarkdb/tidemark/placement/server/meta"
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
)

// Whatever splits, merges and moves at once, with orders that are lost, come late or twice, reports
// that come late, nodes that fall and other leaders of the core: the table has neither hole nor
// overlap at any time, and in the end it is what there is. No id comes twice.
func TestSpansAtRandom(t *testing.T) {
	seeds := 12
	if testing.Short() {
		seeds = 3
	}
	done := map[string]int{}
	for seed := range seeds {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			inFleet(t, []string{"", "", "", "", ""}, func(t *testing.T, c *core, f *fleet) {
				r := rand.New(rand.NewPCG(uint64(seed), 1))
				f.create(ranged("x", "g", "p"))
				f.await(time.Minute, "all is well", f.settled)
				f.mu.Lock()
				// The weather is used by the nodes' goroutines, and so draws its own numbers.
				f.weather = &weather{random: rand.New(rand.NewPCG(uint64(seed), 2))}
				f.mu.Unlock()
				for range 80 {
					f.disturb(r, c)
					for range r.IntN(6) {
						time.Sleep(2 * time.Second) // virtual
						if wrong := f.whole(); wrong != "" {
							t.Fatal(wrong)
						}
					}
				}
				f.mu.Lock()
				f.weather = nil
				f.merging.freezing = 0
				for _, p := range f.parts {
					p.mute = time.Time{}
				}
				for _, n := range f.nodes {
					if n.stop == nil {
						f.startLocked(n)
					}
				}
				f.mu.Unlock()
				f.awaitWhole(40*time.Minute, "all is well again", func() bool {
					f.mu.Lock()
					for _, p := range f.parts {
						p.mute = time.Time{}
					}
					f.mu.Unlock()
					return f.settled() && f.sound(3)
				})
				v := c.members[0].server.config.Store.Stale()
				if held, err := meta.Count(v, meta.HeldPrefix); held != 0 || err != nil {
					t.Errorf("%d are held: %v", held, err)
				}
				for _, e := range events(t, f) {
					done[e.Kind+" "+e.Outcome]++
				}
			})
		})
	}
	t.Log(done)
	if done["merge done"] < 2*seeds || done["split done"] < 2*seeds ||
		done["replace replica done"] < 2*seeds {
		t.Errorf("too little was done: %v", done)
	}
}

// disturb has something happen. What is refused is refused.
func (f *fleet) disturb(r *rand.Rand, c *core) {
	f.mu.Lock()
	var ids []uint64
	for id := range f.parts {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	id := ids[r.IntN(len(ids))]
	on := f.parts[id].d.Replicas
	from, to := on[r.IntN(len(on))].Node, uint64(1+r.IntN(5))
	down := uint64(0)
	for _, n := range f.nodes {
		if n.stop == nil {
			down = n.id
		}
	}
	f.reporting = splitReporting{unsettled: time.Duration(r.IntN(12)) * time.Second,
		whole: time.Duration(r.IntN(12)) * time.Second, done: time.Hour,
		mute: time.Duration(r.IntN(20)) * time.Second}
	f.merging.freezing = time.Duration(r.IntN(7)) * time.Second
	f.merging.lags = time.Duration(r.IntN(30)) * time.Second
	f.copying = time.Duration(r.IntN(10)) * time.Second
	f.mu.Unlock()
	ctx := f.t.Context()
	switch r.IntN(16) {
	case 0, 1, 2, 3:
		_, _ = f.client.SplitPartition(ctx, &clusterpb.SplitPartitionRequest{Keyspace: "x",
			Key: []byte{byte('a' + r.IntN(26)), byte('a' + r.IntN(3))}})
	case 4, 5, 6, 7, 8:
		_, _ = f.client.MergePartition(ctx, &clusterpb.MergePartitionRequest{Partition: id})
	case 9, 10:
		_, _ = f.client.MoveReplica(ctx, &clusterpb.MoveReplicaRequest{Partition: id, FromNode: from,
			ToNode: to})
	case 11:
		_, _ = f.client.TransferLeader(ctx, &clusterpb.TransferLeaderRequest{Partition: id,
			ToNode: from})
	case 12:
		_, _ = f.client.CancelOperator(ctx, &clusterpb.CancelOperatorRequest{Partition: id})
	case 13:
		c.elect(c.members[r.IntN(len(c.members))])
	case 14:
		if down != 0 {
			f.restart(down)
		} else {
			f.kill(to)
		}
	case 15:
		f.mu.Lock()
		if p := f.parts[id]; p != nil && p.leader != 0 {
			for _, replica := range p.d.Replicas {
				if replica.Role == clusterpb.ReplicaRole_VOTER && f.answersLocked(p, replica) {
					p.leader = replica.Node // by an election
				}
			}
			p.term++
		}
		f.mu.Unlock()
	}
}
