package backup

import (
	"context"
	"errors"
	"fmt"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/tidemarkdb/tidemark/range/backup/manifest"
	"github.com/tidemarkdb/tidemark/range/backup/target"
	"github.com/tidemarkdb/tidemark/rpc/backoff"
	"github.com/tidemarkdb/tidemark/rpc/backuppb"
)

const (
	// maxCheck bounds the content that CheckTarget compares.
	maxCheck = 64 << 10
	// seenPatience is the time after which a node must see what another server has written. A network
	// file system caches for seconds that a file does not exist. seenLook is the pause between two
	// attempts.
	seenPatience, seenLook = 20 * time.Second, time.Second
)

// CheckTarget implements backuppb.WorkerServer.
func (w *Worker) CheckTarget(
	ctx context.Context, r *backuppb.CheckTargetRequest,
) (*backuppb.CheckTargetResponse, error) {
	if err := w.meant(r.GetCluster(), r.GetNode()); err != nil {
		return nil, err
	}
	if len(r.GetContent()) > maxCheck {
		return nil, status.Error(codes.InvalidArgument, "the content is too large")
	}
	store, err := w.config.Open(ctx, r.GetTarget())
	if err != nil {
		return nil, failure(err)
	}
	defer store.Close()
	for began := time.Now(); ; {
		content, err := store.Get(ctx, r.GetObject())
		if !errors.Is(err, target.ErrNotFound) &&
			(err != nil || string(content) == string(r.GetContent())) {
			return &backuppb.CheckTargetResponse{}, failure(err)
		}
		if time.Since(began) >= seenPatience {
			return nil, status.Errorf(codes.PermissionDenied, "node %d does not see in %s what another "+
				"server has just written: the servers must share the directory or bucket", r.Node, store)
		}
		if err := backoff.Sleep(ctx, seenLook); err != nil {
			return nil, failure(err)
		}
	}
}

// checkTarget checks the target, writes an object, and has every live node read it.
func (c *cluster) checkTarget(ctx context.Context, store target.Target) error {
	if err := target.Probe(ctx, store, manifest.ProbePrefix(c.backup.Id)); err != nil {
		return err
	}
	nodes, err := c.Nodes(ctx)
	if err != nil {
		return err
	}
	// Another member of the core may still consider itself the leader and check the same target. The
	// name of the object is random, so that neither removes the object of the other.
	attempt := c.config.Random()
	object := manifest.SharedName(c.backup.Id, attempt)
	content := fmt.Appendf(nil, "%016x", attempt)
	if err := store.Put(ctx, object, content); err != nil {
		return err
	}
	defer func() { _ = store.Delete(ctx, object) }()
	for _, n := range nodes {
		worker, err := c.worker(n)
		if err != nil {
			return err
		}
		if _, err := worker.CheckTarget(ctx, &backuppb.CheckTargetRequest{
			Cluster: c.config.Cluster(), Node: uint64(n), Target: c.backup.Target, Object: object,
			Content: content}); err != nil {
			if status.Code(err) == codes.Unavailable {
				continue // the node has just failed, and others do its work
			}
			return fmt.Errorf("node %d: %w", n, ofNode(err))
		}
	}
	return nil
}
