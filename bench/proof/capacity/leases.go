package main

import (
	"context"
	"fmt"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// leases grants leases with a key each, renews each once, and lets all run out at once.
func leases(ctx context.Context, s *settings) error {
	client, err := s.client()
	if err != nil {
		return err
	}
	defer client.Close()
	lease := clientv3.RetryLeaseClient(client)
	seconds := int64(s.ttl / time.Second)
	began := time.Now()
	stop := others(client, "while leases are granted")
	err = each(ctx, s.n, 200, func(ctx context.Context, i int) error {
		id := clientv3.LeaseID(i + 1)
		if _, err := lease.LeaseGrant(ctx,
			&pb.LeaseGrantRequest{ID: int64(id), TTL: seconds}); err != nil {
			return err
		}
		_, err := client.Put(ctx, fmt.Sprintf("capacity-leased/%08d", i), "", clientv3.WithLease(id))
		return err
	})
	stop()
	step(fmt.Sprintf("%d leases granted, with a key each", s.n), began)
	if err != nil {
		return err
	}
	began = time.Now()
	stop = others(client, "while leases are renewed")
	err = each(ctx, s.n, 64, func(ctx context.Context, i int) error {
		_, err := client.KeepAliveOnce(ctx, clientv3.LeaseID(i+1))
		return err
	})
	stop()
	step(fmt.Sprintf("%d leases renewed, each by a stream", s.n), began)
	if err != nil {
		return err
	}
	last := time.Now()
	stop = others(client, "while leases run out")
	defer stop()
	for {
		r, err := client.Get(ctx, "capacity-leased/", clientv3.WithPrefix(), clientv3.WithCountOnly())
		if err != nil {
			return err
		}
		if r.Count == 0 {
			step("all ran out, since the last renewal", last)
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(100 * time.Millisecond):
		}
	}
}
