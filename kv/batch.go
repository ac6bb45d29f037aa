package kv

import (
	"context"
	"errors"
	"fmt"

	"github.com/tidemarkdb/tidemark/kv/internal/conn"
	"github.com/tidemarkdb/tidemark/kv/internal/reader"
	"github.com/tidemarkdb/tidemark/kv/internal/writes"
	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/range/route"
	"github.com/tidemarkdb/tidemark/rpc/kvpb"
)

const (
	// maxBatchBytes and maxBatchKeys limit one atomic batch.
	maxBatchBytes = 64 << 20
	maxBatchKeys  = 100_000
)

// Batch collects writes that take effect together or not at all, at one timestamp. If all keys are
// in one partition, the batch costs one request. Partitions split automatically, so keys that are
// in one partition today may be in several tomorrow. Then the batch is committed as a transaction,
// as BatchPut does, with the errors of a transaction. In a hash keyspace, keys with different hash
// numbers are refused (see ErrCrossPartition). Keyspace.Batch makes a Batch. A Batch is not safe
// for concurrent use, and can be committed once.
//
//	version, err := ks.Batch().Put(k1, v1).Put(k2, v2).Delete(k3).Commit(ctx)
//
// A Batch refers to the slices it was given; do not change them until Commit has returned.
type Batch struct {
	keyspace   *Keyspace
	operations []*kvpb.WriteOperation
	seen       map[string]bool
	bytes      int
	done       bool
	err        *Error
}

// Batch begins an atomic batch.
func (k *Keyspace) Batch() *Batch { return &Batch{keyspace: k} }

// Put adds a write. Commit reports what is wrong with it.
func (b *Batch) Put(key, value []byte, options ...WriteOption) *Batch {
	w := newWriteOptions(options)
	return b.add(&kvpb.WriteOperation{Key: key, Value: value, Ttl: int64(w.lifetime)}, w.bad)
}

// Delete adds a deletion.
func (b *Batch) Delete(key []byte) *Batch {
	return b.add(&kvpb.WriteOperation{Key: key, Delete: true}, "")
}

// Len returns the number of operations so far.
func (b *Batch) Len() int { return len(b.operations) }

// Bytes returns the size of all keys and values so far.
func (b *Batch) Bytes() int { return b.bytes }

func (b *Batch) add(o *kvpb.WriteOperation, wrong string) *Batch {
	if b.err != nil {
		return b
	}
	const op = "batch"
	var bad *Error
	if err := b.keyspace.check(op, o.Key, o.Value, wrong); err != nil {
		errors.As(err, &bad)
		b.err = bad
		return b
	}
	b.bytes += len(o.Key) + len(o.Value)
	switch {
	case b.seen[string(o.Key)]:
		b.err = invalid(op, b.keyspace.name, o.Key,
			"the key is in the batch twice; a key may appear once")
	case b.bytes > maxBatchBytes:
		b.err = invalid(op, b.keyspace.name, o.Key,
			"with this key the batch holds more than %d MiB; split it", maxBatchBytes>>20)
	case len(b.operations) == maxBatchKeys:
		b.err = invalid(op, b.keyspace.name, o.Key, "the batch holds more than %d keys; split it",
			maxBatchKeys)
	default:
		if b.seen == nil {
			b.seen = make(map[string]bool)
		}
		b.seen[string(o.Key)] = true
		b.operations = append(b.operations, o)
	}
	return b
}

// Commit writes the batch and returns the version of all its writes. An empty batch writes nothing,
// and returns a zero version.
func (b *Batch) Commit(ctx context.Context) (Timestamp, error) {
	const op = "batch"
	k := b.keyspace
	switch {
	case b.err != nil:
		return Timestamp{}, b.err
	case b.done:
		return Timestamp{}, invalid(op, k.name, nil,
			"the batch was committed before; begin a new one with Keyspace.Batch")
	case len(b.operations) == 0:
		return Timestamp{}, nil
	}
	b.done = true
	ctx, cancel := k.client.conn.Bound(ctx)
	defer cancel()
	ks, err := k.resolve(ctx, op)
	if err != nil {
		return Timestamp{}, err
	}
	var cross *Error
	call := route.Call{
		Keyspace: ks.ID,
		Key:      b.operations[0].Key,
		Write:    true,
		Slack:    conn.LockSlack,
		Identity: new(route.Identity),
		Request: &kvpb.Request{Command: &kvpb.Request_WriteBatch{
			WriteBatch: &kvpb.WriteBatchRequest{Operations: b.operations}}},
		Prepare: route.PreparerFunc(func(p *route.Partition, _ route.Leader) error {
			var elsewhere bool
			if elsewhere, cross = b.crosses(p); elsewhere {
				return reader.ErrElsewhere
			}
			return nil
		}),
	}
	answer, err := k.client.conn.Sender.Do(ctx, &call)
	var failed *route.Error
	if errors.As(err, &failed) && failed.Cause == reader.ErrElsewhere {
		if cross != nil {
			return Timestamp{}, cross
		}
		return b.commitAcross(ctx, &call, failed.OutcomeUnknown)
	}
	if err != nil {
		return Timestamp{}, wrap(op, k.name, call.Key, err)
	}
	return fromWire(answer.GetWriteBatch().GetVersion()), nil
}

// commitAcross commits a batch whose keys are in several partitions. maybe is set if the batch may
// have been executed when all keys were in one partition.
func (b *Batch) commitAcross(ctx context.Context, call *route.Call,
	maybe bool) (Timestamp, error) {
	const op = "batch"
	k := b.keyspace
	if maybe {
		// A batch makes a version of each of its keys, even of a deleted key.
		at, executed, err := k.client.conn.Sender.Executed(ctx, call, call.Key)
		if err != nil {
			return Timestamp{}, wrap(op, k.name, call.Key, err)
		}
		if executed {
			return at, nil
		}
	}
	at, err := k.client.Update(ctx, func(tx *Txn) error {
		for _, o := range b.operations {
			own := writes.Own{Value: o.Value, Deleted: o.Delete, Lifetime: keys.Lifetime(o.Ttl)}
			if err := tx.write(op, k, o.Key, own); err != nil {
				return err
			}
		}
		return nil
	})
	return at, named(op, k.name, err)
}

// crosses reports whether a key is outside partition p, which holds the first key. It returns an
// error if that key has another hash number than the first one.
func (b *Batch) crosses(p *route.Partition) (elsewhere bool, _ *Error) {
	ks := b.keyspace.client.conn.Sender.Table().KeyspaceByID(p.Keyspace)
	if ks == nil {
		return false, nil // the keyspace was just dropped: the nodes will report it
	}
	for _, o := range b.operations[1:] {
		other := ks.ByKey(o.Key)
		if other == nil || other == p {
			continue
		}
		if other.Hash == p.Hash {
			elsewhere = true
			continue
		}
		first := b.operations[0].Key
		return true, &Error{
			Op: "batch", Keyspace: b.keyspace.name, Key: clone(o.Key),
			Message: fmt.Sprintf("a batch is atomic within one hash partition, but key %s lies in "+
				"partition %s and key %s in partition %s; "+
				"commit one batch for each partition, or use BatchPut", keys.Pretty(first), p.ID,
				keys.Pretty(o.Key), other.ID),
			wraps: []error{ErrCrossPartition, ErrInvalidArgument},
		}
	}
	return elsewhere, nil
}

// BatchPut writes many keys, in any partitions, at one timestamp: all of them or none. It returns
// the timestamp. It uses Key, Value and Expires of a pair. The options apply to the pairs without
// Expires. Each key may occur once. Without pairs nothing is written, and the timestamp is zero.
//
// If all keys are in one partition, the call costs one request, like a Batch. Otherwise it is a
// transaction (two-phase commit), which runs again after conflicts until ctx ends. The limits of
// transactions apply (ErrTransactionTooLarge), and the errors are those of Update. To write as much
// as possible without atomicity over all keys, commit one Batch for each partition instead.
func (k *Keyspace) BatchPut(ctx context.Context, pairs []Pair, options ...WriteOption) (Timestamp,
	error) {
	const op = "batch put"
	w := newWriteOptions(options)
	seen := make(map[string]struct{}, len(pairs))
	lifetimes := make([]keys.Lifetime, len(pairs))
	for i := range pairs {
		key, wrong := pairs[i].Key, w.bad
		lifetime, err := pairs[i].lifetimeOf(w.lifetime)
		if err != nil {
			wrong = err.Error()
		}
		lifetimes[i] = lifetime
		if err := k.check(op, key, pairs[i].Value, wrong); err != nil {
			return Timestamp{}, err
		}
		if _, twice := seen[string(key)]; twice {
			return Timestamp{}, invalid(op, k.name, key, "the key is given twice; a key may appear once")
		}
		seen[string(key)] = struct{}{}
	}
	if len(pairs) == 0 {
		return Timestamp{}, nil
	}
	at, err := k.client.Update(ctx, func(tx *Txn) error {
		for i := range pairs {
			own := writes.Own{Value: pairs[i].Value, Lifetime: lifetimes[i]}
			if err := tx.write("put", k, pairs[i].Key, own); err != nil {
				return err
			}
		}
		return nil
	})
	return at, named(op, k.name, err)
}

// named puts the name of the call into an error of Update.
func named(op, keyspace string, err error) error {
	var e *Error
	if errors.As(err, &e) && e.Op == "update" {
		e.Op = op
		if e.Keyspace == "" {
			e.Keyspace = keyspace
		}
	}
	return err
}
