package etcdapi

import (
	"context"
	"errors"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/protobuf/proto"

	"github.com/tidemarkdb/tidemark/placement/etcdapi/passwords"
	"github.com/tidemarkdb/tidemark/placement/store"
	"github.com/tidemarkdb/tidemark/placement/store/authority"
	"github.com/tidemarkdb/tidemark/placement/store/storepb"
)

// backend is what all services share.
type backend struct {
	Config
	passwords *passwords.Passwords
	uses      *tokenUses
	metrics   *metrics
	// unsuccessful and unadministered bound the audit's lines for calls without success: those that
	// administer, and all others.
	unadministered, unsuccessful auditLimit
}

// header is that of an answer; revision 0 is the newest that this member has.
func (b *backend) header(revision uint64) *pb.ResponseHeader {
	if revision == 0 {
		revision = b.Store.Revision()
	}
	return b.fill(&pb.ResponseHeader{Revision: int64(revision)})
}

func (b *backend) fill(h *pb.ResponseHeader) *pb.ResponseHeader {
	l, _ := b.Store.Leadership()
	h.ClusterId, h.MemberId, h.RaftTerm = b.Cluster.ClusterID(), b.Cluster.MemberID(), l.Term
	return h
}

// checkSize refuses a request that is too large in etcd's log, which is what etcd's limit is for.
func (b *backend) checkSize(r *pb.InternalRaftRequest) error {
	r.Header = &pb.RequestHeader{ID: 1 << 63}
	if proto.Size(r) > b.MaxRequestBytes {
		return errTooLarge
	}
	return nil
}

// execute does a command for the client that makes a call, and waits for it for a limited time.
func (b *backend) execute(ctx context.Context, c *storepb.Command) (*storepb.Result, error) {
	return b.executeWithin(ctx, b.RequestTimeout, c)
}

func (b *backend) executeWithin(
	ctx context.Context, limit time.Duration, c *storepb.Command,
) (*storepb.Result, error) {
	for attempt := 1; ; attempt++ {
		who, err := b.permit(ctx, func(state *authority.State, who *storepb.AuthInfo) error {
			c.Auth = who
			return state.Command(c, b.Store.AttachedKeys)
		})
		if err != nil {
			return nil, err
		}
		// It is checked again when it is applied, by every member.
		c.Auth = who
		limited, cancel := context.WithTimeout(store.WithClient(ctx, b.Party(ctx)),
			beforeDeadline(ctx, limit))
		result, err := b.Store.Execute(limited, c)
		cancel()
		switch {
		case err == nil:
			return result, nil
		case attempt == maxAttempts || !judgedByOld(who, err):
			return nil, b.toGRPC(ctx, err)
		}
		if b.confirm(ctx) != nil {
			// Nothing was done, and an error of confirm hides that.
			return nil, rpctypes.ErrGRPCAuthOldRevision
		}
	}
}

// spared is what is left of a call's time when it is executed no longer: its client is to hear that
// it was not proposed, rather than nothing.
const spared = 100 * time.Millisecond

// beforeDeadline is the limit, or less if the call ends sooner.
func beforeDeadline(ctx context.Context, limit time.Duration) time.Duration {
	deadline, ok := ctx.Deadline()
	if !ok {
		return limit
	}
	left := time.Until(deadline)
	return min(limit, left-min(spared, left/10))
}

// maxAttempts bounds how often a command is executed whose user was judged by users and roles that
// have changed meanwhile.
const maxAttempts = 4

// judgedByOld says that a command was refused, and had no effect, because this member knew older
// users and roles than those by which it was applied. If authentication was not enabled here, the
// command names no user, whatever its client has shown.
func judgedByOld(who *storepb.AuthInfo, err error) bool {
	return errors.Is(err, authority.ErrOldRevision) ||
		who.Revision == 0 && errors.Is(err, authority.ErrUserEmpty)
}

// confirm returns when this member is up to date.
func (b *backend) confirm(ctx context.Context) error {
	limited, cancel := context.WithTimeout(ctx, b.RequestTimeout)
	defer cancel()
	_, err := b.Store.Read(limited)
	return b.readError(ctx, err)
}
