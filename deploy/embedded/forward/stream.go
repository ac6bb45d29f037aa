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

// probed is what a member answers to probe.
type probed uint8

const (
	// silent: the member does not serve, or does not answer.
	silent probed = iota
	// leaderless: the member serves, and knows of no leader.
	leaderless
	// serving: the member serves, and knows of a leader.
	serving
)

// probe asks a member whether it serves. A request that names no key is refused as invalid before
// the user is judged or anything is read.
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

// withLeader has a member refuse a call while it knows of no leader.
func withLeader(ctx context.Context) context.Context {
	shown, _ := metadata.FromOutgoingContext(ctx)
	shown = shown.Copy()
	shown.Set(rpctypes.MetadataRequireLeaderKey, rpctypes.MetadataHasLeader)
	return metadata.NewOutgoingContext(ctx, shown)
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
