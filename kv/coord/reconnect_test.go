package coord

import (
	"context"
	"errors"
	"net"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
)

// However long a server cannot be reached, it is tried again every few seconds.
func TestReconnectsWithinSeconds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		var tried []time.Time
		config := newConfig(nil).etcd
		config.Endpoints = []string{"unreachable:1"}
		config.DialOptions = append(config.DialOptions, grpc.WithContextDialer(
			func(context.Context, string) (net.Conn, error) {
				mu.Lock()
				defer mu.Unlock()
				tried = append(tried, time.Now())
				return nil, errors.New("no route to host")
			}))
		client, err := clientv3.New(config)
		if err != nil {
			t.Fatal(err)
		}
		client.ActiveConnection().Connect()
		const outage = 10 * time.Minute
		time.Sleep(outage)
		if err := client.Close(); err != nil {
			t.Error(err)
		}
		mu.Lock()
		defer mu.Unlock()
		if len(tried) < int(outage/(2*reconnectMost)) {
			t.Fatalf("tried %d times in %s", len(tried), outage)
		}
		for i := range tried[1:] {
			if pause := tried[i+1].Sub(tried[i]); pause > reconnectMost*5/4 {
				t.Fatalf("the pause after attempt %d is %s", i+1, pause)
			}
		}
	})
}
