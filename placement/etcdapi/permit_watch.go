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
		if err == nil {
			return nil
		}
		s.AuditPart(s.Context(), create, err)
		// The text is that of the error as gRPC prints it, which clients compare.
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
