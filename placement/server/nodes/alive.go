package nodes

import (
	"context"
	"errors"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/tidemarkdb/tidemark/placement/server/hint"
	"github.com/tidemarkdb/tidemark/placement/server/meta"
	"github.com/tidemarkdb/tidemark/placement/store"
	"github.com/tidemarkdb/tidemark/placement/store/storepb"
	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
)

// keepAlive renews a node's lease, and reports whether the core regards the node as alive. It
// writes nothing. An existing lease proves nothing by itself: revive grants the lease before it
// puts the alive key, and displace changes the record before it revokes the lease. If a call is
// interrupted between two of these writes, the next heartbeat does the second one.
func (s *Nodes) keepAlive(ctx context.Context, id keys.NodeID) (alive bool, err error) {
	lease := meta.NodeLease(id)
	switch _, err := s.store.KeepAlive(ctx, lease); {
	case errors.Is(err, store.ErrLeaseNotFound):
		return false, nil
	case err != nil:
		return false, err
	}
	v := s.store.Stale()
	kv, err := v.Get(meta.AliveKey(id))
	if err != nil || kv == nil || kv.Lease != lease {
		return false, err
	}
	n := &clusterpb.Node{}
	_, err = meta.Load(v, meta.NodeKey(id), n)
	return err == nil && !n.Displaced, err
}

// revive renews a node's lease, or grants it, and puts the alive key under it.
func (s *Nodes) revive(ctx context.Context, id keys.NodeID) error {
	if err := s.isThere(ctx, id); err != nil {
		return err
	}
	lease := meta.NodeLease(id)
	for range 3 {
		_, err := s.store.KeepAlive(ctx, lease)
		if errors.Is(err, store.ErrLeaseNotFound) {
			_, err = s.store.Do(ctx, store.Grant(lease, uint64(meta.NodeLeaseTime.Milliseconds())))
			if errors.Is(err, store.ErrLeaseExists) {
				// The lease is expiring.
				err = nil
			}
		}
		if err != nil {
			return s.meta.Status(err)
		}
		kv, err := s.store.Stale().Get(meta.AliveKey(id))
		if err != nil {
			return s.meta.Status(err)
		}
		if kv != nil && kv.Lease == lease {
			if _, err := s.store.KeepAlive(ctx, lease); err == nil {
				return nil
			}
			continue
		}
		_, err = s.meta.Commit(ctx, nil, store.PutLeased(meta.AliveKey(id), nil, lease))
		if status.Code(err) == codes.Unavailable {
			continue // the lease ended in between
		}
		if err == nil {
			if s.reports.Stats(id) != nil {
				s.config.Logger.Info("node is alive again", "node", id)
			}
		}
		return err
	}
	return hint.Unavailable("the lease of node %s ends again and again before it is renewed", id)
}

// isThere clears the mark that a node was displaced, because the node answers. Otherwise the node
// would count as lost the next time that it is silent for a moment.
func (s *Nodes) isThere(ctx context.Context, id keys.NodeID) error {
	n := &clusterpb.Node{}
	revision, err := meta.Load(s.store.Stale(), meta.NodeKey(id), n)
	if err != nil {
		return s.meta.Status(err)
	}
	if !n.Displaced {
		return nil
	}
	n.Displaced = false
	ok, err := s.meta.Commit(ctx, []*storepb.Compare{store.ModifiedAt(meta.NodeKey(id), revision)},
		store.Put(meta.NodeKey(id), meta.Encode(n)))
	if err == nil && !ok {
		err = meta.Conflict("node " + id.String())
	}
	return err
}
