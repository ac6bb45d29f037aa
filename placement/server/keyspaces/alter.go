package keyspaces

import (
	"context"
	"fmt"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/tidemarkdb/tidemark/placement/server/consumer"
	"github.com/tidemarkdb/tidemark/placement/server/facts"
	"github.com/tidemarkdb/tidemark/placement/server/meta"
	"github.com/tidemarkdb/tidemark/placement/store"
	"github.com/tidemarkdb/tidemark/placement/store/storepb"
	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
	"github.com/tidemarkdb/tidemark/rpc/wire"
)

// Alter changes settings of a keyspace. It returns when the change is recorded. Replicas are added,
// removed and moved afterwards. Only the leader answers.
func (k *Keyspaces) Alter(
	ctx context.Context, r *clusterpb.AlterKeyspaceRequest,
) (*clusterpb.AlterKeyspaceResponse, error) {
	if err := validateTransactionLimits(r.TxnMaxAgeMillis, r.TxnMaxIdleMillis); err != nil {
		return nil, err
	}
	if err := validateFactor(r.ReplicationFactor); err != nil {
		return nil, err
	}
	if err := validateClosedLag(r.ClosedTimestampLagMillis); err != nil {
		return nil, err
	}
	if len(r.GetPlacement()) > meta.MaxTextBytes || len(r.GetLeaders()) > meta.MaxTextBytes {
		return nil, status.Errorf(codes.InvalidArgument, "a placement has at most %d bytes",
			meta.MaxTextBytes)
	}
	if err := keys.ValidateDefaultTTL(r.GetDefaultTtlMillis()); err != nil {
		return nil, status.Error(codes.InvalidArgument, err.Error())
	}
	if err := validateGCWindow(r.GcWindowSeconds); err != nil {
		return nil, err
	}
	v, done, err := k.meta.ViewInTurn(ctx)
	if err != nil {
		return nil, err
	}
	defer done()
	ks, err := k.meta.KeyspaceFor(ctx, v, r.Name)
	if err != nil {
		return nil, err
	}
	before := proto.Clone(ks.Keyspace).(*clusterpb.Keyspace)
	conditions := []*storepb.Compare{store.ModifiedAt(meta.KeyspaceKey(ks.ID()), ks.Revision)}
	if r.TxnMaxAgeMillis != 0 {
		ks.TxnMaxAgeMillis = r.TxnMaxAgeMillis
	}
	if r.TxnMaxIdleMillis != 0 {
		ks.TxnMaxIdleMillis = r.TxnMaxIdleMillis
	}
	if r.ClosedTimestampLagMillis != 0 {
		ks.ClosedTimestampLagMillis = r.ClosedTimestampLagMillis
	}
	if r.GcWindowSeconds != 0 && r.GcWindowSeconds != ks.GcWindowSeconds {
		// INVARIANT: no node learns of a shorter window before the consumers that it no longer keeps are
		// protected.
		protected, unchanged, err := consumer.ProtectAll(v, ks)
		if err != nil {
			return nil, k.meta.Status(err)
		}
		conditions = append(conditions, unchanged)
		ks.GcWindowSeconds, ks.Protected = r.GcWindowSeconds, wire.ToClusterTimestamp(protected)
	}
	if r.ReplicationFactor != 0 {
		ks.ReplicationFactor = r.ReplicationFactor
	}
	if r.Placement != nil {
		ks.Placement = *r.Placement
	}
	if r.Leaders != nil {
		ks.Leaders = *r.Leaders
	}
	if r.SplitSizeBytes != nil {
		ks.SplitSizeBytes = *r.SplitSizeBytes
	}
	if r.MergeSizeBytes != nil {
		ks.MergeSizeBytes = *r.MergeSizeBytes
	}
	if r.NoAuto != nil {
		ks.NoAuto = *r.NoAuto
	}
	if r.DefaultTtlMillis != nil {
		ks.DefaultTtlMillis = *r.DefaultTtlMillis
	}
	if r.QuotaBytes != nil {
		ks.QuotaBytes = *r.QuotaBytes
	}
	if r.QuotaRequestsPerSecond != nil {
		ks.QuotaRequestsPerSecond = *r.QuotaRequestsPerSecond
	}
	if r.QuotaBytesPerSecond != nil {
		ks.QuotaBytesPerSecond = *r.QuotaBytesPerSecond
	}
	if err := k.checkQuotas(v, ks.Keyspace); err != nil {
		return nil, err
	}
	if err := keys.ValidateSplitSizes(ks.Keyspace); err != nil {
		return nil, status.Error(codes.InvalidArgument, err.Error())
	}
	if err := k.checkPlacement(v, before, ks.Keyspace); err != nil {
		return nil, err
	}
	if proto.Equal(before, ks.Keyspace) {
		return &clusterpb.AlterKeyspaceResponse{Keyspace: ks.Keyspace}, nil
	}
	answer := &clusterpb.AlterKeyspaceResponse{Keyspace: ks.Keyspace}
	meta.Answer(ctx, answer)
	ok, err := k.meta.CommitEvent(ctx, &clusterpb.Event{Kind: "keyspace", Keyspace: ks.Name,
		KeyspaceId: uint64(ks.ID()), Reason: "asked for", Outcome: placementText(ks.Keyspace)},
		conditions, store.Put(meta.KeyspaceKey(ks.ID()), meta.Encode(ks.Keyspace)))
	if err != nil {
		return nil, err
	}
	if !ok {
		return nil, meta.Conflict("keyspace " + r.Name)
	}
	k.config.Logger.Info("keyspace is altered", "keyspace", r.Name, "id", ks.ID(),
		"txn_max_age_ms", ks.TxnMaxAgeMillis, "txn_max_idle_ms", ks.TxnMaxIdleMillis, "replicas",
		ks.ReplicationFactor, "placement", ks.Placement, "leaders", ks.Leaders, "split_size",
		ks.SplitSizeBytes, "merge_size", ks.MergeSizeBytes, "no_auto", ks.NoAuto,
		"closed_lag_ms", ks.ClosedTimestampLagMillis, "default_ttl_ms", ks.DefaultTtlMillis,
		"quota_bytes", ks.QuotaBytes, "quota_requests", ks.QuotaRequestsPerSecond,
		"quota_throughput", ks.QuotaBytesPerSecond, "gc_window_s", ks.GcWindowSeconds)
	return answer, nil
}

// checkPlacement refuses a change of placement that the nodes cannot satisfy, or that comes before
// the keyspace is ACTIVE.
func (k *Keyspaces) checkPlacement(v *store.View, before, after *clusterpb.Keyspace) error {
	if before.ReplicationFactor == after.ReplicationFactor && before.Placement == after.Placement &&
		before.Leaders == after.Leaders {
		return nil
	}
	if before.State != clusterpb.KeyspaceState_ACTIVE {
		return status.Errorf(codes.FailedPrecondition, "its partitions are being made; "+
			"`tidemark keyspace list` shows what it waits for")
	}
	spec, err := facts.Spec(after)
	if err != nil {
		return status.Error(codes.InvalidArgument, err.Error())
	}
	nodes, err := meta.LoadNodes(v)
	if err != nil {
		return k.meta.Status(err)
	}
	if waits := spec.Waits(facts.Nodes(nodes)); waits != "" {
		return status.Errorf(codes.FailedPrecondition, "the nodes do not suffice: it needs %s", waits)
	}
	return nil
}

// placementText describes where the replicas of a keyspace should be, and how large its partitions
// should be.
func placementText(k *clusterpb.Keyspace) string {
	text := fmt.Sprintf("%d replicas", k.ReplicationFactor)
	if k.ReplicationFactor == 1 {
		text = "1 replica"
	}
	if k.Placement != "" {
		text += ", placed " + k.Placement
	}
	if k.Leaders != "" {
		text += ", leaders " + k.Leaders
	}
	split, merge := keys.SplitSizes(k)
	text += fmt.Sprintf(", split at %d bytes, merged below %d", split, merge)
	if k.NoAuto {
		text += ", only when asked for"
	}
	if ttl := k.DefaultTtlMillis; ttl != 0 {
		text += fmt.Sprintf(", values live %s", time.Duration(ttl)*time.Millisecond)
	}
	if q := k.QuotaBytes; q != 0 {
		text += ", at most " + keys.SizeText(q)
	}
	if q := k.QuotaRequestsPerSecond; q != 0 {
		text += fmt.Sprintf(", at most %d requests a second", q)
	}
	if q := k.QuotaBytesPerSecond; q != 0 {
		text += fmt.Sprintf(", at most %s a second", keys.SizeText(q))
	}
	return text
}
