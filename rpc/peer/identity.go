package peer

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"strconv"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/tidemarkdb/tidemark/rpc/wire"
)

// A peer's connection begins with a hello that names both hosts, and its gRPC streams carry the
// same names as metadata. If a message is meant for another cluster or another host (an address
// that was given to a new machine, an old configuration), the connection is refused before its
// first byte is read.
const (
	realmKey   = "tidemark-realm"
	clusterKey = "tidemark-cluster"
	fromKey    = "tidemark-from"
	toKey      = "tidemark-to"
)

// identityTo returns the identity for a connection to another host, and that host's address.
func (t *Transport) identityTo(host uint64) (id identity, address string, err error) {
	id = identity{t.config.Realm, t.config.Cluster(), t.config.Self, host}
	if id.cluster == 0 {
		return id, "", errors.New("the cluster's id is not known yet")
	}
	address, ok := t.config.Resolve(host)
	if !ok {
		return id, "", fmt.Errorf("the address of %s %d is not known", t.config.Realm, host)
	}
	return id, address, nil
}

// connect returns the gRPC connection to a host, and ctx with the identity for a stream to it.
func (t *Transport) connect(ctx context.Context,
	host uint64) (context.Context, *grpc.ClientConn, error) {
	id, address, err := t.identityTo(host)
	if err != nil {
		return ctx, nil, err
	}
	conn, err := t.config.Dialer.Conn(address)
	if err != nil {
		return ctx, nil, err
	}
	return metadata.AppendToOutgoingContext(ctx,
		realmKey, id.realm,
		clusterKey, strconv.FormatUint(id.cluster, 16),
		fromKey, strconv.FormatUint(id.from, 10),
		toKey, strconv.FormatUint(id.to, 10),
	), conn, nil
}

// identityOf reads the metadata of a stream. Missing or invalid fields are 0, or empty.
func identityOf(ctx context.Context) (id identity) {
	md, _ := metadata.FromIncomingContext(ctx)
	one := func(key string) string {
		if values := md.Get(key); len(values) == 1 {
			return values[0]
		}
		return ""
	}
	number := func(key string, base int) uint64 {
		n, err := strconv.ParseUint(one(key), base, 64)
		if err != nil {
			return 0
		}
		return n
	}
	return identity{one(realmKey), number(clusterKey, 16), number(fromKey, 10), number(toKey, 10)}
}

// accept returns an error if a connection with an identity is not for this transport. A nil
// transport stands for a realm that this server does not have.
func (t *Transport) accept(id identity) error {
	if t == nil {
		return status.Errorf(codes.NotFound,
			"the part %q of this server does not run, or not yet", id.realm)
	}
	for _, part := range []struct {
		key   string
		value uint64
	}{{clusterKey, id.cluster}, {fromKey, id.from}, {toKey, id.to}} {
		if part.value == 0 {
			return status.Errorf(codes.InvalidArgument, "stream without a valid %s", part.key)
		}
	}
	switch mine := t.config.Cluster(); {
	case mine == 0:
		return status.Error(codes.Unavailable, "this server does not belong to a cluster yet")
	case mine != id.cluster:
		return status.Errorf(codes.FailedPrecondition,
			"this server belongs to cluster %016x, not to %016x", mine, id.cluster)
	case id.to != t.config.Self:
		return status.Errorf(codes.FailedPrecondition,
			"this is %s %d, not %d", id.realm, t.config.Self, id.to)
	case id.from == t.config.Self:
		return status.Errorf(codes.FailedPrecondition,
			"%s %d is this server itself: two processes with one identity?", id.realm, id.from)
	}
	return nil
}

// identity names the two hosts of a connection, the cluster and the realm.
type identity struct {
	realm             string
	cluster, from, to uint64
}

// hello encodes the identity: three numbers of eight bytes, little endian, and the realm.
func (i identity) hello() []byte {
	b := []byte{wire.HelloPeer}
	for _, number := range []uint64{i.cluster, i.from, i.to} {
		b = binary.LittleEndian.AppendUint64(b, number)
	}
	return append(b, i.realm...)
}

// parseIdentity decodes the result of hello without its first byte.
func parseIdentity(b []byte) (identity, error) {
	const numbers = 3 * 8
	if len(b) < numbers {
		return identity{}, errors.New("a peer's hello is cut short")
	}
	number := func(n int) uint64 { return binary.LittleEndian.Uint64(b[8*n:]) }
	return identity{
		cluster: number(0), from: number(1), to: number(2), realm: string(b[numbers:]),
	}, nil
}
