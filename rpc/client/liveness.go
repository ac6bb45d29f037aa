package client

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"

	"github.com/tidemarkdb/tidemark/rpc/kvpb"
	"github.com/tidemarkdb/tidemark/rpc/transport"
)

// If the other side of a connection vanishes (power, cable, a stopped process), this must be
// noticed in about two seconds, because a leader's successor is elected in that time. gRPC's client
// keepalive cannot do that: it pings at most every ten seconds. So the Dialer watches the bytes
// that arrive. Tidemark's servers ping a silent client once a second, so on an idle connection
// bytes do arrive. If only the client sends, the watch provokes an answer by calling a method that
// does not exist. If still nothing arrives, the watch closes the connection, and all streams on it
// end at once.
//
// The watch counts its own ticks instead of comparing times, so that after a pause of this process
// (SIGSTOP, a starved machine) it first reads what has arrived meanwhile.
const (
	watchTick = transport.Tick
	// After probeAfter silent ticks the watch provokes an answer, after breakAfter it closes the
	// connection.
	probeAfter = 2
	breakAfter = 4
	probePath  = "/tidemark.rpc.Liveness/Probe"
)

// watch watches the connections to one address, one after the other.
type watch struct {
	addr   string
	logger *slog.Logger
	// current is nil until the first connection.
	current atomic.Pointer[watchedConn]
	probing atomic.Bool
}

func (w *watch) wrap(conn net.Conn) net.Conn {
	c := &watchedConn{Conn: conn, addr: w.addr}
	w.current.Store(c)
	return c
}

func (w *watch) run(conn *grpc.ClientConn, stop <-chan struct{}) {
	timer := time.NewTimer(transport.UntilTick(watchTick))
	defer timer.Stop()
	ctx, cancel := context.WithCancel(context.Background())
	var probes sync.WaitGroup
	defer probes.Wait()
	defer cancel()
	var watched *watchedConn
	var reads uint64
	silent := 0
	for {
		select {
		case <-timer.C:
		case <-stop:
			return
		}
		timer.Reset(transport.UntilTick(watchTick / 2))
		c := w.current.Load()
		if c == nil || c.closed.Load() {
			continue
		}
		if n := c.reads.Load(); c != watched || n != reads {
			watched, reads, silent = c, n, 0
			continue
		}
		silent++
		switch {
		case silent >= breakAfter:
			w.logger.Info("connection is silent, breaking it", "address", w.addr,
				"silent", silent*int(watchTick/time.Millisecond))
			c.breakSilent()
		case silent >= probeAfter && w.probing.CompareAndSwap(false, true):
			probes.Go(func() {
				defer w.probing.Store(false)
				ctx, cancel := context.WithTimeout(ctx, breakAfter*watchTick)
				defer cancel()
				// The call fails, and its answer is the traffic that the watch needs.
				_ = conn.Invoke(ctx, probePath, &kvpb.NowRequest{}, &kvpb.NowResponse{})
			})
		}
	}
}

// watchedConn counts reads.
type watchedConn struct {
	net.Conn
	addr   string
	reads  atomic.Uint64
	silent atomic.Bool
	closed atomic.Bool
}

func (c *watchedConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	c.reads.Add(1)
	if err != nil && c.silent.Load() {
		err = fmt.Errorf("%s did not answer for %v", c.addr, breakAfter*watchTick)
	}
	return n, err
}

func (c *watchedConn) Close() error {
	c.closed.Store(true)
	return c.Conn.Close()
}

func (c *watchedConn) breakSilent() {
	c.silent.Store(true)
	_ = c.Close()
}
