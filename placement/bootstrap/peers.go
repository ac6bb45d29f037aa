package bootstrap

import (
	"context"

	"google.golang.org/grpc"

	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
)

// GRPCPeers reaches peers over connections that the caller keeps; client.Dialer.Conn fits.
type GRPCPeers struct {
	Conn func(address string) (*grpc.ClientConn, error)
}

// Hello implements Peers.
func (p GRPCPeers) Hello(
	ctx context.Context, address string, h *clusterpb.BootstrapHello,
) (*clusterpb.BootstrapHello, error) {
	conn, err := p.Conn(address)
	if err != nil {
		return nil, err
	}
	return clusterpb.NewBootstrapClient(conn).Hello(ctx, h)
}

// Accept implements Peers.
func (p GRPCPeers) Accept(
	ctx context.Context, address string, f *clusterpb.Founding,
) (*clusterpb.BootstrapHello, error) {
	conn, err := p.Conn(address)
	if err != nil {
		return nil, err
	}
	return clusterpb.NewBootstrapClient(conn).Accept(ctx, f)
}
