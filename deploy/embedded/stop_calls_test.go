package embedded

import (
	"context"
	"sync"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// TestStopFailsNoCalls: no call of a client of etcd fails because one of the servers that the client
// knows stops, be it a member of the core or a data node.
func TestStopFailsNoCalls(t *testing.T) {
	cluster := startEtcd(t, nil)
	at := cluster.Endpoints()
	for _, stopped := range []int{3, 0} {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		var calling sync.WaitGroup
		stop := make(chan struct{})
		calls := make(chan struct{}, 1)
		for i := range 8 {
			client := etcdClient(t, nil, at[i%4], at[(i+1)%4], at[(i+2)%4], at[(i+3)%4])
			calling.Go(func() {
				for {
					select {
					case <-stop:
						return
					default:
					}
					if _, err := client.Put(ctx, "k", "v"); err != nil {
						t.Errorf("server %d stops: put: %v", stopped, err)
						return
					}
					if _, err := client.Get(ctx, "k", clientv3.WithSerializable()); err != nil {
						t.Errorf("server %d stops: get: %v", stopped, err)
						return
					}
					select {
					case calls <- struct{}{}:
					default:
					}
				}
			})
		}
		await := func() {
			for range 50 {
				select {
				case <-calls:
				case <-ctx.Done():
				}
			}
		}
		await()
		if err := cluster.Server(stopped).Stop(ctx); err != nil {
			t.Error(err)
		}
		await()
		close(stop)
		calling.Wait()
		cancel()
	}
}
