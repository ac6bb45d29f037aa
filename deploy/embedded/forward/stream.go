package forward

import (
	"context"
	"errors"
	"time"

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
func (f *Forwarder) probe(ctx context.Context, l *lane, address string,
	last time.Time) (fate, error) {
	_, of, err := f.ask(ctx, l, address, rangeMethod, &pb.RangeRequest{}, last)
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
	l, leave, err := f.enter(f.config.Party(ctx))
	if err != nil {
		return err
	}
	defer leave()
	out, last := f.config.Outgoing(ctx), lastStart(ctx)
	failed := f.rounds(ctx, rangeMethod, last, func(address string, _ []string) bool {
		var of fate
		_, of, err = f.ask(out, l, address, rangeMethod, request, last)
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

// errUnread is what a client hears that leaves too much unread. Clients of etcd begin a stream of
// watches again where it was.
var errUnread = status.Error(codes.Unavailable, "etcdserver: this stream is ended: too many "+
	"messages wait here for clients that do not read")

// count counts a message of a stream among the large answers of this server. A message that finds
// no room there waits, as long as not too much waits already. Of messages that are larger than what
// may wait, one waits at a time.
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
