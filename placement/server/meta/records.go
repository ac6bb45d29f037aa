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
	// NodeLeaseTime is the time for which a node counts as alive after its last heartbeat.
	NodeLeaseTime = 9 * time.Second
	// MaxPartitions and MaxKeyspaces limit the partitions and keyspaces of the cluster.
	MaxPartitions = 1_000_000
	MaxKeyspaces  = 10_000
	// DefaultReplicas is the default number of replicas of a keyspace. DefaultGCWindow is the default
	// time for which a keyspace keeps old versions.
	DefaultReplicas = 3
	DefaultGCWindow = time.Hour
	// ClosedTimestampLag is the lag of the closed timestamps of new keyspaces behind the clock.
	ClosedTimestampLag = time.Second
)

// Records gives access to the core's records in the store of one member.
type Records struct {
	ctx      context.Context
	store    *store.Store
	cluster  uint64
	founders []*clusterpb.CoreMember
	// turn is a mutex with space for one holder: calls that read, decide and write take turns.
	turn chan struct{}
}

// New returns the records of a member. ctx ends when the member is closed. founders are the known
// members of the core while the store has no record of members.
func New(
	ctx context.Context, s *store.Store, cluster uint64, founders []*clusterpb.CoreMember,
) *Records {
	return &Records{ctx: ctx, store: s, cluster: cluster, founders: founders,
		turn: make(chan struct{}, 1)}
}

// Turn waits for the turn. The caller calls the returned function to give the turn back. The error,
// a status, means that ctx ended or that this member is being closed.
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

// View returns an up-to-date view if this member leads. Otherwise it returns a refusal.
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

// ViewInTurn waits for the turn and then takes a view, as Turn and View do, with their errors.
// Until the caller calls the returned function to give the turn back, no other call that takes the
// turn changes the records. After an error the caller does not have the turn, and there is no
// function to call.
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

// Commit writes if the conditions hold. It returns false if they do not. Then nothing is written.
func (r *Records) Commit(
	ctx context.Context, conditions []*storepb.Compare, ops ...*storepb.Op,
) (bool, error) {
	conditions, ops = remember(ctx, conditions, ops)
	Answer(ctx, nil) // it is for this commit only
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

// Claimed reports whether a store has the records of a cluster (Claim).
func Claimed(v *store.View) (bool, error) {
	id, _, err := LoadID(v, []byte(clusterKey))
	return id != 0, err
}

// Claim writes the cluster's id and the first records of a new cluster into a new store.
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

// LoadRecovery reads the confirmed recovery of a partition, or nil if there is none.
func LoadRecovery(v *store.View, id keys.PartitionID) (*clusterpb.RecoveredPartition, error) {
	r := &clusterpb.RecoveredPartition{}
	revision, err := Load(v, RecoveryKey(id), r)
	if err != nil || revision == 0 {
		return nil, err
	}
	return r, nil
}
