package main

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/metadata"
)

// watches opens watches on a tenth as many keys, puts some of the keys, and waits for the events.
// etcd's client opens the watches of a connection one after the other, each when the watch before
// is confirmed. With -connections, connections open their watches in parallel.
func watches(ctx context.Context, s *settings) error {
	return s.watch(ctx, max(1, s.n/10), func(ctx context.Context, _ int) context.Context {
		return ctx
	})
}

// streams opens watches with one stream for each watch: a client shares a stream only among watches
// with the same metadata.
func streams(ctx context.Context, s *settings) error {
	return s.watch(ctx, s.n, func(ctx context.Context, i int) context.Context {
		return clientv3.WithRequireLeader(withStream(ctx, i))
	})
}

func (s *settings) watch(ctx context.Context, keys int,
	of func(context.Context, int) context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var clients []*clientv3.Client
	for range s.connections {
		client, err := s.client()
		if err != nil {
			return err
		}
		defer client.Close()
		clients = append(clients, client)
	}
	var events, begun, ended atomic.Int64
	var running sync.WaitGroup
	began := time.Now()
	stop := others(clients[0], "while watches begin")
	stopProgress := progress("watches begun", &begun)
	err := each(ctx, s.n, 200, func(_ context.Context, i int) error {
		changes := clients[i%len(clients)].Watch(of(ctx, i), key(i%keys), clientv3.WithCreatedNotify())
		select {
		case r := <-changes:
			if r.Err() != nil || !r.Created {
				return fmt.Errorf("watch %d: %w", i, r.Err())
			}
		case <-time.After(time.Minute):
			return fmt.Errorf("watch %d has not begun within a minute", i)
		}
		begun.Add(1)
		running.Go(func() {
			defer ended.Add(1)
			for r := range changes {
				events.Add(int64(len(r.Events)))
			}
		})
		return nil
	})
	stopProgress()
	stop()
	step(fmt.Sprintf("%d watches on %d keys begun", s.n, keys), began)
	if err != nil {
		return err
	}
	const puts = 1000
	want := int64(0)
	for i := range puts {
		want += int64((s.n - i%keys + keys - 1) / keys)
	}
	began = time.Now()
	if err := latency(ctx, "puts of watched keys", puts, func(i int) error {
		_, err := clients[0].Put(ctx, key(i%keys), "changed")
		return err
	}); err != nil {
		return err
	}
	for events.Load() < want && time.Since(began) < 5*time.Minute && ctx.Err() == nil {
		time.Sleep(5 * time.Millisecond)
	}
	step(fmt.Sprintf("%d of %d events have come", events.Load(), want), began)
	began = time.Now()
	stopProgress = progress("watches ended", &ended)
	cancel()
	running.Wait()
	stopProgress()
	step("all watches ended", began)
	return nil
}

// withStream gives a watch metadata that no other watch has.
func withStream(ctx context.Context, i int) context.Context {
	return metadata.AppendToOutgoingContext(ctx, "capacity-stream", fmt.Sprint(i))
}
