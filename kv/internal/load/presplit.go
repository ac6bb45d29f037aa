package load

import (
	"bytes"
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/tidemarkdb/tidemark/kv/internal/conn"
	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/range/route"
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
)

const (
	// leastPart is the least size of parts that are made only so that every node has one: a split
	// takes as long as writing that much.
	leastPart = 64 << 20
	// splitsAtOnce is how many splits are asked for at a time.
	splitsAtOnce = 16
	// splitPatience is how long the load waits without a finished split before it begins without
	// the rest; askedAgain is the time after which a split is requested again.
	splitPatience = time.Minute
	askedAgain    = 5 * time.Second
	// spreadPatience bounds how long the load waits for partitions and leaders to move; it waits no
	// longer than writing takes at spreadRate, since they go on moving while it writes.
	spreadPatience = 20 * time.Second
	spreadRate     = 100 << 20
	tablePause     = 100 * time.Millisecond
)

// presplit splits the partitions that will receive many records, and spreads them. Failures are
// noted, since the load can do without.
func (l *loader) presplit(ctx context.Context) error {
	c := l.cfg.Conn
	bounded, cancel := c.Bound(ctx)
	defer cancel()
	listed, err := conn.Ask(bounded, c, clusterpb.ClusterClient.ListNodes,
		&clusterpb.ListNodesRequest{})
	if err != nil {
		return c.Wrap("list nodes", "", err)
	}
	usable := map[uint64]bool{}
	for _, n := range listed.GetNodes() {
		if n.Alive && n.Status == clusterpb.NodeStatus_NODE_ACTIVE {
			usable[n.Id] = true
		}
	}
	parts, err := c.Sender.PartitionsOf(bounded, l.cfg.ID, keys.Span{})
	if err != nil {
		return err
	}
	ks := l.table()
	if ks == nil {
		return &route.Error{Cause: route.ErrNoKeyspace}
	}
	size, _ := keys.SplitSizes(ks.Info)
	sampled, each := l.sample.Keys()
	boundaries := splitPlan(ks, sampled, each, partSize(l.loaded.Bytes, size, len(usable)))
	l.loaded.Planned = len(boundaries)
	if len(boundaries) > 0 {
		if err := l.split(ctx, boundaries); err != nil {
			return err
		}
	}
	if len(parts)+l.loaded.Splits > 1 && len(usable) > 1 {
		return l.spread(ctx, usable)
	}
	return nil
}

// partSize returns how much a partition should receive: half of the size at which it splits, or
// less, so that every node has a part.
func partSize(total, splitSize uint64, nodes int) uint64 {
	size := splitSize / 2
	if each := total / uint64(max(nodes, 1)); each < size {
		size = max(each, min(leastPart, size))
	}
	return max(size, 1)
}

// splitPlan returns the keys at which partitions should split, so that each part receives about
// each bytes, as estimated from the sampled keys.
func splitPlan(ks *route.Keyspace, sampled [][]byte, each, size uint64) (boundaries [][]byte) {
	of := map[*route.Partition][][]byte{}
	for _, key := range sampled {
		if p := ks.ByKey(key); p != nil {
			of[p] = append(of[p], key)
		}
	}
	for _, p := range ks.Partitions() {
		in := of[p]
		parts := (uint64(len(in))*each + size/2) / size
		if parts < 2 {
			continue
		}
		slices.SortFunc(in, bytes.Compare)
		last := p.Span.Start
		for i := uint64(1); i < parts; i++ {
			key := in[i*uint64(len(in))/parts]
			// Many samples of one key are one large record.
			if bytes.Compare(key, last) > 0 {
				boundaries, last = append(boundaries, key), key
			}
		}
	}
	return boundaries
}

// asked is a split that was asked for.
type asked struct {
	at  string
	now time.Time
}

// split splits partitions at keys, those in the middle first, so that the parts split in parallel.
func (l *loader) split(ctx context.Context, boundaries [][]byte) error {
	c := l.cfg.Conn
	total, left := len(boundaries), boundaries
	moved := time.Now()
	var why error
	waiting := map[keys.PartitionID]asked{}
	for {
		table := c.Sender.Table()
		ks := table.KeyspaceByID(l.cfg.ID)
		if ks == nil {
			return &route.Error{Cause: route.ErrNoKeyspace}
		}
		of := map[keys.PartitionID][][]byte{}
		before := len(left)
		left = slices.DeleteFunc(slices.Clone(left), func(key []byte) bool {
			p := ks.ByKey(key)
			if p == nil {
				return false
			}
			if bytes.Equal(p.Span.Start, key) {
				return true
			}
			of[p.ID] = append(of[p.ID], key)
			return false
		})
		if len(left) < before {
			moved = time.Now()
		}
		l.loaded.Splits = total - len(left)
		l.tell(Progress{Stage: Splitting, Done: uint64(l.loaded.Splits), Total: uint64(total)})
		switch {
		case len(left) == 0:
			return nil
		case time.Since(moved) > splitPatience:
			l.note("%d of %d splits are not done after a minute without one (%v); the load goes on "+
				"without them", len(left), total, why)
			return nil
		}
		var next [][]byte
		for id, in := range of {
			key := in[len(in)/2]
			if w := waiting[id]; w.at == string(key) && time.Since(w.now) < askedAgain {
				continue
			}
			waiting[id] = asked{string(key), time.Now()}
			next = append(next, key)
		}
		if err := conn.InParallel(ctx, len(next), splitsAtOnce, func(ctx context.Context, i int) error {
			_, err := conn.Ask(ctx, c, clusterpb.ClusterClient.SplitPartition,
				&clusterpb.SplitPartitionRequest{Keyspace: l.cfg.Keyspace, Key: next[i]})
			if err != nil {
				l.mu.Lock()
				why = c.Wrap("split a partition", l.cfg.Keyspace, err)
				l.mu.Unlock()
			}
			return ctx.Err()
		}); err != nil {
			return err
		}
		if err := c.Await(ctx, table, tablePause); err != nil {
			return err
		}
	}
}

// spread distributes the leaders of the keyspace's partitions over the nodes, and waits for that
// and for the planner's moves. usable are the nodes that may lead.
func (l *loader) spread(ctx context.Context, usable map[uint64]bool) error {
	ks := l.table()
	if ks == nil {
		return &route.Error{Cause: route.ErrNoKeyspace}
	}
	c, patience := l.cfg.Conn, spreadPatience
	if n := l.loaded.Bytes / spreadRate; n < uint64(spreadPatience/time.Second) {
		patience = time.Duration(n+1) * time.Second
	}
	deadline := time.Now().Add(patience)
	chosen := ks.Info.GetLeaders() != "" // the keyspace has preferred leaders
	asked := false
	for {
		parts, err := c.Partitions(ctx, l.cfg.Keyspace)
		if err != nil {
			return c.Wrap("list partitions", l.cfg.Keyspace, err)
		}
		want := leadersOf(parts, usable)
		done := uint64(0)
		for _, p := range parts {
			if to := want[p.Partition.Id]; chosen || to == 0 || to == p.LeaderNode {
				done++
			}
		}
		operators, err := conn.Ask(ctx, c, clusterpb.ClusterClient.ListOperators,
			&clusterpb.ListOperatorsRequest{})
		if err != nil {
			return c.Wrap("list operators", "", err)
		}
		moving := slices.ContainsFunc(operators.GetOperators(),
			func(o *clusterpb.OperatorInfo) bool { return o.Keyspace == l.cfg.Keyspace })
		l.tell(Progress{Stage: Spreading, Done: done, Total: uint64(len(parts))})
		switch {
		case int(done) == len(parts) && !moving:
			return nil
		case time.Now().After(deadline) && patience < spreadPatience:
			return nil
		case time.Now().After(deadline):
			l.note("%d of %d partitions are not led by the nodes that they are meant for yet; the load "+
				"goes on", len(parts)-int(done), len(parts))
			return nil
		}
		if !asked && !chosen {
			asked = true
			if err := conn.InParallel(ctx, len(parts), splitsAtOnce, func(ctx context.Context,
				i int) error {
				if to := want[parts[i].Partition.Id]; to != 0 && to != parts[i].LeaderNode {
					// A refusal does no harm: an operator may be under way.
					_, _ = conn.Ask(ctx, c, clusterpb.ClusterClient.TransferLeader,
						&clusterpb.TransferLeaderRequest{Partition: parts[i].Partition.Id, ToNode: to})
				}
				return ctx.Err()
			}); err != nil {
				return err
			}
		}
		if err := c.Pause(ctx, 2*tablePause); err != nil {
			return err
		}
	}
}

// leadersOf returns the nodes that should lead partitions: among those with a voter the one with
// the fewest leaders, and among equals the present leader.
func leadersOf(parts []*clusterpb.PartitionInfo, usable map[uint64]bool) map[uint64]uint64 {
	most := map[uint64]int{}
	want := map[uint64]uint64{}
	for _, p := range parts {
		var candidates []uint64
		for _, r := range p.Partition.Replicas {
			if usable[r.Node] && r.Role != clusterpb.ReplicaRole_LEARNER {
				candidates = append(candidates, r.Node)
			}
		}
		if len(candidates) == 0 {
			continue
		}
		best := slices.MinFunc(candidates, func(a, b uint64) int {
			leads := func(node uint64) int {
				if node == p.LeaderNode {
					return 0
				}
				return 1
			}
			return cmp.Or(cmp.Compare(most[a], most[b]), cmp.Compare(leads(a), leads(b)),
				cmp.Compare(a, b))
		})
		want[p.Partition.Id] = best
		most[best]++
	}
	return want
}
