package keyspaces

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/tidemarkdb/tidemark/placement/server/facts"
	"github.com/tidemarkdb/tidemark/placement/server/meta"
	"github.com/tidemarkdb/tidemark/placement/server/serverpb"
	"github.com/tidemarkdb/tidemark/placement/store"
	"github.com/tidemarkdb/tidemark/placement/store/storepb"
	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
)

const (
	// MaxNameLength is the maximum length of a keyspace's name.
	MaxNameLength = 63
	// MaxSplitBytes limits the total size of the split points in one request. A keyspace that needs
	// more partitions splits automatically.
	MaxSplitBytes = 1 << 20
	// minClosedLag and maxClosedLag limit how far closed timestamps lag behind the clock, in
	// milliseconds. A smaller lag would move slow writes to later timestamps. A larger lag is useless
	// for reads of the present.
	minClosedLag, maxClosedLag = 50, 3600 * 1000
)

// Create records a keyspace and returns. The keyspace becomes ACTIVE when all of its partitions
// have replicas, which may have to wait for nodes. Only the leader answers.
func (k *Keyspaces) Create(
	ctx context.Context, r *clusterpb.CreateKeyspaceRequest,
) (*clusterpb.CreateKeyspaceResponse, error) {
	if err := k.validate(ctx, r); err != nil {
		return nil, err
	}
	v, done, err := k.meta.ViewInTurn(ctx)
	if err != nil {
		return nil, err
	}
	defer done()
	request := digest(meta.Encode(r))
	if t, err := k.findToken(v, r.Token); t != nil || err != nil {
		return k.repeatCreate(v, r, t, request, err)
	}
	replicas := r.ReplicationFactor
	if replicas == 0 {
		replicas = meta.DefaultReplicas
	}
	if _, _, err := facts.ParsePlacement(r.Placement, r.Leaders, int(replicas)); err != nil {
		return nil, status.Error(codes.InvalidArgument, err.Error())
	}
	partitions := partitionCount(r)
	if err := k.checkRoom(v, r, replicas, partitions); err != nil {
		return nil, err
	}
	ids, revision, err := meta.LoadIDs(v)
	if err != nil {
		return nil, k.meta.Status(err)
	}
	ks := &clusterpb.Keyspace{
		Id: ids.Keyspace, Name: r.Name, Partitioning: r.Partitioning,
		HashPartitions: r.HashPartitions, ReplicationFactor: replicas,
		GcWindowSeconds: r.GcWindowSeconds, State: clusterpb.KeyspaceState_CREATING,
		ClosedTimestampLagMillis: cmp.Or(r.ClosedTimestampLagMillis,
			uint64(meta.ClosedTimestampLag.Milliseconds())),
		CommitWait:      r.CommitWait,
		TxnMaxAgeMillis: r.TxnMaxAgeMillis, TxnMaxIdleMillis: r.TxnMaxIdleMillis,
		Placement: r.Placement, Leaders: r.Leaders,
		SplitSizeBytes: r.SplitSizeBytes, MergeSizeBytes: r.MergeSizeBytes, NoAuto: r.NoAuto,
		DefaultTtlMillis: r.DefaultTtlMillis,
		QuotaBytes:       r.QuotaBytes, QuotaRequestsPerSecond: r.QuotaRequestsPerSecond,
		QuotaBytesPerSecond: r.QuotaBytesPerSecond,
	}
	if err := k.checkQuotas(v, ks); err != nil {
		return nil, err
	}
	setTransactionDefaults(ks)
	if ks.GcWindowSeconds == 0 {
		ks.GcWindowSeconds = uint64(meta.DefaultGCWindow / time.Second)
	}
	id := keys.KeyspaceID(ks.Id)
	creation := &serverpb.Creation{FirstPartition: ids.Partition, Partitions: uint64(partitions),
		SplitAt: r.SplitAt}
	ids.Keyspace++
	ids.Partition += uint64(partitions)
	ops := k.remember(ids, &serverpb.Token{Token: r.Token, Request: request, Keyspace: ks.Id})
	ok, err := k.meta.Commit(ctx,
		[]*storepb.Compare{store.ModifiedAt([]byte(meta.IDsKey), revision),
			store.Absent(meta.NameKey(r.Name))},
		append(ops,
			store.Put(meta.NameKey(r.Name), meta.EncodeID(uint64(id))),
			store.Put(meta.KeyspaceKey(id), meta.Encode(ks)),
			store.Put(meta.CreationKey(id), meta.Encode(creation)))...)
	if err != nil {
		return nil, err
	}
	if !ok {
		return nil, meta.Conflict("keyspaces")
	}
	k.created.Inc()
	k.config.Logger.Info("keyspace created", "keyspace", r.Name, "id", id, "partitions", partitions,
		"replicas", replicas)
	k.config.Poke()
	return &clusterpb.CreateKeyspaceResponse{Keyspace: ks}, nil
}

// Drop frees a keyspace's name and has the keyspace's partitions removed. Only the leader answers.
func (k *Keyspaces) Drop(
	ctx context.Context, r *clusterpb.DropKeyspaceRequest,
) (*clusterpb.DropKeyspaceResponse, error) {
	v, done, err := k.meta.ViewInTurn(ctx)
	if err != nil {
		return nil, err
	}
	defer done()
	request := digest(meta.Encode(r))
	if t, err := k.findToken(v, r.Token); t != nil || err != nil {
		if err == nil && !bytes.Equal(t.Request, request) {
			err = errToken(r.Token)
		}
		return &clusterpb.DropKeyspaceResponse{}, err
	}
	ks, err := k.meta.KeyspaceFor(ctx, v, r.Name)
	if err != nil {
		return nil, err
	}
	ids, revision, err := meta.LoadIDs(v)
	if err != nil {
		return nil, k.meta.Status(err)
	}
	ops := k.remember(ids,
		&serverpb.Token{Token: r.Token, Request: request, Keyspace: ks.Id, Drop: true})
	ks.State = clusterpb.KeyspaceState_DROPPING
	ok, err := k.meta.Commit(ctx,
		[]*storepb.Compare{store.ModifiedAt([]byte(meta.IDsKey), revision),
			store.ModifiedAt(meta.KeyspaceKey(ks.ID()), ks.Revision)},
		append(ops,
			store.Put(meta.KeyspaceKey(ks.ID()), meta.Encode(ks.Keyspace)),
			store.Delete(meta.CreationKey(ks.ID())),
			store.Delete(meta.NameKey(r.Name)))...)
	if err != nil {
		return nil, err
	}
	if !ok {
		return nil, meta.Conflict("keyspace " + r.Name)
	}
	k.dropped.Inc()
	k.config.Logger.Info("keyspace is dropped", "keyspace", r.Name, "id", ks.ID())
	k.config.Poke()
	return &clusterpb.DropKeyspaceResponse{}, nil
}

func validateClosedLag(millis uint64) error {
	if millis != 0 && (millis < minClosedLag || millis > maxClosedLag) {
		return status.Errorf(codes.InvalidArgument,
			"a closed lag of %d ms; it is from %d ms to an hour",
			millis, minClosedLag)
	}
	return nil
}

// validateGCWindow checks a GC window, in seconds. 0 is the default, or the present window.
func validateGCWindow(seconds uint64) error {
	if seconds > meta.MaxGCWindow {
		return status.Errorf(codes.InvalidArgument, "a GC window of %d s; at most %d", seconds,
			uint64(meta.MaxGCWindow))
	}
	return nil
}

// validate does the checks of a creation that need no state.
func (k *Keyspaces) validate(ctx context.Context, r *clusterpb.CreateKeyspaceRequest) error {
	refuse := func(format string, args ...any) error {
		return status.Errorf(codes.InvalidArgument, format, args...)
	}
	if !validName(ctx, r.Name) {
		return refuse(
			"a name has 1 to %d characters, of a-z, 0-9, dot, underscore and hyphen", MaxNameLength)
	}
	if err := validateFactor(r.ReplicationFactor); err != nil {
		return err
	}
	if len(r.Placement) > meta.MaxTextBytes || len(r.Leaders) > meta.MaxTextBytes {
		return refuse("a placement has at most %d bytes", meta.MaxTextBytes)
	}
	if err := validateGCWindow(r.GcWindowSeconds); err != nil {
		return err
	}
	if err := validateTransactionLimits(r.TxnMaxAgeMillis, r.TxnMaxIdleMillis); err != nil {
		return err
	}
	if err := validateClosedLag(r.ClosedTimestampLagMillis); err != nil {
		return err
	}
	if err := keys.ValidateDefaultTTL(r.DefaultTtlMillis); err != nil {
		return refuse("%v", err)
	}
	if err := keys.ValidateSplitSizes(&clusterpb.Keyspace{SplitSizeBytes: r.SplitSizeBytes,
		MergeSizeBytes: r.MergeSizeBytes}); err != nil {
		return refuse("%v", err)
	}
	switch r.Partitioning {
	case clusterpb.Partitioning_HASH:
		if r.HashPartitions < 1 || r.HashPartitions > keys.MaxHashPartitions {
			return refuse("hash:%d; a hash keyspace has 1 to %d partitions", r.HashPartitions,
				keys.MaxHashPartitions)
		}
		if len(r.SplitAt) > 0 {
			return refuse("a hash keyspace has no split points")
		}
		return nil
	case clusterpb.Partitioning_RANGE:
	default:
		return refuse("partitioning %d is not known; it is by hash or by range", r.Partitioning)
	}
	if r.HashPartitions != 0 {
		return refuse("a range keyspace has no number of hash partitions")
	}
	if len(r.SplitAt) >= keys.MaxHashPartitions {
		return refuse("%d split points; at most %d at creation", len(r.SplitAt),
			keys.MaxHashPartitions-1)
	}
	size := 0
	for i, key := range r.SplitAt {
		if err := keys.ValidateUserKey(key); err != nil {
			return refuse("split point %d: %v", i+1, err)
		}
		if i > 0 {
			switch c := bytes.Compare(r.SplitAt[i-1], key); {
			case c == 0:
				return refuse("split point %s is repeated", keys.Pretty(key))
			case c > 0:
				return refuse("split points must ascend: %s comes before %s",
					keys.Pretty(r.SplitAt[i-1]), keys.Pretty(key))
			}
		}
		if size += len(key); size > MaxSplitBytes {
			return refuse("its split points have more than %d bytes together; create it with "+
				"fewer, it splits as it grows", MaxSplitBytes)
		}
	}
	return nil
}

// validateFactor refuses replication factors that are not supported. 0 means the default.
func validateFactor(factor uint32) error {
	switch factor {
	case 0, 1, 3, 5:
		return nil
	}
	return status.Errorf(codes.InvalidArgument, "%d replicas; the replication factor is 1, 3 or 5",
		factor)
}

func ValidName(name string) bool {
	if len(name) < 1 || len(name) > MaxNameLength {
		return false
	}
	for _, c := range []byte(name) {
		switch {
		case c >= 'a' && c <= 'z', c >= '0' && c <= '9', c == '.', c == '_', c == '-':
		default:
			return false
		}
	}
	return true
}

func partitionCount(r *clusterpb.CreateKeyspaceRequest) int {
	if r.Partitioning == clusterpb.Partitioning_HASH {
		return int(r.HashPartitions)
	}
	return len(r.SplitAt) + 1
}

// checkRoom checks a creation against the existing keyspaces, partitions and nodes.
func (k *Keyspaces) checkRoom(
	v *store.View, r *clusterpb.CreateKeyspaceRequest, replicas uint32, partitions int,
) error {
	taken, _, err := meta.LoadID(v, meta.NameKey(r.Name))
	if err != nil {
		return k.meta.Status(err)
	}
	if taken != 0 {
		return status.Errorf(codes.AlreadyExists,
			"it exists already; choose another name, or drop it first")
	}
	nodes, err := meta.CountNodes(v)
	if err != nil {
		return k.meta.Status(err)
	}
	if uint64(replicas) > nodes {
		noun := "nodes"
		if nodes == 1 {
			noun = "node"
		}
		return status.Errorf(codes.FailedPrecondition,
			"it is to have %d replicas of each partition, on as many nodes, and the cluster has "+
				"%d %s; add nodes or ask for fewer replicas", replicas, nodes, noun)
	}
	keyspaces, err := meta.Count(v, meta.KeyspacePrefix)
	if err != nil {
		return k.meta.Status(err)
	}
	all, err := meta.Count(v, meta.PartitionPrefix)
	if err != nil {
		return k.meta.Status(err)
	}
	if keyspaces >= uint64(meta.MaxKeyspaces) ||
		all+uint64(partitions) > uint64(meta.MaxPartitions) {
		return status.Errorf(codes.ResourceExhausted,
			"the cluster has %d keyspaces and %d partitions, the limits are %d and %d",
			keyspaces, all, meta.MaxKeyspaces, meta.MaxPartitions)
	}
	return nil
}

// ID returns the id of the keyspace with a name. Only the leader answers.
func (k *Keyspaces) ID(ctx context.Context, name string) (uint64, error) {
	v, err := k.meta.View(ctx)
	if err != nil {
		return 0, err
	}
	ks, err := k.meta.KeyspaceByName(v, name)
	if err != nil {
		return 0, err
	}
	return uint64(ks.ID()), nil
}

func digest(b []byte) []byte {
	sum := sha256.Sum256(b)
	return sum[:]
}

// findToken returns the stored token with its request. It returns nil if the token was not used, or
// was used too long ago.
func (k *Keyspaces) findToken(v *store.View, token uint64) (*serverpb.Token, error) {
	if token == 0 {
		return nil, nil
	}
	for t, err := range meta.All[serverpb.Token](v, []byte(meta.TokenPrefix)) {
		if err != nil {
			return nil, k.meta.Status(err)
		}
		if t.Token == token {
			return t, nil
		}
	}
	return nil, nil
}

// remember stores a token in the place of the oldest one. ids has the counter for the number of the
// token.
func (k *Keyspaces) remember(ids *serverpb.Ids, t *serverpb.Token) []*storepb.Op {
	number := ids.Token
	ids.Token++
	ops := []*storepb.Op{store.Put([]byte(meta.IDsKey), meta.Encode(ids))}
	if t.Token != 0 {
		ops = append(ops, store.Put(meta.TokenKey(number), meta.Encode(t)))
	}
	return ops
}

func errToken(token uint64) error {
	return status.Errorf(codes.InvalidArgument, "token %016x was used for another request", token)
}

// repeatCreate answers a creation that was done before. The answer has the keyspace in its present
// state.
func (k *Keyspaces) repeatCreate(
	v *store.View, r *clusterpb.CreateKeyspaceRequest, t *serverpb.Token, request []byte, err error,
) (*clusterpb.CreateKeyspaceResponse, error) {
	if err != nil {
		return nil, err
	}
	if !bytes.Equal(t.Request, request) {
		return nil, errToken(r.Token)
	}
	ks, err := meta.LoadKeyspace(v, keys.KeyspaceID(t.Keyspace))
	if err != nil {
		return nil, k.meta.Status(err)
	}
	if ks.Keyspace == nil {
		return nil, status.Errorf(codes.NotFound,
			"keyspace %s was created by this request, and dropped since", r.Name)
	}
	return &clusterpb.CreateKeyspaceResponse{Keyspace: ks.Keyspace}, nil
}
