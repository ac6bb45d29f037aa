package kv

import (
	"bytes"
	"context"
	"errors"
	"time"

	"github.com/tidemarkdb/tidemark/hlc"
	"github.com/tidemarkdb/tidemark/kv/internal/conn"
	"github.com/tidemarkdb/tidemark/kv/internal/reader"
	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/range/route"
	"github.com/tidemarkdb/tidemark/rpc/kvpb"
	"github.com/tidemarkdb/tidemark/rpc/wire"
)

// Keyspace is a handle on a keyspace. It is cheap and needs no closing. Every call looks up the
// keyspace by name: if the keyspace is dropped, calls fail with ErrKeyspaceNotFound.
type Keyspace struct {
	client *Client
	name   string
}

// Keyspace returns a handle. It does not check whether the keyspace exists: the first call fails
// with ErrKeyspaceNotFound if it does not.
func (c *Client) Keyspace(name string) *Keyspace {
	// The partitions are requested now, so that they are probably known at the first call.
	if ks := c.conn.Sender.Table().KeyspaceByName(name); ks != nil {
		c.conn.Sender.Subscribe(ks)
	}
	return &Keyspace{client: c, name: name}
}

// Name returns the keyspace's name.
func (k *Keyspace) Name() string { return k.name }

// Get returns the value of a key. The value is the latest one (linearisable), or with At an earlier
// one. With Nearest, MaxStaleness, AnyStaleness or ReadYourWrites any replica may answer, with its
// own state. With LinearizableFollower any replica may answer, with the latest state. Get fails
// with ErrNotFound if there is no value.
func (k *Keyspace) Get(ctx context.Context, key []byte, options ...GetOption) (Pair, error) {
	const op = "get"
	var q query
	for _, o := range options {
		o.get(&q)
	}
	if err := k.check(op, key, nil, q.check()); err != nil {
		return Pair{}, err
	}
	ctx, cancel := k.client.conn.Bound(ctx)
	defer cancel()
	ks, err := k.resolve(ctx, op)
	if err != nil {
		return Pair{}, err
	}
	n, err := k.client.nearRead(ctx, ks, &q)
	if err != nil {
		return Pair{}, wrap(op, k.name, key, err)
	}
	answer, err := k.get(ctx, ks, key, &q, n)
	if err != nil {
		return Pair{}, wrap(op, k.name, key, err)
	}
	r := answer.GetGet()
	if !r.GetFound() {
		return Pair{}, notFound(op, k.name, key)
	}
	return Pair{Key: clone(key), Value: owned(r.Value), Version: fromWire(r.Version),
		Expires: expiryOf(r.Expires)}, nil
}

// get reads a key. If n is not nil, any replica may answer. It also returns the timestamp of the
// read.
func (k *Keyspace) get(ctx context.Context, ks *route.Keyspace, key []byte, q *query,
	n *reader.Near) (route.Answer, error) {
	began := time.Now()
	get := &kvpb.GetRequest{Key: key}
	if q.HasAt {
		get.At = toWire(q.At)
	}
	call := &route.Call{Keyspace: ks.ID, Key: key, Slack: conn.LockSlack,
		Request: &kvpb.Request{Command: &kvpb.Request_Get{Get: get}}}
	if q.info != nil && !q.HasAt {
		call.Prepare = route.PreparerFunc(func(_ *route.Partition, l route.Leader) error {
			get.Context = nil
			if l.Term != 0 { // for a request with a context, a leader reports the timestamp of the read
				get.Context = &kvpb.ReadContext{Movable: true}
			}
			return nil
		})
	}
	answer, err := n.Do(ctx, k.client.conn.Sender, call, reader.Part{At: q.At, Whole: true})
	if err != nil {
		return answer, err
	}
	at := q.At
	if !q.HasAt {
		if at = fromWire(answer.ReadAt); at.IsZero() {
			at = fromWire(answer.GetGet().GetAt())
		}
	}
	k.client.note(q, began, at, answer.Node, answer.Term != 0 && !q.HasAt)
	return answer, nil
}

// Put writes the value of a key and returns the version of the value.
func (k *Keyspace) Put(ctx context.Context, key, value []byte, options ...WriteOption) (Timestamp,
	error) {
	const op = "put"
	w := newWriteOptions(options)
	if err := k.check(op, key, value, w.bad); err != nil {
		return Timestamp{}, err
	}
	answer, err := k.one(ctx, op, key, true, &kvpb.Request{Command: &kvpb.Request_Put{
		Put: &kvpb.PutRequest{Key: key, Value: value, Ttl: int64(w.lifetime)}}})
	if err != nil {
		return Timestamp{}, err
	}
	return fromWire(answer.GetPut().GetVersion()), nil
}

// Delete deletes the value of a key and reports whether the key had a value.
func (k *Keyspace) Delete(ctx context.Context, key []byte) (existed bool, err error) {
	const op = "delete"
	if err := k.check(op, key, nil, ""); err != nil {
		return false, err
	}
	answer, err := k.one(ctx, op, key, true,
		&kvpb.Request{Command: &kvpb.Request_Delete{Delete: &kvpb.DeleteRequest{Key: key}}})
	if err != nil {
		return false, err
	}
	return answer.GetDelete().GetExisted(), nil
}

// check validates the arguments of a call before anything is sent.
func (k *Keyspace) check(op string, key, value []byte, bad string) error {
	if err := keys.ValidateUserKey(key); err != nil {
		return invalid(op, k.name, nil, "%v", err)
	}
	if err := keys.ValidateValue(value); err != nil {
		return invalid(op, k.name, key, "%v", err)
	}
	if bad != "" {
		return invalid(op, k.name, key, "%s", bad)
	}
	return nil
}

// one sends a request about one key to its partition.
func (k *Keyspace) one(ctx context.Context, op string, key []byte, write bool,
	r *kvpb.Request) (route.Answer, error) {
	ctx, cancel := k.client.conn.Bound(ctx)
	defer cancel()
	ks, err := k.resolve(ctx, op)
	if err != nil {
		return route.Answer{}, err
	}
	answer, err := k.client.conn.Sender.Do(ctx,
		&route.Call{Keyspace: ks.ID, Key: key, Write: write, Slack: conn.LockSlack, Request: r})
	if err != nil {
		return route.Answer{}, wrap(op, k.name, key, err)
	}
	return answer, nil
}

// resolve looks up the keyspace.
func (k *Keyspace) resolve(ctx context.Context, op string) (*route.Keyspace, error) {
	ks, err := k.client.conn.Resolve(ctx, k.name)
	if err != nil && k.name == "" {
		return nil, invalid(op, "", nil, "the keyspace has no name")
	}
	return ks, wrapAdmin(op, k.name, err)
}

// isCode reports whether an error is a node's answer with a code, and returns the timestamp in the
// answer.
func isCode(err error, code kvpb.ErrorCode) (Timestamp, bool) {
	if err == nil {
		return Timestamp{}, false
	}
	var r *route.Error
	if errors.As(err, &r) && r.Code == code && r.Cause == nil {
		return r.Timestamp, true
	}
	return Timestamp{}, false
}

// reader converts the keyspace to the form of package reader.
func (k *Keyspace) reader(ks *route.Keyspace) reader.Keyspace {
	return reader.Keyspace{Conn: k.client.conn, ID: ks.ID, Hashed: ks.Hashed()}
}

// PartitionOf returns the id of the partition that holds the key, according to the client's present
// knowledge. A Batch of keys with the same id is one request, unless the partition splits before.
// It asks the cluster only if the client does not know the partition yet.
func (k *Keyspace) PartitionOf(ctx context.Context, key []byte) (uint64, error) {
	const op = "locate"
	s := k.client.conn.Sender
	if ks := s.Table().KeyspaceByName(k.name); ks != nil {
		if p := ks.ByKey(key); p != nil {
			return uint64(p.ID), nil
		}
	}
	if err := k.check(op, key, nil, ""); err != nil {
		return 0, err
	}
	ctx, cancel := k.client.conn.Bound(ctx)
	defer cancel()
	ks, err := k.resolve(ctx, op)
	if err != nil {
		return 0, err
	}
	for {
		// In a table without gaps, every key lies in exactly one partition. If the partition changed
		// meanwhile, the loop asks again.
		parts, err := s.PartitionsOf(ctx, ks.ID, keys.Span{})
		if err != nil {
			return 0, wrap(op, k.name, key, err)
		}
		for _, p := range parts {
			if !p.Span.Contains(key) {
				continue
			}
			if ks.Hashed() && p.Hash != keys.HashPartition(key, ks.Info.HashPartitions) {
				continue
			}
			return uint64(p.ID), nil
		}
	}
}

// Pair is a key with its value and the value's version. Its slices belong to the caller that
// received it.
type Pair struct {
	Key   []byte
	Value []byte
	// Version is the timestamp of the write; zero if the key has no value.
	Version Timestamp
	// Expires is the time at which the value expires: a read at or above that time does not find the
	// value. It is zero if the value does not expire. It is also zero if the transaction itself has
	// written the value, because the expiry is not known before the commit. In pairs for BatchPut and
	// Load, zero means that the options of the call set the expiry, and Forever means that the value
	// does not expire.
	Expires time.Time
}

// Exists reports whether the key has a value. Only BatchGet and CompareAndSwap return pairs that
// may have none.
func (p Pair) Exists() bool { return !p.Version.IsZero() }

// clone copies a slice. A nil slice stays nil.
func clone(b []byte) []byte { return bytes.Clone(b) }

// pairOf copies a row out of the message with the answer, so that a pair that the caller keeps does
// not keep the message in memory. It makes one allocation, and limits the capacities so that an
// append to one slice cannot overwrite the other. A row without a version has no value.
func pairOf(p *wire.Row) Pair {
	if p.Version.IsZero() {
		return Pair{Key: clone(p.Key)}
	}
	k, n := len(p.Key), len(p.Key)+len(p.Value)
	buf := make([]byte, n)
	copy(buf, p.Key)
	copy(buf[k:], p.Value)
	return Pair{Key: buf[:k:k], Value: buf[k:n:n], Version: p.Version, Expires: expiryOf(p.Expires)}
}

// owned copies a value out of the message with the answer. It never returns nil, because an empty
// value is a value.
func owned(value []byte) []byte {
	out := make([]byte, len(value))
	copy(out, value)
	return out
}

func fromWire(ts *kvpb.Timestamp) hlc.Timestamp { return wire.FromTimestamp(ts) }
func toWire(ts hlc.Timestamp) *kvpb.Timestamp   { return wire.ToTimestamp(ts) }
