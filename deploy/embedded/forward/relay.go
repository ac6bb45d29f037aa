package forward

import (
	"context"
	"errors"
	"io"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
)

const (
	// maxRelayTries limits the number of streams that are opened for one stream of a client.
	maxRelayTries = 8
	// maxKept limits the number of the client's messages that are kept for another member. The party's
	// share of requests under way is a further limit.
	maxKept = 64
)

// relay is a forwarded stream of a client. If a member ends the stream before it has answered
// anything, the client has seen nothing yet. So the stream is opened at another member, as long as
// all messages of the client are kept. The requests of streams can be repeated without harm
// (watches, renewals, snapshots, observed leaders).
//
// Two goroutines work for a bidirectional stream: one forwards the client's messages (requests),
// and the handler's own goroutine reads the member's answers and changes the member (pass).
type relay struct {
	f           *Forwarder
	lane        *lane
	method      *method
	description grpc.StreamDesc
	client      grpc.ServerStream
	party       string

	// address is the address of the member. end ends the stream to it. Both belong to the handler's
	// goroutine.
	address string
	end     func()

	// mu is held while a message is sent, so that another member gets all messages in their order.
	// Sending on a stream that has ended returns at once.
	mu sync.Mutex
	// member is the stream to the member.
	member grpc.ClientStream
	// kept has the client's messages. size is their size in bytes. closed is set when the client will
	// send no more. settled is set when the member has answered, or when not all messages could be
	// kept. Then no more messages are kept.
	kept            []proto.Message
	bytes           int64
	closed, settled bool
}

// open opens a stream to a member that serves and knows a leader. If no member knows a leader, it
// takes one that does not, which may then refuse the stream.
func (r *relay) open(ctx context.Context) error {
	f := r.f
	ctx, last := f.config.Outgoing(ctx), lastStart(ctx)
	var failure error
	without := "" // a member that knows no leader
	failed := f.rounds(ctx, r.method, "", last, func(address string, _ []string) bool {
		if !f.members.serves(address) {
			switch f.probe(ctx, r.lane, address, last) {
			case silent:
				return false
			case leaderless:
				without = address
				return false
			}
			f.members.answered(address)
		}
		var of fate
		of, failure = r.begin(ctx, address, last)
		return of == answered
	})
	if failed != nil && without != "" && ctx.Err() == nil {
		if of, err := r.begin(ctx, without, last); of == answered {
			return err
		}
	}
	if failed != nil {
		return failed
	}
	return failure
}

// begin opens the stream at a member.
func (r *relay) begin(ctx context.Context, address string, last time.Time) (fate, error) {
	d := &grpc.StreamDesc{StreamName: r.method.name, ClientStreams: r.description.ClientStreams,
		ServerStreams: r.description.ServerStreams}
	stream, end, of, err := r.lane.newStream(ctx, address, r.method, d, last,
		r.f.largest(r.method))
	if err != nil {
		end()
		return of, err
	}
	r.member, r.end, r.address = stream, end, address
	return answered, nil
}

// again opens the stream at another member, after its member has ended it with an error and without
// an answer. It returns false if that is not possible.
func (r *relay) again(ctx context.Context, err error) bool {
	if status.Code(err) != codes.Unavailable || ctx.Err() != nil {
		return false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.settled {
		return false
	}
	r.end()
	r.f.members.failed(r.address, r.f.config.Members())
	if r.open(ctx) != nil {
		return false
	}
	for _, request := range r.kept {
		if r.member.SendMsg(request) != nil {
			return true // RecvMsg returns the error
		}
	}
	if r.closed {
		_ = r.member.CloseSend()
	}
	return true
}

// send sends a message of the client, and keeps the message while it may be needed again. It
// returns false if no more messages may be sent.
func (r *relay) send(request proto.Message) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.settled {
		size := int64(proto.Size(request))
		if len(r.kept) < maxKept && r.f.requests.Take(r.party, size) {
			r.kept = append(r.kept, request)
			r.bytes += size
		} else {
			r.settleLocked()
		}
	}
	return r.member.SendMsg(request) == nil || !r.settled // RecvMsg returns the error
}

// close records that the client sends no more.
func (r *relay) close() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.closed = true
	_ = r.member.CloseSend() // RecvMsg returns the error
}

// forget drops the kept messages.
func (r *relay) forget() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.settleLocked()
}

func (r *relay) settleLocked() {
	if r.bytes > 0 {
		r.f.requests.Give(r.party, r.bytes)
	}
	r.kept, r.bytes, r.settled = nil, 0, true
}

// pass forwards messages in both directions until the member ends the stream, the client is gone,
// or either side fails. cancel ends the stream to the client.
func (r *relay) pass(ctx context.Context, cancel context.CancelFunc) error {
	defer func() { r.end() }()
	if !r.description.ClientStreams {
		request := r.method.input.New().Interface()
		if err := r.client.RecvMsg(request); err != nil {
			return err
		}
		r.send(request)
		r.close()
	} else {
		// The goroutine ends when the stream to the client has ended, which is after the return of pass.
		r.f.running.Go(func() { r.requests(cancel) })
	}
	for tries := 1; ; {
		message := r.method.output.New().Interface()
		err := r.member.RecvMsg(message)
		if tries > 0 {
			if err != nil && tries < maxRelayTries && r.again(ctx, err) {
				tries++
				continue
			}
			tries = 0
			r.forget()
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return r.ended(err)
		}
		counted, err := r.f.count(r.client.Context(), message)
		if err == nil {
			err = r.client.SendMsg(counted)
		}
		if err != nil {
			return asStatus(err)
		}
	}
}

// requests forwards the client's messages.
func (r *relay) requests(cancel context.CancelFunc) {
	for {
		request := r.method.input.New().Interface()
		err := r.client.RecvMsg(request)
		switch {
		case errors.Is(err, io.EOF):
			r.close()
			return
		case err != nil:
			cancel()
			return
		}
		if !r.send(request) {
			return
		}
	}
}

// ended returns the error with which the member has ended the stream. If the member no longer
// serves, or has not known a leader for too long, another member is preferred.
func (r *relay) ended(err error) error {
	if status.Code(err) == codes.Unavailable {
		r.f.members.failed(r.address, r.f.config.Members())
	}
	return asStatus(explained(err))
}
