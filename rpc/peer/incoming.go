package peer

import (
	"context"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/tidemarkdb/tidemark/rpc/outbox"
	"github.com/tidemarkdb/tidemark/rpc/peerpb"
	"github.com/tidemarkdb/tidemark/rpc/transport"
	"github.com/tidemarkdb/tidemark/rpc/wire"
)

// maxIncoming bounds the message streams that one transport receives. Each peer has one per class,
// and for a moment two when it reconnects.
const maxIncoming = 1024

// Serve serves the connection of a peer until it ends. The hello, without its first byte, names the
// realm of the server that it is for. accepted is called when the hello has been accepted.
func Serve(conn *transport.Conn, hello []byte, realm func(name string) *Transport,
	accepted func()) {
	id, err := parseIdentity(hello)
	if err != nil {
		conn.Refuse(status.Error(codes.InvalidArgument, err.Error()))
		return
	}
	t := realm(id.realm)
	if err := t.accept(id); err != nil {
		conn.Refuse(err)
		return
	}
	accepted()
	t.serve(conn, id.from)
}

// serve receives what a peer sends on its connection, until it ends.
func (t *Transport) serve(conn *transport.Conn, from uint64) {
	if err := t.admit(); err != nil {
		conn.Refuse(err)
		return
	}
	defer t.release()
	if conn.Accept() != nil {
		return
	}
	// This side sends only keepalives.
	out := outbox.New(nil)
	out.Attach(conn)
	var sender sync.WaitGroup
	sender.Go(out.Run)
	conn.Watch(wire.ServerSilence, out.KeepAlive)
	defer context.AfterFunc(t.ctx, func() { conn.Interrupt(errTransportClosed) })()
	err := t.receive(conn, from)
	hurry := time.AfterFunc(drainTimeout, func() { _ = conn.Close() })
	out.Close()
	sender.Wait()
	hurry.Stop()
	conn.End(err)
}

// errTransportClosed ends the connections of a transport that has closed.
var errTransportClosed = status.Error(codes.Unavailable, "this server is closing")

// drainTimeout bounds how long a connection that is over waits for the message that is being sent.
const drainTimeout = 500 * time.Millisecond

func (t *Transport) admit() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.mu.closed {
		return errTransportClosed
	}
	if t.mu.incoming >= maxIncoming {
		return status.Errorf(codes.ResourceExhausted,
			"this server receives from %d peers' streams already, its limit", maxIncoming)
	}
	t.mu.incoming++
	return nil
}

func (t *Transport) release() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.mu.incoming--
}

// receive receives until the connection ends, and returns the reason.
func (t *Transport) receive(conn *transport.Conn, from uint64) error {
	for {
		message, err := conn.Receive()
		if err != nil {
			return err
		}
		t.metrics.receivedBytes.Add(float64(len(message)))
		batch := new(peerpb.MessageBatch)
		if err := wire.UnmarshalOwned(message, batch); err != nil {
			return status.Errorf(codes.InvalidArgument, "message of the peer: %v", err)
		}
		if err := t.handle(from, batch); err != nil {
			return err
		}
	}
}

// handle passes a batch to the handler, unless the transport is closed.
func (t *Transport) handle(from uint64, batch *peerpb.MessageBatch) error {
	t.metrics.received.Add(float64(len(batch.Messages)))
	if !t.enter() {
		return errTransportClosed
	}
	defer t.work.Done()
	t.config.Handler.HandleMessages(from, batch)
	return nil
}

// snapshotServer serves the Peer service, which carries snapshots.
type snapshotServer struct {
	peerpb.UnimplementedPeerServer
	// realm returns the transport of a realm; nil if there is none.
	realm func(name string) *Transport
}

// NewSnapshotServer returns the Peer service of a server that has the transports of several realms.
func NewSnapshotServer(realm func(name string) *Transport) peerpb.PeerServer {
	return &snapshotServer{realm: realm}
}

// Snapshot implements peerpb.PeerServer.
func (p *snapshotServer) Snapshot(stream peerpb.Peer_SnapshotServer) error {
	id := identityOf(stream.Context())
	t := p.realm(id.realm)
	if err := t.accept(id); err != nil {
		return err
	}
	if !t.enter() {
		return errTransportClosed
	}
	defer t.work.Done()
	select {
	case t.receiveSlots <- struct{}{}:
		defer func() { <-t.receiveSlots }()
	default:
		return status.Errorf(codes.ResourceExhausted,
			"this server receives %d snapshots already, its limit; try again later",
			cap(t.receiveSlots))
	}
	ctx, cancel := context.WithCancel(stream.Context())
	defer cancel()
	defer context.AfterFunc(t.ctx, cancel)()
	return t.receiveSnapshot(ctx, stream, id.from)
}
