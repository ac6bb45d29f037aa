package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/tidemarkdb/tidemark/bench/proof/driver"
	"github.com/tidemarkdb/tidemark/kv"
	"github.com/tidemarkdb/tidemark/kv/admin"
)

// Placement is paused except for the faults in this file. So the other steps know where the
// replicas are, and which partitions must serve. During a step with a fault of this file, servers
// are killed as well. Then pauses are not judged, but answers are.

const (
	// placementPatience bounds a call to the core. migrationPatience bounds the time of a change of
	// placement when there is no fault.
	placementPatience = 20 * time.Second
	migrationPatience = 2 * time.Minute
	// repairDelay is longer than the longest time for which a server is down.
	repairDelay = 20 * time.Second
)

// ask sends a request to the core with a client of its own.
func (w *world) ask(what string, do func(context.Context, *kv.Client) error) error {
	ctx, cancel := context.WithTimeout(context.Background(), placementPatience)
	defer cancel()
	client, err := kv.Open(ctx, w.cluster.Endpoints())
	if err == nil {
		defer client.Close()
		err = do(ctx, client)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	return nil
}

// limitPlacement makes placement fast enough for a short run, and pauses it.
func (w *world) limitPlacement() error {
	return w.ask("set placement up", func(ctx context.Context, c *kv.Client) error {
		_, err := admin.New(c).LimitPlacement(ctx, admin.PlacementSettings{RepairDelay: repairDelay,
			Pause: 5 * time.Second})
		if err == nil {
			_, err = admin.New(c).PausePlacement(ctx, true)
		}
		return err
	})
}

// migration is a fault during which replicas move. done reports whether the requested change has
// happened. Meanwhile servers are killed, except the server spared: a server whose node was removed
// would not start again.
func (w *world) migration(what string, spared int, random *rand.Rand,
	begin func(context.Context, *kv.Client) error,
	done func(context.Context, *kv.Client) (bool, error)) (*fault, error) {
	err := w.ask(what, func(ctx context.Context, c *kv.Client) error {
		if _, err := admin.New(c).PausePlacement(ctx, false); err != nil {
			return err
		}
		return begin(ctx, c)
	})
	if err != nil {
		return nil, err
	}
	return &fault{what: what, effect: effect{moving: true},
		next: between(random, 500*ms, 4*time.Second),
		again: func() (time.Duration, error) {
			server := anyServer(random)
			if server == spared {
				server = anyCore(random)
			}
			w.journal.note("meanwhile killed %s", w.names([]int{server}))
			if err := w.kill([]int{server}); err != nil {
				return 0, err
			}
			return between(random, 2*time.Second, 8*time.Second), w.startAll([]int{server})
		},
		end: func() error { return w.settlePlacement(what, done) }}, nil
}

// settlePlacement waits until a migration has ended, and pauses placement.
func (w *world) settlePlacement(what string,
	done func(context.Context, *kv.Client) (bool, error)) error {
	deadline := time.Now().Add(migrationPatience)
	var last error
	for quiet := 0; quiet < 3; {
		err := w.ask(what, func(ctx context.Context, c *kv.Client) error {
			over, err := done(ctx, c)
			if err != nil || !over {
				quiet = 0
				return err
			}
			operators, err := admin.New(c).Operators(ctx)
			if quiet++; err != nil || len(operators) > 0 {
				quiet = 0
				last = fmt.Errorf("under way: %+v", operators)
			}
			return err
		})
		if err != nil {
			last, quiet = err, 0
		}
		if time.Now().After(deadline) {
			w.proof.Violation("%s: not over %v after everything was whole: %v", what, migrationPatience,
				last)
			return nil
		}
		time.Sleep(500 * ms)
	}
	return w.ask("pause placement", func(ctx context.Context, c *kv.Client) error {
		_, err := admin.New(c).PausePlacement(ctx, true)
		return err
	})
}

// nodeOf returns the id of the node that a server has at present.
func (w *world) nodeOf(ctx context.Context, c *kv.Client, server int) (uint64, error) {
	nodes, err := admin.New(c).Nodes(ctx)
	if err != nil {
		return 0, err
	}
	for _, n := range slices.Backward(nodes) {
		if n.Address == w.servers[server].Address() && n.Status != admin.NodeGone {
			return n.ID, nil
		}
	}
	return 0, fmt.Errorf("no node is at %s", w.servers[server].Address())
}

// whole is driver.Whole without a lost node.
func whole(ctx context.Context, c *kv.Client) (bool, error) { return driver.Whole(ctx, c) }

// moveReplicas moves replicas of several partitions to other nodes.
func moveReplicas(w *world, random *rand.Rand, _ time.Duration) (*fault, error) {
	moves := 0
	return w.migration("replicas move", -1, random, func(ctx context.Context, c *kv.Client) error {
		partitions, err := admin.New(c).Partitions(ctx, "")
		if err != nil {
			return err
		}
		nodes, err := admin.New(c).Nodes(ctx)
		if err != nil {
			return err
		}
		for range 2 + random.IntN(6) {
			p := partitions[random.IntN(len(partitions))]
			for _, n := range nodes {
				if n.Alive && n.Status == admin.NodeActive && !slices.ContainsFunc(p.Replicas,
					func(r admin.ReplicaInfo) bool { return r.Node == n.ID }) {
					from := p.Replicas[random.IntN(len(p.Replicas))].Node
					// The core may refuse a move because another move is under way. This is no failure.
					if admin.New(c).MoveReplica(ctx, p.ID, from, n.ID) == nil {
						moves++
					}
					break
				}
			}
		}
		w.journal.note("%d replicas begin to move", moves)
		return nil
	}, whole)
}

const (
	// splitSample is the number of keys of a keyspace from which the split points are drawn. splitMost
	// is the largest number of partitions. With more partitions, each partition seldom meets a fault.
	splitSample = 500
	splitMost   = 120
)

// splitPartitions splits partitions of several keyspaces, at existing keys.
func splitPartitions(w *world, random *rand.Rand, _ time.Duration) (*fault, error) {
	splits := 0
	return w.migration("partitions split", -1, random, func(ctx context.Context, c *kv.Client) error {
		partitions, err := admin.New(c).Partitions(ctx, "")
		if err != nil {
			return err
		}
		for range 2 + random.IntN(6) {
			if len(partitions)+splits >= splitMost {
				break
			}
			keyspace := partitions[random.IntN(len(partitions))].Keyspace
			var found [][]byte
			for pair, err := range c.Keyspace(keyspace).Scan(ctx, kv.KeysOnly(), kv.Limit(splitSample)) {
				if err != nil {
					return err
				}
				found = append(found, pair.Key)
			}
			if len(found) == 0 {
				continue
			}
			// The core may refuse a split because a change is under way. This is no failure.
			s, err := admin.New(c).SplitPartition(ctx, keyspace, found[random.IntN(len(found))])
			if err == nil && s.Operator != 0 {
				splits++
			}
		}
		w.journal.note("%d partitions begin to split", splits)
		return nil
	}, whole)
}

// drainNode makes a node lead no partition for a while.
func drainNode(w *world, random *rand.Rand, _ time.Duration) (*fault, error) {
	server, node := anyNode(random), uint64(0)
	return w.migration("drain of "+w.servers[server].Name, -1, random,
		func(ctx context.Context, c *kv.Client) (err error) {
			if node, err = w.nodeOf(ctx, c, server); err == nil {
				_, err = admin.New(c).SetNodeStatus(ctx, node, admin.NodeDraining)
			}
			return err
		}, func(ctx context.Context, c *kv.Client) (bool, error) {
			if _, err := admin.New(c).SetNodeStatus(ctx, node, admin.NodeActive); err != nil {
				return false, err
			}
			return whole(ctx, c)
		})
}

// retireNode decommissions a node. Its server then starts with an empty directory.
func retireNode(w *world, random *rand.Rand, _ time.Duration) (*fault, error) {
	server, node, replaced := anyNode(random), uint64(0), false
	return w.migration("decommissioning of "+w.servers[server].Name, server, random,
		func(ctx context.Context, c *kv.Client) (err error) {
			if node, err = w.nodeOf(ctx, c, server); err == nil {
				_, err = admin.New(c).SetNodeStatus(ctx, node, admin.NodeDecommissioning)
			}
			return err
		}, func(ctx context.Context, c *kv.Client) (bool, error) {
			if !replaced {
				p, err := admin.New(c).CheckNodeStatus(ctx, node, admin.NodeDecommissioning)
				if err != nil || p.Status != admin.NodeGone {
					return false, err
				}
				replaced = true
				if err := w.beginAnew(server); err != nil {
					return false, err
				}
			}
			return whole(ctx, c)
		})
}

// loseDirectory removes a data node's directory. Its server comes back as another node, and the
// lost replicas are replaced.
func loseDirectory(w *world, random *rand.Rand, _ time.Duration) (*fault, error) {
	server := anyNode(random)
	return w.migration("loss of the directory of "+w.servers[server].Name, -1, random,
		func(context.Context, *kv.Client) error { return w.beginAnew(server) }, whole)
}

// beginAnew gives a server an empty directory.
func (w *world) beginAnew(server int) error {
	if err := w.kill([]int{server}); err != nil {
		return err
	}
	if err := removeContents(w.servers[server].Dir); err != nil {
		return err
	}
	return w.startAll([]int{server})
}
