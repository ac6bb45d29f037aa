package coordination

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/tidemarkdb/tidemark/placement/store"
	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
)

// renewedAtOnce limits the renewals that are sent concurrently to a leader of an older version,
// which renews one lease with each call. The leader proves its leadership once for all of them.
const renewedAtOnce = 128

// Peers calls the other members of the coordination store through their CoordinationService. It
// implements store.Peers.
type Peers struct {
	// Cluster is the id of the cluster.
	Cluster uint64
	// Conn returns a connection to an address. Resolve returns the address of a member.
	Conn    func(address string) (*grpc.ClientConn, error)
	Resolve func(replica uint64) (address string, ok bool)
}

var _ store.Peers = (*Peers)(nil)

func (p *Peers) client(member keys.ReplicaID) (clusterpb.CoordinationClient, error) {
	address, ok := p.Resolve(uint64(member))
	if !ok {
		return nil, fmt.Errorf("it is not known where member %d of the core is", uint64(member))
	}
	conn, err := p.Conn(address)
	if err != nil {
		return nil, err
	}
	return clusterpb.NewCoordinationClient(conn), nil
}

// storeError converts the answer of a member to an error of the store. Other errors are returned
// unchanged: after them it is unknown whether the call took effect.
func storeError(err error) error {
	st, ok := status.FromError(err)
	if !ok {
		return err
	}
	switch st.Code() {
	case codes.FailedPrecondition:
		for _, detail := range st.Details() {
			if leader, is := detail.(*clusterpb.CoordinationLeader); is {
				return &store.NotLeaderError{Leader: keys.ReplicaID(leader.Replica), Term: leader.Term}
			}
		}
	case codes.NotFound:
		return fmt.Errorf("%w: %s", store.ErrLeaseNotFound, st.Message())
	}
	return err
}

// Execute implements store.Peers.
func (p *Peers) Execute(
	ctx context.Context, leader keys.ReplicaID, term uint64, command []byte,
) ([]byte, error) {
	client, err := p.client(leader)
	if err != nil {
		return nil, err
	}
	r, err := client.Execute(ctx, &clusterpb.CoordinationExecuteRequest{Cluster: p.Cluster,
		Term: term, Command: command})
	if err != nil {
		return nil, storeError(err)
	}
	return r.Result, nil
}

// Index implements store.Peers.
func (p *Peers) Index(ctx context.Context, leader keys.ReplicaID) (uint64, error) {
	client, err := p.client(leader)
	if err != nil {
		return 0, err
	}
	r, err := client.Index(ctx, &clusterpb.CoordinationIndexRequest{Cluster: p.Cluster})
	if err != nil {
		return 0, storeError(err)
	}
	return r.Index, nil
}

// RenewAll implements store.Peers. A leader of an older version gets one call for each lease.
func (p *Peers) RenewAll(
	ctx context.Context, leader keys.ReplicaID, leases []int64,
) ([]time.Duration, error) {
	client, err := p.client(leader)
	if err != nil {
		return nil, err
	}
	r, err := client.RenewAll(ctx,
		&clusterpb.CoordinationRenewAllRequest{Cluster: p.Cluster, Leases: leases})
	switch {
	case status.Code(err) == codes.Unimplemented:
		return p.renewEach(ctx, leader, leases)
	case err != nil:
		return nil, storeError(err)
	case len(r.Nanoseconds) != len(leases):
		return nil, fmt.Errorf("member %d of the core has renewed %d leases of %d", uint64(leader),
			len(r.Nanoseconds), len(leases))
	}
	terms := make([]time.Duration, len(leases))
	for i, term := range r.Nanoseconds {
		terms[i] = time.Duration(term)
	}
	return terms, nil
}

// renewEach renews each lease with its own call.
func (p *Peers) renewEach(
	ctx context.Context, leader keys.ReplicaID, leases []int64,
) ([]time.Duration, error) {
	terms := make([]time.Duration, len(leases))
	calls, ctx := errgroup.WithContext(ctx)
	calls.SetLimit(renewedAtOnce)
	for i, lease := range leases {
		if ctx.Err() != nil {
			break // a call has failed and Wait returns its error, or the caller has stopped waiting
		}
		calls.Go(func() (err error) {
			terms[i], err = p.lease(ctx, leader, lease, clusterpb.CoordinationClient.Renew)
			if errors.Is(err, store.ErrLeaseNotFound) {
				return nil
			}
			return err
		})
	}
	if err := calls.Wait(); err != nil {
		return nil, err
	}
	return terms, nil
}

// TimeToLive implements store.Peers.
func (p *Peers) TimeToLive(
	ctx context.Context, leader keys.ReplicaID, lease int64,
) (time.Duration, error) {
	return p.lease(ctx, leader, lease, clusterpb.CoordinationClient.TimeToLive)
}

// leaseCall is a method of the service about a lease.
type leaseCall func(clusterpb.CoordinationClient, context.Context,
	*clusterpb.CoordinationLeaseRequest, ...grpc.CallOption,
) (*clusterpb.CoordinationLeaseResponse, error)

func (p *Peers) lease(
	ctx context.Context, leader keys.ReplicaID, lease int64, call leaseCall,
) (time.Duration, error) {
	client, err := p.client(leader)
	if err != nil {
		return 0, err
	}
	r, err := call(client, ctx, &clusterpb.CoordinationLeaseRequest{Cluster: p.Cluster, Lease: lease})
	if err != nil {
		return 0, storeError(err)
	}
	return time.Duration(r.Nanoseconds), nil
}
