package rpc

import (
	"context"
	"fmt"
	"strconv"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
)

// A peer's stream begins with metadata that says who speaks to whom. A message that was meant for another cluster, or another
// host (an address that was given to a new machine, an old configuration), is refused before its first byte is read.
const (
	realmKey   = "tidemark-realm"
	clusterKey = "tidemark-cluster"
	fromKey    = "tidemark-from"
	toKey      = "tidemark-to"
)

// connect gives the connection to a host, and ctx with the identity for a stream to it.
func (t *PeerTransport) connect(ctx context.Context, host uint64) (context.Context, *grpc.ClientConn, error) {
	cluster := t.config.Cluster()
	if cluster == 0 {
		return ctx, nil, fmt.Errorf("the cluster's id is not known yet")
	}
	addr, ok := t.config.Resolve(host)
	if !ok {
		return ctx, nil, fmt.Errorf("the address of %s %d is not known", t.config.Realm, host)
	}
	conn, err := t.config.Dialer.Conn(addr)
	if err != nil {
		return ctx, nil, err
	}
	return metadata.AppendToOutgoingContext(ctx,
		realmKey, t.config.Realm,
		clusterKey, strconv.FormatUint(cluster, 16),
		fromKey, strconv.FormatUint(t.config.Self, 10),
		toKey, strconv.FormatUint(host, 10),
	), conn, nil
}

// accept checks a stream's metadata, and gives the transport it is for and the host that sent it.
func accept(ctx context.Context, realms map[string]*PeerTransport) (*PeerTransport, uint64, error) {
	md, _ := metadata.FromIncomingContext(ctx)
	one := func(key string) string {
		if values := md.Get(key); len(values) == 1 {
			return values[0]
		}
		return ""
	}
	realm := one(realmKey)
	t := realms[realm]
	if t == nil {
		return nil, 0, status.Errorf(codes.NotFound, "the part %q of this server does not run, or not yet", realm)
	}
	cluster, err := strconv.ParseUint(one(clusterKey), 16, 64)
	if err != nil || cluster == 0 {
		return nil, 0, status.Errorf(codes.InvalidArgument, "stream without a valid %s", clusterKey)
	}
	from, err := strconv.ParseUint(one(fromKey), 10, 64)
	if err != nil || from == 0 {
		return nil, 0, status.Errorf(codes.InvalidArgument, "stream without a valid %s", fromKey)
	}
	to, err := strconv.ParseUint(one(toKey), 10, 64)
	if err != nil || to == 0 {
		return nil, 0, status.Errorf(codes.InvalidArgument, "stream without a valid %s", toKey)
	}
	switch mine := t.config.Cluster(); {
	case mine == 0:
		return nil, 0, status.Error(codes.Unavailable, "this server does not belong to a cluster yet")
	case mine != cluster:
		return nil, 0, status.Errorf(codes.FailedPrecondition, "this server belongs to cluster %016x, not to %016x", mine, cluster)
	case to != t.config.Self:
		return nil, 0, status.Errorf(codes.FailedPrecondition, "this is %s %d, not %d", realm, t.config.Self, to)
	case from == t.config.Self:
		return nil, 0, status.Errorf(codes.FailedPrecondition, "%s %d is this server itself: two processes with one identity?", realm, from)
	}
	return t, from, nil
}
