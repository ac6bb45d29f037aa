package direct

import (
	"context"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	"github.com/tidemarkdb/tidemark/rpc/client"
)

// callOptions returns the options of a call besides its request. It returns false if the call's
// metadata or options carry more, such as the user of the caller, which only gRPC transmits.
func (c *Calls) callOptions(ctx context.Context, options []grpc.CallOption) (_ client.CallOptions,
	ok bool) {
	o := client.CallOptions{Token: c.shownToken()}
	if !usual(options) {
		return o, false
	}
	md, _ := metadata.FromOutgoingContext(ctx)
	for key, values := range md {
		switch key {
		case rpctypes.MetadataClientAPIVersionKey:
		case rpctypes.MetadataRequireLeaderKey:
			o.RequireLeader = len(values) > 0 && values[0] == rpctypes.MetadataHasLeader
		default:
			return o, false
		}
	}
	return o, true
}

// usual reports whether options are only of the kinds that the etcd client gives to all calls, so
// that they have no meaning for this call. The client's interceptor has removed its own options and
// added one Peer option. A second Peer option comes from the caller.
func usual(options []grpc.CallOption) bool {
	peers := 0
	for _, o := range options {
		switch o.(type) {
		case grpc.StaticMethodCallOption, grpc.FailFastCallOption, grpc.MaxSendMsgSizeCallOption,
			grpc.MaxRecvMsgSizeCallOption, grpc.EmptyCallOption:
		case grpc.PeerCallOption:
			peers++
		default:
			return false
		}
	}
	return peers <= 1
}

// shownToken returns the token sent with calls, or "".
func (c *Calls) shownToken() string {
	if t := c.token.Load(); t != nil {
		return *t
	}
	return ""
}
