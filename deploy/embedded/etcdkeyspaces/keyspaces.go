package etcdkeyspaces

import (
	"context"
	"fmt"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/tidemarkdb/tidemark/placement/etcdapi/users"
	"github.com/tidemarkdb/tidemark/placement/server/coreclient"
	"github.com/tidemarkdb/tidemark/rpc/backoff"
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
)

const (
	// DefaultTimeout limits how long the enabling of authentication waits for other servers. A member
	// of the core without a data node announces itself every 2 s.
	DefaultTimeout = 6 * time.Second
	// pollInterval is the interval at which the core is asked which servers are missing.
	pollInterval = 50 * time.Millisecond
)

// Keyspaces implements users.Keyspaces with the core's leader.
type Keyspaces struct {
	Core *coreclient.Client
	// Cluster is the cluster's id.
	Cluster uint64
	// Timeout limits how long the enabling of authentication waits for other servers.
	Timeout time.Duration
}

var _ users.Keyspaces = Keyspaces{}

// ID implements users.Keyspaces.
func (k Keyspaces) ID(ctx context.Context, name string) (uint64, error) {
	names, err := k.Names(ctx)
	if err != nil {
		return 0, err
	}
	for id, n := range names {
		if n == name {
			return id, nil
		}
	}
	return 0, status.Errorf(codes.NotFound, "there is no keyspace %q", name)
}

// Names implements users.Keyspaces.
func (k Keyspaces) Names(ctx context.Context) (map[uint64]string, error) {
	r, err := k.Core.ListKeyspaces(ctx, &clusterpb.ListKeyspacesRequest{})
	if err != nil {
		return nil, unavailable(err)
	}
	names := map[uint64]string{}
	for _, info := range r.Keyspaces {
		if ks := info.Keyspace; ks.State != clusterpb.KeyspaceState_DROPPING {
			names[uint64(ks.Id)] = ks.Name
		}
	}
	return names, nil
}

func unavailable(err error) error {
	if _, is := status.FromError(err); is {
		return err
	}
	return status.Error(codes.Unavailable, err.Error())
}

func (k Keyspaces) guarding(
	ctx context.Context, do clusterpb.GuardingRequest_Do, version uint64,
) (*clusterpb.GuardingResponse, error) {
	r, err := k.Core.Guarding(ctx, &clusterpb.GuardingRequest{
		Cluster: k.Cluster, Do: do, Version: version})
	if err != nil {
		return nil, unavailable(err)
	}
	return r, nil
}

// Guarding implements users.Keyspaces.
func (k Keyspaces) Guarding(ctx context.Context) (uint64, bool, error) {
	r, err := k.guarding(ctx, clusterpb.GuardingRequest_SHOW, 0)
	return r.GetGuard().GetVersion(), r.GetGuard().GetOn(), err
}

// Release implements users.Keyspaces.
func (k Keyspaces) Release(ctx context.Context, version uint64) (ending uint64, err error) {
	r, err := k.guarding(ctx, clusterpb.GuardingRequest_END, version)
	if r.GetGuard().GetEnding() {
		ending = r.Guard.Version
	}
	return ending, err
}

// Guard implements users.Keyspaces. It first checks whether servers can prove to be servers: a
// server that cannot would be disconnected from the servers that follow users and roles.
func (k Keyspaces) Guard(ctx context.Context, again bool) (version uint64, err error) {
	ctx, cancel := context.WithTimeout(ctx, k.Timeout)
	defer cancel()
	r, err := k.await(ctx, (*clusterpb.GuardingResponse).GetOpen)
	if err != nil {
		return 0, err
	}
	if !r.Guard.On || r.Guard.Ending || !again {
		if r, err = k.guarding(ctx, clusterpb.GuardingRequest_BEGIN, 0); err != nil {
			return 0, err
		}
		version = r.Guard.Version
	}
	r, err = k.await(ctx, func(r *clusterpb.GuardingResponse) []*clusterpb.UnguardedServer {
		return append(r.Open, r.Behind...)
	})
	if err != nil {
		return version, err
	}
	if !r.Guard.On || r.Guard.Ending {
		return version, status.Error(codes.Unavailable,
			"authentication was disabled while it was being enabled; try again")
	}
	return r.Guard.Version, nil
}

// await waits until no server prevents the change.
func (k Keyspaces) await(
	ctx context.Context, of func(*clusterpb.GuardingResponse) []*clusterpb.UnguardedServer,
) (*clusterpb.GuardingResponse, error) {
	for {
		r, err := k.guarding(ctx, clusterpb.GuardingRequest_SHOW, 0)
		if err != nil {
			return nil, err
		}
		inTheWay := of(r)
		if len(inTheWay) == 0 {
			return r, nil
		}
		if backoff.Sleep(ctx, pollInterval) != nil {
			return nil, cannotEnable(inTheWay)
		}
	}
}

// maxNamed bounds the servers that an error names.
const maxNamed = 10

func cannotEnable(servers []*clusterpb.UnguardedServer) error {
	var texts []string
	for _, x := range servers {
		text := x.Address + ": " + x.Reason
		if x.Node != 0 {
			text = fmt.Sprintf("node %d at %s", x.Node, text)
		}
		texts = append(texts, text)
	}
	if n := len(texts); n > maxNamed {
		texts = append(texts[:maxNamed], fmt.Sprintf("and %d more", n-maxNamed))
	}
	return status.Error(codes.FailedPrecondition, "authentication is not enabled, because it would "+
		"not hold on all servers: "+strings.Join(texts, "; "))
}
