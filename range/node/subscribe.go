package node

import (
	"context"
	"time"

	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
)

const (
	// updatePartitions bounds the partitions, and the leaders, in one message to a subscriber.
	updatePartitions = 1000
	// updatePeriod is the shortest time between two messages of changes: what happens in between
	// goes together.
	updatePeriod = 50 * time.Millisecond
)

// Subscribe calls emit with everything this node knows, in several updates of which the last is
// complete, and then with changes, until the context ends or emit returns an error. Leaders are
// those that this node's own replicas know.
//
// A subscriber that is slow has nothing queued for it: it gets the difference between what it saw
// and what there is.
func (n *Node) Subscribe(ctx context.Context, emit func(*clusterpb.TableUpdate) error) error {
	seen := n.tables.load()
	for !seen.Complete {
		select {
		case <-seen.Changed():
			seen = n.tables.load()
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	hints, version, changed := n.leadersSince(0)
	u := diff(newTable(), seen)
	u.Leaders, u.Complete = hints, true
	for {
		if err := emitParts(u, emit); err != nil {
			return err
		}
		select {
		case <-seen.Changed():
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
		if err := pause(ctx, updatePeriod); err != nil {
			return err
		}
		next := n.tables.load()
		u = diff(seen, next)
		u.Leaders, version, changed = n.leadersSince(version)
		seen = next
	}
}

// emitParts emits an update in parts of bounded size. What a reader needs to understand a part
// comes in it or before it.
func emitParts(u *clusterpb.TableUpdate, emit func(*clusterpb.TableUpdate) error) error {
	for {
		part := u
		last := len(u.Partitions) <= updatePartitions && len(u.Leaders) <= updatePartitions
		if !last {
			part = &clusterpb.TableUpdate{
				Nodes: u.Nodes, Keyspaces: u.Keyspaces, Cluster: u.Cluster,
				RemovedNodes: u.RemovedNodes, RemovedKeyspaces: u.RemovedKeyspaces,
				RemovedPartitions: u.RemovedPartitions,
				Partitions:        u.Partitions[:min(len(u.Partitions), updatePartitions)],
			}
			u = &clusterpb.TableUpdate{
				Partitions: u.Partitions[len(part.Partitions):], Leaders: u.Leaders,
				Cluster: u.Cluster, Revision: u.Revision, Complete: u.Complete,
			}
			if len(part.Partitions) < updatePartitions {
				part.Leaders = u.Leaders[:min(len(u.Leaders), updatePartitions)]
				u.Leaders = u.Leaders[len(part.Leaders):]
			}
		}
		if err := emit(part); err != nil {
			return err
		}
		if last {
			return nil
		}
	}
}
