package coreclient

import (
	"context"
	"slices"

	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
)

// Learn stores the members of the core, if they are newer than the known ones. The addresses from
// Config.Core are still asked, after the members.
func (c *Client) Learn(m *clusterpb.CoreMembers) {
	if len(m.GetMembers()) == 0 {
		return
	}
	var members []string
	for _, x := range m.Members {
		if x.Address != "" && !slices.Contains(members, x.Address) {
			members = append(members, x.Address)
		}
	}
	all := members
	for _, seed := range c.seeds {
		if !slices.Contains(members, seed) {
			all = append(all[:len(all):len(all)], seed)
		}
	}
	c.mu.Lock()
	news := len(members) > 0 && (c.mu.members == 0 || m.Version > c.mu.version)
	if news {
		c.mu.core, c.mu.members, c.mu.version = all, len(members), m.Version
	}
	c.mu.Unlock()
	if news && c.config.Learned != nil {
		c.config.Learned()
	}
}

// list returns the addresses to ask. The slice is immutable.
func (c *Client) list() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.mu.core
}

// Core returns the addresses of the members as the core has reported them. Until the first report
// it returns the addresses from Config.Core.
func (c *Client) Core() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.mu.members > 0 {
		return slices.Clone(c.mu.core[:c.mu.members])
	}
	return slices.Clone(c.mu.core)
}

// Announce announces a server to the core, and learns the members of the core.
func (c *Client) Announce(
	ctx context.Context, r *clusterpb.AnnounceRequest,
) (*clusterpb.AnnounceResponse, error) {
	response, err := unary(ctx, c, r, clusterpb.NewCoreClient, clusterpb.CoreClient.Announce)
	c.Learn(response.GetMembers())
	return response, err
}
