package etcdapi

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"testing"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
	"google.golang.org/grpc/health/grpc_health_v1"
)

// Transactions of the client's own making neither lose nor repeat a change.
func TestSTM(t *testing.T) {
	s := serve(t, nil)
	var running sync.WaitGroup
	for range 4 {
		running.Go(func() {
			for range 25 {
				if _, err := concurrency.NewSTM(s.Client, func(m concurrency.STM) error {
					n, _ := strconv.Atoi(m.Get("n"))
					m.Put("n", strconv.Itoa(n+1))
					return nil
				}); err != nil {
					t.Error(err)
				}
			}
		})
	}
	running.Wait()
	if got, err := s.Get(t.Context(), "n"); err != nil || string(got.Kvs[0].Value) != "100" {
		t.Errorf("%v, %v", got, err)
	}
}

// The client's sessions and locks, as far as they do not wait.
func TestTryLock(t *testing.T) {
	s := serve(t, nil)
	session := func() *concurrency.Session {
		session, err := concurrency.NewSession(s.Client, concurrency.WithTTL(60))
		if err != nil {
			t.Fatal(err)
		}
		return session
	}
	one, two := session(), session()
	mine, theirs := concurrency.NewMutex(one, "lock"), concurrency.NewMutex(two, "lock")
	if err := mine.TryLock(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := theirs.TryLock(t.Context()); !errors.Is(err, concurrency.ErrLocked) {
		t.Errorf("a lock that is held: %v", err)
	}
	if txn, err := s.Txn(t.Context()).If(mine.IsOwner()).Commit(); err != nil || !txn.Succeeded {
		t.Errorf("the owner is not: %v, %v", txn, err)
	}
	if err := one.Close(); err != nil {
		t.Error(err)
	}
	if err := theirs.TryLock(t.Context()); err != nil {
		t.Errorf("the lock of a session that ended: %v", err)
	}
	if err := two.Close(); err != nil {
		t.Error(err)
	}
}

// A range of 100,000 keys, as users of etcd have it, in one answer and in a stream.
func TestManyKeys(t *testing.T) {
	s := serve(t, nil)
	const keys = 100_000
	ctx := context.Background()
	for i := 0; i < keys; {
		var ops []clientv3.Op
		for range DefaultMaxOperations {
			if i++; i <= keys {
				ops = append(ops, clientv3.OpPut(fmt.Sprintf("k%06d", i), "value"))
			}
		}
		if _, err := s.Txn(ctx).Then(ops...).Commit(); err != nil {
			t.Fatal(err)
		}
	}
	got, err := s.Get(ctx, "k", clientv3.WithPrefix())
	if err != nil || got.Count != keys || len(got.Kvs) != keys {
		t.Errorf("%d of %d keys, %v", len(got.Kvs), got.Count, err)
	}
	top, err := s.Get(ctx, "k", clientv3.WithLastRev()...)
	if err != nil || len(top.Kvs) != 1 {
		t.Errorf("the latest of all keys: %v, %v", top, err)
	}
	stream := &streamed{&pb.RangeRequest{Key: []byte("k"), RangeEnd: []byte("l")}}
	answer, err := connect(t, s.address).call(ctx, stream)
	if err != nil || len(answer.(*pb.RangeResponse).Kvs) != keys {
		t.Errorf("as a stream: %v", err)
	}
}

func TestHealth(t *testing.T) {
	s := serve(t, nil)
	health, err := grpc_health_v1.NewHealthClient(connect(t, s.address).connection).Check(t.Context(),
		&grpc_health_v1.HealthCheckRequest{})
	if err != nil || health.Status != grpc_health_v1.HealthCheckResponse_SERVING {
		t.Errorf("%v, %v", health, err)
	}
}
