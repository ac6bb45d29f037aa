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

// keepAlive renews a node's lease, and says whether the core takes the node for alive. It writes
// nothing. A lease that is there proves nothing by itself: the lease is granted before the alive
// key is put, and the record says that the node was displaced before the lease is revoked. A call
// that is cut short between two of these writes leaves the second one to the next heartbeat.
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

// revive renews a node's lease, or grants it, and marks the node alive under it.
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
				// It runs out, and its end is on the way.
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

// isThere takes back that a node was displaced: it is there after all. It must not be taken for
// lost the next time that it is away for a moment.
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
