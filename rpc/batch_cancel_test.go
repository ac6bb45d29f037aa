package rpc

import (
	"context"
	"errors"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tidemarkdb/tidemark/rpc/client"
	"github.com/tidemarkdb/tidemark/rpc/kvpb"
	"github.com/tidemarkdb/tidemark/rpc/memnet"
	"github.com/tidemarkdb/tidemark/rpc/outbox"
)

// A request whose context ends before the connection stands was not sent, says so, and is not sent
// later either.
func TestBatchCancelsWhatIsNotSentYet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := network{mem: memnet.New()}
		var seen []string
		serveBatch(t, n, "s:1", BatchServerConfig{Handle: func(_ uint64, batch []*kvpb.Request,
			reply func(*kvpb.Response)) {
			for _, r := range batch {
				seen = append(seen, string(r.GetPut().GetKey()))
				reply(echo(r))
			}
		}})
		open := make(chan struct{})
		d := client.NewDialer(client.DialerConfig{Dial: func(ctx context.Context, addr string) (net.Conn,
			error) {
			select {
			case <-open:
				return n.mem.Dialer("c")(ctx, addr)
			case <-ctx.Done():
				return nil, ctx.Err()
			}
		}})
		defer d.Close()
		conn := batchConn(t, d, "s:1", nil)
		answers := make(chan error)
		for _, c := range []struct {
			key     string
			value   []byte
			timeout time.Duration
		}{{"first", nil, time.Second}, {"large", make([]byte, 2*outbox.LargeRecord), time.Second},
			{"between", nil, time.Minute}, {"last", nil, time.Second}} {
			go func() {
				ctx, cancel := context.WithTimeout(t.Context(), c.timeout)
				defer cancel()
				_, err := conn.Do(ctx, put(c.key, c.value))
				if c.key == "between" && err != nil {
					t.Errorf("%s: %v", c.key, err)
				}
				if c.key != "between" &&
					(!errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, client.ErrNotSent)) {
					t.Errorf("%s: %v; want that it was not sent", c.key, err)
				}
				answers <- err
			}()
			synctest.Wait()
		}
		for range 3 {
			<-answers
		}
		close(open)
		<-answers
		if len(seen) != 1 || seen[0] != "between" {
			t.Errorf("the server was sent %q, want only what was still wanted", seen)
		}
		// The places of those that were cancelled are free again.
		if left := conn.Stats().InFlight; left != 0 {
			t.Errorf("%d requests are in flight", left)
		}
	})
}

// A stream that the server refuses has carried no request, although it was sent with the stream's
// first message.
func TestBatchRefusedStreamHasRunNothing(t *testing.T) {
	for name, c := range map[string]struct {
		server BatchServerConfig
		client func(*client.BatchConfig)
	}{
		"another cluster": {BatchServerConfig{Handle: echoAll,
			Cluster: func() uint64 { return 5 }}, func(c *client.BatchConfig) { c.Cluster = 6 }},
		"too many streams": {BatchServerConfig{Handle: echoAll, MaxStreams: 1}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := network{mem: memnet.New()}
				serveBatch(t, n, "s:1", c.server)
				if c.server.MaxStreams > 0 {
					first, end := openConn(t, n.dialer(t, "other"), "s:1")
					defer end()
					if err := first.Send(&kvpb.BatchRequest{Hello: hello(7, 1)}); err != nil {
						t.Fatal(err)
					}
					synctest.Wait()
				}
				conn := batchConn(t, n.dialer(t, "c"), "s:1", c.client)
				_, err := conn.Do(t.Context(), put("a", nil))
				var broken *client.ErrStreamBroken
				if !errors.As(err, &broken) || broken.Sent {
					t.Errorf("%v; want that the node has not run it", err)
				}
			})
		})
	}
}
