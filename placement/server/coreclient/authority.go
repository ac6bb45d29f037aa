package coreclient

import (
	"context"
	"fmt"

	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
)

// Guarding shows or changes whether servers must follow users and roles.
func (c *Client) Guarding(
	ctx context.Context, r *clusterpb.GuardingRequest,
) (*clusterpb.GuardingResponse, error) {
	return unary(ctx, c, r, clusterpb.NewCoreClient, clusterpb.CoreClient.Guarding)
}

// FollowAuthority reads one stream of users and roles from one member. Each call uses another
// member. It waits for the first number from asks, and sends all numbers from asks. It returns when
// the stream or ctx ends, or with an error of take.
func (c *Client) FollowAuthority(
	ctx context.Context, asks <-chan uint64, take func(*clusterpb.AuthorityUpdate) error,
) error {
	list := c.list()
	if len(list) == 0 {
		return &UnavailableError{}
	}
	c.mu.Lock()
	address := list[c.mu.watch%len(list)]
	c.mu.watch++
	c.mu.Unlock()
	conn, err := c.config.Conn(address)
	if err != nil {
		return fmt.Errorf("follow users and roles at %s: %w", address, err)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(c.ctx, cancel)()
	stream, err := clusterpb.NewAuthorityClient(conn).Follow(ctx)
	if err != nil {
		return fmt.Errorf("follow users and roles at %s: %w", address, err)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for {
			select {
			case <-ctx.Done():
				return
			case number := <-asks:
				if stream.Send(&clusterpb.AuthorityAsk{Cluster: c.config.Cluster(),
					Number: number}) != nil {
					return // Recv returns the error
				}
			}
		}
	}()
	for err == nil {
		var u *clusterpb.AuthorityUpdate
		if u, err = stream.Recv(); err == nil {
			err = take(u)
		}
	}
	cancel()
	<-ended
	return fmt.Errorf("follow users and roles at %s: %w", address, err)
}
