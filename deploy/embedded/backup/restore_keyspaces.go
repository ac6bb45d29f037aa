package backup

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"

	"github.com/tidemarkdb/tidemark/placement/server/hint"
	"github.com/tidemarkdb/tidemark/placement/server/keyspaces"
	"github.com/tidemarkdb/tidemark/range/backup/manifest"
	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/rpc/backoff"
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
)

const (
	// readyLook is the interval at which a restore checks whether the partitions of new keyspaces have
	// leaders.
	readyLook = 200 * time.Millisecond
	// readyPatience is the time for which a restore waits for these leaders before it lets other jobs
	// run.
	readyPatience = time.Minute
	// mostSplits limits the split points of a keyspace at its creation, in bytes. The keyspace splits
	// further as it grows.
	mostSplits = keyspaces.MaxSplitBytes
)

// choose determines the keyspaces to restore, and their names.
func (r *restore) choose() error {
	if r.backup.Restore.NoKeyspaces {
		return nil
	}
	as := make(map[string]string)
	for _, n := range r.backup.Restore.Names {
		as[n.GetName()] = n.GetAs()
	}
	wanted := includes(r.backup)
	taken := make(map[string]bool)
	for i := range r.point.Keyspaces {
		ks := &r.point.Keyspaces[i]
		if wanted != nil && !wanted(ks.Name) {
			continue
		}
		name := ks.Name
		if other, ok := as[name]; ok {
			name = other
			delete(as, ks.Name)
		}
		if taken[name] {
			return fmt.Errorf("%w: two keyspaces would have the name %q", errRestore, name)
		}
		taken[name] = true
		r.chosen[ks.ID], r.names[ks.ID] = ks, name
	}
	for name := range as {
		return fmt.Errorf("%w: the backup %s has no keyspace %q that could have another name",
			errRestore, r.backup.Restore.Backup, name)
	}
	if len(r.chosen) == 0 {
		return fmt.Errorf("%w: the backup %s has no such keyspace", errRestore,
			r.backup.Restore.Backup)
	}
	return nil
}

// create creates the keyspaces that do not exist yet, and waits until all of their partitions have
// leaders.
func (r *restore) create(ctx context.Context) error {
	core := r.config.Core()
	all, err := core.ListKeyspaces(ctx, &clusterpb.ListKeyspacesRequest{})
	if err != nil {
		return err
	}
	there := make(map[string]*clusterpb.Keyspace)
	for _, info := range all.GetKeyspaces() {
		if info.GetKeyspace().GetState() != clusterpb.KeyspaceState_DROPPING {
			there[info.GetKeyspace().GetName()] = info.GetKeyspace()
		}
	}
	if r.published(there) {
		return errPublished
	}
	for _, id := range slices.Sorted(maps.Keys(r.chosen)) {
		name := r.names[id]
		hidden := keys.HiddenName(r.backup.Id, name)
		if made := there[hidden]; made != nil {
			r.ids[id] = made.GetId()
			continue
		}
		if there[name] != nil {
			return fmt.Errorf("%w: there is a keyspace %q already. Drop it, or restore under another name",
				errRestore, name)
		}
		q, err := creation(r.chosen[id], hidden)
		if err != nil {
			return err
		}
		made, err := core.CreateKeyspace(keyspaces.Hidden(ctx), q)
		if err != nil {
			return notCreated(name, err)
		}
		r.ids[id] = made.GetKeyspace().GetId()
	}
	for began := time.Now(); ; {
		waiting, reason, err := r.leaderless(ctx)
		if err != nil {
			return err
		}
		if waiting == 0 {
			return nil
		}
		step := fmt.Sprintf("wait for the leaders of %d partitions%s", waiting, reason)
		if time.Since(began) > readyPatience {
			return errors.New(step) // let other jobs run, and then continue
		}
		r.tell(step)
		if err := backoff.Sleep(ctx, readyLook); err != nil {
			return err
		}
	}
}

// notCreated returns the error of a keyspace that the core has not created. A condition that the
// cluster does not meet, such as the level for quotas, is final: an administrator must change it. An
// error with a hint only says that another member leads the core.
func notCreated(name string, err error) error {
	if _, _, hinted := hint.Of(err); !hinted && status.Code(err) == codes.FailedPrecondition {
		return fmt.Errorf("%w: creating the keyspace %q: %w", errRestore, name, err)
	}
	return fmt.Errorf("creating the keyspace %q: %w", name, err)
}

// errPublished: an earlier leader has published the keyspaces, but could not record that.
var errPublished = errors.New("the keyspaces are published")

// published reports whether an earlier leader has published the keyspaces. That leader had recorded
// before that all of them were loaded. From then on their hidden names change only by publishing,
// or by an administrator.
func (r *restore) published(there map[string]*clusterpb.Keyspace) bool {
	m := r.point
	if len(r.loaded) != (len(m.Units)+7)/8 {
		return false
	}
	for n := range m.Units {
		if r.chosen[m.Units[n].Keyspace] != nil && r.loaded[n/8]&(1<<(n%8)) == 0 {
			return false
		}
	}
	for _, name := range r.names {
		if there[keys.HiddenName(r.backup.Id, name)] != nil || there[name] == nil {
			return false
		}
	}
	return true
}

// leaderless counts the partitions of the new keyspaces without a leader, and the keyspaces that
// are not active. reason says what these keyspaces wait for.
func (r *restore) leaderless(ctx context.Context) (n int, reason string, err error) {
	ours := make(map[uint32]bool)
	for _, id := range r.ids {
		ours[id] = true
	}
	core := r.config.Core()
	all, err := core.ListKeyspaces(ctx, &clusterpb.ListKeyspacesRequest{})
	if err != nil {
		return 0, "", err
	}
	for _, info := range all.GetKeyspaces() {
		if ours[info.GetKeyspace().GetId()] &&
			info.GetKeyspace().GetState() != clusterpb.KeyspaceState_ACTIVE {
			n++
			if info.GetWaitingFor() != "" {
				reason = fmt.Sprintf(": a keyspace needs %s", info.WaitingFor)
			}
		}
	}
	err = core.ListPartitions(ctx, &clusterpb.ListPartitionsRequest{},
		func(p *clusterpb.PartitionInfo) error {
			if ours[p.GetPartition().GetKeyspace()] && p.GetLeaderNode() == 0 {
				n++
			}
			return nil
		})
	return n, reason, err
}

// creation returns the request that recreates a keyspace.
func creation(ks *manifest.Keyspace, name string) (*clusterpb.CreateKeyspaceRequest, error) {
	d := new(clusterpb.Keyspace)
	if err := (protojson.UnmarshalOptions{DiscardUnknown: true}).Unmarshal(ks.Definition,
		d); err != nil {
		return nil, fmt.Errorf("%w: the definition of the keyspace %q: %w", errRestore, ks.Name, err)
	}
	q := &clusterpb.CreateKeyspaceRequest{Name: name, Partitioning: d.Partitioning,
		HashPartitions: d.HashPartitions, ReplicationFactor: d.ReplicationFactor,
		GcWindowSeconds: d.GcWindowSeconds, CommitWait: d.CommitWait,
		TxnMaxAgeMillis: d.TxnMaxAgeMillis, TxnMaxIdleMillis: d.TxnMaxIdleMillis,
		Placement: d.Placement, Leaders: d.Leaders, SplitSizeBytes: d.SplitSizeBytes,
		MergeSizeBytes: d.MergeSizeBytes, NoAuto: d.NoAuto,
		ClosedTimestampLagMillis: d.ClosedTimestampLagMillis, DefaultTtlMillis: d.DefaultTtlMillis,
		QuotaBytes: d.QuotaBytes, QuotaRequestsPerSecond: d.QuotaRequestsPerSecond,
		QuotaBytesPerSecond: d.QuotaBytesPerSecond}
	if ks.Hashed {
		return q, nil // the hash partitions exist, and split again as they grow
	}
	size := 0
	for _, row := range ks.Splits {
		if size += len(row); size > mostSplits || len(q.SplitAt) == keys.MaxHashPartitions-1 {
			break
		}
		q.SplitAt = append(q.SplitAt, row)
	}
	return q, nil
}
