package kv

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/tidemarkdb/tidemark/kv/internal/conn"
	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/range/route"
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
	"github.com/tidemarkdb/tidemark/txn"
)

// CreateKeyspace creates a keyspace and returns when it can be used. It fails with
// ErrKeyspaceExists if there is a keyspace with this name, even with the same settings. If ctx ends
// first, the keyspace exists and its set-up continues. The error then says what is missing, nodes
// for example. Without a deadline, the request timeout limits the time from one new partition to
// the next, and not the whole call, because thousands of partitions take longer.
// CreateKeyspaceIfMissing can be used to wait for a keyspace that is being set up.
func (c *Client) CreateKeyspace(ctx context.Context, name string,
	options ...KeyspaceOption) (*Keyspace, error) {
	const op = "create keyspace"
	if name == "" {
		return nil, invalid(op, "", nil, "a keyspace needs a name")
	}
	settings := newKeyspaceSettings(options)
	if settings.bad != nil {
		return nil, invalid(op, name, nil, "%v", settings.bad)
	}
	request := settings.request(name)
	for request.Token == 0 {
		request.Token = c.conn.Random()
	}
	created, err := conn.Ask(ctx, c.conn, clusterpb.ClusterClient.CreateKeyspace, request)
	if err != nil {
		return nil, wrapAdmin(op, name, err)
	}
	if err := settings.quotas.ignored(op, name, created.GetKeyspace()); err != nil {
		return nil, err
	}
	total := max(int(request.HashPartitions), len(request.SplitAt)+1)
	id := keys.KeyspaceID(created.GetKeyspace().GetId())
	if err := c.awaitKeyspace(ctx, id, name, total); err != nil {
		return nil, wrapAdmin(op, name, err)
	}
	return c.Keyspace(name), nil
}

// CreateKeyspaceIfMissing is CreateKeyspace for a program that needs the keyspace, whichever
// process creates it first: it creates the keyspace, or uses the existing one, and returns when the
// keyspace can be used. created reports whether this call created it.
//
// An existing keyspace must match the options: the partitioning, the number of hash partitions,
// commit wait, and, where an option sets them, the replicas, the GC window, the quotas and the
// sizes of partitions. Otherwise the error is ErrKeyspaceExists, and names the difference. Split
// points are not compared, because partitions split and merge.
func (c *Client) CreateKeyspaceIfMissing(ctx context.Context, name string,
	options ...KeyspaceOption) (ks *Keyspace, created bool, err error) {
	const op = "create keyspace"
	bounded, cancel := c.conn.Bound(ctx)
	defer cancel()
	for {
		ks, err := c.CreateKeyspace(ctx, name, options...)
		if err == nil {
			return ks, true, nil
		}
		if !errors.Is(err, ErrKeyspaceExists) {
			return nil, false, err
		}
		exists, err := c.describe(bounded, name)
		if err != nil {
			return nil, false, wrapAdmin(op, name, err)
		}
		if exists == nil || exists.GetState() == clusterpb.KeyspaceState_DROPPING {
			// The keyspace was dropped meanwhile.
			if stop := c.conn.Pause(bounded, droppedPause); stop != nil {
				return nil, false, wrapAdmin(op, name, stop)
			}
			continue
		}
		if different := differs(exists, options); different != "" {
			return nil, false, NewError(op, name, "a keyspace of this name exists, with "+different+
				"; use it as it is, choose another name, or drop it first", ErrKeyspaceExists)
		}
		if err := c.awaitKeyspace(ctx, keys.KeyspaceID(exists.GetId()), name,
			int(exists.GetHashPartitions())); err != nil {
			return nil, false, wrapAdmin(op, name, err)
		}
		return c.Keyspace(name), false, nil
	}
}

// droppedPause is the pause before CreateKeyspaceIfMissing creates a keyspace again that is being
// dropped.
const droppedPause = 100 * time.Millisecond

// describe asks the core for a keyspace. It returns nil if there is none with this name.
func (c *Client) describe(ctx context.Context, name string) (*clusterpb.Keyspace, error) {
	r, err := conn.Ask(ctx, c.conn, clusterpb.ClusterClient.ListKeyspaces,
		&clusterpb.ListKeyspacesRequest{})
	for _, info := range r.GetKeyspaces() {
		if info.GetKeyspace().GetName() == name {
			return info.GetKeyspace(), err
		}
	}
	return nil, err
}

// DropKeyspace deletes a keyspace and all of its data permanently. It fails with
// ErrKeyspaceNotFound if there is none with this name.
func (c *Client) DropKeyspace(ctx context.Context, name string) error {
	const op = "drop keyspace"
	ctx, cancel := c.conn.Bound(ctx)
	defer cancel()
	request := &clusterpb.DropKeyspaceRequest{Name: name}
	for request.Token == 0 {
		request.Token = c.conn.Random()
	}
	dropped := c.conn.Sender.Table().KeyspaceByName(name)
	_, err := conn.Ask(ctx, c.conn, clusterpb.ClusterClient.DropKeyspace, request)
	if err != nil {
		return wrapAdmin(op, name, err)
	}
	// Wait until this client's table no longer shows the keyspace, so that its next call fails. The
	// keyspace is dropped in any case.
	for dropped != nil {
		table := c.conn.Sender.Table()
		ks := table.KeyspaceByName(name)
		if ks == nil || ks.ID != dropped.ID || c.conn.Await(ctx, table, time.Second) != nil {
			break
		}
	}
	return nil
}

// AlterKeyspace changes settings of a keyspace. Settings without an option stay as they are. It
// fails with ErrKeyspaceNotFound if there is none with this name. It may be repeated.
func (c *Client) AlterKeyspace(ctx context.Context, name string, changes ...AlterOption) error {
	const op = "alter keyspace"
	if len(changes) == 0 {
		return invalid(op, name, nil, "nothing is to be changed")
	}
	var s keyspaceSettings
	for _, o := range changes {
		o.alter(&s)
	}
	if s.bad != nil {
		return invalid(op, name, nil, "%v", s.bad)
	}
	request := &clusterpb.AlterKeyspaceRequest{
		Name:              name,
		TxnMaxAgeMillis:   uint64(s.maxAge.Milliseconds()),
		TxnMaxIdleMillis:  uint64(s.maxIdle.Milliseconds()),
		ReplicationFactor: uint32(s.replicas), Placement: s.placement, Leaders: s.leaders,
		SplitSizeBytes: s.splitSize, MergeSizeBytes: s.mergeSize, NoAuto: s.noAuto,
		ClosedTimestampLagMillis: uint64(s.closedLag.Milliseconds()),
		DefaultTtlMillis:         s.defaultTTL,
		QuotaBytes:               s.quotas.bytes, QuotaRequestsPerSecond: s.quotas.requests,
		QuotaBytesPerSecond: s.quotas.throughput,
		GcWindowSeconds:     uint64(s.gcWindow / time.Second),
	}
	altered, err := conn.Ask(ctx, c.conn, clusterpb.ClusterClient.AlterKeyspace, request)
	if err != nil {
		return wrapAdmin(op, name, err)
	}
	ks := altered.GetKeyspace()
	if want := request.GcWindowSeconds; want != 0 && ks.GetGcWindowSeconds() != want {
		return invalid(op, name, nil, "the core runs a release that cannot change the GC window; "+
			"upgrade all servers first (other changes of this call are made)")
	}
	return s.quotas.ignored(op, name, ks)
}

// creation is a wait for a keyspace that is being set up.
type creation struct {
	client *Client
	id     keys.KeyspaceID
	name   string
	// made is the number of partitions that this client knows to be set up. total is the number of all
	// partitions, or 0 if it is not known.
	made, total int
	// waiting says what the keyspace waits for, according to the core.
	waiting string
}

// awaitKeyspace waits until the table shows the keyspace as active, with all its partitions. If the
// context has no deadline, the time limit starts again whenever more partitions are set up.
func (c *Client) awaitKeyspace(ctx context.Context, id keys.KeyspaceID, name string,
	total int) error {
	w := creation{client: c, id: id, name: name, total: total}
	bounded, cancel := c.conn.Bound(ctx)
	defer func() { cancel() }()
	for {
		table := c.conn.Sender.Table()
		ks := table.KeyspaceByID(id)
		advanced := ks != nil && w.heard(ks.Len())
		if ks != nil {
			c.conn.Sender.Subscribe(ks)
		}
		if ks != nil && ks.Info.State == clusterpb.KeyspaceState_ACTIVE && ks.Complete() {
			return nil
		}
		err := c.conn.Await(bounded, table, 250*time.Millisecond)
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
			bounded, cancel = c.conn.Bound(ctx)
		}
	}
}

// heard records the number of partitions, and reports whether it has grown.
func (w *creation) heard(made int) bool {
	if made <= w.made {
		return false
	}
	w.made = made
	if progress := w.client.creating; progress != nil {
		progress(w.name, made, w.total)
	}
	return true
}

// ask asks the core for the progress.
func (w *creation) ask(ctx context.Context) (made int, err error) {
	r, err := conn.Ask(ctx, w.client.conn, clusterpb.ClusterClient.ListKeyspaces,
		&clusterpb.ListKeyspacesRequest{})
	for _, info := range r.GetKeyspaces() {
		if info.GetKeyspace().GetId() != uint32(w.id) {
			continue
		}
		made = int(info.Partitions)
		if info.Keyspace.State == clusterpb.KeyspaceState_ACTIVE {
			w.client.conn.Sender.ReloadTable()
		} else if info.WaitingFor != "" && info.WaitingFor != w.waiting {
			w.waiting = info.WaitingFor
			w.client.conn.Logger.Info("keyspace is not usable yet", "keyspace", w.name,
				"waiting_for", w.waiting)
		}
	}
	return made, err
}

// ended returns the error of a wait that is over although the keyspace cannot be used.
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
		// No server answered any more. The caller's own deadline is not the reason.
		ended.Cause, ended.Code = reason.Cause, reason.Code
		ended.Message += ", and " + reason.Message
	}
	if over != nil {
		ended.Cause = over
	}
	return ended
}

// differs returns the difference between a keyspace and the options. It is empty if there is none.
// The options must be valid.
func differs(k *clusterpb.Keyspace, options []KeyspaceOption) string {
	want := newKeyspaceSettings(options)
	split, merge := want.sizes()
	splitSize, mergeSize := keys.SplitSizes(k)
	limits := txn.LimitsOf(k)
	age, idle := want.maxAge.Truncate(time.Millisecond), want.maxIdle.Truncate(time.Millisecond)
	gcWindow := time.Duration(k.GetGcWindowSeconds()) * time.Second
	closedLag := time.Duration(k.GetClosedTimestampLagMillis()) * time.Millisecond
	switch {
	case k.GetHashPartitions() != uint32(want.hashPartitions):
		return fmt.Sprintf("partitioning %s instead of %s",
			partitioningText(int(k.GetHashPartitions())), partitioningText(want.hashPartitions))
	case k.GetCommitWait() != want.commitWait:
		return fmt.Sprintf("commit wait %s instead of %s", onOff(k.GetCommitWait()),
			onOff(want.commitWait))
	case want.replicas != 0 && k.GetReplicationFactor() != uint32(want.replicas):
		return fmt.Sprintf("%d replicas instead of %d", k.GetReplicationFactor(), want.replicas)
	case want.gcWindow != 0 && gcWindow != want.gcWindow:
		return fmt.Sprintf("a GC window of %s instead of %s", gcWindow, want.gcWindow)
	case want.closedLag != 0 && closedLag != want.closedLag:
		return fmt.Sprintf("a closed lag of %s instead of %s", closedLag, want.closedLag)
	case age != 0 && limits.Age != age:
		return fmt.Sprintf("a maximum age of transactions of %s instead of %s", limits.Age, age)
	case idle != 0 && limits.Idle != idle:
		return fmt.Sprintf("a maximum idle time of transactions of %s instead of %s", limits.Idle,
			idle)
	case want.defaultTTL != nil && k.GetDefaultTtlMillis() != *want.defaultTTL:
		return fmt.Sprintf("a default time to live of %s instead of %s",
			time.Duration(k.GetDefaultTtlMillis())*time.Millisecond,
			time.Duration(*want.defaultTTL)*time.Millisecond)
	case want.splitSize != nil && splitSize != split:
		return fmt.Sprintf("a split size of %d bytes instead of %d", splitSize, split)
	case want.mergeSize != nil && mergeSize != merge:
		return fmt.Sprintf("a merge size of %d bytes instead of %d", mergeSize, merge)
	case want.noAuto != nil && k.GetNoAuto() != *want.noAuto:
		return fmt.Sprintf("splits by themselves %s instead of %s", onOff(!k.GetNoAuto()),
			onOff(!*want.noAuto))
	}
	return want.quotas.differs(k)
}

func onOff(on bool) string {
	if on {
		return "on"
	}
	return "off"
}
