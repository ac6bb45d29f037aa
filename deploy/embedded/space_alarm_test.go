package embedded

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// TestEtcdQuota: the put that would cross --core-quota is refused, at whichever member it comes in,
// and raises the alarm. Every member tells the same size in use. When the keys are deleted and the
// history is compacted the alarm ends, and puts succeed, without a restart.
func TestEtcdQuota(t *testing.T) {
	for _, c := range []struct{ quota, value int }{{10 << 20, 256 << 10}, {52 << 10, 1 << 10}} {
		t.Run(fmt.Sprintf("%d bytes", c.quota), func(t *testing.T) {
			cluster := startEtcd(t, func(_ int, s *ServerConfig) { s.CoreQuota = int64(c.quota) })
			var clients []*clientv3.Client
			for _, endpoint := range cluster.Endpoints()[:3] {
				clients = append(clients, etcdClient(t, nil, endpoint))
			}
			ctx := t.Context()
			random, value, n := rand.NewChaCha8([32]byte{1}), make([]byte, c.value), 0
			for ; n <= c.quota/c.value; n++ {
				_, _ = random.Read(value)
				_, err := clients[n%3].Put(ctx, fmt.Sprintf("key%06d", n), string(value))
				if errors.Is(err, rpctypes.ErrNoSpace) {
					break
				}
				if err != nil {
					t.Fatal(err)
				}
			}
			// Beside a value there is the key, twice, and some 80 bytes.
			if stored := n * c.value; stored > c.quota || stored+(n+1)*120+c.value < c.quota {
				t.Errorf("%d bytes of values were taken with a quota of %d", stored, c.quota)
			}
			list, err := clients[0].AlarmList(ctx)
			if err != nil || len(list.Alarms) != 1 {
				t.Errorf("%v, %v", list, err)
			}
			inUse := func(client *clientv3.Client) (int64, int64) {
				status, err := client.Status(ctx, client.Endpoints()[0])
				if err != nil {
					t.Fatal(err)
				}
				return status.DbSizeInUse, status.DbSize
			}
			for i, client := range clients {
				awaitTrue(t, "the member has all", func() bool {
					used, size := inUse(client)
					return used > int64(n*c.value) && used <= int64(c.quota) && size >= used
				})
				if r, err := client.Status(ctx, client.Endpoints()[0]); err != nil ||
					r.DbSizeQuota != int64(c.quota) {
					t.Errorf("member %d: %v, %v", i, r, err)
				}
			}
			deleted, err := clients[1].Delete(ctx, "", clientv3.WithFromKey())
			if err != nil {
				t.Fatal(err)
			}
			if _, err := clients[2].Compact(ctx, deleted.Header.Revision); err != nil {
				t.Fatal(err)
			}
			awaitTrue(t, "puts go on", func() bool {
				_, err := clients[0].Put(ctx, "k", "v")
				if err != nil && !errors.Is(err, rpctypes.ErrNoSpace) {
					t.Fatal(err)
				}
				return err == nil
			})
			for _, client := range clients {
				if _, err := client.Defragment(ctx, client.Endpoints()[0]); err != nil {
					t.Errorf("defragment: %v", err)
				}
				awaitTrue(t, "the room is given back", func() bool {
					used, size := inUse(client)
					return used <= int64(8<<10)+int64(n)*120 && size <= used+64<<10
				})
			}
		})
	}
}
