package forward

import (
	"context"
	"errors"
	"io"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
)

// rangeMethod is the method by which a member is asked whether it serves.
var rangeMethod = methodOf(pb.KV_ServiceDesc.ServiceName, "Range", 0)

// probe asks a member whether it serves. A request that names no key is refused as invalid before
// the user is judged or anything is read.
func (f *Forwarder) probe(ctx context.Context, l *lane, address string) (fate, error) {
	_, of, err := f.ask(ctx, l, address, rangeMethod, &pb.RangeRequest{})
	return of, err
}

// Healthy says why calls are not answered, if no member of the core answers them. Unless the answer
// may be that of the member alone (serializable), the member has to know everything that was
// acknowledged before.
func (f *Forwarder) Healthy(ctx context.Context, serializable bool) error {
	request := &pb.RangeRequest{}
	if !serializable {
		// While authentication is enabled, the member refuses a client without a name, but only when
		// it knows everything, too.
		request = &pb.RangeRequest{Key: []byte{0}, KeysOnly: true, Limit: 1}
	}
	l, leave, err := f.enter("")
	if err != nil {
		return err
	}
	defer leave()
	out := f.config.Outgoing(ctx)
	failed := f.rounds(ctx, rangeMethod, func(address string, _ []string) bool {
		var of fate
		_, of, err = f.ask(out, l, address, rangeMethod, request)
		if code := status.Code(err); of == answered &&
			(code == codes.InvalidArgument || code == codes.PermissionDenied) {
			err = nil
		}
		if of == answered && err == nil {
			f.members.answered(address)
		}
		return of == answered
	})
	if failed != nil {
		return failed
	}
	return err
}

// streamHandler passes calls with several messages on.
func (f *Forwarder) streamHandler(m *method, d grpc.StreamDesc) grpc.StreamHandler {
	return func(_ any, client grpc.ServerStream) error {
		ctx, cancel := context.WithCancel(client.Context())
		defer cancel()
		if f.config.Forwarded(ctx) {
			return f.refuse(client.SetTrailer)
		}
		l, leave, err := f.enter(f.config.Party(ctx))
		if err != nil {
			return err
		}
		defer leave()
		member, err := f.openStream(ctx, l, m, d)
		if errors.Is(err, errLocal) {
			description, service, _ := f.config.Local(m.service)
			return description.Streams[m.at].Handler(service, client)
		}
		if err != nil {
			f.metrics.unsent.Inc()
			return asStatus(err)
		}
		f.metrics.passed.Inc()
		return f.pass(m, d, client, member, cancel)
	}
}

// openStream opens a stream to a member that serves.
func (f *Forwarder) openStream(ctx context.Context, l *lane, m *method,
	d grpc.StreamDesc) (stream grpc.ClientStream, err error) {
	ctx = f.config.Outgoing(ctx)
	if failed := f.rounds(ctx, m, func(address string, _ []string) bool {
		if !f.members.serves(address) {
			of, failed := f.probe(ctx, l, address)
			if of == notDone || status.Code(failed) == codes.Unavailable {
				return false
			}
			f.members.answered(address)
		}
		conn, failed := l.connect(ctx, address)
		if failed != nil {
			return false
		}
		stream, err = conn.NewStream(ctx, &grpc.StreamDesc{StreamName: m.name,
			ClientStreams: d.ClientStreams, ServerStreams: d.ServerStreams}, m.full, options...)
		return err == nil || notOpened(err) == answered
	}); failed != nil {
		return nil, failed
	}
	return stream, err
}

// pass hands messages on in both directions until the member ends the stream, the client goes, or
// either side fails. cancel ends the stream to the member.
func (f *Forwarder) pass(m *method, d grpc.StreamDesc, client grpc.ServerStream,
	member grpc.ClientStream, cancel context.CancelFunc) error {
	if !d.ClientStreams {
		request := m.input.New().Interface()
		if err := client.RecvMsg(request); err != nil {
			return err
		}
		if err := member.SendMsg(request); err == nil {
			_ = member.CloseSend() // RecvMsg says what is wrong
		}
	} else {
		// The goroutine ends when the stream to the client has ended, which is after this returns.
		f.running.Go(func() { f.passRequests(m, client, member, cancel) })
	}
	for {
		message := m.output.New().Interface()
		err := member.RecvMsg(message)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return f.streamEnd(member, err)
		}
		counted, err := f.count(client.Context(), message)
		if err == nil {
			err = client.SendMsg(counted)
		}
		if err != nil {
			return asStatus(err)
		}
	}
}

// errUnread is what a client hears that leaves too much unread. Clients of etcd begin a stream of
// watches again where it was.
var errUnread = status.Error(codes.Unavailable, "etcdserver: this stream is ended: too many "+
	"messages wait here for clients that do not read")

// count counts a message of a stream among the large answers of this server. A message that finds
// no room there waits, as long as not too much waits already.
func (f *Forwarder) count(ctx context.Context, message proto.Message) (any, error) {
	size := proto.Size(message)
	counted, err := f.config.Answers.Bound(ctx, message, size)
	if err == nil {
		return counted, nil
	}
	party := f.config.Party(ctx)
	if !f.waiting.Take(party, int64(size)) {
		return nil, errUnread
	}
	defer f.waiting.Give(party, int64(size))
	return f.config.Answers.Wait(ctx, message, size)
}

// passRequests hands the client's messages on.
func (f *Forwarder) passRequests(m *method, client grpc.ServerStream, member grpc.ClientStream,
	cancel context.CancelFunc) {
	for {
		request := m.input.New().Interface()
		err := client.RecvMsg(request)
		switch {
		case errors.Is(err, io.EOF):
			_ = member.CloseSend() // RecvMsg says what is wrong
			return
		case err != nil:
			cancel()
			return
		}
		if member.SendMsg(request) != nil {
			return // RecvMsg says why
		}
	}
}

// streamEnd is the error with which a member ends a stream. One that does not serve any more is
// asked whether it does before the next stream.
func (f *Forwarder) streamEnd(member grpc.ClientStream, err error) error {
	if status.Code(err) == codes.Unavailable {
		f.members.forget()
	}
	return asStatus(err)
}
