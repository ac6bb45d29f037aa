package etcdapi

import (
	"sync"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/tidemarkdb/tidemark/placement/etcdapi/translate"
	"github.com/tidemarkdb/tidemark/placement/etcdapi/watches"
	"github.com/tidemarkdb/tidemark/placement/store/authority"
	"github.com/tidemarkdb/tidemark/placement/store/storepb"
)

// permittedWatches is a stream of watches as the Watch service sees it: without the requests to
// watch keys that the client may not read. Those are answered here, as etcd answers them. Later
// changes of permissions do not end a watch.
type permittedWatches struct {
	grpc.ServerStream
	*shared
	// sending is held while a message is sent.
	sending *sync.Mutex
}

// SendMsg implements grpc.ServerStream.
func (s permittedWatches) SendMsg(m any) error {
	s.sending.Lock()
	defer s.sending.Unlock()
	return s.ServerStream.SendMsg(m)
}

// RecvMsg implements grpc.ServerStream.
func (s permittedWatches) RecvMsg(m any) error {
	for {
		if err := s.ServerStream.RecvMsg(m); err != nil {
			return err
		}
		request, ok := m.(*pb.WatchRequest)
		if !ok {
			return nil
		}
		create := request.GetCreateRequest()
		if create == nil || create.StartRevision < 0 { // the service refuses this
			return nil
		}
		err := s.mayWatch(create)
		switch status.Code(err) {
		case codes.OK:
			return nil
		case codes.Unavailable, codes.DeadlineExceeded, codes.Canceled, codes.Internal, codes.Unknown:
			// Nothing is decided: this member does not know the users at present. The stream ends, and the
			// client asks again. An answer would end the watch for good.
			return err
		}
		s.AuditPart(s.Context(), create, err)
		// The text is that of the error as gRPC prints it, which clients compare.
		if err := s.SendMsg(&pb.WatchResponse{Header: s.Header(0), WatchId: watches.NoID, Created: true,
			Canceled: true, CancelReason: err.Error()}); err != nil {
			return err
		}
	}
}

// mayWatch returns why a watch is refused. Errors of the codes above are no decision.
func (s permittedWatches) mayWatch(r *pb.WatchCreateRequest) error {
	if len(r.Key)+len(r.RangeEnd) > s.MaxRequestBytes {
		return translate.ErrTooLarge // no key is that long, and the watch would keep its bounds
	}
	key := r.Key
	if len(key) == 0 {
		key = []byte{0}
	}
	if s.Store.Authority().Enabled() {
		// A permitted watch goes on whatever changes later. So the users and roles that permit it
		// must include everything acknowledged before.
		if err := s.Confirm(s.Context()); err != nil {
			return err
		}
	}
	_, err := s.Permit(s.Context(), func(state *authority.State, who *storepb.AuthInfo) error {
		return state.Read(who, key, r.RangeEnd)
	})
	return err
}
