package rpc

import (
	"context"
	"errors"
	"io"
	"maps"
	"net"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/tidemarkdb/tidemark/rpc/peerpb"
)

// maxIncoming bounds the message streams that one transport receives. Each peer has one for each class, and for a moment
// two when it reconnects.
const maxIncoming = 1024

// RegisterPeerServer serves the Peer service for the given realms.
func RegisterPeerServer(s grpc.ServiceRegistrar, realms map[string]*PeerTransport) {
	peerpb.RegisterPeerServer(s, &peerServer{realms: maps.Clone(realms)})
}

type peerServer struct {
	peerpb.UnimplementedPeerServer
	realms map[string]*PeerTransport
}

// Messages implements peerpb.PeerServer.
func (p *peerServer) Messages(stream peerpb.Peer_MessagesServer) error {
	t, from, err := accept(stream.Context(), p.realms)
	if err != nil {
		return err
	}
	if err := t.admit(); err != nil {
		return err
	}
	defer t.release()
	var lanes <-chan net.Conn
	header := metadata.MD{}
	if t.config.Lanes != nil {
		token, conns, withdraw := t.config.Lanes.offer()
		defer withdraw()
		header.Set(laneKey, token)
		lanes = conns
	}
	// This header tells the sender that it is accepted.
	if err := stream.SendHeader(header); err != nil {
		return err
	}
	// A goroutine receives, so that this method can return when the transport closes; that ends the stream, and the goroutine.
	done := make(chan error, 1)
	go func() {
		err := t.receive(stream, from)
		if errors.Is(err, io.EOF) {
			select {
			case lane := <-lanes:
				// The end of this method ends the stream's context, and that the lane.
				defer context.AfterFunc(stream.Context(), func() { _ = lane.Close() })()
				err = t.receiveLane(lane, from)
			default:
			}
		}
		done <- err
	}()
	select {
	case err := <-done:
		if errors.Is(err, io.EOF) {
			return stream.SendAndClose(&peerpb.MessagesEnd{})
		}
		return err
	case <-t.ctx.Done():
		return errTransportClosed
	}
}

var errTransportClosed = status.Error(codes.Unavailable, "this server is closing")

func (t *PeerTransport) admit() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.mu.closed {
		return errTransportClosed
	}
	if t.mu.incoming >= maxIncoming {
		return status.Errorf(codes.ResourceExhausted, "this server receives from %d peers' streams already, its limit", maxIncoming)
	}
	t.mu.incoming++
	return nil
}

func (t *PeerTransport) release() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.mu.incoming--
}

func (t *PeerTransport) receive(stream peerpb.Peer_MessagesServer, from uint64) error {
	for {
		batch := new(peerpb.MessageBatch)
		if err := stream.RecvMsg(batch); err != nil {
			return err
		}
		if err := t.handle(from, batch); err != nil {
			return err
		}
	}
}

// handle hands a batch over, unless the transport is closed.
func (t *PeerTransport) handle(from uint64, batch *peerpb.MessageBatch) error {
	t.metrics.received.Add(float64(len(batch.Messages)))
	if !t.enter() {
		return errTransportClosed
	}
	defer t.work.Done()
	t.config.Handler.HandleMessages(from, batch)
	return nil
}

// receiveLane receives until the lane ends, and closes it.
func (t *PeerTransport) receiveLane(lane net.Conn, from uint64) error {
	defer lane.Close()
	return readLane(lane, func(message []byte) error {
		batch := new(peerpb.MessageBatch)
		if err := unmarshalOwned(message, batch); err != nil {
			return status.Errorf(codes.Internal, "message on the lane: %v", err)
		}
		return t.handle(from, batch)
	})
}

// Snapshot implements peerpb.PeerServer.
func (p *peerServer) Snapshot(stream peerpb.Peer_SnapshotServer) error {
	t, from, err := accept(stream.Context(), p.realms)
	if err != nil {
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
		return status.Errorf(codes.ResourceExhausted, "this server receives %d snapshots already, its limit; try again later", cap(t.receiveSlots))
	}
	ctx, cancel := context.WithCancel(stream.Context())
	defer cancel()
	defer context.AfterFunc(t.ctx, cancel)()
	return t.receiveSnapshot(ctx, stream, from)
}
