package veil

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/rpc/access"
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
)

// users has, for each token, the keyspaces to which its user has a right.
type users struct {
	mu     sync.Mutex
	off    bool
	rights map[string]map[uint64]bool
}

func (u *users) Enabled() bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	return !u.off
}

func (u *users) Client(shown access.Credentials) access.Client {
	return &user{of: u, token: shown.Token}
}

func (u *users) grant(token string, keyspace uint64, may bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.rights[token] == nil {
		u.rights[token] = map[uint64]bool{}
	}
	u.rights[token][keyspace] = may
}

type user struct {
	access.Client
	of    *users
	token string
}

func (u *user) MayAny(keyspace uint64) bool {
	u.of.mu.Lock()
	defer u.of.mu.Unlock()
	return u.of.rights[u.token][keyspace]
}

// partitions are those of keyspace 7, by range, and of keyspace 8, by hash, which are split at
// keys.
func partitions() (all []*clusterpb.Partition) {
	id := uint64(100)
	for keyspace, prefixes := range map[keys.KeyspaceID][][]byte{7: {keys.KeyspacePrefix(7)},
		8: {keys.HashPrefix(8, 0), keys.HashPrefix(8, 1)}} {
		for number, prefix := range prefixes {
			bounds := [][]byte{prefix, append(prefix[:len(prefix):len(prefix)], "secret-a"...),
				append(prefix[:len(prefix):len(prefix)], "secret-b"...), keys.PrefixEnd(prefix)}
			for i := range 3 {
				id++
				all = append(all, &clusterpb.Partition{Id: id, Keyspace: uint32(keyspace),
					Hash: uint32(number), Start: bounds[i], End: bounds[i+1], Generation: 3,
					Membership: 2, PrefixLength: uint32(len(prefix)),
					Replicas: []*clusterpb.Replica{{Node: 1}}})
			}
		}
	}
	return all
}

// receiver takes updates.
type receiver struct {
	mu      sync.Mutex
	updates []*clusterpb.TableUpdate
}

func (r *receiver) take(u *clusterpb.TableUpdate) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.updates = append(r.updates, u)
	return nil
}

// all takes out what has come: how often it begins anew, and the keyspaces of which it has bounds.
func (r *receiver) all(t *testing.T) (resets int, bounds map[uint32]bool) {
	t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	bounds = map[uint32]bool{}
	for _, u := range r.updates {
		if u.Reset_ {
			resets++
		}
		for _, p := range u.Partitions {
			if err := keys.ValidatePartition(p); err != nil {
				t.Error(err)
			}
			encoded, _ := proto.Marshal(p)
			if strings.Contains(string(encoded), "secret") {
				bounds[p.Keyspace] = true
			} else if !bounds[p.Keyspace] {
				bounds[p.Keyspace] = false
			}
		}
	}
	r.updates = nil
	return resets, bounds
}

// A receiver has bounds of the keyspaces alone to which it has a right, from when it has that, and
// of none after. Of the others it has partitions that hold all keys, and yield to the real ones.
func TestBoundsAreWithheld(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		u := &users{rights: map[string]map[uint64]bool{"ann": {7: true}}}
		viewer := NewViewer(u, access.Credentials{})
		changes, r := make(chan struct{}), &receiver{}
		ctx, cancel := context.WithCancel(t.Context())
		over := make(chan error, 1)
		go func() {
			over <- viewer.Follow(ctx, func(ctx context.Context, emit Emit) error {
				for {
					u := &clusterpb.TableUpdate{Partitions: partitions(), Complete: true}
					if err := emit(u); err != nil {
						return err
					}
					select {
					case <-changes:
					case <-ctx.Done():
						return ctx.Err()
					}
				}
			}, r.take)
		}()
		check := func(when string, resets int, seven, eight bool) {
			t.Helper()
			synctest.Wait()
			got, bounds := r.all(t)
			if got != resets || len(bounds) != 2 || bounds[7] != seven || bounds[8] != eight {
				t.Errorf("%s: %d resets, bounds of %v", when, got, bounds)
			}
		}
		silent := func(when string) {
			t.Helper()
			time.Sleep(time.Minute)
			synctest.Wait()
			r.mu.Lock()
			defer r.mu.Unlock()
			if len(r.updates) != 0 {
				t.Errorf("%s: %d updates", when, len(r.updates))
			}
		}
		check("a stranger", 0, false, false)
		silent("a stranger")
		if err := viewer.Show("ann"); err != nil {
			t.Fatal(err)
		}
		check("a token", 1, true, false)
		silent("a token")
		u.grant("ann", 8, true)
		time.Sleep(2 * judgeEvery)
		check("another right", 1, true, true)
		silent("another right")
		u.grant("ann", 7, false)
		silent("no right any more")
		changes <- struct{}{}
		check("no right any more", 0, false, true)
		silent("an update without a right")
		u.mu.Lock()
		u.off = true
		u.mu.Unlock()
		time.Sleep(2 * judgeEvery)
		check("authentication disabled", 1, true, true)
		if err := viewer.Show(strings.Repeat("x", maxTokenBytes+1)); err == nil {
			t.Error("a token of any length is taken")
		}
		cancel()
		if err := <-over; !errors.Is(err, context.Canceled) {
			t.Errorf("it ends with %v", err)
		}
	})
}

// What stands for partitions holds all keys of a keyspace or hash number, once, and is older than
// any real partition; what stands for a later epoch is newer.
func TestBoundless(t *testing.T) {
	var all []*clusterpb.Partition
	for _, p := range partitions() {
		if whole := boundless(p); whole != nil {
			all = append(all, whole)
			if keys.CompareEpochs(whole, p) >= 0 || whole.Id != p.Id || len(whole.Replicas) != 1 {
				t.Errorf("%v stands for %v", whole, p)
			}
			later := proto.CloneOf(p)
			later.Generation, later.Membership = p.Generation+1, 1
			if keys.CompareEpochs(boundless(later), whole) <= 0 {
				t.Errorf("%v does not follow %v", boundless(later), whole)
			}
		}
	}
	if len(all) != 3 {
		t.Fatalf("%d partitions are left: %v", len(all), all)
	}
	for _, whole := range all {
		if span := keys.PartitionUserSpan(whole); len(span.Start)+len(span.End) > 0 {
			t.Errorf("it holds %v", span)
		}
	}
}
