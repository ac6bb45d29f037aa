package route

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/range/route/follow"
	"github.com/tidemarkdb/tidemark/range/route/identity"
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
	"github.com/tidemarkdb/tidemark/rpc/wire"
)

// adminTimeout is how long one server may take over a call of the Cluster service before another
// one is asked. Patient gives a call more time.
const adminTimeout = 3 * time.Second

type patience struct{}

// Patient returns the context of a call of the Cluster service over which each server may take that
// long, if that is more than usual.
func Patient(ctx context.Context, d time.Duration) context.Context {
	return context.WithValue(ctx, patience{}, d)
}

// clusterServers are the servers that answer calls of the Cluster service.
type clusterServers interface {
	// Servers are the addresses to ask.
	Servers() []string
	// Followed is the address of the server whose table stream is followed; "" if none is.
	Followed() string
	// Client makes calls at a server.
	Client(address string) (clusterpb.ClusterClient, error)
}

// Admin makes a call of the Cluster service against one server after another until one has
// answered, whatever the answer, or the context ends. f must be safe to repeat. Its gRPC errors are
// returned as they are; when no server could answer, the error is an *Error with the context's as
// its cause. It says what keeps the core from answering, with code NO_QUORUM if that is a quorum,
// or lists what each server said.
func (s *Sender) Admin(ctx context.Context,
	f func(ctx context.Context, c clusterpb.ClusterClient) error) error {
	said := make(map[string]error)
	var order []string
	var trouble follow.CoreTrouble
	for round := 0; ; round++ {
		for _, address := range s.adminServers() {
			if ctx.Err() != nil {
				break
			}
			err := s.adminOnce(ctx, address, f)
			if !identity.Passing(err) {
				return err
			}
			trouble.Note(err)
			if said[address] == nil {
				order = append(order, address)
			}
			if ctx.Err() == nil || said[address] == nil {
				said[address] = err
			}
		}
		if err := s.life.Pause(ctx, clusterBackoff.Delay(round, s.random())); err != nil {
			e := &Error{Cause: err, Attempts: round + 1}
			if trouble.Text != "" {
				e.Code, e.Message = trouble.Code(), trouble.Text
				return e
			}
			if len(order) == 0 {
				e.Message = "no server had been asked yet"
				return e
			}
			var parts []string
			for _, address := range order {
				parts = append(parts, fmt.Sprintf("%s: %s", address, wire.Reason(said[address])))
			}
			e.Message = "no server could answer: " + strings.Join(parts, "; ")
			return e
		}
	}
}

// AdminAt makes a call of the Cluster service at one server, once. Its gRPC errors are returned as
// they are.
func (s *Sender) AdminAt(ctx context.Context, address string,
	f func(ctx context.Context, c clusterpb.ClusterClient) error) error {
	return s.adminOnce(ctx, address, f)
}

func (s *Sender) adminOnce(ctx context.Context, address string,
	f func(context.Context, clusterpb.ClusterClient) error) error {
	client, err := s.servers.Client(address)
	if err != nil {
		return status.Error(codes.Unavailable, err.Error())
	}
	limit := adminTimeout
	if d, ok := ctx.Value(patience{}).(time.Duration); ok {
		limit = max(limit, d)
	}
	if deadline, ok := ctx.Deadline(); ok && !s.nodes.Dialer().Ready(address) {
		// It may be gone. Half of the time is for the others.
		limit = min(limit, time.Until(deadline)/2)
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	return s.identity.With(ctx, func(ctx context.Context) error { return f(ctx, client) })
}

// adminServers puts those first to which there are connections, and of these the one whose table
// stream is followed: it answers.
func (s *Sender) adminServers() []string {
	servers, followed := s.servers.Servers(), s.servers.Followed()
	rank := make(map[string]int, len(servers))
	for _, address := range servers {
		switch {
		case !s.nodes.Dialer().Ready(address):
			rank[address] = 2
		case address != followed:
			rank[address] = 1
		}
	}
	slices.SortStableFunc(servers, func(a, b string) int { return cmp.Compare(rank[a], rank[b]) })
	return servers
}

// AwaitKeyspace returns a keyspace that the core says exists, once the table shows all of its
// partitions. It waits for the table for some seconds, or until ctx ends: the table may lag behind.
func (s *Sender) AwaitKeyspace(ctx context.Context, id keys.KeyspaceID) (*Keyspace, error) {
	ctx, cancel := context.WithTimeout(ctx, follow.TableTimeout)
	defer cancel()
	for t := s.known.Table(); t.KeyspaceByID(id) == nil; t = s.known.Table() {
		s.following.Reload()
		select {
		case <-t.Changed():
		case <-ctx.Done():
			return nil, &Error{Cause: ErrNoKeyspace, Message: fmt.Sprintf(
				"the partition table shows no keyspace of the id %d", id)}
		case <-s.life.Done():
			return nil, &Error{Cause: ErrClosed}
		}
	}
	if _, err := s.PartitionsOf(ctx, id, keys.Span{}); err != nil {
		return nil, err
	}
	if k := s.known.Table().KeyspaceByID(id); k != nil {
		return k, nil
	}
	return nil, &Error{Cause: ErrNoKeyspace}
}

// PartitionsOf returns the partitions of a keyspace that hold keys of the span, waiting for the
// table to show all of them.
func (s *Sender) PartitionsOf(ctx context.Context, id keys.KeyspaceID,
	span keys.Span) ([]*Partition, error) {
	for {
		t := s.known.Table()
		k := t.KeyspaceByID(id)
		if k == nil {
			return nil, &Error{Cause: ErrNoKeyspace}
		}
		if k.Complete() {
			return k.Overlapping(span), nil
		}
		s.following.Subscribe(k)
		timer := time.NewTimer(follow.HolePatience(k))
		select {
		case <-t.Changed():
		case <-timer.C:
			s.following.Reload()
		case <-ctx.Done():
			timer.Stop()
			return nil, &Error{Cause: ctx.Err(),
				Message: fmt.Sprintf("waiting for the partition table to show all partitions of "+
					"keyspace %q (%d so far)", k.Info.Name, k.Len())}
		case <-s.life.Done():
			timer.Stop()
			return nil, &Error{Cause: ErrClosed}
		}
		timer.Stop()
	}
}
