package etcdapi

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
)

// fullAnswers has no room for answers from 64 KiB on; exhausted, the client holds its share
// already.
type fullAnswers struct {
	exhausted atomic.Bool
	counted   atomic.Int64
}

var errNoRoom = status.Error(codes.ResourceExhausted, "etcdserver: too many requests: no room")

func (f *fullAnswers) Bound(_ context.Context, m proto.Message, size int) (any, error) {
	if size < 64<<10 {
		return m, nil
	}
	return nil, errNoRoom
}

func (f *fullAnswers) Room(context.Context) error {
	if f.exhausted.Load() {
		return errNoRoom
	}
	return nil
}

func (f *fullAnswers) Count(_ context.Context, m proto.Message, size int) any {
	f.counted.Add(int64(size))
	return m
}

func (f *fullAnswers) Wait(_ context.Context, m proto.Message, _ int) (any, error) { return m, nil }

// TestNoWriteIsRefusedWhenDone: a call that has written is answered although there is no room for
// its answer, which is counted; while the client holds its share already, it writes nothing.
func TestNoWriteIsRefusedWhenDone(t *testing.T) {
	answers := &fullAnswers{}
	c := serve(t, func(c *Config) { c.Answers = answers }).Client
	ctx := t.Context()
	big := strings.Repeat("x", 100<<10)
	writes := map[string]func() error{
		"put": func() error {
			_, err := c.Put(ctx, "k", "", clientv3.WithPrevKV())
			return err
		},
		"delete": func() error {
			_, err := c.Delete(ctx, "k", clientv3.WithPrevKV())
			return err
		},
		"transaction": func() error {
			_, err := c.Txn(ctx).Then(clientv3.OpGet("k"), clientv3.OpTxn(nil,
				[]clientv3.Op{clientv3.OpDelete("k")}, nil)).Commit()
			return err
		},
	}
	for name, write := range writes {
		if _, err := c.Put(ctx, "k", big); err != nil {
			t.Fatal(err)
		}
		there := func() bool {
			r, err := c.Get(ctx, "k", clientv3.WithKeysOnly())
			if err != nil {
				t.Fatal(err)
			}
			return r.Count == 1 && r.Kvs[0].Version == 1
		}
		if _, err := c.Get(ctx, "k"); status.Code(err) != codes.ResourceExhausted {
			t.Errorf("a read without room: %v", err)
		}
		answers.exhausted.Store(true)
		if err := write(); status.Code(err) != codes.ResourceExhausted || !there() {
			t.Errorf("%s, of a client that holds its share: %v, and the key is as before: %v", name, err,
				there())
		}
		answers.exhausted.Store(false)
		before := answers.counted.Load()
		if err := write(); err != nil || there() {
			t.Errorf("%s without room: %v, and the key is as before: %v", name, err, there())
		}
		if n := answers.counted.Load() - before; n < 100<<10 {
			t.Errorf("%s: %d bytes are counted", name, n)
		}
		if _, err := c.Delete(ctx, "k"); err != nil {
			t.Fatal(err)
		}
	}
}

// TestEffectsOfRequests: what may write is never taken for a read.
func TestEffectsOfRequests(t *testing.T) {
	get := &pb.RequestOp{Request: &pb.RequestOp_RequestRange{RequestRange: &pb.RangeRequest{}}}
	put := &pb.RequestOp{Request: &pb.RequestOp_RequestPut{RequestPut: &pb.PutRequest{}}}
	nested := &pb.RequestOp{Request: &pb.RequestOp_RequestTxn{
		RequestTxn: &pb.TxnRequest{Failure: []*pb.RequestOp{put}}}}
	for i, x := range []struct {
		request         any
		writes, returns bool
	}{
		{&pb.RangeRequest{}, false, true},
		{&pb.PutRequest{}, true, false},
		{&pb.TxnRequest{}, false, false},
		{&pb.TxnRequest{Success: []*pb.RequestOp{get}}, false, true},
		{&pb.TxnRequest{Success: []*pb.RequestOp{get, nil}, Failure: []*pb.RequestOp{nested}},
			true, true},
		{&pb.LeaseGrantRequest{}, true, false},
		{&pb.LeaseLeasesRequest{}, false, true},
	} {
		if writes, returns := effects(x.request); writes != x.writes || returns != x.returns {
			t.Errorf("%d: %v, %v", i, writes, returns)
		}
	}
}
