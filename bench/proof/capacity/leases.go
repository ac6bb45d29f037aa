package main

import (
	"context"
	"fmt"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// leases grants leases with a key each, renews each lease once if s.renew is set, and lets all
// leases run out at once. It prints whether a lease ended too early, and how late leases ended.
func leases(ctx context.Context, s *settings) error {
	client, err := s.client()
	if err != nil {
		return err
	}
	defer client.Close()
	lease := clientv3.RetryLeaseClient(client)
	seconds := int64(s.ttl / time.Second)
	life := lifetimes{asked: make([]time.Time, s.n), answered: make([]time.Time, s.n)}
	ends := client.Watch(ctx, "capacity-leased/", clientv3.WithPrefix(), clientv3.WithFilterPut())
	began := time.Now()
	stop := others(client, "while leases are granted")
	err = each(ctx, s.n, 200, func(ctx context.Context, i int) error {
		id := clientv3.LeaseID(i + 1)
		life.asked[i] = time.Now()
		if _, err := lease.LeaseGrant(ctx,
			&pb.LeaseGrantRequest{ID: int64(id), TTL: seconds}); err != nil {
			return err
		}
		life.answered[i] = time.Now()
		_, err := client.Put(ctx, fmt.Sprintf("capacity-leased/%08d", i), "", clientv3.WithLease(id))
		return err
	})
	stop()
	step(fmt.Sprintf("%d leases granted, with a key each", s.n), began)
	if err != nil {
		return err
	}
	if s.renew {
		began = time.Now()
		stop = others(client, "while leases are renewed")
		err = each(ctx, s.n, 64, func(ctx context.Context, i int) error {
			life.asked[i] = time.Now()
			_, err := client.KeepAliveOnce(ctx, clientv3.LeaseID(i+1))
			life.answered[i] = time.Now()
			return err
		})
		stop()
		step(fmt.Sprintf("%d leases renewed, each by a stream", s.n), began)
		if err != nil {
			return err
		}
	}
	last := time.Now()
	stop = others(client, "while leases run out")
	defer stop()
	for gone := 0; gone < s.n; {
		r, ok := <-ends
		if !ok || r.Err() != nil {
			return fmt.Errorf("the watch of the keys has ended: %w", r.Err())
		}
		for _, e := range r.Events {
			if e.Type != clientv3.EventTypeDelete {
				continue
			}
			var i int
			if _, err := fmt.Sscanf(string(e.Kv.Key), "capacity-leased/%d", &i); err != nil {
				return err
			}
			life.ended(i, s.ttl)
			gone++
		}
	}
	step("all ran out, since the last renewal", last)
	life.print()
	left, err := client.Get(ctx, "capacity-leased/", clientv3.WithPrefix(), clientv3.WithCountOnly())
	if err == nil && left.Count > 0 {
		err = fmt.Errorf("%d keys are left", left.Count)
	}
	return err
}

// lifetimes has the times of the last renewals. Lease i was renewed at some time between asked[i]
// and answered[i]. The goroutine that renews a lease writes both before the end of the lease is
// awaited.
type lifetimes struct {
	asked, answered []time.Time
	early           int
	late            []time.Duration
}

// ended notes that the key of a lease is gone.
func (l *lifetimes) ended(i int, ttl time.Duration) {
	now := time.Now()
	if now.Before(l.asked[i].Add(ttl)) {
		l.early++
	}
	l.late = append(l.late, max(0, now.Sub(l.answered[i].Add(ttl))))
}

func (l *lifetimes) print() {
	fmt.Printf("  %d ended before their term\n", l.early)
	printLatency("  after its term a lease has ended", l.late)
}
