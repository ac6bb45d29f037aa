package etcdapi

import (
	"context"
	"sync"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
)

// held is a store whose renewals wait until they may.
type held struct {
	*lone
	mu      sync.Mutex
	may     chan struct{}
	batches []int
}

func (h *held) RenewAll(ctx context.Context, ids []int64) ([]time.Duration, error) {
	h.mu.Lock()
	h.batches = append(h.batches, len(ids))
	h.mu.Unlock()
	select {
	case <-h.may:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	return h.lone.RenewAll(ctx, ids)
}

// Renewals that come while one is under way are done together, and answered in their order.
func TestRenewalsAreDoneTogether(t *testing.T) {
	h := &held{may: make(chan struct{})}
	s := serve(t, func(c *Config) {
		h.lone = c.Store.(*lone)
		c.Store = h
	})
	ctx := t.Context()
	const leases = 100
	for id := range int64(leases) {
		if _, err := pb.NewLeaseClient(s.ActiveConnection()).LeaseGrant(ctx,
			&pb.LeaseGrantRequest{ID: id + 1, TTL: 60 + id}); err != nil {
			t.Fatal(err)
		}
	}
	stream, err := pb.NewLeaseClient(s.ActiveConnection()).LeaseKeepAlive(ctx)
	if err != nil {
		t.Fatal(err)
	}
	for round := range int64(3) {
		for id := range int64(leases) {
			if err := stream.Send(&pb.LeaseKeepAliveRequest{ID: id + 1 + round*5}); err != nil {
				t.Fatal(err)
			}
		}
	}
	go func() {
		for {
			select {
			case h.may <- struct{}{}:
			case <-ctx.Done():
				return
			}
		}
	}()
	for round := range int64(3) {
		for id := range int64(leases) {
			answer, err := stream.Recv()
			if err != nil {
				t.Fatal(err)
			}
			asked := id + 1 + round*5
			want := 59 + asked
			if asked > leases {
				want = 0 // it does not exist
			}
			if answer.ID != asked || answer.TTL != want {
				t.Fatalf("lease %d has %d s, want lease %d with %d s", answer.ID, answer.TTL, asked, want)
			}
		}
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.batches) > leases {
		t.Errorf("%d batches for %d renewals", len(h.batches), 3*leases)
	}
}
