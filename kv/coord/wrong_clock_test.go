package coord_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tidemarkdb/tidemark/kv/coord"
	"github.com/tidemarkdb/tidemark/kv/kvtest"
)

// wrongClocks are machines whose wall clocks are off by so much, and that use the coordination
// service of a cluster with three members, in virtual time.
func wrongClocks(t *testing.T, offs []time.Duration,
	test func(t *testing.T, cluster *kvtest.Cluster, clients []*coord.Client)) {
	synctest.Test(t, func(t *testing.T) {
		cluster := kvtest.Start(t, kvtest.Options{Cores: 3, Latency: time.Millisecond})
		var clients []*coord.Client
		for i, off := range offs {
			began := time.Now()
			c, err := coord.Connect(t.Context(), cluster.Endpoints(),
				coord.Dialer(cluster.Dialer(fmt.Sprint("client-", i))),
				coord.Monotonic(func() int64 { return int64(time.Since(began)) }),
				coord.Wall(func() time.Time { return time.Now().Add(off) }))
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			clients = append(clients, c)
		}
		test(t, cluster, clients)
	})
}

// firing is a tick, and when it came.
type firing struct {
	coord.Tick
	at  time.Time
	err error
}

// fires collects what the managers of a timer fire in so much time, in the order in which it came.
func fires(t *testing.T, clients []*coord.Client, period time.Duration, missed coord.Missed,
	limit time.Duration) []firing {
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	var mu sync.Mutex
	var all []firing
	var managers sync.WaitGroup
	for _, c := range clients {
		managers.Go(func() {
			for tick, err := range c.Timer("t", period, missed).Ticks(ctx) {
				if errors.Is(err, context.DeadlineExceeded) {
					return
				}
				mu.Lock()
				all = append(all, firing{tick, time.Now(), err})
				mu.Unlock()
			}
		})
	}
	managers.Wait()
	return all
}

// check checks that in so much time each period was fired once, soon after it was due.
func checkFired(t *testing.T, fired []firing, period, limit time.Duration) {
	t.Helper()
	const late = 500 * time.Millisecond
	if least := int(limit/period) - 1; len(fired) < least {
		t.Errorf("%d periods were fired, want %d: %v", len(fired), least, fired)
	}
	for i, f := range fired {
		if f.err != nil {
			t.Errorf("%v", f.err)
			continue
		}
		if after := f.at.Sub(f.Due); after < 0 || after > late {
			t.Errorf("the period of %v was fired %v after that", f.Due, after)
		}
		if i > 0 && (!f.Due.Equal(fired[i-1].Due.Add(period)) || f.Token <= fired[i-1].Token) {
			t.Errorf("%+v, then %+v", fired[i-1], f)
		}
	}
}

// Machines whose clocks are an hour fast and an hour slow fire no period that is not due, none a
// second time, and keep no other one from firing; so does a member of the service whose clock is an
// hour fast.
func TestTimerWithWrongClocks(t *testing.T) {
	for missed := range coord.FireEach + 1 {
		for _, server := range []time.Duration{0, time.Hour, -time.Hour} {
			t.Run(fmt.Sprintf("%d, a server %v off", missed, server), func(t *testing.T) {
				wrongClocks(t, []time.Duration{time.Hour, -time.Hour}, func(t *testing.T,
					cluster *kvtest.Cluster, clients []*coord.Client) {
					if server != 0 {
						cluster.Clock(1).SetLimit(0)
						cluster.Clock(1).SetOffset(server)
						time.Sleep(10 * time.Second) // virtual; members hear of it by pings
					}
					const period, limit = 2 * time.Second, 30 * time.Second
					checkFired(t, fires(t, clients, period, missed, limit), period, limit)
				})
			})
		}
	}
}

// A claim an hour ahead, as a manager of an earlier version with a fast clock makes it, stops
// nothing: it is told once, and the next period is fired when it is due.
func TestTimerHealsAClaimFarAhead(t *testing.T) {
	for missed := range coord.FireEach + 1 {
		t.Run(fmt.Sprint(missed), func(t *testing.T) {
			wrongClocks(t, []time.Duration{time.Hour, 0}, func(t *testing.T, _ *kvtest.Cluster,
				clients []*coord.Client) {
				const period, limit = 2 * time.Second, 20 * time.Second
				ahead := time.Now().Add(time.Hour).Truncate(period)
				_, err := clients[0].Etcd().Put(t.Context(), coord.DefaultPrefix+"timer/t/last",
					fmt.Sprintf("%d earlier", ahead.UnixNano()))
				if err != nil {
					t.Fatal(err)
				}
				fired := fires(t, clients, period, missed, limit)
				if len(fired) == 0 || !errors.Is(fired[0].err, coord.ErrClockAhead) {
					t.Fatalf("first %+v", fired)
				}
				checkFired(t, fired[1:], period, limit)
			})
		})
	}
}
