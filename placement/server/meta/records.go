package meta

import (
	"context"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/tidemarkdb/tidemark/placement/store"
	"github.com/tidemarkdb/tidemark/placement/store/storepb"
	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
)

// Limits and defaults of the whole cluster.
const (
	// NodeLeaseTime is how long a node counts as alive after its last heartbeat.
	NodeLeaseTime = 9 * time.Second
	// MaxPartitions and MaxKeyspaces bound the partitions and keyspaces of the cluster.
	MaxPartitions = 1_000_000
	MaxKeyspaces  = 10_000
	// A keyspace has DefaultReplicas replicas, and keeps old versions for DefaultGCWindow, unless it
	// says otherwise.
	DefaultReplicas = 3
	DefaultGCWindow = time.Hour
	// ClosedTimestampLag is how far the closed timestamps of new keyspaces lag behind the clock.
	ClosedTimestampLag = time.Second
)

// Records are the records of the core, as one member has them in its store.
type Records struct {
	ctx      context.Context
	store    *store.Store
	cluster  uint64
	founders []*clusterpb.CoreMember
	// turn has room for one: calls that read, decide and write take turns.
	turn chan struct{}
}

// New returns the records of a member. ctx ends when the member is closed; founders are the known
// members of the core while the store has none.
func New(
	ctx context.Context, s *store.Store, cluster uint64, founders []*clusterpb.CoreMember,
) *Records {
	return &Records{ctx: ctx, store: s, cluster: cluster, founders: founders,
		turn: make(chan struct{}, 1)}
}

// Turn waits for the turn; the caller gives it back by the function that it returns. The error,
// a status, is that ctx ended or that this member is being closed.
func (r *Records) Turn(ctx context.Context) (func(), error) {
	select {
	case r.turn <- struct{}{}:
		return func() { <-r.turn }, nil
	case <-ctx.Done():
		return nil, r.Status(ctx.Err())
	case <-r.ctx.Done():
		return nil, status.Error(codes.Unavailable, "this member of the core is shutting down")
	}
}

// View gives the leader an up-to-date view, and any other member a refusal.
func (r *Records) View(ctx context.Context) (*store.View, error) {
	l, _ := r.store.Leadership()
	if !l.IsLeader {
		return nil, r.Refused(l.Leader)
	}
	v, err := r.store.Read(ctx)
	if err != nil {
		return nil, r.Status(err)
	}
	if l, _ = r.store.Leadership(); !l.Serving {
		return nil, r.Refused(l.Leader)
	}
	id, _, err := LoadID(v, []byte(clusterKey))
	if err != nil {
		return nil, r.Status(err)
	}
	if id != 0 && id != r.cluster {
		return nil, status.Errorf(codes.FailedPrecondition,
			"this member was started for cluster %016x and its data is of cluster %016x: parts of "+
				"two directories were mixed", r.cluster, id)
	}
	return v, nil
}

// ViewInTurn waits for the turn and then takes a view, as Turn and view do, with their errors.
// What the caller decides by the view is not changed by another call that takes the turn, until the
// caller gives it back by the function that ViewInTurn returns. With an error it has the turn no
// more, and there is no function to call.
func (r *Records) ViewInTurn(ctx context.Context) (*store.View, func(), error) {
	done, err := r.Turn(ctx)
	if err != nil {
		return nil, nil, err
	}
	v, err := r.View(ctx)
	if err != nil {
		done()
		return nil, nil, err
	}
	return v, done, nil
}

// Commit writes if the conditions hold; false: they do not, and nothing was done.
func (r *Records) Commit(
	ctx context.Context, conditions []*storepb.Compare, ops ...*storepb.Op,
) (bool, error) {
	result, err := r.store.Do(ctx, store.If(conditions, ops, nil))
	if err != nil {
		return false, r.Status(err)
	}
	return result.Txn.GetSucceeded(), nil
}

// Cluster is the id of the cluster.
func (r *Records) Cluster() uint64 { return r.cluster }

// CheckCluster refuses requests that are meant for another cluster.
func (r *Records) CheckCluster(cluster uint64) error {
	if cluster != r.cluster {
		return status.Errorf(codes.FailedPrecondition, "this core is that of cluster %016x, and "+
			"the request is for cluster %016x; check the --core list",
			r.cluster, cluster)
	}
	return nil
}

// Claim writes the cluster's id into a new store, together with the first records of a new cluster.
func (r *Records) Claim(ctx context.Context, first ...*storepb.Op) error {
	v, err := r.View(ctx)
	if err != nil {
		return err
	}
	if id, _, err := LoadID(v, []byte(clusterKey)); id != 0 || err != nil {
		return err
	}
	_, err = r.Commit(ctx, []*storepb.Compare{store.Absent([]byte(clusterKey))},
		append(first, store.Put([]byte(clusterKey), EncodeID(r.cluster)))...)
	return err
}

// LoadRecovery reads the confirmed recovery of a partition; nil if there is none.
func LoadRecovery(v *store.View, id keys.PartitionID) (*clusterpb.RecoveredPartition, error) {
	r := &clusterpb.RecoveredPartition{}
	revision, err := Load(v, RecoveryKey(id), r)
	if err != nil || revision == 0 {
		return nil, err
	}
	return r, nil
}
