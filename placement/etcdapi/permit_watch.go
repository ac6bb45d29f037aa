package etcdapi

import (
	"sync"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"

	"github.com/tidemarkdb/tidemark/placement/etcdapi/watches"
	"github.com/tidemarkdb/tidemark/placement/store/authority"
	"github.com/tidemarkdb/tidemark/placement/store/storepb"
)

// permittedWatches is a stream of watches as the Watch service sees it: without the requests to
// create a watch of keys that the client may not read. These are answered here, as etcd answers
// them. What changes later does not end a watch.
type permittedWatches struct {
	grpc.ServerStream
	*shared
	// sending: a stream takes one message at a time.
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
		if create == nil || create.StartRevision < 0 { // the service refuses that
			return nil
		}
		err := s.mayWatch(create)
		if err == nil {
			return nil
		}
		s.AuditPart(s.Context(), create, err)
		// The text is that of the error as gRPC prints it, which clients look for.
		if err := s.SendMsg(&pb.WatchResponse{Header: s.Header(0), WatchId: watches.NoID, Created: true,
			Canceled: true, CancelReason: err.Error()}); err != nil {
			return err
		}
	}
}

func (s permittedWatches) mayWatch(r *pb.WatchCreateRequest) error {
	key := r.Key
	if len(key) == 0 {
		key = []byte{0}
	}
	if s.Store.Authority().Enabled() {
		// A watch that was let in goes on whatever changes. So the rules by which it is let in must
		// have all that was acknowledged before.
		if err := s.Confirm(s.Context()); err != nil {
			return err
		}
	}
	_, err := s.Permit(s.Context(), func(state *authority.State, who *storepb.AuthInfo) error {
		return state.Read(who, key, r.RangeEnd)
	})
	return err
}
