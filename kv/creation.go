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
func (c *Client) awaitKeyspace(ctx context.Context, id keys.KeyspaceID, name string,
	total int) error {
	w := creation{client: c, id: id, name: name, total: total}
	bounded, cancel := c.bound(ctx)
	defer func() { cancel() }()
	for {
		table := c.sender.Table()
		ks := table.KeyspaceByID(id)
		advanced := ks != nil && w.heard(ks.Len())
		if ks != nil {
			c.sender.Subscribe(ks)
		}
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
	err = w.client.sender.Admin(ctx, func(ctx context.Context,
		cluster clusterpb.ClusterClient) error {
		r, err := cluster.ListKeyspaces(ctx, &clusterpb.ListKeyspacesRequest{})
		for _, info := range r.GetKeyspaces() {
			if info.GetKeyspace().GetId() != uint32(w.id) {
				continue
			}
			made = int(info.Partitions)
			if info.Keyspace.State == clusterpb.KeyspaceState_ACTIVE {
				w.client.sender.ReloadTable()
			} else if info.WaitingFor != "" && info.WaitingFor != w.waiting {
				w.waiting = info.WaitingFor
				w.client.logger().Info("keyspace is not usable yet", "keyspace", w.name,
					"waiting_for", w.waiting)
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
		Cause: err, Message: "the keyspace exists, goes on being set up, and cannot be used yet; " +
			"it is waiting for " + waiting,
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

// CreateKeyspaceIfMissing is CreateKeyspace for a program that wants the keyspace to be there,
// whichever process comes first: it creates the keyspace, or takes the one that exists, and returns
// when it can be used. created says which.
//
// A keyspace that exists has to be what the options ask for: the partitioning, the number of hash
// partitions, commit wait, and, where an option names them, the replicas, the GC window and the
// sizes of partitions. Otherwise the error is ErrKeyspaceExists, and names the difference. Split
// points are not compared: partitions split and merge.
func (c *Client) CreateKeyspaceIfMissing(ctx context.Context, name string,
	options ...KeyspaceOption) (ks *Keyspace, created bool, err error) {
	const op = "create keyspace"
	bounded, cancel := c.bound(ctx)
	defer cancel()
	for {
		ks, err := c.CreateKeyspace(ctx, name, options...)
		if err == nil {
			return ks, true, nil
		}
		if !errors.Is(err, ErrKeyspaceExists) {
			return nil, false, err
		}
		ks = c.Keyspace(name)
		info, described := ks.Describe(ctx)
		if errors.Is(described, ErrKeyspaceNotFound) ||
			described == nil && info.State == KeyspaceDropping {
			// It was dropped meanwhile.
			if stop := c.pause(bounded, resolvePause); stop != nil {
				return nil, false, wrapAdmin(op, name, stop)
			}
			continue
		}
		if described != nil {
			return nil, false, described
		}
		if different := info.differs(options); different != "" {
			return nil, false, &Error{
				Op: op, Keyspace: name, wraps: []error{ErrKeyspaceExists},
				Message: "a keyspace of this name exists, with " + different +
					"; use it as it is, choose another name, or drop it first",
			}
		}
		if err := c.awaitKeyspace(ctx, keys.KeyspaceID(info.ID), name,
			info.HashPartitions); err != nil {
			return nil, false, wrapAdmin(op, name, err)
		}
		return ks, false, nil
	}
}

// differs says in what a keyspace is not as the options ask for; empty if it is. The options are
// valid.
func (i KeyspaceInfo) differs(options []KeyspaceOption) string {
	want := newKeyspaceSettings(options)
	split, merge := want.sizes()
	age, idle := want.maxAge.Truncate(time.Millisecond), want.maxIdle.Truncate(time.Millisecond)
	switch {
	case i.HashPartitions != want.hashPartitions:
		return fmt.Sprintf("partitioning %s instead of %s", i.Partitioning(),
			partitioningText(want.hashPartitions))
	case i.CommitWait != want.commitWait:
		return fmt.Sprintf("commit wait %s instead of %s", onOff(i.CommitWait), onOff(want.commitWait))
	case want.replicas != 0 && i.Replicas != want.replicas:
		return fmt.Sprintf("%d replicas instead of %d", i.Replicas, want.replicas)
	case want.gcWindow != 0 && i.GCWindow != want.gcWindow:
		return fmt.Sprintf("a GC window of %s instead of %s", i.GCWindow, want.gcWindow)
	case want.closedLag != 0 && i.ClosedLag != want.closedLag:
		return fmt.Sprintf("a closed lag of %s instead of %s", i.ClosedLag, want.closedLag)
	case age != 0 && i.MaxTransactionAge != age:
		return fmt.Sprintf("a maximum age of transactions of %s instead of %s",
			i.MaxTransactionAge, age)
	case idle != 0 && i.MaxTransactionIdle != idle:
		return fmt.Sprintf("a maximum idle time of transactions of %s instead of %s",
			i.MaxTransactionIdle, idle)
	case want.defaultTTL != nil && uint64(i.DefaultTTL.Milliseconds()) != *want.defaultTTL:
		return fmt.Sprintf("a default time to live of %s instead of %s", i.DefaultTTL,
			time.Duration(*want.defaultTTL)*time.Millisecond)
	case want.splitSize != nil && i.SplitSize != split:
		return fmt.Sprintf("a split size of %d bytes instead of %d", i.SplitSize, split)
	case want.mergeSize != nil && i.MergeSize != merge:
		return fmt.Sprintf("a merge size of %d bytes instead of %d", i.MergeSize, merge)
	case want.noAuto != nil && i.AutoSplit == *want.noAuto:
		return fmt.Sprintf("splits by themselves %s instead of %s", onOff(i.AutoSplit),
			onOff(!*want.noAuto))
	}
	return ""
}

func onOff(on bool) string {
	if on {
		return "on"
	}
	return "off"
}
