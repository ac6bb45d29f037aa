package backend

import (
	"context"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/tidemarkdb/tidemark/placement/etcdapi/translate"
)

// RequestTimeout bounds how long a call waits for the members. It is etcd's.
const RequestTimeout = 7 * time.Second

// Backend combines the store and the cluster around it. All methods may be called from any
// goroutine.
type Backend struct {
	Store   Store
	Cluster Cluster
}

// Header returns the header of an answer; revision 0 stands for the newest revision of this member.
func (b *Backend) Header(revision uint64) *pb.ResponseHeader {
	if revision == 0 {
		revision = b.Store.Revision()
	}
	return b.Fill(&pb.ResponseHeader{Revision: int64(revision)})
}

// Fill completes a header that has a revision.
func (b *Backend) Fill(h *pb.ResponseHeader) *pb.ResponseHeader {
	return Fill(h, b.Store, b.Cluster)
}

// Fill completes a header that has a revision.
func Fill(h *pb.ResponseHeader, leader Leader, id Identity) *pb.ResponseHeader {
	l, _ := leader.Leadership()
	h.ClusterId, h.MemberId, h.RaftTerm = id.ClusterID(), id.MemberID(), l.Term
	return h
}

// Confirm returns when this member is up to date.
func (b *Backend) Confirm(ctx context.Context) error {
	limited, cancel := context.WithTimeout(ctx, RequestTimeout)
	defer cancel()
	_, err := b.Store.Read(limited)
	return b.ReadError(ctx, err)
}

// ReadError is translate.Error for an error that kept a member from confirming that it is up to
// date.
func (b *Backend) ReadError(ctx context.Context, err error) error {
	answer := translate.Error(ctx, err)
	if err == nil || status.Code(answer) != codes.Unknown {
		return answer
	}
	l, _ := b.Store.Leadership()
	return translate.NoLeader(l.Leader == 0)
}
