package forward

import (
	"context"
	"errors"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
)

// rangeMethod is the method by which a member is asked whether it serves.
var rangeMethod = methodOf(pb.KV_ServiceDesc.ServiceName, "Range", 0)

// probeWithin bounds the wait for a member's answer to probe.
const probeWithin = time.Second

// probed is a member's answer to probe.
type probed uint8

const (
	// silent: the member does not serve, or does not answer.
	silent probed = iota
	// leaderless: the member serves, and knows no leader.
	leaderless
	// serving: the member serves, and knows a leader.
	serving
)

// probe asks a member whether it serves. A request without a key is refused as invalid before the
// user's rights are checked or anything is read.
func (f *Forwarder) probe(ctx context.Context, l *lane, address string, last time.Time) probed {
	ctx, cancel := context.WithTimeout(withLeader(ctx), probeWithin)
	defer cancel()
	_, of, err := f.ask(ctx, l, address, rangeMethod, &pb.RangeRequest{}, last)
	switch code := status.Code(err); {
	case of == notDone, code == codes.DeadlineExceeded, code == codes.Canceled:
		return silent
	case rpctypes.ErrorDesc(err) == rpctypes.ErrorDesc(rpctypes.ErrGRPCNoLeader):
		return leaderless
	case code == codes.Unavailable:
		return silent
	}
	return serving
}

// withLeader makes a member refuse a call while it knows no leader.
func withLeader(ctx context.Context) context.Context {
	shown, _ := metadata.FromOutgoingContext(ctx)
	shown = shown.Copy()
	shown.Set(rpctypes.MetadataRequireLeaderKey, rpctypes.MetadataHasLeader)
	return metadata.NewOutgoingContext(ctx, shown)
}

// streamHandler forwards calls with several messages.
func (f *Forwarder) streamHandler(m *method, d grpc.StreamDesc) grpc.StreamHandler {
	return func(_ any, client grpc.ServerStream) error {
		ctx, cancel := context.WithCancel(client.Context())
		defer cancel()
		if f.config.Forwarded(ctx) {
			return f.refuse(client.SetTrailer)
		}
		party := f.config.Party(ctx)
		l, leave, err := f.enter(party)
		if err != nil {
			return err
		}
		defer leave()
		r := &relay{f: f, lane: l, method: m, description: d, client: client, party: party}
		defer r.forget()
		err = r.open(ctx)
		if errors.Is(err, errLocal) {
			description, service, _ := f.config.Local(m.service)
			return description.Streams[m.at].Handler(service, client)
		}
		if err != nil {
			f.metrics.unsent.Inc()
			return asStatus(err)
		}
		f.metrics.passed.Inc()
		return r.pass(ctx, cancel)
	}
}

// errUnread is the error for a client that leaves too much unread. Clients of etcd resume a stream
// of watches after this error.
var errUnread = status.Error(codes.Unavailable, "etcdserver: this stream is ended: too many "+
	"messages wait here for clients that do not read")

// count counts a message of a stream among this server's large answers. If there is no space, the
// message waits, unless too much is waiting already. Of messages that are larger than the limit for
// waiting messages, one waits at a time.
func (f *Forwarder) count(ctx context.Context, message proto.Message) (any, error) {
	size := proto.Size(message)
	counted, err := f.config.Answers.Bound(ctx, message, size)
	if err == nil {
		return counted, nil
	}
	party := f.config.Party(ctx)
	switch {
	case int64(size) > f.waiting.Most():
		if !f.largeWaits.CompareAndSwap(false, true) {
			return nil, errUnread
		}
		defer f.largeWaits.Store(false)
		f.waiting.Force(party, int64(size))
	case !f.waiting.Take(party, int64(size)):
		return nil, errUnread
	}
	defer f.waiting.Give(party, int64(size))
	return f.config.Answers.Wait(ctx, message, size)
}

// Describe makes the description of a service that forwards all calls. Its methods have the same
// order as in the given description. It panics if the service is not defined in a linked protobuf
// file.
func (f *Forwarder) Describe(d *grpc.ServiceDesc) *grpc.ServiceDesc {
	to := &grpc.ServiceDesc{ServiceName: d.ServiceName, Metadata: d.Metadata}
	for i, of := range d.Methods {
		m := methodOf(d.ServiceName, of.MethodName, i)
		to.Methods = append(to.Methods, grpc.MethodDesc{MethodName: of.MethodName,
			Handler: f.unaryHandler(m)})
	}
	for i, of := range d.Streams {
		m := methodOf(d.ServiceName, of.StreamName, i)
		of.Handler = f.streamHandler(m, of)
		to.Streams = append(to.Streams, of)
	}
	return to
}
