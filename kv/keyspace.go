package kv

import (
	"context"
	"errors"
	"time"

	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/range/route"
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
	"github.com/tidemarkdb/tidemark/rpc/kvpb"
)

// Keyspace is a handle on a keyspace. It is cheap, needs no closing, and is found by name with every call: if the keyspace
// is dropped, calls fail with ErrKeyspaceNotFound.
type Keyspace struct {
	client *Client
	name   string
}

// Keyspace returns a handle. Whether the keyspace exists shows with the first call (ErrKeyspaceNotFound), or with Describe.
func (c *Client) Keyspace(name string) *Keyspace { return &Keyspace{client: c, name: name} }

// Name is the keyspace's name.
func (k *Keyspace) Name() string { return k.name }

// Get returns the value of a key: the latest (linearisable), or with At an earlier one. ErrNotFound if there is none.
func (k *Keyspace) Get(ctx context.Context, key []byte, options ...GetOption) (Pair, error) {
	const op = "get"
	var q query
	for _, o := range options {
		o.get(&q)
	}
	if err := k.check(op, key, nil, q.check()); err != nil {
		return Pair{}, err
	}
	get := &kvpb.GetRequest{Key: key}
	if q.hasAt {
		get.At = toWire(q.at)
	}
	answer, err := k.one(ctx, op, key, false, &kvpb.Request{Command: &kvpb.Request_Get{Get: get}})
	if err != nil {
		return Pair{}, err
	}
	r := answer.GetGet()
	if !r.GetFound() {
		return Pair{}, notFound(op, k.name, key)
	}
	return Pair{Key: clone(key), Value: owned(r.Value), Version: fromWire(r.Version)}, nil
}

// Put writes the value of a key and returns its version.
func (k *Keyspace) Put(ctx context.Context, key, value []byte) (Timestamp, error) {
	const op = "put"
	if err := k.check(op, key, value, ""); err != nil {
		return Timestamp{}, err
	}
	answer, err := k.one(ctx, op, key, true, &kvpb.Request{Command: &kvpb.Request_Put{Put: &kvpb.PutRequest{Key: key, Value: value}}})
	if err != nil {
		return Timestamp{}, err
	}
	return fromWire(answer.GetPut().GetVersion()), nil
}

// Delete takes the value of a key away and reports whether there was one.
func (k *Keyspace) Delete(ctx context.Context, key []byte) (existed bool, err error) {
	const op = "delete"
	if err := k.check(op, key, nil, ""); err != nil {
		return false, err
	}
	answer, err := k.one(ctx, op, key, true, &kvpb.Request{Command: &kvpb.Request_Delete{Delete: &kvpb.DeleteRequest{Key: key}}})
	if err != nil {
		return false, err
	}
	return answer.GetDelete().GetExisted(), nil
}

// Expectation is what CompareAndSwap expects of the key.
type Expectation struct {
	kind    expectation
	value   []byte
	version Timestamp
}

type expectation uint8

const (
	expectNothing expectation = iota
	expectAbsent
	expectValue
	expectVersion
)

// ExpectAbsent expects that the key has no value.
func ExpectAbsent() Expectation { return Expectation{kind: expectAbsent} }

// ExpectValue expects exactly this value.
func ExpectValue(value []byte) Expectation { return Expectation{kind: expectValue, value: value} }

// ExpectVersion expects the value of exactly this version: unchanged since, even to the same value and back.
func ExpectVersion(version Timestamp) Expectation {
	return Expectation{kind: expectVersion, version: version}
}

// Replacement is what CompareAndSwap and Modify write: Set, Delete or Keep.
type Replacement struct {
	value []byte
	kind  replacement
}

type replacement uint8

const (
	replaceNothing replacement = iota
	replaceValue
	replaceDelete
	replaceKeep
)

// Set replaces the value.
func Set(value []byte) Replacement { return Replacement{value: value, kind: replaceValue} }

// Delete takes the value away.
func Delete() Replacement { return Replacement{kind: replaceDelete} }

// Keep leaves the key as it is. It is for Modify; CompareAndSwap has nothing to do with it.
func Keep() Replacement { return Replacement{kind: replaceKeep} }

// Swap is the result of CompareAndSwap.
type Swap struct {
	// Swapped reports whether the key was as expected, and was changed.
	Swapped bool
	// Version is the new version, if swapped.
	Version Timestamp
	// Current is what is there, if not swapped; Current.Exists says whether anything is.
	Current Pair
}

// CompareAndSwap writes if the key is as expected. That it is not is a result, not an error: the Swap says what is there
// instead.
//
//	swap, err := ks.CompareAndSwap(ctx, key, kv.ExpectVersion(pair.Version), kv.Set(value))
func (k *Keyspace) CompareAndSwap(ctx context.Context, key []byte, expect Expectation, replacement Replacement) (Swap, error) {
	const op = "compare-and-swap"
	if err := k.check(op, key, replacement.value, checkSwap(expect, replacement)); err != nil {
		return Swap{}, err
	}
	command := &kvpb.CompareAndSwapRequest{Key: key, NewValue: replacement.value, Delete: replacement.kind == replaceDelete}
	switch expect.kind {
	case expectAbsent:
		command.Expected = &kvpb.CompareAndSwapRequest_Absent{Absent: true}
	case expectValue:
		command.Expected = &kvpb.CompareAndSwapRequest_Value{Value: expect.value}
	case expectVersion:
		command.Expected = &kvpb.CompareAndSwapRequest_Version{Version: toWire(expect.version)}
	}
	answer, err := k.one(ctx, op, key, true, &kvpb.Request{Command: &kvpb.Request_CompareAndSwap{CompareAndSwap: command}})
	if err != nil {
		return Swap{}, err
	}
	r := answer.GetCompareAndSwap()
	if r.GetSwapped() {
		return Swap{Swapped: true, Version: fromWire(r.Version)}, nil
	}
	swap := Swap{Current: Pair{Key: clone(key)}}
	if r.GetFound() {
		swap.Current.Value, swap.Current.Version = owned(r.Current), fromWire(r.CurrentVersion)
	}
	return swap, nil
}

// checkSwap says what is wrong with a compare-and-swap; empty if nothing.
func checkSwap(expect Expectation, replacement Replacement) string {
	switch {
	case expect.kind == expectNothing:
		return "expects nothing; use ExpectAbsent, ExpectValue or ExpectVersion"
	case expect.kind == expectVersion && expect.version.IsZero():
		return "expects an unset version; a key without a value is expected with ExpectAbsent"
	case replacement.kind == replaceNothing, replacement.kind == replaceKeep:
		return "replaces nothing; use Set or Delete"
	}
	return ""
}

// check validates what a call was given before anything is sent.
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

// one brings a request about one key to its partition.
func (k *Keyspace) one(ctx context.Context, op string, key []byte, write bool, r *kvpb.Request) (route.Answer, error) {
	ctx, cancel := k.client.bound(ctx)
	defer cancel()
	ks, err := k.resolve(ctx, op)
	if err != nil {
		return route.Answer{}, err
	}
	answer, err := k.client.sender.Do(ctx, &route.Call{Keyspace: ks.ID, Key: key, Write: write, Slack: lockSlack, Request: r})
	if err != nil {
		return route.Answer{}, wrap(op, k.name, key, err)
	}
	return answer, nil
}

// resolvePause is how long resolve waits for the table to show a keyspace that the core knows.
const resolvePause = 100 * time.Millisecond

// resolve finds the keyspace in the table. If it is not there, the core is asked: the table may lag behind.
func (k *Keyspace) resolve(ctx context.Context, op string) (*route.Keyspace, error) {
	s := k.client.sender
	if ks := s.Table().KeyspaceByName(k.name); ks != nil {
		return ks, nil
	}
	if k.name == "" {
		return nil, invalid(op, "", nil, "the keyspace has no name")
	}
	for {
		table := s.Table()
		if ks := table.KeyspaceByName(k.name); ks != nil {
			return ks, nil
		}
		exists := false
		err := s.Admin(ctx, func(ctx context.Context, c clusterpb.ClusterClient) error {
			r, err := c.ListKeyspaces(ctx, &clusterpb.ListKeyspacesRequest{})
			for _, info := range r.GetKeyspaces() {
				if info.Keyspace.GetName() == k.name && info.Keyspace.State != clusterpb.KeyspaceState_DROPPING {
					exists = true
				}
			}
			return err
		})
		if err != nil {
			return nil, wrapAdmin(op, k.name, err)
		}
		if !exists {
			return nil, wrap(op, k.name, nil, &route.Error{Cause: route.ErrNoKeyspace})
		}
		s.Refresh()
		if err := k.client.await(ctx, table, resolvePause); err != nil {
			return nil, wrap(op, k.name, nil, &route.Error{Cause: err, Message: "waiting for the partition table to show the keyspace"})
		}
	}
}

// await waits for a newer table, but no longer than d.
func (c *Client) await(ctx context.Context, table *route.Table, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-table.Changed():
	case <-timer.C:
	case <-ctx.Done():
		return ctx.Err()
	case <-c.sender.Done():
		return route.ErrClosed
	}
	return nil
}

// pause waits for d.
func (c *Client) pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return &route.Error{Cause: ctx.Err()}
	case <-c.sender.Done():
		return &route.Error{Cause: route.ErrClosed}
	}
}

// isCode reports whether an error is a node's answer of that code, and its timestamp.
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
