package client

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/tidemarkdb/tidemark/rpc/kvpb"
	"github.com/tidemarkdb/tidemark/rpc/memnet"
)

// endingConn is a connection whose sending half ends when err is set.
type endingConn struct {
	mu  sync.Mutex
	err error
}

func (c *endingConn) SendKeepalive() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err
}

func (c *endingConn) Send(...[]byte) error            { return c.SendKeepalive() }
func (c *endingConn) TrySend(...[]byte) (bool, error) { return true, c.SendKeepalive() }

// A caller that comes between the end of a stream's sending half and that of its receiving half,
// and waits for room, goes on when the stream has failed.
func TestBatchRoomWhenSendingFailsFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := NewDialer(DialerConfig{Dial: memnet.New().Dialer("c")})
		defer d.Close()
		conn := NewBatchConn(BatchConfig{Dialer: d, Address: "s:1", Client: 7, MaxInFlight: 2,
			Stream: func() uint64 { return 1 }})
		defer conn.Close()
		w := new(endingConn)
		s := newStream(conn)
		s.out.Attach(w)
		conn.current.Store(s)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		failed := make(chan error, 3)
		do := func(key string) {
			go func() {
				_, err := conn.Do(ctx, &kvpb.Request{
					Command: &kvpb.Request_Get{Get: &kvpb.GetRequest{Key: []byte(key)}}})
				failed <- err
			}()
			synctest.Wait()
		}
		do("a")
		w.mu.Lock()
		w.err = errors.New("the stream is ending")
		w.mu.Unlock()
		do("b") // it finds the sending half broken
		do("c") // it waits for room
		if len(failed) > 0 {
			t.Fatalf("over before the stream: %v", <-failed)
		}
		s.fail(status.Error(codes.Unavailable, "the node went away"))
		var broken *ErrStreamBroken
		for range 3 {
			if err := <-failed; !errors.As(err, &broken) {
				t.Fatalf("%v", err)
			}
		}
	})
}
