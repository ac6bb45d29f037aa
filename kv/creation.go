package kv

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/range/route"
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
)

// creation is the wait for a keyspace that is being set up.
type creation struct {
	client *Client
	id     keys.KeyspaceID
	name   string
	// made is how many partitions there are, as far as this client has heard; of total, if that is
	// known.
	made, total int
	// waiting is what the core says that the keyspace waits for.
	waiting string
}

// awaitKeyspace waits until the table shows the keyspace as active, with all its partitions. A
// context without a deadline is bounded anew whenever there are more of them.
func (c *Client) awaitKeyspace(ctx context.Context, id keys.KeyspaceID, name string, total int) error {
	w := creation{client: c, id: id, name: name, total: total}
	bounded, cancel := c.bound(ctx)
	defer func() { cancel() }()
	for {
		table := c.sender.Table()
		ks := table.KeyspaceByID(id)
		advanced := ks != nil && w.heard(len(ks.Partitions()))
		if ks != nil && ks.Info.State == clusterpb.KeyspaceState_ACTIVE && ks.Complete() {
			return nil
		}
		err := c.await(bounded, table, 250*time.Millisecond)
		if err == nil {
			var listed int
			listed, err = w.ask(bounded)
			advanced = w.heard(listed) || advanced
		}
		if bounded.Err() != nil || err != nil {
			return w.ended(bounded.Err(), err)
		}
		if advanced {
			cancel()
			bounded, cancel = c.bound(ctx)
		}
	}
}

// heard notes how many partitions there are, and says whether they are more than before.
func (w *creation) heard(made int) bool {
	if made <= w.made {
		return false
	}
	w.made = made
	if progress := w.client.cfg.creating; progress != nil {
		progress(w.name, made, w.total)
	}
	return true
}

// ask asks the core how far it is.
func (w *creation) ask(ctx context.Context) (made int, err error) {
	err = w.client.sender.Admin(ctx, func(ctx context.Context, cluster clusterpb.ClusterClient) error {
		r, err := cluster.ListKeyspaces(ctx, &clusterpb.ListKeyspacesRequest{})
		for _, info := range r.GetKeyspaces() {
			if info.GetKeyspace().GetId() != uint32(w.id) {
				continue
			}
			made = int(info.Partitions)
			if info.Keyspace.State == clusterpb.KeyspaceState_ACTIVE {
				w.client.sender.Refresh()
			} else if info.WaitingFor != "" && info.WaitingFor != w.waiting {
				w.waiting = info.WaitingFor
				w.client.logger().Info("keyspace is not usable yet", "keyspace", w.name, "waiting_for", w.waiting)
			}
		}
		return err
	})
	return made, err
}

// ended is why the wait is over although the keyspace cannot be used.
func (w *creation) ended(over, err error) error {
	waiting := w.waiting
	if waiting == "" {
		waiting = "the partition table to show its partitions"
	}
	if w.total > 0 && w.made > 0 {
		waiting += fmt.Sprintf(" (%d of %d are there)", w.made, w.total)
	}
	ended := &route.Error{
		Cause: err, Message: "the keyspace exists, goes on being set up, and cannot be used yet; it is waiting for " + waiting,
	}
	if reason := new(route.Error); errors.As(err, &reason) && !errors.Is(over, context.Canceled) {
		// No server could answer any more, and that is not because the caller did not wait for it.
		ended.Cause, ended.Code = reason.Cause, reason.Code
		ended.Message += ", and " + reason.Message
	}
	if over != nil {
		ended.Cause = over
	}
	return ended
}
