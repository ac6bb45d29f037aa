package lockqueue

import (
	"bytes"
	"context"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/tidemarkdb/tidemark/placement/etcdapi/translate"
	"github.com/tidemarkdb/tidemark/placement/etcdapi/v3electionpb"
	"github.com/tidemarkdb/tidemark/placement/store/watch"
	"github.com/tidemarkdb/tidemark/range/keys"
)

type electionServer struct {
	v3electionpb.UnimplementedElectionServer
	*queue
}

var (
	errNoLeaderKey = status.Error(codes.Unknown, `"leader" field must be provided`)
	errNotLeader   = status.Error(codes.Unknown, "election: not leader")
	errNoneLeads   = status.Error(codes.Unknown, "election: no leader")
)

// Campaign implements v3electionpb.ElectionServer. A caller whose lease is in the queue already
// keeps its place, with the value of this call.
func (s *electionServer) Campaign(
	ctx context.Context, r *v3electionpb.CampaignRequest,
) (*v3electionpb.CampaignResponse, error) {
	lease, err := s.leaseOf(ctx, r.Lease)
	if err != nil {
		return nil, err
	}
	p, answer, err := s.enter(ctx, r.Name, r.Value, lease)
	if err != nil {
		return nil, err
	}
	if !answer.Succeeded {
		before := answer.Responses[0].GetResponseRange().Kvs[0].Value
		if !bytes.Equal(before, r.Value) {
			if _, err := s.proclaim(ctx, p, r.Value, lease); err != nil {
				s.leave(ctx, p)
				return nil, err
			}
		}
	}
	owner := answer.Responses[1].GetResponseRange().Kvs
	if len(owner) > 0 && owner[0].CreateRevision != p.revision {
		if _, err := s.wait(ctx, r.Name, p); err != nil {
			s.leave(ctx, p)
			return nil, err
		}
	}
	return &v3electionpb.CampaignResponse{Header: answer.Header, Leader: &v3electionpb.LeaderKey{
		Name: r.Name, Key: p.key, Rev: p.revision, Lease: lease}}, nil
}

// proclaim sets the value of a place, if the place still exists.
func (s *electionServer) proclaim(
	ctx context.Context, p place, value []byte, lease int64,
) (*pb.ResponseHeader, error) {
	answer, err := s.kv.Txn(ctx, &pb.TxnRequest{
		Compare: []*pb.Compare{created(p.key, p.revision)},
		Success: []*pb.RequestOp{putting(p.key, value, lease)}})
	switch {
	case err != nil:
		return nil, err
	case !answer.Succeeded:
		return nil, errNotLeader
	}
	return answer.Header, nil
}

func placeOf(leader *v3electionpb.LeaderKey) place {
	return place{key: leader.Key, revision: leader.Rev}
}

// Proclaim implements v3electionpb.ElectionServer.
func (s *electionServer) Proclaim(
	ctx context.Context, r *v3electionpb.ProclaimRequest,
) (*v3electionpb.ProclaimResponse, error) {
	if r.Leader == nil {
		return nil, errNoLeaderKey
	}
	lease, err := s.leaseOf(ctx, r.Leader.Lease)
	if err != nil {
		return nil, err
	}
	header, err := s.proclaim(ctx, placeOf(r.Leader), r.Value, lease)
	if err != nil {
		return nil, err
	}
	return &v3electionpb.ProclaimResponse{Header: header}, nil
}

// Resign implements v3electionpb.ElectionServer. It is no error if the caller does not lead.
func (s *electionServer) Resign(
	ctx context.Context, r *v3electionpb.ResignRequest,
) (*v3electionpb.ResignResponse, error) {
	if r.Leader == nil {
		return nil, errNoLeaderKey
	}
	answer, err := s.give(ctx, placeOf(r.Leader))
	if err != nil {
		return nil, err
	}
	return &v3electionpb.ResignResponse{Header: answer.Header}, nil
}

// Leader implements v3electionpb.ElectionServer.
func (s *electionServer) Leader(
	ctx context.Context, r *v3electionpb.LeaderRequest,
) (*v3electionpb.LeaderResponse, error) {
	answer, err := s.kv.Range(ctx, first(r.Name))
	switch {
	case err != nil:
		return nil, err
	case len(answer.Kvs) == 0:
		return nil, errNoneLeads
	}
	return &v3electionpb.LeaderResponse{Header: answer.Header, Kv: answer.Kvs[0]}, nil
}

// Observe implements v3electionpb.ElectionServer: it sends the leader, each of its values, and the
// leaders after it. Of leaders in quick succession some may be skipped.
func (s *electionServer) Observe(
	r *v3electionpb.LeaderRequest,
	stream grpc.ServerStreamingServer[v3electionpb.LeaderResponse],
) error {
	ctx := stream.Context()
	events, err := s.Store.NewWatchStream()
	if err != nil {
		return translate.Error(ctx, err)
	}
	defer events.Close()
	o := &observation{electionServer: s, events: events, stream: stream}
	for {
		answer, err := s.kv.Range(ctx, first(r.Name))
		if err != nil {
			return err
		}
		if len(answer.Kvs) == 0 {
			prefix, _ := below(r.Name)
			err = o.await(keys.PrefixSpan(prefix), answer.Header.Revision+1)
		} else {
			leader := &v3electionpb.LeaderResponse{Header: answer.Header, Kv: answer.Kvs[0]}
			err = o.follow(leader)
		}
		if err != nil {
			return translate.Error(ctx, err)
		}
	}
}

// observation is one call of Observe.
type observation struct {
	*electionServer
	events *watch.Stream
	stream grpc.ServerStreamingServer[v3electionpb.LeaderResponse]
	// watch is the id of the present watch.
	watch int64
}

// begin replaces the watch by one of these keys.
func (o *observation) begin(span keys.Span, from int64) error {
	_ = o.events.Remove(o.watch) // the watch may have ended by itself
	o.watch++
	_, err := o.events.Add(o.watch, watch.Options{Span: span, From: uint64(from)})
	return err
}

// await waits until a candidate leads.
func (o *observation) await(span keys.Span, from int64) error {
	if err := o.begin(span, from); err != nil {
		return err
	}
	for {
		taken, err := o.events.Next(o.stream.Context())
		if err != nil {
			return err
		}
		for _, d := range taken {
			for _, e := range d.Events {
				if d.ID == o.watch && !e.Deleted() {
					return o.follow(o.leader(e))
				}
			}
			if d.ID == o.watch && d.Compacted > 0 {
				return nil // look again
			}
		}
	}
}

func (o *observation) leader(e watch.Event) *v3electionpb.LeaderResponse {
	return &v3electionpb.LeaderResponse{Header: o.Header(e.KV.ModRevision),
		Kv: translate.FromKeyValue(e.KV)}
}

// follow sends a leader, and each value that it proclaims, until its key is gone.
func (o *observation) follow(leader *v3electionpb.LeaderResponse) error {
	if err := o.stream.Send(leader); err != nil {
		return err
	}
	// If the leader came from an event, it may have resigned since.
	if err := o.begin(keys.Point(leader.Kv.Key), leader.Header.Revision+1); err != nil {
		return err
	}
	for {
		taken, err := o.events.Next(o.stream.Context())
		if err != nil {
			return err
		}
		for _, d := range taken {
			if d.ID != o.watch {
				continue
			}
			for _, e := range d.Events {
				if e.Deleted() {
					return nil
				}
				if err := o.stream.Send(o.leader(e)); err != nil {
					return err
				}
			}
			if d.Compacted > 0 {
				return nil
			}
		}
	}
}
