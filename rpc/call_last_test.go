package rpc

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tidemarkdb/tidemark/rpc/client"
	"github.com/tidemarkdb/tidemark/rpc/kvpb"
	"github.com/tidemarkdb/tidemark/rpc/wire"
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

// TestLastRequestsAreUnknown: a request for keys that reaches a server in the moment in which the
// server closes may have been done, and its error does not say anything else.
func TestLastRequestsAreUnknown(t *testing.T) {
	n := network{} // TCP: a pipe loses what was sent before its end
	called := NewCallServer(CallServerConfig{})
	got := make(chan struct{}, 1)
	clients := NewBatchServer(BatchServerConfig{Calls: called,
		Handle: func(uint64, []*kvpb.Request, func(*kvpb.Response)) { got <- struct{}{} }})
	var server *Server
	address, _ := n.serve(t, "", func(s *Server) {
		server = s
		s.ServeClients(clients)
	})
	conn := batchConn(t, n.dialer(t, "c"), address, nil)
	called.Drain()
	if !clients.Drain(t.Context()) {
		t.Fatal("a request is under way")
	}
	failed := make(chan error, 1)
	go func() {
		_, err := conn.Do(t.Context(), put("a", []byte("x")))
		failed <- err
	}()
	<-got
	server.CallsAnswered()
	server.Stop()
	var broken *client.ErrStreamBroken
	if err := <-failed; !errors.As(err, &broken) || !broken.Sent ||
		!strings.Contains(err.Error(), wire.CallsNotMade) ||
		strings.Contains(err.Error(), "were not made") {
		t.Error(err)
	}
	called.Close()
}
