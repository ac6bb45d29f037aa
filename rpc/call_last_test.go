package rpc

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/tidemarkdb/tidemark/rpc/client"
)

// TestLastCallsAreNotUnknown: a call that reaches a server in the moment in which the server closes
// is not made, and its caller knows that.
func TestLastCallsAreNotUnknown(t *testing.T) {
	for range 100 {
		n := network{} // TCP: a pipe loses what was sent before its end
		called := NewCallServer(CallServerConfig{})
		service := bytesHandler(func(_ context.Context, q []byte) ([]byte, error) {
			return q, nil
		}).service()
		called.RegisterService(service, nil)
		clients := NewBatchServer(BatchServerConfig{Handle: echoAll, Calls: called})
		var server *Server
		address, _ := n.serve(t, "", func(s *Server) {
			server = s
			s.ServeClients(clients)
		})
		conn := batchConn(t, n.dialer(t, "c"), address, nil)
		if _, _, err := callOfBytes(t.Context(), conn, bytesMethod, []byte("x"),
			client.CallOptions{}); err != nil {
			t.Fatal(err)
		}
		called.Drain()
		if !clients.Drain(t.Context()) {
			t.Fatal("a call is under way")
		}
		server.CallsAnswered()
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Millisecond)
		var calling sync.WaitGroup
		for range 4 {
			calling.Go(func() {
				for ctx.Err() == nil {
					// The context of the call does not end: the outcome is what the server says.
					_, _, err := callOfBytes(t.Context(), conn, bytesMethod, []byte("x"), client.CallOptions{})
					if !errors.Is(err, client.ErrNotCalled) {
						t.Errorf("a call at a server that closes: %v", err)
					}
				}
			})
		}
		time.AfterFunc(time.Millisecond, server.Stop)
		calling.Wait()
		cancel()
		called.Close()
	}
}
