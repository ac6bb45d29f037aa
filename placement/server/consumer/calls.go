package consumer

import (
	"bytes"
	"context"
	"fmt"
	"slices"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/tidemarkdb/tidemark/hlc"
	"github.com/tidemarkdb/tidemark/placement/server/meta"
	"github.com/tidemarkdb/tidemark/placement/server/veil"
	"github.com/tidemarkdb/tidemark/placement/store"
	"github.com/tidemarkdb/tidemark/placement/store/storepb"
	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
	"github.com/tidemarkdb/tidemark/rpc/wire"
)

const (
	// consumerAttempts is the maximum number of attempts at a change of a consumer that conflicts with
	// others.
	consumerAttempts = 5
	// maxConsumerRow is the maximum length of the part of a consumer's key after ConsumerPrefix.
	maxConsumerRow = 9 + keys.MaxConsumerName
)

func Prefix(ks keys.KeyspaceID) []byte {
	return fmt.Appendf(nil, "%s%08x/", meta.ConsumerPrefix, uint32(ks))
}

func consumerKey(ks keys.KeyspaceID, name string) []byte { return append(Prefix(ks), name...) }

// ProtectAll returns the timestamp to protect in a keyspace whose GC window becomes shorter: the
// positions of all of its consumers, because a window that has kept them may keep them no longer. The
// Keeper gives up what needs no protection. The condition says that no consumer has begun since.
func ProtectAll(v *store.View, ks meta.Keyspace) (hlc.Timestamp, *storepb.Compare, error) {
	all, err := loadConsumers(v, ks.ID())
	if err != nil {
		return hlc.Timestamp{}, nil, err
	}
	protected := wire.FromClusterTimestamp(ks.Protected)
	if lowest := Lowest(all); protected.IsZero() || !lowest.IsZero() && lowest.Less(protected) {
		protected = lowest
	}
	return protected, noneBegun(v, ks.ID()), nil
}

// noneBegun is the condition that no consumer of a keyspace has begun since the view.
func noneBegun(v *store.View, ks keys.KeyspaceID) *storepb.Compare {
	start, end := store.PrefixRange(Prefix(ks))
	return &storepb.Compare{Key: start, RangeEnd: end, Target: storepb.Compare_CREATE,
		Relation: storepb.Compare_LESS, Number: int64(v.Revision) + 1}
}

// decodeConsumer decodes a record and its key.
func decodeConsumer(kv *storepb.KeyValue) (Record, error) {
	c := Record{Consumer: &clusterpb.Consumer{}, Revision: kv.ModRevision}
	row := bytes.TrimPrefix(kv.Key, []byte(meta.ConsumerPrefix))
	if len(row) < 9 {
		return c, fmt.Errorf("the core's key %s is malformed", keys.Pretty(kv.Key))
	}
	id, err := meta.LastID(row[:8], 8)
	if err != nil {
		return c, err
	}
	if err := proto.Unmarshal(kv.Value, c); err != nil {
		return c, meta.Malformed(kv.Key, err)
	}
	c.KeyspaceId, c.Name = uint32(id), string(row[9:])
	return c, nil
}

// encodeConsumer returns the stored form. It leaves out the fields that the key contains.
func encodeConsumer(c *clusterpb.Consumer) []byte {
	return meta.Encode(&clusterpb.Consumer{Position: c.Position, KeepMillis: c.KeepMillis,
		CreatedUnixMs: c.CreatedUnixMs, UpdatedUnixMs: c.UpdatedUnixMs, TooOld: c.TooOld, Span: c.Span})
}

// loadConsumer reads one consumer. Its Consumer is nil if the consumer does not exist.
func loadConsumer(v *store.View, ks keys.KeyspaceID, name string) (Record, error) {
	kv, err := v.Get(consumerKey(ks, name))
	if err != nil || kv == nil {
		return Record{}, err
	}
	return decodeConsumer(kv)
}

// loadConsumers reads the consumers of a keyspace, in the order of their names.
func loadConsumers(v *store.View, ks keys.KeyspaceID) (all []Record, err error) {
	for kv, err := range v.All(Prefix(ks)) {
		if err != nil {
			return nil, err
		}
		c, err := decodeConsumer(kv)
		if err != nil {
			return nil, err
		}
		all = append(all, c)
	}
	return all, nil
}

// Set creates a consumer or moves it. Only the leader answers.
func (k *Keeper) Set(
	ctx context.Context, r *clusterpb.SetConsumerRequest,
) (*clusterpb.SetConsumerResponse, error) {
	if err := keys.ValidateConsumerName(r.Name); err != nil {
		return nil, status.Error(codes.InvalidArgument, err.Error())
	}
	if err := keys.ValidateConsumerKeep(r.KeepMillis); err != nil {
		return nil, status.Error(codes.InvalidArgument, err.Error())
	}
	if r.Span != nil {
		if err := keys.ValidateConsumerSpan(Span(r.Span)); err != nil {
			return nil, status.Error(codes.InvalidArgument, err.Error())
		}
	}
	for range consumerAttempts {
		if response, err := k.set(ctx, r); response != nil || err != nil {
			return response, err
		}
	}
	return nil, meta.Conflict("consumer " + keys.Pretty([]byte(r.Name)))
}

// set makes one attempt. It returns nil if a record has changed meanwhile.
func (k *Keeper) set(
	ctx context.Context, r *clusterpb.SetConsumerRequest,
) (*clusterpb.SetConsumerResponse, error) {
	v, err := k.meta.View(ctx)
	if err != nil {
		return nil, err
	}
	ks, err := k.meta.KeyspaceFor(ctx, v, r.Keyspace)
	if err != nil {
		return nil, err
	}
	c, err := loadConsumer(v, ks.ID(), r.Name)
	if err != nil {
		return nil, k.meta.Status(err)
	}
	now := k.times()
	if c.Consumer != nil && r.OnlyNew {
		return &clusterpb.SetConsumerResponse{Consumer: c.Shown(ks.Name, now.Likely()), Existed: true},
			nil
	}
	begins := c.Consumer == nil || r.Reset_
	var others []Record
	if begins {
		if others, err = loadConsumers(v, ks.ID()); err != nil {
			return nil, k.meta.Status(err)
		}
		others = slices.DeleteFunc(others, func(c Record) bool { return c.Name == r.Name })
	}
	if c.Consumer == nil {
		c.Consumer = &clusterpb.Consumer{KeyspaceId: ks.Id, Name: r.Name,
			KeepMillis:    uint64(keys.DefaultConsumerKeep.Milliseconds()),
			CreatedUnixMs: now.Wall.UnixMilli()}
	}
	if err := c.Move(r, len(others), now, k.config.MaxClockAhead); err != nil {
		return nil, err
	}
	if n := k.total.Load(); c.Revision == 0 && n >= int64(k.config.MaxConsumers) {
		return nil, status.Errorf(codes.ResourceExhausted, "the cluster has %d consumers, the "+
			"limit is %d; `tidemark consumers delete` removes one", n, k.config.MaxConsumers)
	}
	// INVARIANT: no consumer of a keyspace is written after the keyspace is dropped, because the drop
	// changes the keyspace's record.
	conditions := []*storepb.Compare{store.ModifiedAt(meta.KeyspaceKey(ks.ID()), ks.Revision),
		store.ModifiedAt(consumerKey(ks.ID(), r.Name), c.Revision)}
	ops := []*storepb.Op{store.Put(consumerKey(ks.ID(), r.Name), encodeConsumer(c.Consumer))}
	if begins {
		// The position may be below the positions of all other consumers. It is protected from now on.
		conditions = append(conditions, noneBegun(v, ks.ID()))
		protected := k.protection(ks, Lowest(append(others, c)), now)
		// If a position needs protection, it is written together with the keyspace's record, even if that
		// record does not change. So a leader that is about to raise the protected timestamp, without
		// having seen this consumer, fails.
		if protected != wire.FromClusterTimestamp(ks.Protected) ||
			!k.protection(ks, c.At(), now).IsZero() {
			ks.Protected = wire.ToClusterTimestamp(protected)
			ops = append(ops, store.Put(meta.KeyspaceKey(ks.ID()), meta.Encode(ks.Keyspace)))
		}
	}
	ok, err := k.meta.Commit(ctx, conditions, ops...)
	if err != nil || !ok {
		return nil, err
	}
	if c.Revision == 0 {
		k.total.Add(1)
	}
	if begins {
		k.config.Logger.Info("a consumer of changes begins", "keyspace", r.Keyspace, "consumer", r.Name,
			"position", c.At(), "keep", c.Keep(), "of", keys.DescribeSpan(Span(c.Span)))
		k.poke()
	}
	return &clusterpb.SetConsumerResponse{Consumer: c.Shown(ks.Name, now.Likely())}, nil
}

// Get reads one consumer. Only the leader answers.
func (k *Keeper) Get(
	ctx context.Context, r *clusterpb.GetConsumerRequest,
) (*clusterpb.GetConsumerResponse, error) {
	if err := keys.ValidateConsumerName(r.Name); err != nil {
		return nil, status.Error(codes.InvalidArgument, err.Error())
	}
	v, err := k.meta.View(ctx)
	if err != nil {
		return nil, err
	}
	ks, err := k.meta.KeyspaceByName(v, r.Keyspace)
	if err != nil {
		return nil, err
	}
	c, err := loadConsumer(v, ks.ID(), r.Name)
	if err != nil {
		return nil, k.meta.Status(err)
	}
	if c.Consumer == nil {
		return &clusterpb.GetConsumerResponse{}, nil
	}
	now := k.times().Likely()
	shown := c.Shown(ks.Name, now)
	veil.SightOf(ctx).Consumer(shown)
	return &clusterpb.GetConsumerResponse{Consumer: shown}, nil
}

// List lists one page of the consumers of a keyspace, or of all keyspaces. Only the leader answers.
func (k *Keeper) List(
	ctx context.Context, r *clusterpb.ListConsumersRequest,
) (*clusterpb.ListConsumersResponse, error) {
	if len(r.After) > maxConsumerRow+1 {
		return nil, status.Errorf(codes.InvalidArgument, "a page of consumers begins at a key of %d "+
			"bytes; take what the page before says", len(r.After))
	}
	v, err := k.meta.View(ctx)
	if err != nil {
		return nil, err
	}
	prefix := []byte(meta.ConsumerPrefix)
	if r.Keyspace != "" {
		ks, err := k.meta.KeyspaceByName(v, r.Keyspace)
		if err != nil {
			return nil, err
		}
		prefix = Prefix(ks.ID())
	}
	start, end := store.PrefixRange(prefix)
	if from := append([]byte(meta.ConsumerPrefix), r.After...); bytes.Compare(from, start) > 0 {
		start = from
	}
	response := &clusterpb.ListConsumersResponse{}
	if bytes.Compare(start, end) >= 0 {
		return response, nil
	}
	page, err := v.Range(&storepb.Range{Key: start, RangeEnd: end, Limit: MaxOfKeyspace})
	if err != nil {
		return nil, k.meta.Status(err)
	}
	now := k.times().Likely()
	sees, names := veil.SightOf(ctx), map[keys.KeyspaceID]string{}
	for _, kv := range page.Kvs {
		c, err := decodeConsumer(kv)
		if err != nil {
			return nil, k.meta.Status(err)
		}
		id := keys.KeyspaceID(c.KeyspaceId)
		name, known := names[id]
		if !known {
			ks, err := meta.LoadKeyspace(v, id)
			if err != nil {
				return nil, k.meta.Status(err)
			}
			if ks.Keyspace != nil && ks.State != clusterpb.KeyspaceState_DROPPING {
				name = ks.Name
			}
			names[id] = name
		}
		if name != "" {
			shown := c.Shown(name, now)
			sees.Consumer(shown)
			response.Consumers = append(response.Consumers, shown)
		}
	}
	if n := len(page.Kvs); page.More && n > 0 {
		response.Next = append(bytes.TrimPrefix(page.Kvs[n-1].Key, []byte(meta.ConsumerPrefix)), 0)
	}
	return response, nil
}

// Delete removes a consumer. Only the leader answers.
func (k *Keeper) Delete(
	ctx context.Context, r *clusterpb.DeleteConsumerRequest,
) (*clusterpb.DeleteConsumerResponse, error) {
	if err := keys.ValidateConsumerName(r.Name); err != nil {
		return nil, status.Error(codes.InvalidArgument, err.Error())
	}
	v, err := k.meta.View(ctx)
	if err != nil {
		return nil, err
	}
	ks, err := k.meta.KeyspaceFor(ctx, v, r.Keyspace)
	if err != nil {
		return nil, err
	}
	// For a consumer that does not exist, nothing is written. The end of a schedule deletes its
	// consumers in every keyspace within the time of one call, and few keyspaces have one.
	if there, err := loadConsumer(v, ks.ID(), r.Name); err != nil {
		return nil, k.meta.Status(err)
	} else if there.Consumer == nil {
		return &clusterpb.DeleteConsumerResponse{}, nil
	}
	key := consumerKey(ks.ID(), r.Name)
	// The consumer is deleted whatever its present position is.
	existed, err := k.meta.Commit(ctx, []*storepb.Compare{{Key: key, Target: storepb.Compare_VERSION,
		Relation: storepb.Compare_GREATER}}, store.Delete(key))
	if err != nil {
		return nil, err
	}
	if existed {
		k.config.Logger.Info("a consumer of changes is deleted", "keyspace", r.Keyspace, "consumer",
			r.Name)
		k.poke()
	}
	return &clusterpb.DeleteConsumerResponse{Existed: existed}, nil
}
